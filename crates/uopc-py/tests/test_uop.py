"""Nodes from Python: constructors, arguments, operators, text, pickling, long chains."""

import copy
import enum
import math
import pickle
import sys

import numpy as np
import pytest

import uopc
from uopc import Tensor, _uopc
from uopc.uop import LiveBuffer, Ops, UOp, from_uir, to_uir

DTYPES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]


def buf(slot=0, n=3, dtype="f32"):
    return UOp.buffer(n, dtype, slot)


# ---- the table of operations ----


def test_ops_are_those_of_the_table():
    table = _uopc.op_table()
    assert issubclass(Ops, enum.Enum)
    assert [op.name for op in Ops] == [row[0].upper() for row in table]
    assert [op.value for op in Ops] == [row[0] for row in table]


def test_the_documentation_of_arguments_names_only_operations():
    rows = [line.strip() for line in Ops.__doc__.splitlines() if line.strip()[:3].isupper()]
    named = {word.strip(",") for line in rows for word in line.split("  ")[0].split()}
    assert named and named <= {op.name for op in Ops}


def examples():
    """A node of every operation, by the operation's name."""
    x, y, m = buf(0), buf(1), buf(2, 6, "i32").reshape(2, 3)
    c = UOp.const
    i = buf(3, 3, "i32")
    n = c(3)
    r = UOp(Ops.RANGE, (n,), (0, "thread"))
    memory = UOp(Ops.PARAM, (), (3, uopc.uop.UOp.buffer(1).dtype, 0, "out"))
    scratch = UOp(Ops.LOCAL, (), (4, "f32", 2, "cache"))
    value = UOp(Ops.LOAD, (scratch, c(0)))
    store = UOp(Ops.STORE, (memory, r, value, c(True)), ("add", True))
    end = UOp(Ops.END, (store, r))
    body = UOp(Ops.SINK, (end,))
    call = UOp(Ops.CALL, (body, x), ("a name", 1))
    truth = x < y
    return {
        "CONST": c(0.1),
        "BUFFER": x,
        "PARAM": memory,
        "IOTA": UOp(Ops.IOTA, (), (5, "i64")),
        "ADD": x + y,
        "MUL": x * y,
        "MAX": x.maximum(y),
        "RECIP": x.recip(),
        "DIV": x / y,
        "EXP2": x.exp2(),
        "LOG2": x.log2(),
        "EXP": x.exp(),
        "SQRT": x.sqrt(),
        "SIN": UOp(Ops.SIN, (x,), 3),
        "TRUNC": x.trunc(),
        "MULACC": x.mulacc(y, x),
        "CAST": x.cast("f16"),
        "BITCAST": x.bitcast("u32"),
        "WHERE": truth.where(x, y),
        "CMPLT": truth,
        "CMPNE": x.ne(y),
        "FLOORDIV": i // 2,
        "FLOORMOD": i % 2,
        "AND": i & 2,
        "OR": i | 2,
        "XOR": i ^ 2,
        "SHL": i << 2,
        "SHR": i >> 2,
        "RESHAPE": m,
        "EXPAND": x.reshape(1, 3).expand(2, 3),
        "PERMUTE": m.permute(1, 0),
        "SHRINK": m.shrink(((0, 1), (1, 3))),
        "STACK": UOp.stack(x, y),
        "INDEX": m.index(i),
        "SCATTER_ADD": x.scatter_add(i, shape=(7,)),
        "REDUCE": m.reduce(Ops.MAX, 2),
        "SCAN": UOp(Ops.SCAN, (x,), Ops.MUL),
        "ARGSORT": UOp(Ops.ARGSORT, (x,)),
        "CUSTOM": UOp(Ops.CUSTOM, (x,), "mine"),
        "STAGE": x.stage("remat"),
        "RANGE": r,
        "END": end,
        "STORE": store,
        "LOAD": value,
        "LOCAL": scratch,
        "SINK": body,
        "AFTER": UOp(Ops.AFTER, (x, call)),
        "CALL": call,
        "LOOP": UOp(Ops.LOOP, (r,)),
        "ENDLOOP": UOp(Ops.ENDLOOP, (r,)),
        "IF": UOp(Ops.IF, (c(True),)),
        "ENDIF": UOp(Ops.ENDIF, (c(True),)),
        "LET": UOp(Ops.LET, (value,), 4),
        "DECLARE": UOp(Ops.DECLARE, (scratch,), "max"),
        "BARRIER": UOp(Ops.BARRIER),
    }


