"""The layer of attention with several heads."""

from typing import TYPE_CHECKING, Optional, Tuple

from ..tensor import Tensor
from ._native import attention_parameters, multihead_attention
from .layers import Linear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention with several heads: queries (N, L, embed_dim), keys and values (N, S, embed_dim) are
    projected, divided into heads, attended and projected back. The batch comes first, and may be
    left out.

    ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj`` are ``Linear`` layers; weights start as Xavier's,
    biases at 0. With ``num_kv_heads`` several heads of queries share one of keys and values.
    ``dropout`` drops weights in training. Raises ValueError if heads do not divide embed_dim.

    >>> layer = uopc.nn.MultiheadAttention(8, 2)
    >>> x = Tensor.zeros(3, 5, 8)
    >>> y, weights = layer(x, x, x, is_causal=True)
    >>> y.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    q_proj: Linear
    """The projection of queries."""
    k_proj: Linear
    """The projection of keys."""
    v_proj: Linear
    """The projection of values."""
    out_proj: Linear
    """The projection of what the heads give."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        num_kv_heads: Optional[int] = None,
    ) -> None:
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        parts = attention_parameters(embed_dim, num_heads, kv_heads, bias)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear.of(weight, bias) for weight, bias in parts
        )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.dropout = dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """What queries find, and the weights (N, L, S), or (N, heads, L, S) if they are not to be
        averaged, or None if they are not needed.

        As in PyTorch, masks say what is *not* seen: ``key_padding_mask`` (N, S) keys, and
        ``attn_mask``, which broadcasts to (N, heads, L, S), pairs; or they are numbers that are added
        to the scores. With ``is_causal`` query i sees keys 0 to i only.
        """
        mask = None if attn_mask is None else _seen(attn_mask)
        if key_padding_mask is not None:
            shown = _seen(key_padding_mask).unsqueeze(-2).unsqueeze(-2)
            if mask is None:
                mask = shown
            elif mask.dtype == shown.dtype == "bool":
                mask = mask.logical_and(shown)
            else:
                mask = _added(mask) + _added(shown)
        parts = (self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        y, weights = multihead_attention(
            [query, key, value],
            [part.weight for part in parts],
            [part.bias for part in parts],
            self.num_heads,
            self.num_kv_heads,
            mask,
            is_causal,
            self.dropout if self.training else 0.0,
        )
        if not need_weights:
            return y, None
        return y, weights.mean(-3) if average_attn_weights else weights

    if TYPE_CHECKING:

        def __call__(
            self,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            key_padding_mask: Optional[Tensor] = None,
            need_weights: bool = True,
            attn_mask: Optional[Tensor] = None,
            average_attn_weights: bool = True,
            is_causal: bool = False,
        ) -> Tuple[Tensor, Optional[Tensor]]: ...

    def extra_repr(self) -> str:
        """What the repr shows."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def _seen(mask: Tensor) -> Tensor:
    """A mask of what is not seen as one of what is; numbers stay."""
    return mask.logical_not() if mask.dtype == "bool" else mask


def _added(mask: Tensor) -> Tensor:
    """A mask of what is seen as numbers that are added to scores."""
    return mask.where(0.0, float("-inf")) if mask.dtype == "bool" else mask
