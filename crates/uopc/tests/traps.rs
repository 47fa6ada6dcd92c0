//! The page of traps names tests that exist.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A packaged crate has no docs folder beside it.
    let Ok(page) = fs::read_to_string(root.join("../../docs/reference/traps.md")) else {
        println!("skipped: docs/reference/traps.md is not part of a package");
        return;
    };
    let mut checked = 0;
    for named in page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains("::"))
    {
        let (file, name) = named.split_once("::").unwrap();
        if file == "file" {
            continue;
        }
        let source = fs::read_to_string(root.join(format!("tests/{file}.rs"))).unwrap();
        assert!(
            source.contains(&format!("fn {name}()")),
            "{named} is not there"
        );
        checked += 1;
    }
    assert!(checked > 50, "only {checked} tests are named");
}