EXAMPLES = examples()


def test_there_is_an_example_of_every_operation():
    assert list(EXAMPLES) == [op.name for op in Ops]
    for name, u in EXAMPLES.items():
        assert u.op is Ops[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_node_is_made_again_from_its_parts(name):
    u = EXAMPLES[name]
    assert UOp(u.op, u.src, u.arg) == u
    assert UOp(u.op, u.src, u.arg, u.dtype) == u
    assert UOp(u.op, list(u.src), u.arg).arg == u.arg


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_node_is_read_back_from_its_text_and_from_a_pickle(name):
    u = EXAMPLES[name]
    assert from_uir(u.to_uir()) == u
    assert pickle.loads(pickle.dumps(u)) == u


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_repr_is_one_line_that_names_the_operation(name):
    text = repr(EXAMPLES[name])
    assert text.startswith(f"UOp(Ops.{name}") and "\n" not in text
    assert repr(EXAMPLES["REDUCE"]) == "UOp(Ops.REDUCE, arg=(Ops.MAX, 2), dtype=i32, shape=())"


def test_arguments_are_python_values():
    arg = {name: u.arg for name, u in EXAMPLES.items()}
    f32 = buf().dtype
    assert arg["BUFFER"] == (3, f32, 0)
    assert arg["PARAM"] == (3, f32, 0, "out")
    assert arg["LOCAL"] == (4, f32, 2, "cache")
    assert arg["RESHAPE"] == (2, 3) and arg["PERMUTE"] == (1, 0)
    assert arg["SHRINK"] == ((0, 1), (1, 3))
    assert arg["REDUCE"] == (Ops.MAX, 2) and arg["SCAN"] is Ops.MUL
    assert arg["STAGE"] == "remat" and arg["CAST"] == "f16"
    assert arg["SIN"] == 3 and EXAMPLES["SIN"].src[0].sin().arg == 0
    assert arg["RANGE"] == (0, "thread") and arg["STORE"] == ("add", True)
    assert arg["CALL"] == ("a name", 1) and arg["DECLARE"] == "max"
    assert arg["ADD"] is None and arg["STACK"] is None


def test_the_fold_of_a_sum_is_an_argument_where_it_is_not_the_libraries_choice():
    a, b = buf(0, 6).reshape(2, 1, 3), buf(1, 6).reshape(1, 2, 3)
    product = a.expand(2, 2, 3) * b.expand(2, 2, 3)
    chosen = product.reduce(Ops.ADD, 1)
    assert chosen.arg == (Ops.ADD, 1) and "fold=chain" in chosen.to_uir()
    other = UOp(Ops.REDUCE, (product,), (Ops.ADD, 1, "lanes"))
    assert other != chosen and other.arg == (Ops.ADD, 1, "lanes")
    assert UOp(other.op, other.src, other.arg) == other
    assert UOp(Ops.REDUCE, (product,), (Ops.ADD, 1, "chain")) == chosen


# ---- constants ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_dtype(dtype):
    u = UOp.const(1, dtype)
    assert u.dtype == dtype and u.shape == () and u.arg == 1
    assert UOp(u.op, u.src, u.arg, u.dtype) == u
    assert from_uir(u.to_uir()) == u
    kind = bool if dtype == "bool" else float if "f" in dtype else int
    assert type(u.arg) is kind


def test_numbers_have_the_default_dtypes():
    assert [UOp.const(v).dtype for v in (1.5, 2, True)] == ["f32", "i32", "bool"]
    assert UOp.const(np.float64(0.5)) == UOp.const(0.5)
    assert UOp.const(np.int64(5)) == UOp.const(5)
    assert UOp.const(np.True_) == UOp.const(True)


def test_special_numbers_are_told_apart():
    assert UOp.const(0.0) != UOp.const(-0.0)
    assert math.copysign(1.0, UOp.const(-0.0).arg) == -1.0
    assert UOp.const(math.nan) == UOp.const(math.nan)
    assert math.isnan(UOp.const(math.nan).arg)
    assert UOp.const(math.inf, "f16").arg == math.inf
    assert UOp.const(2**64 - 1, "u64").arg == 2**64 - 1
    assert UOp.const(-(2**63), "i64").arg == -(2**63)
    # The nearest number that the dtype has.
    assert UOp.const(0.1).arg == float(np.float32(0.1))


def test_numbers_that_a_dtype_does_not_hold_are_refused():
    with pytest.raises(OverflowError, match="does not fit i32"):
        UOp.const(2**31)
    with pytest.raises(OverflowError, match="does not fit u8"):
        UOp.const(-1, "u8")
    with pytest.raises(TypeError, match="no i32"):
        UOp.const(1.5, "i32")
    with pytest.raises(OverflowError):
        UOp.const(10**60)
    for wrong in ("1", None, [1.0], Tensor(1.0), np.zeros(2), 1j):
        with pytest.raises(TypeError):
            UOp.const(wrong)


# ---- identity ----


def test_equal_nodes_are_one():
    a, b = buf() * 2.0 + 1.0, buf() * 2.0 + 1.0
    assert a == b and not a != b and hash(a) == hash(b)
    assert a != buf() * 3.0 and len({a, b, buf()}) == 2
    assert a != 1 and a != "a" and not a == None  # noqa: E711
    assert copy.copy(a) is a and copy.deepcopy(a) is a


def test_buffers_with_memory_are_told_apart_by_identity():
    numbers = np.array([1.0, 2.0], np.float32)
    a, b = Tensor(numbers).uop, Tensor(numbers).uop
    assert a != b
    live = [u for u in a.toposort() if u.op is Ops.BUFFER][0]
    n, dtype, memory = live.arg
    assert (n, dtype) == (2, "f32") and isinstance(memory, LiveBuffer)
    assert UOp(live.op, live.src, live.arg) == live
    other = [u for u in b.toposort() if u.op is Ops.BUFFER][0].arg[2]
    assert memory != other and memory == live.arg[2] and hash(memory) == hash(live.arg[2])
    assert memory.id != other.id and str(memory.id) in repr(memory)


def test_live_memory_is_not_pickled():
    u = Tensor([1.0, 2.0]).uop
    with pytest.raises(TypeError, match="pickle the computed tensors"):
        pickle.dumps(u * u)
    live = u.toposort()[0].arg[2]
    with pytest.raises(TypeError, match="pickle the tensor"):
        pickle.dumps(live)


def test_a_node_is_neither_true_nor_false():
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(buf())
    with pytest.raises(TypeError):
        buf() <= buf(1)


# ---- operators ----


def test_operators_are_the_operations():
    x, y, i, j = buf(0), buf(1), buf(2, 3, "i32"), buf(3, 3, "i32")
    minus = x.full_like(-1)
    assert x + y == UOp(Ops.ADD, (x, y)) and x * y == UOp(Ops.MUL, (x, y))
    assert x / y == UOp(Ops.DIV, (x, y)) and -x == x * minus and x - y == x + y * minus
    assert i // j == UOp(Ops.FLOORDIV, (i, j)) and i % j == UOp(Ops.FLOORMOD, (i, j))
    assert i & j == UOp(Ops.AND, (i, j)) and i | j == UOp(Ops.OR, (i, j))
    assert i ^ j == UOp(Ops.XOR, (i, j)) and ~i == i ^ i.full_like(-1)
    assert i << j == UOp(Ops.SHL, (i, j)) and i >> j == UOp(Ops.SHR, (i, j))
    assert (x < y) == UOp(Ops.CMPLT, (x, y)) and (x > y) == (y < x)
    assert x.lt(y) == x.cmplt(y) == (x < y) and x.ne(y) == x.cmpne(y) == UOp(Ops.CMPNE, (x, y))
    assert x.eq(y) == ~x.ne(y) and +x is x
    assert x.reciprocal() == x.recip()


def test_numbers_stand_for_constants_of_the_nodes_dtype_and_shape():
    x, i = buf(0, 6).reshape(2, 3), buf(1, 3, "i64")
    two = UOp.const(2.0).reshape(1, 1).expand(2, 3)
    assert x + 2 == x + 2.0 == x + two and 2 + x == two + x
    assert 2 - x == two - x and 2 * x == two * x and 2 / x == two / x
    assert (i + 2).dtype == "i64" and (2**40 + i).dtype == "i64"
    assert 7 // i == i.full_like(7) // i and 7 % i == i.full_like(7) % i
    assert 1 << i == i.full_like(1) << i and 8 >> i == i.full_like(8) >> i
    assert 3 & i == i.full_like(3) & i and 3 | i == i.full_like(3) | i and 3 ^ i == i.full_like(3) ^ i
    assert (2 < x) == (two < x) and (2 > x) == (x < two)
    assert np.float32(2) * x == two * x and x * np.float64(2) == x * two
    s = UOp.const(1.0)
    assert (s + 2).src[1] == UOp.const(2.0)


def test_what_does_not_fit_is_refused():
    x = buf()
    with pytest.raises(ValueError, match=r"shapes \(3,\) and \(4,\) differ"):
        x + buf(1, 4)
    with pytest.raises(TypeError, match="dtypes f32 and i32 differ"):
        x + buf(1, 3, "i32")
    with pytest.raises(TypeError, match="no i32"):
        buf(1, 3, "i32") * 0.5
    with pytest.raises(OverflowError, match="does not fit u8"):
        buf(1, 3, "u8") + 256
    with pytest.raises(TypeError, match="needs a float"):
        buf(1, 3, "i32").sqrt()
    for other in ("1", None, [1.0], np.ones(3), Tensor([1.0, 2.0, 3.0])):
        with pytest.raises(TypeError):
            x + other
        with pytest.raises(TypeError):
            other * x
        with pytest.raises(TypeError):
            x.maximum(other)


def test_where_takes_a_number_on_either_side():
    x = buf()
    c = x < 0.0
    assert c.where(0.0, x) == UOp(Ops.WHERE, (c, x.full_like(0.0), x))
    assert c.where(x, 1) == UOp(Ops.WHERE, (c, x, x.full_like(1.0)))
    with pytest.raises(TypeError, match="one of the two is a UOp"):
        c.where(0.0, 1.0)
    with pytest.raises(TypeError, match="not bool"):
        x.where(x, x)


# ---- movement and structure ----


def test_movement_takes_tuples_or_numbers():
    x = buf(0, 6)
    m = x.reshape(2, 3)
    assert x.reshape((2, 3)) == x.reshape([2, 3]) == m and m.reshape((2, 3)) == m
    assert m.permute(1, 0) == m.permute((1, 0)) and m.permute(0, 1) == m
    assert x.reshape(1, 6).expand(2, 6).shape == (2, 6)
    assert m.shrink([(0, 1), (0, 3)]).shape == (1, 3) and m.shrink(((0, 2), (0, 3))) == m
    assert buf(0, 1).reshape(()).shape == () and buf(0, 1).reshape().shape == ()


def test_scatter_add_is_the_transpose_of_index():
    values = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).uop
    at = Tensor([2, 0, 2]).uop
    assert values.scatter_add(at, shape=(3, 2)) == UOp(Ops.SCATTER_ADD, (values, at), (3, 2))
    run = lambda u: Tensor.from_uop(u).tolist()
    assert run(values.scatter_add(at, shape=(3, 2))) == [[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]]
    column = Tensor([1, 1, 9]).uop
    both = values.reduce(Ops.ADD, 1).scatter_add(at, column, shape=[3, 2])
    assert run(both) == [[0.0, 7.0], [0.0, 0.0], [0.0, 3.0]]
    table = Tensor([[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]).uop
    (g,) = uopc.gradient.gradient((table.index(at) * values).reduce(Ops.ADD, 2), [table])
    assert run(g) == run(values.scatter_add(at, shape=(3, 2)))


def test_shapes_are_strict():
    m = buf(0, 6).reshape(2, 3)
    for wrong in (lambda: m.reshape(4), lambda: m.reshape(-1), lambda: m.expand(4, 3),
                  lambda: m.permute(0, 0), lambda: m.permute(0), lambda: m.shrink([(0, 3), (0, 3)]),
                  lambda: m.shrink([(0, 2)]), lambda: m.shrink([(0, 1, 2), (0, 3)]),
                  lambda: m.reduce(Ops.ADD, 3), lambda: m.permute(0, 300),
                  lambda: m.reduce(Ops.ADD, 999), lambda: m.index(0, 0, 0),
                  lambda: m.scatter_add(UOp.iota(3), shape=(4, 3)), lambda: m.scatter_add(shape=(2, 4)),
                  lambda: m.scatter_add(UOp.iota(2), shape=(-4, 3)),
                  lambda: m.scatter_add(UOp.iota(2), UOp.iota(2), UOp.iota(2), shape=(4, 3))):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: m.reshape(1.5), lambda: m.reshape("6"), lambda: m.permute(True, 0),
                  lambda: m.reduce(Ops.SIN, 1), lambda: m.reduce("add", 1), lambda: m.index(0.5),
                  lambda: m.index(buf()), lambda: m.shrink(5), lambda: UOp.stack(1, 2),
                  lambda: m.scatter_add(buf(0, 2), shape=(4, 3)), lambda: m.scatter_add(0, shape=(4, 3)),
                  lambda: m.scatter_add(UOp.iota(2), shape=(4.0, 3)), lambda: m.scatter_add(UOp.iota(2))):
        with pytest.raises(TypeError):
            wrong()


