//! The language everything is written in: one node type, [`UOp`], in four forms.

pub mod op;
pub mod dtype;
pub mod shape;
pub mod site;
pub mod uop;
pub mod infer;
pub mod build;
pub mod composite;
pub(crate) mod recurrence;
pub mod custom;
pub mod fold;
pub mod axes;
pub mod pieces;
pub mod onehot;
pub mod scalar;
pub mod bounds;
pub mod affine;
pub mod pairs;
pub mod positions;
pub mod visit;
pub mod form;
pub mod verify;
pub mod print;
pub mod parse;
pub mod parts;
pub mod plan_text;

pub use dtype::DType;
pub use op::Op;
pub use scalar::Scalar;
pub use shape::Shape;
pub use uop::UOp;
