//! The loop interpreter by itself: what statements, scopes and gates mean, and what its checks
//! find.

use uopc::interp::{Array, Checks, LoopArg, LoopData, LoopKernel};
use uopc::ir::op::ParamMode;
use uopc::ir::{DType, Scalar, form, parse, verify};

use DType::*;

/// Runs text on the given arrays (one for each parameter that is not out, in order of slots); the
/// result is the written parameters.
fn run_with(text: &str, given: &[Array], checks: Checks) -> Result<Vec<Array>, String> {
    let parsed = parse::parse(text, "test").unwrap_or_else(|e| panic!("{e}"));
    let loops =
        verify::loop_graph("test", parsed.roots[0].clone()).unwrap_or_else(|e| panic!("{e}"));
    let list = form::params(loops.sink());
    let mut given = given.iter();
    let mut memory: Vec<Vec<u8>> = list
        .iter()
        .map(|&(_, mode, dtype, n)| match mode {
            ParamMode::Out => vec![0xa5; n * dtype.size()],
            ParamMode::In | ParamMode::InOut => given.next().expect("an array").to_bytes(),
        })
        .collect();
    let mut args: Vec<LoopArg> = list
        .iter()
        .zip(&mut memory)
        .map(|(&(_, _, dtype, _), bytes)| LoopArg {
            dtype,
            data: LoopData::Write(bytes),
        })
        .collect();
    let kernel = LoopKernel::new(&loops).map_err(|e| e.to_string())?;
    kernel.run(&mut args, checks).map_err(|e| e.to_string())?;
    drop(args);
    let written = list
        .iter()
        .zip(&memory)
        .filter(|((_, mode, ..), _)| *mode != ParamMode::In);
    Ok(written
        .map(|((_, _, dtype, n), bytes)| {
            Array::from_bytes(*dtype, &[*n], bytes).expect("n elements")
        })
        .collect())
}

fn run(text: &str, given: &[Array]) -> Vec<Array> {
    let all = run_with(text, given, Checks::All).unwrap_or_else(|e| panic!("{e}"));
    let bounds = run_with(text, given, Checks::Bounds).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(all, bounds, "checks change no value");
    all
}

fn error(text: &str, given: &[Array]) -> String {
    run_with(text, given, Checks::All).expect_err("the run fails")
}

fn ints(values: &[i64]) -> Array {
    Array::from_ints(I32, &[values.len()], values).expect("one axis")
}

fn floats(values: &[f64]) -> Array {
    Array::from_f64(F32, &[values.len()], values).expect("one axis")
}

#[test]
fn a_scope_begins_anew_in_every_turn_of_its_loop() {
    // The sum of each row; the local is named under range 0 alone by both statements.
    let text = "
        %0 = param 6 : dtype=i32 slot=0 mode=in
        %1 = param 2 : dtype=i32 slot=1 mode=out
        %2 = local 1 : dtype=i32 id=0 space=reg
        %3 = range 2 : id=0
        %4 = range 3 : id=1
        %5 = mul %3, 3
        %6 = add %5, %4
        %7 = load %0, %6
        %8 = store %2, 0, %7 : combine=add
        %9 = end %8, %3, %4
        %10 = load %2, 0
        %11 = store %1, %3, %10
        %12 = end %11, %3
        %13 = sink %9, %12";
    assert_eq!(run(text, &[ints(&[1, 2, 3, 4, 5, 6])]), [ints(&[6, 15])]);
    // Named outside too, it is one sum for all rows.
    let outside = text.replace(
        "%13 = sink %9, %12",
        "%13 = store %2, 0, 100
        %14 = end %13
        %15 = sink %14, %9, %12",
    );
    assert_eq!(
        run(&outside, &[ints(&[1, 2, 3, 4, 5, 6])]),
        [ints(&[106, 121])]
    );
}

#[test]
fn every_combine_starts_at_its_identity_and_rounds_to_the_memory() {
    let fold = |combine: &str, dtype: &str, values: &str| {
        format!(
            "%0 = param 3 : dtype={dtype} slot=0 mode=in
            %1 = param 1 : dtype={dtype} slot=1 mode=out
            %2 = local 1 : dtype={dtype} id=0 space=reg
            %3 = range 3 : id=0
            %4 = load %0, %3
            %5 = store %2, 0, {values} : combine={combine}
            %6 = end %5, %3
            %7 = load %2, 0
            %8 = store %1, 0, %7
            %9 = end %8
            %10 = sink %6, %9"
        )
    };
    let x = floats(&[-0.0, -0.0, -0.0]);
    let got = |combine, values| {
        run(&fold(combine, "f32", values), &[x.clone()])
            .remove(0)
            .get(0)
    };
    // A sum begins at -0, which changes no number; a chain at +0, which does.
    assert_eq!(got("add", "%4"), Scalar::f32(-0.0));
    assert_eq!(got("mulacc", "%4, 1.0"), Scalar::f32(0.0));
    assert_eq!(got("max", "%4"), Scalar::f32(-0.0));
    assert_eq!(got("mul", "%4"), Scalar::f32(-0.0));

    let narrow = Array::from_f64(F16, &[3], &[2048.0, 1.0, 1.0]).expect("three numbers");
    let sum = run(&fold("add", "f16", "%4"), &[narrow]).remove(0).get(0);
    assert_eq!(sum.as_f64(), 2048.0, "each sum rounds to f16");

    let bytes = |values: &[i64]| Array::from_ints(I8, &[values.len()], values).expect("one axis");
    let got = |combine, values| {
        run(&fold(combine, "i8", "%4"), &[bytes(values)])
            .remove(0)
            .get(0)
    };
    assert_eq!(got("add", &[100, 100, 100]).as_i128(), 44);
    assert_eq!(got("max", &[-100, -3, -50]).as_i128(), -3);
    assert_eq!(got("mul", &[16, 17, -1]).as_i128(), -16);
}

