//! The exact text of every error that a user of tensors can meet; those of files are in `errors_files`.

mod tensors;

use tensors::*;
use uopc::nn::{AdamW, Linear, Optimizer, Sgd};
use uopc::tensor::{Site, Slice, no_grad};
use uopc::{DType, Tensor};

/// Asserts the text of an error up to the place, and that the place is in the lines of the call.
macro_rules! refuses {
    ($call:expr, $text:expr $(,)?) => {{
        let first = line!();
        let error = $call.map(drop).expect_err("it is refused").to_string();
        check(&error, $text, first);
    }};
}

fn check(error: &str, text: &str, first: u32) {
    let (message, place) = error.rsplit_once(" (at ").unwrap_or((error, ""));
    assert_eq!(message, text);
    let line = place
        .strip_prefix(concat!(file!(), ":"))
        .and_then(|p| p.strip_suffix(')'));
    let line: u32 = line
        .and_then(|l| l.parse().ok())
        .unwrap_or_else(|| panic!("no place: {error}"));
    assert!(
        (first..first + 4).contains(&line),
        "line {line} and not {first}: {error}"
    );
}

fn floats(shape: &[usize]) -> Tensor {
    Tensor::from_slice(&vec![1.0f32; shape.iter().product()], shape).unwrap()
}

#[test]
fn shapes_that_do_not_broadcast() {
    let _engine = own_engine();
    let (a, b) = (floats(&[4]), floats(&[3]));
    refuses!(
        a.add(&b),
        "add: shapes (4,) and (3,) differ in axis -1 (4 and 3); extents that meet are equal or one \
         of them is 1, so reshape or expand one",
    );
    let (a, b) = (floats(&[2, 3]), floats(&[3, 1, 1]));
    refuses!(
        a.gt(0.0).unwrap().where_(1, floats(&[3, 3])),
        "where: shapes (2, 3) and (3, 3) differ in axis -2 (2 and 3); extents that meet are equal \
         or one of them is 1, so reshape or expand one",
    );
    assert_eq!(a.mul(&b).unwrap().shape()[..], [3, 2, 3]);
}

#[test]
fn operators_panic_with_the_same_text_at_the_same_line() {
    let _engine = own_engine();
    let text = std::sync::Arc::new(std::sync::Mutex::new((String::new(), 0)));
    let seen = text.clone();
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info
            .payload()
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_default();
        if message.starts_with("add: shapes (4,)") {
            let line = info.location().map_or(0, |l| l.line());
            *seen.lock().unwrap() = (message, line);
        }
    }));
    let caught = std::panic::catch_unwind(|| {
        let (a, b) = (floats(&[4]), floats(&[3]));
        &a + &b
    });
    let line = line!() - 2;
    std::panic::set_hook(former);
    assert!(caught.is_err());
    let (message, at) = text.lock().unwrap().clone();
    assert_eq!(at, line, "the panic is at the operator");
    check(
        &message,
        "add: shapes (4,) and (3,) differ in axis -1 (4 and 3); extents that meet are equal or one \
         of them is 1, so reshape or expand one",
        line,
    );
}

#[test]
fn products_that_do_not_fit() {
    let _engine = own_engine();
    let a = floats(&[2, 3]);
    refuses!(
        a.matmul(&floats(&[2, 3])),
        "matmul: shapes (2, 3) and (2, 3) differ in the extent that is summed (3 and 2); the last \
         axis of the left one meets the last but one of the right one",
    );
    refuses!(
        a.matmul(&floats(&[])),
        "matmul: shapes (2, 3) and (): a scalar is no matrix; use mul"
    );
    refuses!(
        floats(&[2, 1, 3])
            .matmul(&floats(&[4, 3, 2]))
            .and(floats(&[5, 1, 3]).matmul(&floats(&[4, 3, 2]))),
        "matmul: shapes (2,) and (4,) differ in axis -1 (2 and 4); extents that meet are equal or \
         one of them is 1, so reshape or expand one",
    );
    refuses!(
        Linear::new(4, 2).unwrap().forward(&a),
        "matmul: shapes (2, 3) and (4, 2) differ in the extent that is summed (3 and 4); the last \
         axis of the left one meets the last but one of the right one",
    );
}

