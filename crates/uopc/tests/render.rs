//! Programs as C: the text, translation units, and what compiled kernels compute.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use uopc::backend::c::render::render;
use uopc::backend::c::toolchain::Level;
use uopc::backend::c::unit::{render_unit, render_units};
use uopc::debug::search_path;
use uopc::ir::form::Program;
use uopc::ir::{UOp, parse, verify};
use uopc::runtime::c_device::CDevice;
use uopc::runtime::cache::ObjectCache;
use uopc::runtime::team;
use uopc::runtime::{Device, Element, Executable, Memory, Place, Pool, Storage};

fn parts(file: &str) -> (String, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/render_c");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let (program, c) = text.split_once("; ----\n").unwrap();
    (program.to_string(), c.to_string())
}

fn program(file: &str) -> Program {
    let parsed = parse::parse(&parts(file).0, file).unwrap();
    verify::program(parsed.name.unwrap(), parsed.roots[0].clone()).unwrap()
}

fn renamed(name: &str, program: &Program) -> Program {
    verify::program(name, program.sink().clone()).unwrap()
}

// ---- text ----

#[test]
fn equal_kernels_are_one_function() {
    let add_one = program("add_one.uir");
    let again = renamed("add_one_again", &add_one);
    let chain = program("chain.uir");
    let unit = render_unit(&[&add_one, &again, &chain]);
    assert_eq!(unit.entry_of, [0, 0, 1]);
    assert_eq!(unit.entries, ["uopc_entry_0", "uopc_entry_1"]);
    assert_eq!(unit.text.matches("void add_one(").count(), 1);
    assert!(!unit.text.contains("add_one_again"));
}

#[test]
fn different_kernels_of_one_name_are_told_apart() {
    let (a, b) = (program("add_one.uir"), program("chain.uir"));
    let unit = render_unit(&[&renamed("k", &a), &renamed("k", &b)]);
    assert_eq!(unit.entry_of, [0, 1]);
    assert!(
        unit.text
            .contains("void k(float* restrict data0, float* restrict data1) {")
    );
    assert!(unit.text.contains("void k_1(double* restrict data0,"));
}

#[test]
fn names_that_c_does_not_take_are_changed() {
    let p = program("add_one.uir");
    for (name, expected) in [
        ("loss of step 1", "void loss_of_step_1("),
        ("2fast", "void kernel_2fast("),
        ("double", "void kernel_double("),
        ("memcpy", "void kernel_memcpy("),
        ("größe", "void gr__e("),
        ("", "void kernel_("),
        ("k_part0", "void k_part0_("),
    ] {
        let unit = render_unit(&[&renamed(name, &p)]);
        assert!(unit.text.contains(expected), "{name}: {}", unit.text);
    }
    // A helper's name is taken where the helper is used.
    let p = renamed("max_f32", &program("extremes.uir"));
    assert!(render_unit(&[&p]).text.contains("void kernel_max_f32("));
}

#[test]
fn a_unit_is_the_team_its_kernels_and_their_entries() {
    let unit = render_unit(&[&program("add_one.uir")]);
    let expected = format!(
        "struct uopc_team {{\n    void (*run)(struct uopc_team* team, \
         void (*part)(void* context, long i, long worker), void* context, long n);\n}};\n\n\
         {}\n#define EXPORT __attribute__((visibility(\"default\")))\n\
         EXPORT void uopc_entry_0(void** args, struct uopc_team* team) \
         {{ add_one(args[0], args[1]); }}\n",
        parts("add_one.uir")
            .1
            .replace("void add_one", "static void add_one")
    );
    assert_eq!(unit.text, expected);
}

/// Some programs of about 5 KB each, the last as the first.
fn long_programs(n: usize) -> Vec<Program> {
    let made = (0..n).map(|k| {
        let text = parts("add_one.uir").0;
        let parsed = parse::parse(&text, "add_one").unwrap();
        let sink = &parsed.roots[0];
        let mut list: Vec<UOp> = sink.src()[..2].to_vec();
        let mut value = list[1].clone();
        for id in 2..120 + 10 * (k % (n - 1)) as u32 {
            let sum = value.add(&value).unwrap();
            value = UOp::new(uopc::ir::Op::Let { id }, [sum].as_slice()).unwrap();
            list.push(value.clone());
        }
        list.extend(sink.src()[2..].iter().cloned());
        verify::program("long", UOp::sink(&list)).unwrap()
    });
    made.collect()
}

