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

from . import functional
from .activation import (
    Flatten,
    GELU,
    Identity,
    LogSoftmax,
    ReLU,
    SiLU,
    Sigmoid,
    Softmax,
    Softplus,
    Tanh,
)
from .attention import (
    MultiheadAttention,
)
from .checkpoint import (
    load_checkpoint,
    save_checkpoint,
)
from .conv import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool1d,
    MaxPool2d,
)
from .layers import (
    Embedding,
    Linear,
    Sequential,
)
from .loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from .module import (
    LoadResult,
    Module,
    parameters,
)
from .norm import (
    BatchNorm1d,
    BatchNorm2d,
    Dropout,
    GroupNorm,
    LayerNorm,
    RMSNorm,
)
from .optim import (
    Adam,
    AdamW,
    EMA,
    Muon,
    RMSprop,
    SGD,
    clip_grad_norm_,
    clip_grad_value_,
)
from .schedule import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LRScheduler,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

__all__ = [
    "Adam",
    "AdamW",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "ConstantLR",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineAnnealingLR",
    "Dropout",
    "EMA",
    "Embedding",
    "ExponentialLR",
    "Flatten",
    "GELU",
    "GroupNorm",
    "Identity",
    "LRScheduler",
    "LayerNorm",
    "Linear",
    "LinearLR",
    "LoadResult",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "MultiStepLR",
    "MultiheadAttention",
    "Muon",
    "OneCycleLR",
    "RMSNorm",
    "RMSprop",
    "ReLU",
    "SGD",
    "Sequential",
    "SequentialLR",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "StepLR",
    "Tanh",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "clip_grad_norm_",
    "clip_grad_value_",
    "cross_entropy",
    "functional",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "load_checkpoint",
    "mse",
    "mse_loss",
    "nll_loss",
    "parameters",
    "save_checkpoint",
    "smooth_l1_loss",
]