def test_sizes_beyond_memory_are_no_problem_for_shapes():
    big = UOp.buffer(2**62)
    assert big.shape == (2**62,) and (big + 1.0).shape == (2**62,)
    huge = UOp.const(0.0).reshape(1, 1, 1).expand(2**40, 2**40, 2**40)
    assert huge.shape == (2**40,) * 3
    with pytest.raises(ValueError):
        UOp.buffer(2**70)
    with pytest.raises(ValueError):
        UOp.buffer(-1)


def test_index_by_numbers_and_by_nodes():
    m, i = buf(0, 6).reshape(2, 3), buf(1, 4, "i64")
    assert m.index(1) == UOp(Ops.INDEX, (m, UOp.const(1))) and m.index(1).shape == (3,)
    assert m.index(1, 2).shape == () and m.index(i).shape == (4, 3)
    # A number beside a node is a constant of the node's shape and dtype.
    assert m.index(1, i) == UOp(Ops.INDEX, (m, i.full_like(1), i))
    for out in (2, 5):
        with pytest.raises(IndexError):
            m.index(out)
    with pytest.raises(ValueError):
        m.index(-1)


def test_stack_joins():
    x, y = buf(0), buf(1)
    assert UOp.stack(x, y) == UOp.stack([x, y]) == UOp(Ops.STACK, (x, y))
    assert UOp.stack(x).shape == (1, 3)
    with pytest.raises(ValueError):
        UOp.stack()
    with pytest.raises(TypeError, match="differ"):
        UOp.stack(x, y.cast("f16"))