#[test]
fn a_product_is_fused_with_its_sum() {
    let text = "
        %0 = param 2 : dtype=f32 slot=0 mode=in
        %1 = param 1 : dtype=f32 slot=1 mode=out
        %2 = load %0, 0
        %3 = store %1, 0, -1.0
        %4 = end %3
        %5 = store %1, 0, %2, %2 : combine=mulacc
        %6 = end %5
        %7 = sink %4, %6";
    // (1 + e)^2 - 1 = 2e + e^2: a rounded product loses e^2.
    let e = 2f64.powi(-12);
    let got = run(text, &[floats(&[1.0 + e, 0.0])]).remove(0);
    assert_eq!(got.to_f64(), [2.0 * e + e * e]);
}

#[test]
fn extents_may_depend_on_outer_ranges_and_be_zero_or_negative() {
    // Counts the pairs j < i - 1, for i below 5: extents -1, 0, 1, 2, 3.
    let text = "
        %0 = param 1 : dtype=i32 slot=0 mode=out
        %1 = store %0, 0, 0
        %2 = end %1
        %3 = range 5 : id=0
        %4 = add %3, -1
        %5 = range %4 : id=1
        %6 = store %0, 0, 1 : combine=add
        %7 = end %6, %3, %5
        %8 = sink %2, %7";
    assert_eq!(run(text, &[]), [ints(&[6])]);
    // The same with counters of 64 bits.
    let wide = text
        .replace("range 5", "range 5i64")
        .replace("%3, -1", "%3, -1i64");
    assert_eq!(run(&wide, &[]), [ints(&[6])]);
}

#[test]
fn a_false_gate_touches_nothing() {
    // Reads beyond the end are gated to 0; writes to even places alone.
    let text = "
        %0 = param 3 : dtype=i32 slot=0 mode=in
        %1 = param 6 : dtype=i32 slot=1 mode=inout
        %2 = range 6 : id=0
        %3 = cmplt %2, 3
        %4 = load %0, %2 : gate=%3
        %5 = floormod %2, 2
        %6 = cmpne %5, 1
        %7 = store %1, %2, %4 : gate=%6
        %8 = end %7, %2
        %9 = sink %8";
    let got = run(text, &[ints(&[7, 8, 9]), ints(&[-1; 6])]);
    assert_eq!(got, [ints(&[7, -1, 9, -1, 0, -1])]);
}

#[test]
fn a_load_is_read_again_at_each_statement() {
    // One LOAD node, read before and after the local changes.
    let text = "
        %0 = param 2 : dtype=i32 slot=0 mode=out
        %1 = local 1 : dtype=i32 id=0 space=reg
        %2 = store %1, 0, 5
        %3 = end %2
        %4 = load %1, 0
        %5 = store %0, 0, %4
        %6 = end %5
        %7 = add %4, 1
        %8 = store %1, 0, %7
        %9 = end %8
        %10 = store %0, 1, %4
        %11 = end %10
        %12 = sink %3, %6, %9, %11";
    assert_eq!(run(text, &[]), [ints(&[5, 6])]);
}

#[test]
fn nans_and_bools_that_others_wrote_are_made_canonical() {
    let text = "
        %0 = param 1 : dtype=f32 slot=0 mode=in
        %1 = param 1 : dtype=i32 slot=1 mode=out
        %2 = load %0, 0
        %3 = bitcast %2, i32
        %4 = store %1, 0, %3
        %5 = end %4
        %6 = sink %5";
    let parsed = parse::parse(text, "test").expect("the text parses");
    let loops = verify::loop_graph("test", parsed.roots[0].clone()).expect("a loop graph");
    let nan = 0xffc1_2345u32.to_le_bytes();
    let mut out = [0; 4];
    let mut args = [
        LoopArg {
            dtype: F32,
            data: LoopData::Read(&nan),
        },
        LoopArg {
            dtype: I32,
            data: LoopData::Write(&mut out),
        },
    ];
    uopc::interp::loops::run(&loops, &mut args).expect("the launch runs");
    assert_eq!(u32::from_le_bytes(out), 0x7fc0_0000);
}

