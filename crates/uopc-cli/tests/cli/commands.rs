//! The program as its users meet it: what each command prints, and the code it ends with.

use std::fs;
use std::path::Path;

use crate::program::{self, Finished, file, uopc, uopc_with_input};

const PRODUCT: &str = "\
%0 = buffer 3 : dtype=f32 slot=0
%1 = buffer 3 : dtype=f32 slot=1
%2 = mul %0, %1
%3 = add %2, %0
%4 = reduce %3, ADD, 1
";

// ---- lists ----

#[test]
fn lists_hold_what_their_tables_hold() {
    let lines = |args: &[&str]| {
        uopc(args)
            .ok()
            .lines()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let ops: Vec<&str> = uopc::ir::op::OPS.iter().map(|op| op.mnemonic).collect();
    assert_eq!(lines(&["ops", "--names"]), ops);
    let passes: Vec<&str> = uopc::pass::PASSES.iter().map(|pass| pass.name).collect();
    assert_eq!(lines(&["passes", "--names"]), passes);
    let rules: Vec<&str> = uopc::rules::all().iter().map(|rule| rule.name).collect();
    assert_eq!(lines(&["rules", "--names"]), rules);
    let variables: Vec<&str> = uopc::debug::VARIABLES.iter().map(|v| v.name).collect();
    assert_eq!(lines(&["env", "--names"]), variables);
    for (list, names) in [
        ("ops", ops),
        ("passes", passes),
        ("rules", rules),
        ("env", variables),
    ] {
        let (text, page) = (uopc(&[list]).ok(), uopc(&[list, "--markdown"]).ok());
        for name in names {
            let word = |w: &str| w.trim_end_matches('=') == name;
            assert!(
                text.split([' ', '=', '\n']).any(word),
                "{name} in `uopc {list}`"
            );
            assert!(
                page.contains(&format!("\n| `{name}` |")),
                "{name} in `uopc {list} --markdown`"
            );
        }
        assert!(page.starts_with("# "), "{page}");
    }
}

#[test]
fn a_list_reads_well() {
    let ops = uopc(&["ops"]).ok();
    let leaves = "\
Leaves: they have no sources

  op      sources  meaning
  const   0        a scalar constant; in text it stands inline
  buffer  0        one-dimensional storage
";
    assert!(ops.starts_with(leaves), "{ops}");
    let env = uopc(&["env"]).ok();
    let cc = "\
CC=a command
    the C compiler
    default: cc, gcc or clang, the first found
";
    assert!(env.contains(cc), "{env}");
}

// ---- run ----

#[test]
fn run_prints_values_and_compares_engines() {
    let graph = file("graph.uir", PRODUCT);
    let found = uopc(&[
        "run",
        &graph,
        "--slot",
        "0=1,2,3",
        "--slot",
        "1=[10, 20, 30]",
    ])
    .ok();
    assert_eq!(
        found,
        "\
slot 0: f32(3,) [1.0, 2.0, 3.0]
slot 1: f32(3,) [10.0, 20.0, 30.0]
%4 = f32() 146.0
graph interpreter  gives these values
loop interpreter   agrees to the last bit
compiled C         agrees to the last bit
"
    );
}

#[test]
fn run_takes_inputs_and_expectations_from_the_file() {
    let graph = format!(
        "; run: slot0=[1,2,3] slot1=[10,20,30] == [146]\n; run: slot0=[0,0,0] slot1=[1,1,nan] == [nan]\n{PRODUCT}"
    );
    let found = uopc_with_input(&["run", "-"], &graph).ok();
    assert_eq!(
        found
            .matches("expected values    agree to the last bit\n")
            .count(),
        2,
        "{found}"
    );

    let failed = uopc_with_input(&["run", "-"], &graph.replace("146", "147"));
    assert_eq!(failed.code, 1);
    let line = "expected values    DIFFER: %4, element 0 of (): 146.0 (0x43120000) against 147.0 (0x43130000)\n";
    assert!(failed.stdout.contains(line), "{}", failed.stdout);
    assert_eq!(failed.stderr, "error: standard input: results differ\n");
}

#[test]
fn random_inputs_follow_the_seed() {
    let graph = file("graph.uir", PRODUCT);
    let first = uopc(&["run", &graph]).ok();
    assert_eq!(first, uopc(&["run", &graph, "--seed", "0"]).ok());
    assert_ne!(first, uopc(&["run", &graph, "--seed", "1"]).ok());
    assert!(first.starts_with("slot 0: f32(3,), random ["), "{first}");
}

#[test]
fn run_takes_loops_too() {
    let graph = file("graph.uir", PRODUCT);
    let loops = uopc(&["opt", "--pass", "kernelize,rangeify", &graph]).ok();
    let found = uopc_with_input(
        &["run", "-", "--slot", "0=1,2,3", "--slot", "1=10,20,30"],
        &loops,
    );
    let found = found.ok();
    let end = "\
slot 2 = f32(1,) [146.0]
loop interpreter   gives these values
compiled C         agrees to the last bit
";
    assert!(found.ends_with(end), "{found}");
}

#[test]
fn without_a_compiler_the_interpreters_run() {
    let graph = file("graph.uir", PRODUCT);
    let found = program::command(&["run", &graph])
        .env("CC", "no-such-compiler")
        .output();
    let found = Finished::from(found).ok();
    let line = "compiled C         not run: no C compiler: `no-such-compiler`, named by CC, was not found\n";
    assert!(found.ends_with(line), "{found}");
}

#[test]
fn wrong_inputs_are_refused() {
    let graph = file("graph.uir", PRODUCT);
    for (args, code, text) in [
        (
            ["--slot", "0=1,2"],
            1,
            "slot 0 has 3 elements, not 2; give all of them, or one that fills it",
        ),
        (["--slot", "0=1,2,x"], 1, "slot 0: `x` is no f32"),
        (
            ["--slot", "5=1"],
            2,
            "slot 5 is not read by this graph; it reads 0, 1",
        ),
        (
            ["--slot", "five"],
            2,
            "--slot five: write the slot's number and its elements, such as --slot 0=1,2,3",
        ),
    ] {
        let failed = uopc(&[&["run", &graph], &args[..]].concat());
        assert_eq!(
            (failed.code, failed.stderr),
            (code, format!("error: {text}\n"))
        );
    }
}

// ---- grad ----

#[test]
fn grad_prints_one_root_a_target() {
    let graph = file("graph.uir", PRODUCT);
    let found = uopc(&["grad", &graph, "--wrt", "slot=0,%1"]).ok();
    assert_eq!(
        found,
        "\
%0 = reshape 1.0, (1,)
%1 = expand %0, (3,)
%2 = buffer 3 : dtype=f32 slot=1
%3 = mul %1, %2
%4 = add %1, %3
%5 = buffer 3 : dtype=f32 slot=0
%6 = mul %1, %5
; roots: %4, %6
"
    );
    let values = uopc_with_input(
        &["run", "-", "--slot", "0=1,2,3", "--slot", "1=10,20,30"],
        &found,
    );
    let values = values.ok();
    assert!(
        values.contains("%4 = f32(3,) [11.0, 21.0, 31.0]\n%6 = f32(3,) [1.0, 2.0, 3.0]\n"),
        "{values}"
    );
}

#[test]
fn a_cut_gradient_is_reported() {
    let text = "%0 = buffer 2 : dtype=f32 slot=0\n%1 = buffer 2 : dtype=f32 slot=1\n\
        %2 = stage %1, detach\n%3 = mul %0, %2\n";
    let found = uopc_with_input(&["grad", "-", "--wrt", "slot=1"], text);
    assert_eq!(found.code, 0);
    assert_eq!(
        found.stdout,
        "%0 = reshape 0.0, (1,)\n%1 = expand %0, (2,)\n"
    );
    assert!(
        found
            .stderr
            .starts_with("warning: target 0, buffer f32 (2,), gets zeros"),
        "{}",
        found.stderr
    );

    let strict = uopc_with_input(&["grad", "-", "--wrt", "slot=1", "--strict"], text);
    assert_eq!((strict.code, &strict.stdout[..]), (1, ""));
    assert!(
        strict.stderr.starts_with("error: gradient: target 0"),
        "{}",
        strict.stderr
    );
}

#[test]
fn targets_that_are_not_there_are_refused() {
    let graph = file("graph.uir", PRODUCT);
    for (target, text) in [
        (
            "slot=4",
            format!("--wrt slot=4: the root of {graph} reads no slot 4; it reads 0, 1"),
        ),
        ("%9", format!("--wrt %9: {graph} has no node %9")),
        (
            "x",
            "--wrt x: write a node (%2) or a slot (slot=0); the slots are 0, 1".to_string(),
        ),
    ] {
        let failed = uopc(&["grad", &graph, "--wrt", target]);
        assert_eq!(
            (failed.code, failed.stderr),
            (2, format!("error: {text}\n"))
        );
    }
}

#[test]
fn grad_explains_paths_and_cuts() {
    let text = "%0 = buffer 3 : dtype=f32 slot=0\n%1 = exp %0\n%2 = stage detach %0\n\
        %3 = mul %1, %2\n%4 = reduce %3, ADD, 1\n";
    let text = text.replace("stage detach %0", "stage %0, detach");
    let found = uopc_with_input(&["grad", "-", "--wrt", "slot=0,%2", "--explain"], &text).ok();
    assert_eq!(
        found,
        "\
the target, buffer f32 (3,) (at standard input:1), reaches the root, reduce ADD f32 () (at standard input:5), by 1 path:
  1. exp -> f32 (3,) (at standard input:2)
     mul -> f32 (3,) (at standard input:4)
     reduce ADD -> f32 () (at standard input:5)
besides, a path is cut here:
   - stage detach of buffer f32 (3,): it is detached; leave out the detach (at standard input:3)

the target, stage detach f32 (3,) (at standard input:3), reaches the root, reduce ADD f32 () (at standard input:5), by 1 path:
  1. mul -> f32 (3,) (at standard input:4)
     reduce ADD -> f32 () (at standard input:5)
"
    );
}

#[test]
fn run_finds_where_a_nan_comes_from() {
    let text = "%0 = buffer 3 : dtype=f32 slot=0\n%1 = sqrt %0\n%2 = reduce %1, ADD, 1\n";
    let run = |slot: &str| uopc_with_input(&["run", "-", "--slot", slot, "--find-nan"], text).ok();
    let found = run("0=1,4,-2");
    let expected = "\
the first NaN is in the result of sqrt f32 (3,) (at standard input:2): at [2] it is NaN, computed from
   buffer f32 (3,) (at standard input:1): -2
";
    assert!(found.ends_with(expected), "{found}");
    let found = run("0=1,4,2");
    assert!(
        found.ends_with("no root holds a NaN or an infinity\n"),
        "{found}"
    );
}

// ---- opt and show ----

#[test]
fn opt_applies_one_pass() {
    let text = "%0 = buffer 4 : dtype=f32 slot=0\n%1 = reshape 1.0, (1,)\n%2 = expand %1, (4,)\n%3 = mul %0, %2\n";
    let found = uopc_with_input(&["opt", "--pass", "simplify", "-"], text).ok();
    assert_eq!(found, "%0 = buffer 4 : dtype=f32 slot=0\n");
    let same = uopc_with_input(&["opt", "--pass", "strip_detach", "-"], text).ok();
    assert_eq!(same, text);
}

/// The golden files of each pass, which the library's tests check, hold for the command, too.
#[test]
fn opt_does_what_the_golden_files_say() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uopc/tests/golden");
    let nodes = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with('%'));
        lines.map(str::to_string).collect()
    };
    // The command lays loops out for this machine, the golden files for those that they name.
    let portable = uopc::pass::PASSES.iter().filter(|p| p.name != "schedule");
    for pass in portable {
        let mut count = 0;
        for entry in fs::read_dir(golden.join(pass.name)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let (before, after) = text.split_once("; ----\n").unwrap();
            let found = uopc_with_input(&["opt", "--pass", pass.name, "-"], before).ok();
            assert_eq!(nodes(&found), nodes(after), "{}", path.display());
            count += 1;
        }
        assert!(count > 0, "no golden file of {}", pass.name);
    }
}