# ---- the constructor's complaints ----


@pytest.mark.parametrize("op", [op for op in Ops if EXAMPLES[op.name].arg is None])
def test_operations_without_an_argument_take_none(op):
    u = EXAMPLES[op.name]
    with pytest.raises(TypeError, match="takes no argument"):
        UOp(op, u.src, 1)


NEEDING = [op for op in Ops if EXAMPLES[op.name].arg is not None and op not in (Ops.SIN, Ops.DECLARE)]


@pytest.mark.parametrize("op", NEEDING)
def test_operations_with_an_argument_say_what_it_looks_like(op):
    u = EXAMPLES[op.name]
    for wrong in (None, object()):
        with pytest.raises(TypeError, match="argument|number|member"):
            UOp(op, u.src, wrong)


def test_wrong_constructions_are_errors_of_the_right_kind():
    x = buf()
    cases = [
        (TypeError, ("add", (x, x))),
        (TypeError, (Ops.ADD, (x, 1))),
        (TypeError, (Ops.ADD, x)),
        (TypeError, (Ops.ADD, (x, Tensor([1.0, 2.0, 3.0])))),
        (ValueError, (Ops.ADD, (x,))),
        (ValueError, (Ops.ADD, ())),
        (TypeError, (Ops.ADD, (x, x), None, "f16")),
        (ValueError, (Ops.STAGE, (x,), "nothing")),
        (ValueError, (Ops.SIN, (x,), 4)),
        (ValueError, (Ops.SIN, (x,), 400)),
        (ValueError, (Ops.PARAM, (), (3, "f32", 0, "sideways"))),
        (TypeError, (Ops.BUFFER, (), (3, "f33", 0))),
        (ValueError, (Ops.BUFFER, (), (3, "f32"))),
        (ValueError, (Ops.BUFFER, (), (3, "f32", -1))),
        (ValueError, (Ops.BUFFER, (), (3, "f32", 2**32))),
        (TypeError, (Ops.REDUCE, (x,), (Ops.SIN, 1))),
        (ValueError, (Ops.REDUCE, (x,), (Ops.ADD, 1, "sideways"))),
        (ValueError, (Ops.IOTA, (), (-3, "i32"))),
        (TypeError, (Ops.IOTA, (), (3, "f32"))),
        (TypeError, (Ops.IOTA, (), (300, "i8"))),
    ]
    for error, arguments in cases:
        with pytest.raises(error):
            UOp(*arguments)


