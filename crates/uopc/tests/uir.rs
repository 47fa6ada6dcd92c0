//! The text form: round trips, numbering, live buffers, error messages, hostile input, long chains.

use std::any::Any;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::ir::custom::Custom;
use uopc::ir::form::{Plan, Role};
use uopc::ir::op::{LiveBuffer, OPS, ReduceOp};
use uopc::ir::parse::parse;
use uopc::ir::print::{to_uir, to_uir_with};
use uopc::ir::verify;
use uopc::ir::{DType, Scalar, UOp};

/// The text prints as itself.
fn round_trip(text: &str) {
    let parsed = parse(text, "test").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(to_uir(&parsed.roots), text);
}

/// The full text of the error for a source text.
fn error(text: &str) -> String {
    parse(text, "test.uir").expect_err(text).to_string()
}

#[test]
fn constants_take_no_number() {
    let one = UOp::float(1.0, DType::F32);
    let two = UOp::full(Scalar::from_f64(DType::F32, 2.0), &[3][..].into()).unwrap();
    assert_eq!(one.to_uir(), "; roots: 1.0\n");
    assert_eq!(
        to_uir(&[one, two]),
        "%0 = reshape 2.0, (1,)\n%1 = expand %0, (3,)\n; roots: 1.0, %1\n"
    );
    assert_eq!(to_uir(&[]), "; roots:\n");
}

#[test]
fn every_kind_of_constant_comes_back() {
    for dtype in DType::ALL {
        for value in [0.0, -0.0, 1.0, 1e-7, 123.0, f64::INFINITY, f64::NAN, -1.5] {
            let root = UOp::float(value, dtype);
            let back = parse(&root.to_uir(), "test").unwrap().roots;
            assert_eq!(back, [root], "{value} as {dtype}");
        }
    }
}

#[test]
fn numbers_come_from_the_roots_and_not_from_the_text() {
    let text = "%7 = buffer 2 : dtype=f32 slot=0\n\
                %3 = exp %7 ; a comment\n\
                \n\
                %9 = buffer 2 : dtype=f32 slot=1\n\
                %8 = sqrt %9 ; nobody reads this\n\
                ; roots: %3\n";
    let roots = parse(text, "test").unwrap().roots;
    assert_eq!(
        to_uir(&roots),
        "%0 = buffer 2 : dtype=f32 slot=0\n%1 = exp %0\n"
    );
}

#[test]
fn live_buffers_are_slots_that_no_text_slot_has() {
    let live = |id| {
        let storage: Arc<dyn Any + Send + Sync> = Arc::new(());
        UOp::live(Arc::new(LiveBuffer { id, storage }), DType::F32, 2)
    };
    let (a, b) = (live(70), live(3));
    let text = UOp::slot(0, DType::F32, 2);
    let sum = &(&(&b + &text) + &a) + &b;
    let printed = sum.to_uir();
    assert_eq!(
        printed,
        "%0 = buffer 2 : dtype=f32 slot=1\n\
         %1 = buffer 2 : dtype=f32 slot=0\n\
         %2 = add %0, %1\n\
         %3 = buffer 2 : dtype=f32 slot=2\n\
         %4 = add %2, %3\n\
         %5 = add %4, %0\n"
    );
    round_trip(&printed);
}

#[test]
fn names_that_are_no_words_are_quoted() {
    for name in ["relu6", "a b", "", "é\"\\\n\u{7}%;", "1.0"] {
        let op = uopc::ir::Op::Custom(Arc::new(Custom {
            name: name.into(),
            rules: None,
        }));
        let u = UOp::new(op, [UOp::float(1.0, DType::F32)].as_slice()).unwrap();
        let back = parse(&u.to_uir(), "test").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(back.roots, [u], "{name:?}");
    }
}

#[test]
fn nodes_from_text_have_no_site() {
    let _user = uopc::ir::site::Site::caller().enter();
    let roots = parse("%0 = buffer 977 : dtype=f64 slot=88\n", "test")
        .unwrap()
        .roots;
    assert!(roots[0].site().is_none());
    assert!(uopc::ir::site::Site::current().is_some());
}

