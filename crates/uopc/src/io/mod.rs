//! Files with tensors in them.

pub mod safetensors;