#[test]
fn a_kernel_s_body_runs_like_the_graph_it_is_of() {
    let body = PRODUCT.replace(
        "buffer 3 : dtype=f32 slot=0",
        "param 3 : dtype=f32 slot=0 mode=in",
    );
    let run = |text: &str| uopc_with_input(&["run", "-"], text).ok();
    assert_eq!(run(&body), run(PRODUCT));
    let failed = uopc_with_input(&["opt", "--pass", "kernelize", "-"], &body);
    let text = "error: standard input: kernelize: param 0 belongs to a kernel, and kernels are made \
        here; read a buffer with slot=0 instead\n";
    assert_eq!((failed.code, &failed.stderr[..]), (1, text));
}

#[test]
fn opt_says_what_it_can_do() {
    let failed = uopc(&["opt", "--pass", "optimise", "missing.uir"]);
    let passes: Vec<&str> = uopc::pass::PASSES.iter().map(|pass| pass.name).collect();
    let text = format!(
        "error: there is no pass `optimise`; the passes are {}\n",
        passes.join(", ")
    );
    assert_eq!((failed.code, failed.stderr), (2, text));

    let failed = uopc_with_input(&["opt", "--pass", "linearize", "-"], PRODUCT);
    let text = "error: standard input: linearize takes a loop graph, and this is a shape graph\n";
    assert_eq!((failed.code, &failed.stderr[..]), (1, text));
}

