from collections.abc import Sequence
from typing import Any, Callable, List, Optional, Tuple, TypeVar, Union, final

__all__ = [
    "Comparison",
    "GradcheckReport",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]

_Argnums = Union[int, Sequence[int]]
_T = TypeVar("_T")

@final
class Comparison:
    @property
    def argument(self) -> str: ...
    @property
    def shape(self) -> Tuple[int, ...]: ...
    @property
    def compared(self) -> str: ...
    @property
    def found(self) -> float: ...
    @property
    def wanted(self) -> float: ...
    @property
    def error(self) -> float: ...
    @property
    def allowed(self) -> float: ...
    @property
    def verdict(self) -> str: ...

@final
class GradcheckReport:
    @property
    def passed(self) -> bool: ...
    @property
    def comparisons(self) -> List[Comparison]: ...
    def __bool__(self) -> bool: ...

def grad(
    f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]: ...
def value_and_grad(
    f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]: ...
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Tuple[Any, ...]: ...
def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Tuple[Any, ...]: ...
def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]: ...
def jacobian(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...
def jacfwd(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...
def jacrev(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...
def hessian(f: Callable[..., Any], argnums: _Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...
def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any: ...
def gradcheck(
    f: Callable[..., Any],
    args: Any,
    *,
    step: Optional[float] = None,
    directions: Optional[int] = None,
    tolerance: Optional[float] = None,
    second_order: bool = True,
    seed: int = 0,
) -> GradcheckReport: ...
def stop_gradient(tree: _T) -> _T: ...
