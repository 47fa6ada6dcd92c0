"""uopc, a small and inspectable tensor compiler.

>>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> loss = (x * x).sum().backward()
>>> x.grad.numpy()
array([2., 4., 6.], dtype=float32)

A tensor is lazy: operations build a graph, which is compiled and computed as a whole when values
are asked for. What stands in the modules:

- ``uopc.Tensor``, ``uopc.no_grad``, the dtypes (``uopc.f32`` and so on), ``from_numpy``,
  ``from_dlpack``: what programs use
- ``uopc.grad``, ``value_and_grad``, ``vjp``, ``jvp``, ``vmap``, ``jacfwd``, ``jacrev``,
  ``jacobian``, ``hessian``, ``hvp``, ``gradcheck``, ``stop_gradient``: functions made from
  functions, explained in ``uopc.transform``; ``tree_map`` and others: ``uopc.tree``
- ``uopc.custom``, ``straight_through``, ``gradient_hook``, ``scale_gradient``, ``clip_gradient``:
  derivatives of one's own, in ``uopc.rules``
- ``uopc.explain_gradient``, ``find_nan``, ``strict_gradients``: why a gradient is zero, missing or
  NaN, in ``uopc.diagnose``
- ``uopc.nn``: layers, losses, optimisers; ``uopc.data``: data sets; ``uopc.io``: files of tensors
- ``uopc.uop``, ``uopc.composite``, ``uopc.gradient``, ``uopc.kernelize``: the graphs behind the
  tensors, their gradients, and the kernels they become
"""

from ._uopc import (
    DType,
    Generator,
    __version__,
    bf16,
    bfloat16,
    bool_,
    f16,
    f32,
    f64,
    float16,
    float32,
    float64,
    from_dlpack,
    from_numpy,
    i8,
    i16,
    i32,
    i64,
    int8,
    int16,
    int32,
    int64,
    u8,
    u16,
    u32,
    u64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .tensor import Tensor, no_grad
from . import composite, data, diagnose, gradient, io, kernelize, memory, nn, rules
from . import transform, tree, uop
from .diagnose import explain_gradient, find_nan, strict_gradients
from .memory import checkpoint, memory_limit
from .rules import clip_gradient, custom, gradient_hook, scale_gradient, straight_through
from .transform import (
    grad,
    gradcheck,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from .tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "DType",
    "Generator",
    "Tensor",
    "__version__",
    "bf16",
    "bfloat16",
    "bool_",
    "checkpoint",
    "clip_gradient",
    "composite",
    "custom",
    "data",
    "diagnose",
    "explain_gradient",
    "f16",
    "f32",
    "f64",
    "find_nan",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "grad",
    "gradcheck",
    "gradient",
    "gradient_hook",
    "hessian",
    "hvp",
    "i16",
    "i32",
    "i64",
    "i8",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "kernelize",
    "memory",
    "memory_limit",
    "nn",
    "no_grad",
    "rules",
    "scale_gradient",
    "stop_gradient",
    "straight_through",
    "strict_gradients",
    "transform",
    "tree",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "u16",
    "u32",
    "u64",
    "u8",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uop",
    "value_and_grad",
    "vjp",
    "vmap",
]