#[test]
fn passes_of_several_kernels_need_a_choice() {
    let softmax = uopc(&["show", "softmax", "--stage", "graph"]).ok();
    let plan = uopc_with_input(&["opt", "--pass", "kernelize", "-"], &softmax).ok();
    let failed = uopc_with_input(&["opt", "--pass", "rangeify", "-"], &plan);
    let text = "error: the plan has 3 kernels; choose one with --kernel: r_4, r_4, e_4_10\n";
    assert_eq!((failed.code, &failed.stderr[..]), (2, text));
    let by_number =
        uopc_with_input(&["opt", "--pass", "rangeify", "--kernel", "3", "-"], &plan).ok();
    let by_name = uopc_with_input(
        &["opt", "--pass", "rangeify", "--kernel", "e_4_10", "-"],
        &plan,
    )
    .ok();
    assert_eq!(by_number, by_name);
    assert!(by_name.starts_with("; name: e_4_10\n"), "{by_name}");
}

#[test]
fn show_prints_every_stage() {
    // The default schedule depends on the machine, and is a stage more.
    let found = program::command(&["show", "grad-x"])
        .env("UOPC_SCHEDULE", "plain")
        .output();
    let found = Finished::from(found).ok();
    assert_eq!(
        found,
        "\
; ==== graph: the shape graph
%0 = reshape 1.0, (1,) ; vjp of reduce
%1 = expand %0, (3,) ; vjp of reduce
%2 = buffer 3 : dtype=f32 slot=1
%3 = mul %1, %2 ; vjp of mul
%4 = add %1, %3 ; sum of cotangents

; ==== strip_detach: drop the markers that kernels do not need
; (unchanged)

; ==== simplify: apply the shape rules until none fires
%0 = buffer 3 : dtype=f32 slot=1
%1 = reshape 1.0, (1,) ; vjp of reduce
%2 = expand %1, (3,) ; vjp of reduce
%3 = add %0, %2 ; sum of cotangents

; ==== kernelize: split into kernels: decide what becomes a buffer
%0 = buffer 3 : dtype=f32 slot=1
%1 = buffer 3 : dtype=f32 slot=2
%2 = sink %0, %1
%3 = param 3 : dtype=f32 slot=1 mode=in
%4 = reshape 1.0, (1,)
%5 = expand %4, (3,)
%6 = add %3, %5
%7 = param 3 : dtype=f32 slot=2 mode=out
%8 = sink %6, %7, %3
%9 = call %8, %1, %0 : name=grad_x outs=1
%10 = sink %9
%11 = after %1, %9
%12 = sink %11
; roots: %2, %10, %12
; why %0: input
; why %1: root

; ==== order: put kernels in an order that takes less memory
; (unchanged)

; ==== rangeify: lower a kernel to loops: movement becomes index arithmetic
; name: grad_x
%0 = param 3 : dtype=f32 slot=2 mode=out
%1 = range 3 : id=0
%2 = param 3 : dtype=f32 slot=1 mode=in
%3 = load %2, %1
%4 = add %3, 1.0
%5 = store %0, %1, %4
%6 = end %5, %1
%7 = sink %6

; ==== simplify_loops: apply the scalar and index rules until none fires
; (unchanged)

; ==== linearize: put statements in line and name their values
; name: grad_x
%0 = range 3 : id=0
%1 = loop %0
%2 = param 3 : dtype=f32 slot=1 mode=in
%3 = load %2, %0
%4 = let %3 : id=1
%5 = param 3 : dtype=f32 slot=2 mode=out
%6 = add %4, 1.0
%7 = store %5, %0, %6
%8 = endloop %0
%9 = sink %1, %4, %7, %8

// ==== c: the kernels in C
// sum of cotangents: add
void grad_x(float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float val1 = data1[ridx0];
    data2[ridx0] = (val1+1.0f);
  }
}
"
    );
}

