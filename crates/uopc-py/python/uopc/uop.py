"""Graphs: nodes, their operations, and the text form ``.uir``.

>>> from uopc.uop import UOp, Ops
>>> x, y = UOp.buffer(3, slot=0), UOp.buffer(3, slot=1)
>>> print((x * y + x).reduce(Ops.ADD, 1).to_uir(), end="")
%0 = buffer 3 : dtype=f32 slot=0
%1 = buffer 3 : dtype=f32 slot=1
%2 = mul %0, %1
%3 = add %2, %0
%4 = reduce %3, ADD, 1
"""

import enum

from ._uopc import LiveBuffer, UOp, from_uir, to_uir

__all__ = ["LiveBuffer", "Ops", "UOp", "from_uir", "to_uir"]


class Ops(enum.Enum):
    """The operations; a member's value is its word in ``.uir`` text.

    What each does stands in docs/reference/ops.md. This is what ``UOp.arg`` is, and what ``UOp(op,
    src, arg)`` takes; operations that are not listed have none (None).

    ========================  =========================================================
    CONST                     the number or bool; its dtype is that of the node
    BUFFER                    (n, dtype, slot), or a LiveBuffer in place of the slot
    PARAM                     (n, dtype, slot, mode), mode "in", "out" or "inout"
    IOTA                      (n, dtype)
    SIN                       quarter turns that are added, 0 to 3; taken as 0 if left out
    CAST, BITCAST             the dtype
    RESHAPE, EXPAND           the shape, a tuple
    SCATTER_ADD               the shape of the result, a tuple
    PERMUTE                   a tuple: axis k of the result is axis arg[k] of the source
    SHRINK                    a tuple with (begin, end) for each axis
    REDUCE                    (Ops.ADD, Ops.MAX or Ops.MUL, number of last axes), and as a third
                              "lanes" or "chain" where the order of a float sum is not the one
                              that the library chooses
    SCAN                      Ops.ADD, Ops.MAX or Ops.MUL
    CUSTOM                    the name
    STAGE                     "detach", "materialise", "remat", "remat_input" or "within"
    RANGE                     (id, exec), exec "serial", "unroll", "vector" or "thread"; an id
                              alone is taken as serial
    STORE                     (combine, gated), combine "set", "add", "max", "mul" or "mulacc";
                              gated says whether the last source is a gate
    LOCAL                     (n, dtype, id, space), space "reg", "cache" or "arena"
    CALL                      (name, number of outputs)
    LET                       the number of the name
    DECLARE                   a combine whose identity it starts with, or None
    ========================  =========================================================

    >>> from uopc.uop import Ops
    >>> Ops.ADD.value, Ops("add")
    ('add', Ops.ADD)
    """

    # leaves
    CONST = "const"
    BUFFER = "buffer"
    PARAM = "param"
    IOTA = "iota"

    # arithmetic, element by element
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    RECIP = "recip"
    DIV = "div"
    EXP2 = "exp2"
    LOG2 = "log2"
    EXP = "exp"
    SQRT = "sqrt"
    SIN = "sin"
    TRUNC = "trunc"
    MULACC = "mulacc"
    CAST = "cast"
    BITCAST = "bitcast"
    WHERE = "where"
    CMPLT = "cmplt"
    CMPNE = "cmpne"
    FLOORDIV = "floordiv"
    FLOORMOD = "floormod"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"

    # movement
    RESHAPE = "reshape"
    EXPAND = "expand"
    PERMUTE = "permute"
    SHRINK = "shrink"

    # structure
    STACK = "stack"
    INDEX = "index"
    SCATTER_ADD = "scatter_add"
    REDUCE = "reduce"
    SCAN = "scan"
    ARGSORT = "argsort"
    CUSTOM = "custom"

    # markers
    STAGE = "stage"

    # loops and effects
    RANGE = "range"
    END = "end"
    STORE = "store"
    LOAD = "load"
    LOCAL = "local"
    SINK = "sink"
    AFTER = "after"
    CALL = "call"

    # the linear program
    LOOP = "loop"
    ENDLOOP = "endloop"
    IF = "if"
    ENDIF = "endif"
    LET = "let"
    DECLARE = "declare"
    BARRIER = "barrier"

    def __repr__(self) -> str:
        return f"Ops.{self.name}"