#[test]
fn errors_point_at_the_token() {
    assert_eq!(
        error(
            "%0 = buffer 4 : dtype=f32 slot=0\n%1 = buffer 3 : dtype=f32 slot=1\n%2 = add %0, %1"
        ),
        "add: shapes (4,) and (3,) differ; reshape or expand one of them\n  \
         --> test.uir:3:6\n   |\n 3 | %2 = add %0, %1\n   |      ^"
    );
    // Behind line 99 the margin is wider.
    let far = format!("{}%0 = sine 1.0", "\n".repeat(121));
    assert_eq!(
        error(&far),
        "no op is called 'sine'\n   --> test.uir:122:6\n    |\n122 | %0 = sine 1.0\n    |      ^"
    );
    // Columns are characters, and a tab is one of them.
    assert_eq!(
        error("%0\t= custom 1.0 : name=\"ééé\" nama=x"),
        "custom has no attribute 'nama'\n  --> test.uir:1:30\n   |\n \
         1 | %0 = custom 1.0 : name=\"ééé\" nama=x\n   |                              ^"
    );
}

/// The first line of each error, with the column of its caret.
#[test]
fn every_error_says_what_to_do() {
    let cases = [
        ("", 1, "the text has no node, so it has no root"),
        (
            "; only a comment",
            1,
            "the text has no node, so it has no root",
        ),
        (
            "%0",
            3,
            "expected '=' after the node's number, found the end of the line",
        ),
        (
            "x = add",
            1,
            "expected a node such as '%0 = add %1, %2' or a comment, found 'x'",
        ),
        (
            "%x = add",
            1,
            "a node is written as % and a number below 2^32, such as %3",
        ),
        (
            "%4294967296 = add",
            1,
            "a node is written as % and a number below 2^32, such as %3",
        ),
        ("%0 = %1", 6, "expected an op such as add, found %1"),
        ("%0 = exp %1", 10, "%1 is not defined above this line"),
        ("%0 = exp %0", 10, "%0 is not defined above this line"),
        (
            "%0 = exp x",
            10,
            "expected a node such as %1 or a constant such as 1.0, found 'x'",
        ),
        (
            "%0 = exp 300u8",
            10,
            "expected a node such as %1 or a constant such as 1.0, found '300u8'",
        ),
        (
            "%0 = exp 1.0,",
            14,
            "expected an operand, found the end of the line",
        ),
        (
            "%0 = exp 1.0 2.0",
            14,
            "expected the end of the line, found '2.0'",
        ),
        (
            "%0 = exp 1.0 $",
            14,
            "'$' has no meaning here; comments begin with ';'",
        ),
        ("%0 = exp (1,)", 10, "exp takes no tuple here"),
        (
            "%0 = exp 1",
            6,
            "exp: needs a float, not i32; cast the source to f32 first",
        ),
        ("%0 = exp 1.0, 2.0", 6, "exp: takes 1 sources, not 2"),
        (
            "%0 = const 1.0",
            6,
            "a constant has no line; write it where it is used, or as in ; roots: 1.0",
        ),
        ("%0 = buffer", 6, "buffer needs an argument, as in buffer 3"),
        (
            "%0 = buffer -3 : dtype=f32 slot=0",
            13,
            "expected a whole number from 0 to 2^64-1, found '-3'",
        ),
        (
            "%0 = buffer 18446744073709551616",
            13,
            "expected a whole number from 0 to 2^64-1, found '18446744073709551616'",
        ),
        (
            "%0 = buffer (3,) : dtype=f32 slot=0",
            13,
            "buffer needs a number of elements here, as in buffer 3",
        ),
        ("%0 = buffer 3", 6, "buffer needs the attribute dtype=..."),
        (
            "%0 = buffer 3 :",
            16,
            "expected an attribute such as slot=0, found the end of the line",
        ),
        (
            "%0 = buffer 3 : dtype",
            22,
            "expected '=' after the attribute's name, found the end of the line",
        ),
        (
            "%0 = buffer 3 : dtype=(",
            23,
            "expected the value of dtype, found '('",
        ),
        (
            "%0 = buffer 3 : dtype=f31 slot=0",
            23,
            "dtype is one of bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64",
        ),
        (
            "%0 = buffer 3 : dtype=f32 slot=-1",
            32,
            "slot is a number below 2^32",
        ),
        (
            "%0 = buffer 3 : dtype=f32 dtype=f32",
            27,
            "dtype is given twice",
        ),
        (
            "%0 = param 3 : dtype=f32 slot=0 mode=on",
            38,
            "mode is one of in, out, inout",
        ),
        (
            "%0 = iota 300 : dtype=u8",
            6,
            "iota: 300 numbers do not fit u8; use a wider one",
        ),
        (
            "%0 = reshape 1.0, (1)",
            21,
            "a tuple of one ends with a comma: (3,)",
        ),
        (
            "%0 = reshape 1.0, (1, 1",
            24,
            "expected ',' or ')', found the end of the line",
        ),
        (
            "%0 = reshape 1.0, (1 1)",
            22,
            "expected ',' or ')', found '1'",
        ),
        (
            "%0 = reshape 1.0, (1, -1)",
            23,
            "expected a whole number from 0 to 2^64-1, found '-1'",
        ),
        (
            "%0 = reshape 1.0, (1, (1, 2))",
            23,
            "expected a number, found '('",
        ),
        (
            "%0 = reshape 1.0, 1",
            19,
            "reshape needs a shape here, as in reshape %0, (2, 3)",
        ),
        (
            "%0 = permute 1.0, (256,)",
            19,
            "permute needs axes below 256 here, as in permute %0, (1, 0)",
        ),
        (
            "%0 = shrink 1.0, (0, 1)",
            18,
            "shrink needs (begin, end) for each axis here, as in shrink %0, ((0, 2), (1, 3))",
        ),
        (
            "%0 = shrink 1.0, ((0 1),)",
            22,
            "expected ',' between the two numbers of a pair, found '1'",
        ),
        (
            "%0 = shrink 1.0, ((0, 1, 2),)",
            24,
            "expected ')' after the two numbers of a pair, found ','",
        ),
        (
            "%0 = reduce 1.0, ADD, 256",
            23,
            "expected the number of axes, as in reduce %0, ADD, 1, a number below 256",
        ),
        (
            "%0 = reduce 1.0, SUM, 0",
            18,
            "reduce needs one of ADD, MAX, MUL here, as in reduce %0, ADD, 1",
        ),
        (
            "%0 = reduce 1.0, ADD, 0 : fold=tree",
            32,
            "fold is one of lanes, chain",
        ),
        (
            "%0 = cast 1.0, float",
            16,
            "cast needs one of bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64 here, as in cast %0, f16",
        ),
        (
            "%0 = stage 1.0, there",
            17,
            "stage needs one of materialise, detach, remat, remat_input, within here, as in stage %0, detach",
        ),
        (
            "%0 = sin 1.0, 4",
            6,
            "sin: 4 quarter turns; write them as 0 to 3",
        ),
        (
            "%0 = custom 1.0 : name=%0",
            24,
            "a name is a word, or a text in quotes",
        ),
        (
            "%0 = custom 1.0 : name=\"a",
            24,
            "the quotes are not closed on this line",
        ),
        (
            "%0 = custom 1.0 : name=\"\\q\"",
            25,
            "known escapes are \\\" \\\\ \\n and \\u{..}",
        ),
        (
            "%0 = custom 1.0 : name=\"\\u{d800}\"",
            25,
            "expected a character such as \\u{1f}",
        ),
        (
            "%0 = local 1 : dtype=f32 id=0 space=reg\n%1 = load %0, 0, true",
            6,
            "load takes a memory and an index, and a gate as gate=%2",
        ),
        ("%0 = barrier\n%0 = barrier", 1, "%0 is defined twice"),
        (
            "; uir 2",
            3,
            "version 2 is not known here; this is version 1",
        ),
        (
            "; roots: 1.0\n; roots: 1.0",
            3,
            "the roots are listed twice",
        ),
        (
            "; roots: 1.0, ",
            14,
            "expected a node such as %1 or a constant such as 1.0, found the end of the line",
        ),
        (
            "; roots: 1.0 %0",
            14,
            "expected the end of the line, found %0",
        ),
        ("; name:", 8, "expected a name such as grad_x"),
        ("; name: a\n; name: b", 3, "the name is given twice"),
        ("; why %0: because", 7, "%0 is not defined above this line"),
        (
            "%0 = barrier\n; why %0 because",
            10,
            "expected ':' after the node, found 'because'",
        ),
    ];
    for (text, column, message) in cases {
        match parse(text, "test").expect_err(text) {
            uopc::Error::Parse {
                column: c,
                message: m,
                ..
            } => assert_eq!((m.as_str(), c), (message, column), "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
}

#[test]
fn declared_sizes_allocate_nothing() {
    let text = "%0 = buffer 18446744073709551615 : dtype=f64 slot=4294967295\n\
                %1 = reshape %0, (18446744073709551615, 1)\n\
                %2 = shrink %1, ((0, 18446744073709551615), (0, 1))\n\
                %3 = range 9223372036854775807i64 : id=4294967295\n\
                ; roots: %2, %3\n";
    round_trip(text);
}

/// Builds, prints and parses chains of n and of 2n nodes; nothing recurses.
#[test]
fn a_chain_of_a_million_nodes_prints_and_parses() {
    let mut u = UOp::slot(0, DType::F32, 1);
    for _ in 0..1_000_000 {
        u = u.exp2().unwrap();
    }
    let text = u.to_uir();
    assert_eq!(text.lines().count(), 1_000_001);
    let back = parse(&text, "chain").unwrap();
    assert_eq!(back.roots, [u]);
}

/// A random graph in which every node's sources are among the latest.
fn random_graph(rng: &mut SmallRng) -> Vec<UOp> {
    let mut nodes = vec![UOp::slot(0, DType::F32, 4), UOp::slot(9, DType::F32, 4)];
    for _ in 0..rng.random_range(1..30) {
        let a = nodes[rng.random_range(0..nodes.len())].clone();
        let b = nodes[rng.random_range(0..nodes.len())].clone();
        let c = Scalar::from_f64(DType::F32, rng.random_range(-8..8) as f64 / 4.0);
        let node = match rng.random_range(0..10) {
            0 => a.add(&b),
            1 => a.mul(&UOp::full(c, &[4][..].into()).unwrap()),
            2 => a.sin_turned(rng.random_range(0..4)),
            3 => a.cmplt(&b).and_then(|m| m.where_(&a, &b)),
            4 => a
                .reshape(&[2, 2])
                .and_then(|u| u.permute(&[1, 0]))
                .and_then(|u| u.reshape(&[4])),
            5 => a
                .reduce(ReduceOp::Add, 1)
                .and_then(|u| u.broadcast_scalar(&[4][..].into())),
            6 => a.cast(DType::BF16).and_then(|u| u.cast(DType::F32)),
            7 => uopc::ir::composite::pad(&a, &[(1, 3)]).and_then(|u| u.shrink(&[(2, 6)])),
            8 => UOp::iota(4, DType::I32).and_then(|i| a.index(&[i])),
            _ => a.mulacc(&b, &a),
        };
        nodes.push(node.unwrap());
    }
    let roots = rng.random_range(1..4);
    (0..roots)
        .map(|_| nodes[rng.random_range(0..nodes.len())].clone())
        .collect()
}

#[test]
fn random_graphs_come_back_as_the_same_nodes() {
    let mut rng = SmallRng::seed_from_u64(8);
    for _ in 0..500 {
        let roots = random_graph(&mut rng);
        let text = to_uir(&roots);
        let back = parse(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(back.roots, roots, "{text}");
    }
}

/// Damaged text gives a graph or an error with a place, never a panic.
#[test]
fn damaged_text_never_panics() {
    let reference = include_str!("../../../docs/reference/uir.md");
    let seeds: Vec<&str> = reference
        .lines()
        .filter(|l| l.starts_with(['%', ';']))
        .collect();
    let mut rng = SmallRng::seed_from_u64(41);
    let alphabet: Vec<char> = "%0123456789 =,:;()\"\\ué\t\u{0}.-+eEinfaduxt_{}\n"
        .chars()
        .collect();
    let mut errors = 0;
    for _ in 0..20_000 {
        let begin = rng.random_range(0..seeds.len());
        let end = (begin + rng.random_range(1..12)).min(seeds.len());
        let mut text: Vec<char> = seeds[begin..end].join("\n").chars().collect();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..text.len() + 1);
            let c = alphabet[rng.random_range(0..alphabet.len())];
            match rng.random_range(0..4) {
                0 => text.insert(at, c),
                1 if at < text.len() => text[at] = c,
                2 if at < text.len() => drop(text.remove(at)),
                _ => {
                    let to = rng.random_range(at..text.len() + 1).min(at + 20);
                    let copied = text[at..to].to_vec();
                    let place = rng.random_range(0..text.len() + 1);
                    text.splice(place..place, copied);
                }
            }
        }
        let text: String = text.into_iter().collect();
        match parse(&text, "damaged") {
            Ok(parsed) => {
                // Whatever is accepted prints, and comes back as the same nodes.
                let printed = to_uir(&parsed.roots);
                let back = parse(&printed, "printed").unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(back.roots, parsed.roots, "{text}");
            }
            Err(uopc::Error::Parse {
                line, column, text, ..
            }) => {
                assert!(line > 0 && column > 0 && column <= text.chars().count() + 2);
                errors += 1;
            }
            Err(other) => panic!("not a parse error: {other}"),
        }
    }
    // Damage that is never noticed would mean that the test damages nothing.
    assert!(errors > 5_000, "{errors}");
}

/// The fenced `uir` blocks of the reference page.
fn reference_examples() -> Vec<String> {
    let page = include_str!("../../../docs/reference/uir.md");
    let mut blocks = Vec::new();
    let mut open = None;
    for line in page.lines() {
        match (line, &mut open) {
            ("```uir", _) => open = Some(String::new()),
            ("```", Some(_)) => blocks.extend(open.take()),
            (line, Some(block)) => {
                block.push_str(line);
                block.push('\n');
            }
            (_, None) => {}
        }
    }
    blocks
}

#[test]
fn every_example_of_the_reference_page_comes_back() {
    let examples = reference_examples();
    assert!(examples.len() >= 12);
    for text in &examples {
        let parsed = parse(text, "uir.md").unwrap_or_else(|e| panic!("{e}"));
        let printed = to_uir_with(&parsed.roots, parsed.name.as_deref(), &parsed.notes);
        let directives = ["; roots:", "; name:", "; why "];
        let carries = |l: &&str| !l.starts_with(';') || directives.iter().any(|d| l.starts_with(d));
        let expected: Vec<&str> = text.lines().filter(carries).collect();
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_reference_page_shows_every_op() {
    let examples = reference_examples().concat();
    for row in OPS {
        // A constant has no line; the page lists literals.
        let shown = examples.contains(&format!("= {} ", row.mnemonic))
            || examples.contains(&format!("= {}\n", row.mnemonic));
        assert!(shown || row.mnemonic == "const", "{}", row.mnemonic);
    }
}

#[test]
fn the_forms_of_the_reference_page_verify() {
    let find = |part: &str| {
        let found = reference_examples().into_iter().find(|e| e.contains(part));
        found.unwrap_or_else(|| panic!("no example with {part}"))
    };
    let plan = find("= call");
    let read = Plan::from_uir(&plan, "uir.md").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read.to_uir().unwrap(), plan);
    assert_eq!(read.buffers[1].role, Role::Temporary);
    assert_eq!(
        &*read.buffers[1].reason,
        "a reduction that is read through a broadcast"
    );

    let loops = parse(&find("= end "), "uir.md").unwrap();
    let loops = verify::loop_graph(loops.name.unwrap(), loops.roots[0].clone());
    assert_eq!(
        loops.unwrap_or_else(|e| panic!("{e}")).to_uir(),
        find("= end ")
    );

    let program = parse(&find("= endloop"), "uir.md").unwrap();
    let program = verify::program(program.name.unwrap(), program.roots[0].clone());
    assert_eq!(
        program.unwrap_or_else(|e| panic!("{e}")).to_uir(),
        find("= endloop")
    );
}
