"""Neural networks: layers with parameters, losses, optimisers.

>>> from uopc import Tensor, nn
>>> Tensor.manual_seed(1)
>>> layer = nn.Linear(2, 1)
>>> opt = nn.AdamW(layer, lr=0.1)
>>> x, y = Tensor([[0.0, 1.0], [1.0, 0.0]]), Tensor([[1.0], [-1.0]])
>>> losses = []
>>> for _ in range(20):
...     loss = nn.mse(layer(x), y)
...     opt.zero_grad()
...     loss = loss.backward(opt.params)
...     opt.step(loss)
...     losses.append(loss.item())
>>> losses[-1] < 0.1 * losses[0]
True
"""

from .layers import Embedding, Linear, Sequential
from .loss import cross_entropy, mse, mse_loss
from .module import LoadResult, Module, parameters
from .optim import SGD, AdamW

__all__ = [
    "AdamW",
    "Embedding",
    "Linear",
    "LoadResult",
    "Module",
    "SGD",
    "Sequential",
    "cross_entropy",
    "mse",
    "mse_loss",
    "parameters",
]