#[test]
fn axes_that_are_not_there() {
    let _engine = own_engine();
    let t = floats(&[2, 3]);
    refuses!(
        t.sum(2),
        "sum: axis 2 of shape (2, 3); axes go from -2 to 1"
    );
    refuses!(
        t.mean([0, -3]),
        "mean: axis -3 of shape (2, 3); axes go from -2 to 1"
    );
    refuses!(
        t.max([1, -1]),
        "max: [1, -1] names axis 1 of shape (2, 3) twice"
    );
    refuses!(
        floats(&[]).softmax(0),
        "softmax: axis 0 of shape (), which has no axes"
    );
    refuses!(
        t.flip(5),
        "flip: axis 5 of shape (2, 3); axes go from -2 to 1"
    );
    refuses!(
        t.unsqueeze(4),
        "unsqueeze: axis 4 of shape (2, 3); axes go from -3 to 2"
    );
    refuses!(
        t.squeeze(0),
        "squeeze: axis 0 of shape (2, 3) has extent 2, not 1"
    );
    refuses!(
        t.permute([0, 0]),
        "permute: [0, 0] names axis 0 of shape (2, 3) twice"
    );
    refuses!(
        t.permute([0]),
        "permute: [0] does not name all axes of shape (2, 3)"
    );
    refuses!(
        floats(&[2, 0]).argmax(1),
        "argmax: axis 1 of shape (2, 0) is empty"
    );
}

#[test]
fn shapes_that_are_none() {
    let _engine = own_engine();
    let t = floats(&[2, 3]);
    refuses!(
        t.reshape([4]),
        "reshape: (2, 3) has 6 elements, (4,) has 4; they must agree"
    );
    refuses!(
        t.reshape([-1, 4]),
        "reshape: (2, 3) has 6 elements, from which [-1, 4] can't be filled in"
    );
    refuses!(
        t.reshape([-1, -1]),
        "reshape: (2, 3) has 6 elements, from which [-1, -1] can't be filled in"
    );
    refuses!(
        t.reshape([-2, 3]),
        "reshape: [-2, 3] is no shape: an extent is negative"
    );
    refuses!(
        t.expand([3, 3]),
        "expand: shapes (2, 3) and (3, 3) differ in axis -2 (2 and 3); \
         extents that meet are equal or one of them is 1, so reshape or expand one"
    );
    refuses!(
        t.expand([3]),
        "expand: (2, 3) does not expand to (3,): only axes of extent 1 grow"
    );
    refuses!(
        Tensor::zeros([usize::MAX, 4]),
        "full: [9223372036854775807, 4] has more elements than memory can hold"
            .replace("[9223372036854775807, 4]", "(9223372036854775807, 4)")
            .as_str()
    );
    refuses!(
        t.pad([(1, 1)]),
        "pad: 1 pairs for shape (2, 3); give one (before, after) for each axis"
    );
    refuses!(
        t.shrink([(0, 3), (0, 1)]),
        "shrink: [(0, 3), (0, 1)] is no window of (2, 3); give one (begin, end) with begin <= end \
         <= extent for each axis",
    );
    refuses!(
        Tensor::cat(&[&t, &floats(&[3, 2])], 0),
        "cat: shapes (2, 3) and (3, 2) do not join along axis 0; all other axes must agree"
    );
    refuses!(
        Tensor::cat(&[] as &[Tensor], 0),
        "cat: needs at least one tensor"
    );
    refuses!(
        Tensor::stack(&[&t, &floats(&[3])], 0),
        "stack: shapes (2, 3) and (3,) differ; reshape or expand one of them"
    );
    refuses!(
        Tensor::from_slice(&[1.0f32, 2.0], [3]),
        "from_slice: 2 values do not fill shape (3,), which has 3 elements"
    );
    refuses!(
        Tensor::from_bytes(&[0; 7], DType::F32, [2]),
        "from_bytes: 7 bytes do not fill shape (2,) of f32"
    );
}