def test_an_error_names_the_line():
    with pytest.raises(ValueError) as error:
        buf() + buf(1, 4)
    assert __file__ in str(error.value)


# ---- text ----


def test_text_of_several_roots():
    x = buf()
    text = to_uir([x + x, x])
    assert text.endswith("; roots: %1, %0\n")
    assert from_uir(text) == [x + x, x] and from_uir(to_uir(x)) == x
    assert from_uir("; roots: 1.0, 2\n") == [UOp.const(1.0), UOp.const(2)]
    assert to_uir((x,)) == x.to_uir()
    with pytest.raises(TypeError):
        to_uir("x")
    with pytest.raises(TypeError):
        to_uir([1])


def test_live_buffers_print_as_slots():
    t = Tensor(np.array([1.0, 2.0], np.float32))
    assert (t.uop * t.uop).to_uir() == to_uir([t.uop * t.uop])
    assert "%0 = buffer 2 : dtype=f32 slot=0" in to_uir(t)


def test_malformed_text_is_an_error_that_shows_the_place():
    for text in ("", "%0 = nothing\n", "%0 = add %1, %2\n", "\x00", "%0 = buffer 3 : dtype=f32\n"):
        with pytest.raises(ValueError):
            from_uir(text)
    with pytest.raises(ValueError) as error:
        from_uir("%0 = buffer 3 : dtype=f32 slot=0\n%1 = frobnicate %0\n")
    assert "frobnicate" in str(error.value) and "^" in str(error.value)


