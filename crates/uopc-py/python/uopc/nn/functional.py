"""What layers compute, as functions: methods of tensors and the losses under one roof."""

from ..tensor import Tensor
from ._native import linear
from .loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "dropout",
    "gelu",
    "group_norm",
    "huber_loss",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mse_loss",
    "nll_loss",
    "relu",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
]

conv1d = Tensor.conv1d
conv2d = Tensor.conv2d
conv3d = Tensor.conv3d
conv_transpose1d = Tensor.conv_transpose1d
conv_transpose2d = Tensor.conv_transpose2d
conv_transpose3d = Tensor.conv_transpose3d
max_pool1d = Tensor.max_pool1d
max_pool2d = Tensor.max_pool2d
max_pool3d = Tensor.max_pool3d
avg_pool1d = Tensor.avg_pool1d
avg_pool2d = Tensor.avg_pool2d
avg_pool3d = Tensor.avg_pool3d
adaptive_avg_pool1d = Tensor.adaptive_avg_pool1d
adaptive_avg_pool2d = Tensor.adaptive_avg_pool2d
adaptive_avg_pool3d = Tensor.adaptive_avg_pool3d
adaptive_max_pool1d = Tensor.adaptive_max_pool1d
adaptive_max_pool2d = Tensor.adaptive_max_pool2d
adaptive_max_pool3d = Tensor.adaptive_max_pool3d
interpolate = Tensor.interpolate
scaled_dot_product_attention = Tensor.scaled_dot_product_attention
layer_norm = Tensor.layer_norm
rms_norm = Tensor.rms_norm
group_norm = Tensor.group_norm
batch_norm = Tensor.batch_norm
dropout = Tensor.dropout
relu = Tensor.relu
gelu = Tensor.gelu
silu = Tensor.silu
sigmoid = Tensor.sigmoid
tanh = Tensor.tanh
softplus = Tensor.softplus
softmax = Tensor.softmax
log_softmax = Tensor.log_softmax