#[test]
fn positions_that_are_not_there() {
    let _engine = own_engine();
    let t = floats(&[2, 3]);
    refuses!(
        t.get(2),
        "slice: position 2 of axis 0 of shape (2, 3) does not exist"
    );
    refuses!(
        t.slice((.., -4)),
        "slice: position -4 of axis 1 of shape (2, 3) does not exist"
    );
    refuses!(
        t.slice((0..3, ..)),
        "slice: 0..3 is no range within axis 0 of shape (2, 3)"
    );
    refuses!(
        t.narrow(1, -1..1),
        "slice: -1..1 is no range within axis 1 of shape (2, 3)"
    );
    refuses!(
        t.slice((0, 0, 0)),
        "slice: 3 slices of shape (2, 3), which has 2 axes"
    );
    refuses!(t.slice(Slice::Every(0)), "slice: a step of 0 never ends");
    refuses!(
        t.take(&t),
        "take: positions are integers, not f32; cast them"
    );
    refuses!(
        t.one_hot(3),
        "one_hot: labels are integers, not f32; cast them"
    );
}

#[test]
fn dtypes_that_do_not_fit() {
    let _engine = own_engine();
    let (floats, ints, bools) = (
        Tensor::from([1.0f32]),
        Tensor::from([1i32]),
        Tensor::from([true]),
    );
    refuses!(
        floats.where_(1, 2),
        "where: the condition is f32, not bool; compare it with something"
    );
    refuses!(
        bools.sub(&bools),
        "sub: bool has no sign; use xor or ne, or cast to an integer"
    );
    refuses!(
        bools.neg(),
        "neg: bool has no sign; use xor or ne, or cast to an integer"
    );
    refuses!(
        floats.shl(2),
        "shl: needs integers, not f32; cast or use div"
    );
    refuses!(
        floats.and(&floats),
        "and: needs integers or bools, not f32; compare first"
    );
    refuses!(ints.frac(), "frac: i32 has no fraction; cast to a float");
    refuses!(
        Tensor::from([1u8]).add(300),
        "add: 300 does not fit u8; cast the tensor first"
    );
    refuses!(
        ints.pow(-1),
        "pow: i32 to the power -1 is a fraction; cast to f32"
    );
    refuses!(
        ints.to_vec::<f32>(),
        "to_vec: the tensor holds i32, not f32; cast it first"
    );
    refuses!(
        Tensor::from([1i32, 2]).item(),
        "item: shape (2,) has 2 elements, not one; use to_vec"
    );
    refuses!(
        Tensor::from_bytes(&[0, 2], DType::Bool, [2]),
        "from_bytes: the byte 2 is no bool; 0 is false and 1 is true"
    );
    refuses!(
        uopc::tensor::Generator::new(0).randn_as(DType::I32, [2]),
        "randn: random numbers are floats, not i32; cast the result"
    );
    refuses!(
        floats.cross_entropy(&ints),
        "cross_entropy: logits of shape (1,) and labels of shape (1,) do not fit; labels have the \
         logits' shape without the last axis, the classes",
    );
    let logits = floats.reshape([1, 1]).unwrap();
    refuses!(
        logits.cross_entropy(&floats),
        "cross_entropy: labels are integers, not f32; cast them"
    );
}

#[test]
fn gradients_that_are_not_there() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let data = floats(&[2]);
    let loss = w.square().unwrap().sum(..).unwrap();
    refuses!(
        w.square().unwrap().backward(&[&w]),
        "gradient: backward needs a scalar, not shape (2,); take its sum or mean first"
    );
    refuses!(
        loss.backward(&[&w, &data]),
        "gradient: parameter 1 in the list, of shape (2,), needs no gradient; make it with \
         requires_grad before it is used",
    );
    let nothing = "gradient: the loss depends on no tensor that needs a gradient: everything in it \
                   is detached, made under no_grad, not made with requires_grad, or has dropped out, as x \
                   does of x to the power 0";
    refuses!(data.sum(..).unwrap().backward(&[&w]), nothing);
    refuses!(loss.detach().unwrap().backward(&[&w]), nothing);
    let unseen = {
        let _off = no_grad();
        w.sum(..).unwrap()
    };
    refuses!(unseen.backward(&[&w]), nothing);
    refuses!(
        Tensor::from([1i32]).requires_grad(),
        "requires_grad: i32 has no gradients; cast to f32 first"
    );
    refuses!(
        AdamW::new(vec![data.clone()], 0.1),
        "gradient: tensor 0 in the list, of shape (2,), is no parameter; make it with requires_grad"
    );
    refuses!(
        Sgd::new(vec![w.clone(), w.clone()], 0.1),
        "gradient: parameter 1 in the list is there twice; name each once"
    );
    refuses!(
        Sgd::new(vec![], 0.1),
        "gradient: there is no parameter to update; the list is empty"
    );
    let mut optimizer = Sgd::new(vec![w.clone()], 0.1).unwrap();
    refuses!(
        optimizer.step(),
        "gradient: no parameter has a gradient; call backward on the loss first"
    );
    refuses!(
        w.assign(floats(&[3])),
        "assign: a tensor of shape (2,) can't take a value of shape (3,)"
    );
    refuses!(
        w.assign(Tensor::from([1.0, 2.0])),
        "assign: a tensor of dtype f32 can't take f64; cast the value"
    );
}

