//! The example of README.md: it runs, and it is the one that stands there.

// ---- from here on as in README.md ----
use uopc::{Result, Tensor};

fn main() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3])?.requires_grad()?;
    let y = Tensor::from_slice(&[10.0f32, 20.0, 30.0], [3])?;
    let loss = (&x * &y + &x).sum(..)?;
    loss.backward(&[&x])?;
    let gradient = x.grad().expect("backward left one");
    println!("{} {gradient}", loss.item()?);
    assert_eq!(gradient.to_vec::<f32>()?, [11.0, 21.0, 31.0]);
    Ok(())
}
// ---- up to here ----

#[test]
fn the_example_runs() {
    main().unwrap();
}

#[test]
fn it_is_the_one_in_the_readme() {
    let own = include_str!("readme.rs");
    let marker = |line: &str| line.starts_with("// ---- ");
    let lines: Vec<&str> = own
        .lines()
        .skip_while(|l| !marker(l))
        .skip(1)
        .take_while(|l| !marker(l))
        .collect();
    assert_eq!(lines.len(), 12);
    let readme = include_str!("../../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{}\n```", lines.join("\n"))),
        "they differ"
    );
}