# ---- long chains ----


def test_a_chain_of_a_million_nodes():
    x = buf(0, 4)
    one = x.full_like(1.0)
    u = x
    for _ in range(1_000_000):
        u = u + one
    order = u.toposort()
    assert len(order) == 1_000_004 and order[0] == x and order[-1] == u
    text = u.to_uir()
    assert text.count("\n") == 1_000_003
    assert from_uir(text) == u
    del order
    before = sys.getrecursionlimit()
    del u
    assert sys.getrecursionlimit() == before and buf(0, 4) == x


def test_a_long_chain_is_pickled_and_copied():
    u = buf()
    for k in range(100_000):
        u = u * 2.0
    assert pickle.loads(pickle.dumps(u)) == u and copy.deepcopy(u) is u


# ---- tensors ----


def test_tensors_and_nodes():
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    u = t.uop
    assert isinstance(u, UOp) and u.shape == (2, 2)
    for made in (Tensor(u * u), Tensor.from_uop(u * u)):
        np.testing.assert_array_equal(made.numpy(), [[1, 4], [9, 16]])
    np.testing.assert_array_equal(Tensor(u.reduce(Ops.ADD, 1)).numpy(), [3, 7])
    assert Tensor(u, dtype="f16").dtype == "f16"
    with pytest.raises(TypeError):
        Tensor.from_uop(1)
    with pytest.raises(ValueError, match="holds no data"):
        Tensor(buf()).numpy()
    with pytest.raises(ValueError):
        Tensor(EXAMPLES["SINK"]).numpy()


