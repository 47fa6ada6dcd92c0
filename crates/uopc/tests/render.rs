//! C text of programs, and what it computes.

use std::fs;
use std::path::Path;

use uopc::backend::c::render::render;
use uopc::ir::form::Program;
use uopc::ir::{parse, verify};

fn program(file: &str) -> (Program, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/render_c").join(file);
    let text = fs::read_to_string(path).unwrap();
    let (before, after) = text.split_once("; ----\n").unwrap();
    let parsed = parse::parse(before, file).unwrap();
    let name = parsed.name.unwrap();
    (verify::program(name, parsed.roots[0].clone()).unwrap(), after.to_string())
}

#[test]
fn goldens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/render_c");
    for item in fs::read_dir(folder).unwrap() {
        let name = item.unwrap().file_name().into_string().unwrap();
        let (program, text) = program(&name);
        assert_eq!(render(&program), text, "{name}");
    }
}