#[test]
fn accesses_outside_are_found() {
    let text = |index: &str| {
        format!(
            "%0 = param 3 : dtype=i32 slot=0 mode=in
            %1 = param 4 : dtype=i32 slot=1 mode=out
            %2 = range 4 : id=0
            %3 = add %2, {index}
            %4 = load %0, %3
            %5 = store %1, %2, %4
            %6 = end %5, %2
            %7 = sink %6"
        )
    };
    let x = ints(&[1, 2, 3]);
    assert_eq!(
        error(&text("0"), &[x.clone()]),
        "loop graph: kernel test: load from param 0 at 3, outside its 3 elements"
    );
    let message = run_with(&text("-1"), &[x], Checks::Bounds).expect_err("the run fails");
    assert_eq!(
        message,
        "loop graph: kernel test: load from param 0 at -1, outside its 3 elements"
    );
    let store = "
        %0 = param 3 : dtype=i32 slot=0 mode=out
        %1 = range 4 : id=0
        %2 = store %0, %1, %1
        %3 = end %2, %1
        %4 = sink %3";
    assert_eq!(
        error(store, &[]),
        "loop graph: kernel test: store to param 0 at 3, outside its 3 elements"
    );
}

#[test]
fn reads_of_what_nothing_wrote_are_found() {
    let local = "
        %0 = param 3 : dtype=i32 slot=0 mode=out
        %1 = local 3 : dtype=i32 id=0 space=cache
        %2 = range 2 : id=0
        %3 = store %1, %2, %2
        %4 = end %3, %2
        %5 = range 3 : id=1
        %6 = load %1, %5
        %7 = store %0, %5, %6
        %8 = end %7, %5
        %9 = sink %4, %8";
    assert_eq!(
        error(local, &[]),
        "loop graph: kernel test: element 2 of local 0 is read before it is written"
    );
    // What one turn of the loop wrote, the next does not have.
    let stale = "
        %0 = param 2 : dtype=i32 slot=0 mode=out
        %1 = local 2 : dtype=i32 id=0 space=cache
        %2 = range 2 : id=0
        %3 = store %1, %2, %2
        %4 = end %3, %2
        %5 = load %1, 0
        %6 = store %0, %2, %5
        %7 = end %6, %2
        %8 = sink %4, %7";
    assert_eq!(
        error(stale, &[]),
        "loop graph: kernel test: element 0 of local 0 is read before it is written"
    );
    let hole = "
        %0 = param 4 : dtype=i32 slot=0 mode=out
        %1 = range 4 : id=0
        %2 = cmpne %1, 2
        %3 = store %0, %1, %1 : gate=%2
        %4 = end %3, %1
        %5 = sink %4";
    assert_eq!(
        error(hole, &[]),
        "loop graph: kernel test: element 2 of param 0 is never written"
    );
}

#[test]
fn a_takeover_that_reads_too_late_is_found() {
    // Every element reads and writes element 0: the second turn reads what the first wrote.
    let text = "
        %0 = param 1 : dtype=i32 slot=0 mode=inout
        %1 = range 2 : id=0
        %2 = mul %1, 0
        %3 = load %0, %2
        %4 = add %3, 1
        %5 = store %0, %2, %4
        %6 = end %5, %1
        %7 = sink %6";
    assert_eq!(
        error(text, &[ints(&[1])]),
        "loop graph: kernel test: element 0 of param 0 is read after it is written"
    );
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let text = "
        %0 = param 2 : dtype=f32 slot=0 mode=in
        %1 = param 2 : dtype=f32 slot=3 mode=out
        %2 = range 2 : id=0
        %3 = load %0, %2
        %4 = store %1, %2, %3
        %5 = end %4, %2
        %6 = sink %5";
    let parsed = parse::parse(text, "test").expect("the text parses");
    let loops = verify::loop_graph("copy", parsed.roots[0].clone()).expect("a loop graph");
    let kernel = LoopKernel::new(&loops).expect("it compiles");
    let (x, mut y) = ([0u8; 8], [0u8; 8]);
    let mut refused = |dtype, bytes: usize, write: bool, want: &str| {
        let out = if write {
            LoopData::Write(&mut y)
        } else {
            LoopData::Read(&x)
        };
        let mut args = [
            LoopArg {
                dtype,
                data: LoopData::Read(&x[..bytes]),
            },
            LoopArg {
                dtype: F32,
                data: out,
            },
        ];
        let message = kernel
            .run(&mut args, Checks::Bounds)
            .expect_err("refused")
            .to_string();
        assert_eq!(message, format!("loop graph: kernel copy: {want}"));
    };
    refused(F64, 8, true, "param 0 is f32, its argument f64");
    refused(F32, 7, true, "param 0 takes 8 bytes, its argument has 7");
    refused(
        F32,
        8,
        false,
        "param 3 is written, its argument is read-only",
    );
    let message = kernel
        .run(&mut [], Checks::Bounds)
        .expect_err("refused")
        .to_string();
    assert_eq!(
        message,
        "loop graph: kernel copy: 0 arguments for 2 parameters"
    );
}