#[test]
fn a_long_plan_is_several_units() {
    let programs = long_programs(9);
    let programs: Vec<&Program> = programs.iter().collect();
    let whole = render_unit(&programs);
    assert_eq!(whole.entries.len(), 8);
    for most in 0..9 {
        let units = render_units(&programs, most);
        let sizes: Vec<usize> = units.iter().map(|u| u.text.len()).collect();
        // 8 KB are worth a file, a function counting as 256 bytes more.
        let files = (whole.text.len() + 8 * 256) / 8192;
        assert_eq!(units.len(), most.clamp(1, files), "{sizes:?}");
        let [least, most] = [sizes.iter().min(), sizes.iter().max()].map(|s| *s.unwrap());
        assert!(most - least < 6000, "{sizes:?}");
        let mut all: Vec<usize> = units.iter().flat_map(|u| u.programs.clone()).collect();
        all.sort();
        assert_eq!(all, Vec::from_iter(0..9));
        let entries: usize = units.iter().map(|u| u.entries.len()).sum();
        assert_eq!(entries, 8, "each kernel is in one file");
        for unit in &units {
            let chosen: Vec<&Program> = unit.programs.iter().map(|&p| programs[p]).collect();
            assert_eq!(unit.text, render_unit(&chosen).text);
            assert_eq!(unit.entry_of.len(), unit.programs.len());
            assert_eq!(unit.arguments.len(), unit.programs.len());
        }
    }
    assert!(render_units(&[], 4).is_empty());
    assert_eq!(render_units(&programs[..2], 4).len(), 1);
}

#[test]
fn vector_code_is_compiled_apart_from_scalar_loops_if_it_pays() {
    let vector = program("vector_tail.uir");
    assert_eq!(render_unit(&[&vector]).level, Level::Explicit);
    let scalar = scalar_loop(4097);
    let units = render_units(&[&vector, &scalar], 4);
    assert_eq!(units.len(), 1, "each is short");
    assert_eq!(units[0].level, Level::Automatic);
    let long: Vec<Program> = (3000..3030)
        .map(|n| renamed("k", &scalar_loop(n)))
        .collect();
    let long = long.iter().chain([&scalar]);
    let units = render_units(&long.collect::<Vec<_>>(), 1);
    let levels: Vec<Level> = units.iter().map(|unit| unit.level).collect();
    assert_eq!(levels, [Level::Explicit, Level::Automatic]);
}

#[test]
fn scalar_loops_of_few_rounds_gain_nothing_from_vectors() {
    for (rounds, expected) in [(4096, Level::Explicit), (4097, Level::Automatic)] {
        assert_eq!(render_unit(&[&scalar_loop(rounds)]).level, expected);
    }
}

/// The scalar loop of that many rounds that adds one.
fn scalar_loop(rounds: usize) -> Program {
    let text = parts("add_one.uir").0;
    let text = text.replace("param 3 ", &format!("param {rounds} "));
    let text = text.replace("range 3 ", &format!("range {rounds} "));
    let parsed = parse::parse(&text, "add_one").unwrap();
    let program = verify::program("scalar", parsed.roots[0].clone()).unwrap();
    assert!(
        render_unit(&[&program])
            .text
            .contains(&format!("< {rounds};"))
    );
    program
}

#[test]
fn equal_programs_are_rendered_once_and_counted_once() {
    let (a, b) = (scalar_loop(100), scalar_loop(200));
    let units = render_units(&[&a, &b, &a, &renamed("again", &a)], 1);
    assert_eq!(units.len(), 1);
    assert_eq!(units[0].programs, [0, 1, 2, 3]);
    assert_eq!(units[0].entry_of, [0, 1, 0, 0]);
    assert_eq!(units[0].arguments[0], units[0].arguments[3]);
}

#[test]
fn rendering_shared_values_is_linear() {
    // Each level reads the one before twice; the names of LETs keep the text short.
    let text = parts("add_one.uir").0;
    let parsed = parse::parse(&text, "add_one").unwrap();
    let sink = &parsed.roots[0];
    let mut list: Vec<UOp> = sink.src()[..2].to_vec();
    let mut value = list[1].clone();
    for id in 2..2000 {
        let sum = value.add(&value).unwrap();
        value = UOp::new(uopc::ir::Op::Let { id }, [sum].as_slice()).unwrap();
        list.push(value.clone());
    }
    let store = &sink.src()[2];
    let src = [store.src()[0].clone(), store.src()[1].clone(), value];
    list.push(store.with_src(&src).unwrap());
    list.push(sink.src()[3].clone());
    let program = verify::program("doubling", UOp::sink(&list)).unwrap();
    let text = render(&program);
    assert_eq!(text.lines().count(), 2000 + 4);
    assert!(text.contains("    float alu1999 = (alu1998+alu1998);\n"));
}

