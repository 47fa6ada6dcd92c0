//! The search over layouts: it changes no bit, it is bounded, and it is done once for a cache folder.

use std::path::Path;

use tempfile::TempDir;
use uopc::compile::{Engine, RealizeOptions, Stats, lower};
use uopc::debug::{DeviceChoice, Settings};
use uopc::machine::Machine;
use uopc::pass::schedule::choice::{Choice, choices};
use uopc::pass::schedule::{schedule, schedule_as};
use uopc::{Result, Tensor};

fn settings(search: usize, cache: Option<&Path>) -> Settings {
    Settings {
        search,
        device: DeviceChoice::C,
        cache_dir: cache.map(Path::to_path_buf),
        threads: Some(2),
        ..Settings::default()
    }
}

/// The bits of a value, and what the engine did for it.
fn value(t: &Tensor, settings: Settings) -> (Vec<u8>, Stats) {
    let engine = Engine::new(settings).unwrap();
    let roots = [t.uop().clone()];
    let got = engine.realize(&roots, &RealizeOptions::default()).unwrap();
    t.uop().clear_home();
    (got.outputs[0].as_bytes().to_vec(), engine.stats())
}

fn numbers(shape: &[usize]) -> Tensor {
    let t = Tensor::uniform(shape, -1.0, 1.0).unwrap();
    t.realize().unwrap();
    t
}

/// What is searched here: a product with more around it, rows, a sum of columns, elements.
fn workloads() -> Result<Vec<(&'static str, Tensor)>> {
    let (a, b) = (numbers(&[70, 90]), numbers(&[90, 50]));
    let wide = numbers(&[200, 260]);
    let (image, filter) = (numbers(&[16, 3, 20, 20]), numbers(&[8, 3, 18, 18]));
    Ok(vec![
        ("product", a.matmul(&b)?.add(1.0)?.relu()?),
        (
            "convolution by a filter as large",
            image
                .shrink([(0, 16), (0, 3), (1, 19), (1, 19)])?
                .reshape([16, 1, 3, 18, 18])?
                .mul(&filter.reshape([1, 8, 3, 18, 18])?)?
                .sum([2, 3, 4])?,
        ),
        ("softmax", wide.softmax(1)?),
        ("columns", wide.sum(0)?),
        ("elements", wide.exp()?.mul(2.0)?),
    ])
}

#[test]
fn a_search_changes_no_bit_and_tries_no_more_than_it_may() {
    for (name, t) in workloads().unwrap() {
        let (plain, stats) = value(&t, settings(0, None));
        assert_eq!((stats.searched, stats.candidates), (0, 0), "{name}");
        let (searched, stats) = value(&t, settings(3, None));
        assert!(plain == searched, "{name}");
        let range = 2 * stats.searched..=3 * stats.searched;
        assert!(range.contains(&stats.candidates), "{name}: {stats:?}");
    }
    // The heaviest of them is worth it.
    let (a, b) = (numbers(&[70, 90]), numbers(&[90, 50]));
    let (_, stats) = value(&a.matmul(&b).unwrap(), settings(4, None));
    assert_eq!(stats.searched, 1);
}

#[test]
fn a_second_engine_on_the_same_folder_times_nothing() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (numbers(&[70, 90]), numbers(&[90, 50]));
    let product = a.matmul(&b).unwrap();
    let (first, stats) = value(&product, settings(3, Some(folder.path())));
    assert_eq!(stats.searched, 1);
    let (second, stats) = value(&product, settings(3, Some(folder.path())));
    assert!(first == second);
    assert_eq!((stats.searched, stats.candidates), (0, 0));
    assert_eq!(stats.compiler_calls, 0);
    // More candidates are another question.
    let (_, stats) = value(&product, settings(4, Some(folder.path())));
    assert_eq!(stats.searched, 1);
}

#[test]
fn an_engine_remembers_without_a_folder() {
    let engine = Engine::new(settings(3, None)).unwrap();
    let (a, b) = (numbers(&[70, 90]), numbers(&[90, 50]));
    let product = a.matmul(&b).unwrap();
    for _ in 0..2 {
        engine.forget_plans();
        let roots = [product.uop().clone()];
        engine.realize(&roots, &RealizeOptions::default()).unwrap();
        product.uop().clear_home();
    }
    let stats = engine.stats();
    assert_eq!((stats.plan_misses, stats.searched), (2, 1));
}

#[test]
fn the_interpreter_and_small_kernels_are_not_searched() {
    let (a, b) = (numbers(&[70, 90]), numbers(&[90, 50]));
    let product = a.matmul(&b).unwrap();
    let interp = Settings {
        device: DeviceChoice::Interp,
        ..settings(8, None)
    };
    assert_eq!(value(&product, interp).1.searched, 0);
    let small = a.add(1.0).unwrap();
    assert_eq!(value(&small, settings(8, None)).1.searched, 0);
    // One layout is none to choose from.
    assert_eq!(value(&product, settings(1, None)).1.searched, 0);
}

#[test]
fn choices_begin_with_the_default_and_differ() {
    for (name, t) in workloads().unwrap() {
        for machine in [Machine::avx512(), Machine::avx2(), Machine::portable()] {
            let lowered = lower(&[t.uop().clone()], None, &Settings::default()).unwrap();
            for launch in &lowered.launches {
                let listed = choices(&launch.plain, &machine, 6).unwrap();
                assert!((1..=6).contains(&listed.len()), "{name}");
                assert_eq!(listed[0].0, Choice::default());
                let default = schedule(&launch.plain, &machine).unwrap();
                assert_eq!(listed[0].1.sink(), default.sink(), "{name}");
                for (k, (choice, layout)) in listed.iter().enumerate() {
                    let again = Choice::parse(&choice.to_string());
                    assert_eq!(again, Some(*choice), "{name}: {choice}");
                    let made = schedule_as(&launch.plain, &machine, choice).unwrap();
                    assert_eq!(made.sink(), layout.sink(), "{name}: {choice}");
                    let same =
                        |(_, other): &(_, uopc::ir::form::LoopGraph)| other.sink() == layout.sink();
                    assert!(!listed[..k].iter().any(same), "{name}: {choice}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_choice_is_not_read_as_one() {
    for text in [
        "",
        "fast",
        "tile=8",
        "tile=0x1",
        "tile=8x999",
        "pieces=9",
        "abreast=3",
        "vectors=all",
        "default pieces=1",
    ] {
        assert_eq!(Choice::parse(text), None, "{text}");
    }
    let choice = Choice::parse("tile=8x2:turned pieces=-1 abreast=8 vectors=own").unwrap();
    let tile = choice.tile.unwrap();
    assert_eq!((tile.rows, tile.vectors, tile.turned), (8, 2, true));
    assert_eq!((choice.pieces, choice.abreast), (-1, Some(8)));
    assert_eq!(choice.shared, Some(false));
}
