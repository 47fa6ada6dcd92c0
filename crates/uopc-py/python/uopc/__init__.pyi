from typing import Any, Final, Optional, Union, final

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeAlias

from . import composite as composite
from . import data as data
from . import diagnose as diagnose
from . import gradient as gradient
from . import io as io
from . import kernelize as kernelize
from . import memory as memory
from . import nn as nn
from . import rules as rules
from . import transform as transform
from . import tree as tree
from . import uop as uop
from .diagnose import explain_gradient as explain_gradient
from .diagnose import find_nan as find_nan
from .diagnose import strict_gradients as strict_gradients
from .memory import checkpoint as checkpoint
from .memory import memory_limit as memory_limit
from .rules import clip_gradient as clip_gradient
from .rules import custom as custom
from .rules import gradient_hook as gradient_hook
from .rules import scale_gradient as scale_gradient
from .rules import straight_through as straight_through
from .tensor import Tensor as Tensor
from .tensor import no_grad as no_grad
from .transform import grad as grad
from .transform import gradcheck as gradcheck
from .transform import hessian as hessian
from .transform import hvp as hvp
from .transform import jacfwd as jacfwd
from .transform import jacobian as jacobian
from .transform import jacrev as jacrev
from .transform import jvp as jvp
from .transform import stop_gradient as stop_gradient
from .transform import value_and_grad as value_and_grad
from .transform import vjp as vjp
from .transform import vmap as vmap
from .tree import tree_flatten as tree_flatten
from .tree import tree_leaves as tree_leaves
from .tree import tree_map as tree_map
from .tree import tree_unflatten as tree_unflatten

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

__version__: Final[str]

_bool: TypeAlias = bool
_int: TypeAlias = int
_DTypeLike: TypeAlias = Union[DType, str, type, np.dtype[Any]]

@final
class DType:
    def __new__(cls, of: _DTypeLike) -> DType: ...
    @property
    def name(self) -> str: ...
    @property
    def itemsize(self) -> _int: ...
    @property
    def is_float(self) -> _bool: ...
    @property
    def is_int(self) -> _bool: ...
    def __eq__(self, other: object, /) -> _bool: ...
    def __hash__(self) -> _int: ...
    def __reduce__(self) -> Any: ...

@final
class Generator:
    def __new__(cls, seed: _int) -> Generator: ...
    def uniform(
        self,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: Optional[_DTypeLike] = None,
    ) -> Tensor: ...
    def randn(self, *shape: Any, dtype: Optional[_DTypeLike] = None) -> Tensor: ...
    def below(self, n: _int) -> _int: ...
    def permutation(self, n: _int) -> list[_int]: ...

bf16: Final[DType]
bfloat16: Final[DType]
bool_: Final[DType]
f16: Final[DType]
f32: Final[DType]
f64: Final[DType]
float16: Final[DType]
float32: Final[DType]
float64: Final[DType]
i8: Final[DType]
i16: Final[DType]
i32: Final[DType]
i64: Final[DType]
int8: Final[DType]
int16: Final[DType]
int32: Final[DType]
int64: Final[DType]
u8: Final[DType]
u16: Final[DType]
u32: Final[DType]
u64: Final[DType]
uint8: Final[DType]
uint16: Final[DType]
uint32: Final[DType]
uint64: Final[DType]

def from_numpy(a: npt.NDArray[Any], *, copy: Optional[_bool] = None) -> Tensor: ...
def from_dlpack(x: Any, /, *, copy: Optional[_bool] = None) -> Tensor: ...