// ---- values ----

struct Bench {
    device: CDevice,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = TempDir::new().unwrap();
        let cache = ObjectCache::open(&folder.path().join("cache"), 1 << 24);
        let device = CDevice::new(None, &search_path(), cache, Pool::new(1 << 24));
        let device = device.unwrap_or_else(|why| panic!("these tests need a C compiler: {why}"));
        Bench {
            device,
            _folder: folder,
        }
    }

    fn compile(&self, files: &[&str]) -> Box<dyn Executable> {
        let programs: Vec<Program> = files.iter().map(|f| program(f)).collect();
        let programs: Vec<&Program> = programs.iter().collect();
        self.device.compile_programs(&programs).unwrap()
    }

    fn memory<T: Element>(&self, values: &[T]) -> Memory {
        let mut memory = self.device.allocate(size_of_val(values)).unwrap();
        memory.write(values);
        memory
    }
}

#[test]
fn compiled_kernels_compute() {
    let bench = Bench::new();
    let files = [
        "add_one.uir",
        "gated_load.uir",
        "lanes.uir",
        "chain.uir",
        "takeover.uir",
        "division.uir",
        "conditional.uir",
        "scratch.uir",
    ];
    let unit = bench.compile(&files);
    let run = |file: &str, args: &[Place], scratch: Option<&Memory>| {
        let launch = files.iter().position(|f| *f == file).unwrap();
        unit.launch(launch, args, scratch).unwrap();
    };
    let x = Storage::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();

    let y = bench.memory(&[0.0f32; 3]);
    run("add_one.uir", &[Place::Shared(&x), Place::whole(&y)], None);
    assert_eq!(y.share().to_vec::<f32>(), [2.0, 3.0, 4.0]);

    let y = bench.memory(&[9.0f32; 5]);
    run(
        "gated_load.uir",
        &[Place::Shared(&x), Place::whole(&y)],
        None,
    );
    assert_eq!(y.share().to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 0.0]);

    let values: Vec<f32> = (0..16).map(|k| k as f32).collect();
    let x16 = Storage::from_slice(&values).unwrap();
    let y = bench.memory(&[0.0f32; 2]);
    run("lanes.uir", &[Place::Shared(&x16), Place::whole(&y)], None);
    assert_eq!(y.share().to_vec::<f32>(), [0.0 + 4.0, 8.0 + 12.0]);

    // Rounded once: (1+e)(1-e) - 1 is -e*e, where a rounded product would leave 0.
    let e = (-52f64).exp2();
    let a = Storage::from_slice(&[-1.0, 1.0 + e, 0.0, 0.0]).unwrap();
    let b = Storage::from_slice(&[1.0, 1.0 - e, 0.0, 0.0]).unwrap();
    let y = bench.memory(&[0.0f64]);
    let args = [Place::Shared(&a), Place::Shared(&b), Place::whole(&y)];
    run("chain.uir", &args, None);
    assert_eq!(y.share().to_vec::<f64>(), [-e * e]);

    let y = bench.memory(&[1.0f32, 2.0, 3.0, 4.0]);
    let d = Storage::from_slice(&[10.0f32, 20.0, 30.0, 40.0]).unwrap();
    run("takeover.uir", &[Place::whole(&y), Place::Shared(&d)], None);
    assert_eq!(y.share().to_vec::<f32>(), [11.0, 22.0, 33.0, 44.0]);

    let d = Storage::from_slice(&[-9i32; 12]).unwrap();
    let y = bench.memory(&[0i32; 36]);
    run("division.uir", &[Place::Shared(&d), Place::whole(&y)], None);
    // -9 // 4 = -3 and -9 % -3 = 0.
    let expected: Vec<i32> = (0..12).flat_map(|k| [k / 4, k % 4, -3]).collect();
    assert_eq!(y.share().to_vec::<i32>(), expected);

    let h = Storage::from_slice(&[half::f16::from_f32(0.5); 8]).unwrap();
    let y = bench.memory(&[half::f16::from_f32(7.0); 8]);
    run(
        "conditional.uir",
        &[Place::Shared(&h), Place::whole(&y)],
        None,
    );
    let y: Vec<f32> = y
        .share()
        .to_vec::<half::f16>()
        .iter()
        .map(|v| v.to_f32())
        .collect();
    assert_eq!(y, [7.0, 1.5, 1.5, 1.5, 1.5, 1.5, 7.0, 7.0]);

    let launch = files.len() - 1;
    let bytes = unit.scratch(launch);
    assert_eq!(bytes, 64 + 8 * 8192);
    let scratch = bench.device.allocate(bytes).unwrap();
    let x4 = Storage::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let y = bench.memory(&[0.0f32; 4]);
    let args = [Place::Shared(&x4), Place::whole(&y)];
    run("scratch.uir", &args, Some(&scratch));
    assert_eq!(y.share().to_vec::<f32>(), [4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn maximum_lets_nan_win() {
    let bench = Bench::new();
    let unit = bench.compile(&["extremes.uir"]);
    let x = Storage::from_slice(&[1.0f32, f32::NAN, 3.0, -1.0, 0.0, 2.0]).unwrap();
    let k = Storage::from_slice(&[i64::MAX, 2, 1, 1, 1, 1]).unwrap();
    let (m, p) = (bench.memory(&[0.0f32]), bench.memory(&[0i64]));
    let args = [
        Place::Shared(&x),
        Place::Shared(&k),
        Place::whole(&m),
        Place::whole(&p),
    ];
    unit.launch(0, &args, None).unwrap();
    assert!(m.share().to_vec::<f32>()[0].is_nan());
    assert_eq!(p.share().to_vec::<i64>(), [-2], "integers wrap");
}

#[test]
fn units_compute_what_one_would() {
    let long = long_programs(9);
    let chain = program("chain.uir");
    let programs: Vec<&Program> = [&chain].into_iter().chain(&long).collect();
    let bench = Bench::new();
    for (calls, hits) in [(1, 0), (1, 1)] {
        let unit = bench.device.compile_programs(&programs).unwrap();
        let units = render_units(&programs, team::available()).len() as u64;
        let counts = bench.device.counts();
        assert_eq!(
            (counts.compiler_calls, counts.disk_hits),
            (calls * units, hits * units)
        );
        for k in 1..programs.len() {
            let (x, y) = (
                bench.memory(&[1.0f32, 2.0, -3.0]),
                bench.memory(&[0.0f32; 3]),
            );
            let args = [Place::whole(&x), Place::whole(&y)];
            unit.launch(k, &args, None).unwrap();
            assert_eq!(y.share().to_vec::<f32>(), [2.0, 3.0, -2.0]);
        }
    }
}

#[test]
fn launches_refuse_arguments_that_do_not_fit() {
    let bench = Bench::new();
    let unit = bench.compile(&["add_one.uir"]);
    let x = Storage::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();
    let (y, short) = (bench.memory(&[0.0f32; 3]), bench.memory(&[0.0f32; 2]));
    for (args, why) in [
        (vec![Place::Shared(&x)], "one argument a parameter"),
        (
            vec![Place::Shared(&x), Place::whole(&short)],
            "data1 has 12 bytes, not 8",
        ),
        (
            vec![Place::whole(&y), Place::Shared(&x)],
            "data1 is written",
        ),
    ] {
        let launch = std::panic::AssertUnwindSafe(|| unit.launch(0, &args, None));
        let panic = std::panic::catch_unwind(launch).expect_err(why);
        let text = panic.downcast_ref::<String>().cloned();
        let text = text
            .or(panic.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap();
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn launches_run_side_by_side() {
    let bench = Arc::new(Bench::new());
    let unit: Arc<dyn Executable> = bench.compile(&["add_one.uir"]).into();
    let runners: Vec<_> = (0..4)
        .map(|k| {
            let (bench, unit) = (bench.clone(), unit.clone());
            std::thread::spawn(move || {
                let x = Storage::from_slice(&[k as f32; 3]).unwrap();
                for _ in 0..100 {
                    let y = bench.memory(&[0.0f32; 3]);
                    unit.launch(0, &[Place::Shared(&x), Place::whole(&y)], None)
                        .unwrap();
                    assert_eq!(y.share().to_vec::<f32>(), [k as f32 + 1.0; 3]);
                }
            })
        })
        .collect();
    for runner in runners {
        runner.join().unwrap();
    }
}