/// Every path to a parameter is cut: the error names the op that cuts, and its line.
#[test]
fn a_parameter_that_is_cut_off_is_reported_with_the_place() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[1.0, 2.0], &[2]), parameter(&[3.0], &[1]));
    let cut = w.detach().unwrap();
    let line = line!() - 1;
    let loss = (cut * &v).sum(..).unwrap();
    let error = loss.backward(&[&v, &w]).unwrap_err().to_string();
    assert!(
        error.contains("target 1, buffer f32 (2,)") && error.contains("by stage detach"),
        "{error}"
    );
    assert!(
        error.ends_with(&format!("(at {}:{line})", file!())),
        "{error}"
    );

    let compared = w.gt(0.0).unwrap();
    let line = line!() - 1;
    let loss = (compared.cast(DType::F32).unwrap() * &v).sum(..).unwrap();
    let error = loss.backward(&[&w]).unwrap_err().to_string();
    assert!(error.contains("comparisons have no derivative"), "{error}");
    assert!(
        error.ends_with(&format!("(at {}:{line})", file!())),
        "{error}"
    );
    assert!(w.grad().is_none() && v.grad().is_none());
}

/// A parameter that the loss plainly does not mention gets zeros.
#[test]
fn a_parameter_that_is_not_mentioned_gets_zeros() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[1.0, 2.0], &[2]), parameter(&[3.0], &[1]));
    v.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward(&[&w, &v])
        .unwrap();
    assert_eq!((gradient(&w), gradient(&v)), (vec![0.0, 0.0], vec![6.0]));
}

/// A binding names the line of its script: it comes before the lines of the binding itself, and
/// the outermost one counts.
#[test]
fn errors_and_nodes_name_the_line_of_a_script() {
    let _engine = own_engine();
    let (a, b) = (floats(&[4]), floats(&[3]));
    let error = {
        let _line = Site::script("model.py", 31).enter();
        let _inner = Site::script("library.py", 7).enter();
        a.add(&b).unwrap_err().to_string()
    };
    assert!(error.ends_with(" (at model.py:31)"), "{error}");
    let node = {
        let _line = Site::script("model.py", 32).enter();
        a.mul(&a).unwrap().uop()
    };
    let site = node.site().unwrap();
    assert_eq!(site.to_string(), "model.py:32");
    let again = Site::script(&String::from("model.py"), 32);
    assert!(site == again && site != Site::script("model.py", 31));
    assert!(site != Site::script("other.py", 32) && site != Site::caller());
    // After the script's lines those of this file are named again.
    refuses!(
        a.reshape([3]),
        "reshape: (4,) has 4 elements, (3,) has 3; they must agree",
    );
}

#[test]
fn arguments_that_are_not_there_are_refused() {
    use uopc::Error;
    use uopc::transform::{Mode, flat};
    let f = |args: &[Tensor]| Ok(vec![args[0].sum(..)?]);
    let x = [Tensor::from([1.0f64, 2.0])];
    let refused = |e: Option<Error>| {
        let e = e.expect("there is one argument").to_string();
        assert!(e.contains("no argument 3 to differentiate by"), "{e}");
    };
    refused(flat::value_and_grad(&f, &x, &[0, 3]).err());
    refused(flat::vjp(&f, &x, &[3]).err());
    refused(flat::hessian(&f, &x, &[3]).err());
    for mode in [Mode::Forward, Mode::Reverse, Mode::Best] {
        refused(flat::jacobian(&f, &x, &[3], mode).err());
    }
}
