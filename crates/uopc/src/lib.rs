//! uopc, a small and inspectable tensor compiler.

#![warn(clippy::unwrap_used)]

pub mod error;
pub mod debug;
pub mod machine;
pub mod ir;
#[macro_use]
pub mod rewrite;
pub mod rules;
pub mod interp;
pub mod functions;
pub mod autodiff;
pub mod pass;
pub mod backend;
pub mod runtime;
pub mod compile;
pub mod tensor;
pub mod io;
#[macro_use]
pub mod transform;
pub mod nn;
pub mod data;

pub use autodiff::strict_gradients;
pub use error::{Error, Result};
pub use ir::DType;
pub use tensor::{Tensor, find_nan, memory_limit};
pub use transform::{
    checkpoint, grad, gradcheck, hessian, hvp, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp,
    vmap,
};