/// The text without the comments of C that say where a kernel comes from.
fn without_origins(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let is_code = |line: &&str| !line.starts_with("// ") || line.starts_with("// ====");
    lines.filter(is_code).collect()
}

/// What `show` does pass by pass is what the pipeline does: the same C in the end.
#[test]
fn show_and_the_pipeline_agree() {
    for example in uopc_cli::examples::EXAMPLES {
        let shown = uopc(&["show", example.name, "--stage", "c"]).ok();
        let roots = (example.build)().unwrap();
        let name = example.name.replace('-', "_");
        let settings = uopc::debug::Settings::default();
        let c = uopc::compile::listing(&roots, Some(&name), &settings).unwrap();
        assert_eq!(
            without_origins(&shown),
            format!("// ==== c: the kernels in C\n{c}"),
            "{}",
            example.name
        );
    }
}

/// Kernels of a backward pass say which rules they come from.
#[test]
fn kernels_say_where_they_come_from() {
    let c = uopc(&["show", "mlp-gradient", "--stage", "c"]).ok();
    for line in [
        "// vjp of expand: reduce",
        "// mask: where",
        "// sum of cotangents: add",
    ] {
        assert!(c.lines().any(|found| found == line), "{line}: {c}");
    }
}

/// Every example gives the same bits in all engines.
#[test]
fn examples_run() {
    for example in uopc_cli::examples::EXAMPLES {
        let graph = uopc(&["show", example.name, "--stage", "graph"]).ok();
        let found = uopc_with_input(&["run", "-"], &graph).ok();
        assert_eq!(
            found.matches("agrees to the last bit").count(),
            2,
            "{}: {found}",
            example.name
        );
    }
}

#[test]
fn show_starts_at_any_stage() {
    let whole = uopc(&["show", "second-derivative"]).ok();
    let code = whole.split("// ==== ").nth(1).unwrap();
    for stage in ["simplify", "kernelize", "rangeify", "linearize"] {
        let text = uopc(&["show", "second-derivative", "--stage", stage]).ok();
        // A shape graph loses the name that the example gives to its kernel.
        let shown = uopc_with_input(&["show", "-", "--stage", "c"], &text).ok();
        let named = shown.replace("void e_4(", "void second_derivative(");
        let code = without_origins(&format!("// ==== {code}"));
        assert_eq!(named, code, "from {stage}");
    }
}

#[test]
fn show_knows_its_examples() {
    let list = uopc(&["show", "--list"]).ok();
    for example in uopc_cli::examples::EXAMPLES {
        assert!(list.contains(&format!("\n{} ", example.name)), "{list}");
    }
    let failed = uopc(&["show", "sofmax"]);
    assert_eq!(failed.code, 1);
    assert!(
        failed
            .stderr
            .starts_with("error: sofmax: no such file or example; the examples are grad-x, "),
        "{}",
        failed.stderr
    );
}