def test_a_tensor_of_a_node_over_a_parameter_has_gradients():
    w = Tensor([1.0, 2.0], requires_grad=True)
    Tensor((w.uop * w.uop).reduce(Ops.ADD, 1)).backward([w])
    np.testing.assert_array_equal(w.grad.numpy(), [2, 4])


# ---- whatever is built, what is made of it is a result or an error ----

FINE = (ValueError, TypeError, RuntimeError, NotImplementedError, MemoryError)


def outcome(function):
    """What a call gives; an exception counts if it is one of those that users are told about."""
    try:
        return function()
    except FINE as error:
        assert "defect" not in str(error), error
        assert str(error)
        return error


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.filterwarnings("ignore::uopc.gradient.GradientWarning")
def test_any_node_may_be_asked_for_anything(name):
    u = EXAMPLES[name]
    axes = len(u.shape)
    for v in (u, u.cast("f32"), u.cast("i32")):
        for function in (
            lambda: Tensor(v).numpy(),
            lambda: (Tensor(v) + 1).sum().item(),
            lambda: Tensor(v, requires_grad=True),
            lambda: uopc.kernelize.make_plan(v)[0].explain(),
            lambda: uopc.kernelize.make_plan([v, v])[0].to_uir(),
            lambda: uopc.kernelize.listing(v, name="a b;"),
            lambda: uopc.gradient.gradient(v, [v, buf()]),
            lambda: uopc.composite.pad(v, ((1, 1),) * axes),
            lambda: uopc.composite.flip(v, list(range(axes))),
            lambda: uopc.composite.cat([v, v]),
        ):
            outcome(function)


def test_sizes_beyond_any_memory_are_no_reason_to_panic():
    big, most = UOp.const(0.0).reshape(1).expand(2**60), 2**63 - 1
    wide = UOp.buffer(most).reshape(1, most).expand(most, most)
    plan = uopc.kernelize.make_plan
    assert "flops" in outcome(lambda: plan(UOp.buffer(2**62) + 1.0)[0].explain())
    assert isinstance(outcome(lambda: Tensor(big).numpy()), MemoryError)
    for function in (
        lambda: plan(wide.reduce(Ops.ADD, 1))[0].explain(),
        lambda: plan(wide * 2.0)[0].kernels[0].flops,
        lambda: plan(big.reshape(2**30, 2**30).permute(1, 0))[0].kernels[0].source,
        lambda: plan(UOp.stack(*[big] * 100)),
        lambda: plan(uopc.composite.flip(UOp.buffer(2**62), 0))[0].explain(),
        lambda: uopc.composite.pad(big, ((2**62, 2**62),)),
        lambda: plan(uopc.composite.pad(UOp.buffer(2**59), ((2**59, 2**59),)))[0].explain(),
        lambda: plan(uopc.composite.cat([buf(k, 2**62) for k in range(3)])),
        lambda: plan(uopc.gradient.gradient(buf(0, 2**62).index(7), [buf(0, 2**62)])),
        lambda: UOp(Ops.SCATTER_ADD, (buf(), buf(1, 3, "i32")), (2**62, 2**62)),
        lambda: Tensor(UOp.iota(2**62, "i64").index(5)).item(),
        lambda: buf(0, 5).reshape((1,) * 300 + (5,)).permute(tuple(range(301))),
    ):
        outcome(function)
