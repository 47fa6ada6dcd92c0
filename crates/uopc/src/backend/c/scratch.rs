//! Scratch memory in C: variables, an array on the stack, or memory that the caller provides.

use super::access::{address, variable};
use super::frame::Kind;
use super::registers::Layout;
use super::render::{Renderer, STACK_LIMIT, Scratch};
use super::scalar::{c_type, literal};
use super::vector;
use crate::ir::op::{Combine, Op, ReduceOp, Space};
use crate::ir::{DType, Scalar, UOp};

/// An array of up to this many vectors is set to its start by that many stores.
const STORES: usize = 32;

impl Renderer<'_> {
    /// Scratch begins, at the identity of its combining stores.
    pub(super) fn declare(&mut self, memory: &UOp, combine: Option<Combine>) {
        let Op::Local {
            space, dtype, n, ..
        } = *memory.op()
        else {
            unreachable!("a verified program declares locals, not {memory:?}");
        };
        let number = self.next_local();
        self.frame().introduced.insert(memory.clone());
        let start = combine.and_then(|combine| identity(combine, dtype));
        let start = start.map(literal);
        let provided = space == Space::Arena || n.saturating_mul(dtype.size()) > STACK_LIMIT;
        let layout = match self.layouts.get(memory) {
            Some(layout) => *layout,
            None if n == 1 => Layout::Variables(1),
            None => Layout::Array(1),
        };
        if let (Layout::Variables(lanes), false) = (layout, provided) {
            let name = format!("acc{number}");
            self.frame().name(memory, name.clone());
            self.declare_variables(&name, dtype, n, lanes, start);
            return;
        }
        let name = if provided {
            let name = format!("scratch{number}");
            self.provide(&name, memory);
            name
        } else {
            let name = format!("acc{number}");
            let aligned = match self.wide && n * dtype.size() >= 64 {
                true => " __attribute__((aligned(64)))",
                false => "",
            };
            self.line(&format!("{} {name}[{n}]{aligned};", c_type(dtype)));
            name
        };
        self.frame().name(memory, name.clone());
        let Some(value) = start else {
            return;
        };
        match layout {
            Layout::Array(lanes) if lanes > 1 && n % lanes == 0 => {
                self.start_vectors(&name, dtype, n, lanes, &value);
            }
            Layout::Array(_) | Layout::Variables(_) => {
                let counter = if n > i32::MAX as usize { "long" } else { "int" };
                self.line(&format!(
                    "for ({counter} i = 0; i < {n}; i++) {name}[i] = {value};"
                ));
            }
        }
    }

    /// One variable for each run of elements.
    fn declare_variables(
        &mut self,
        name: &str,
        dtype: DType,
        n: usize,
        lanes: usize,
        start: Option<String>,
    ) {
        let start = match (start, lanes) {
            (Some(value), 1) => format!(" = {value}"),
            (Some(value), _) => {
                let value = self.take(vector::splat(dtype, lanes, &value));
                format!(" = {value}")
            }
            (None, _) => String::new(),
        };
        let c_type = self.type_of(dtype, lanes);
        for first in (0..n).step_by(lanes) {
            let variable = variable(name, n, lanes, first);
            self.line(&format!("{c_type} {variable}{start};"));
        }
    }

    /// Sets an array by whole vectors, which compilers then keep in registers.
    fn start_vectors(&mut self, name: &str, dtype: DType, n: usize, lanes: usize, value: &str) {
        let value = self.take(vector::splat(dtype, lanes, value));
        if n / lanes > STORES {
            let address = format!("{name}+i");
            let store = self.take(vector::store(dtype, lanes, &address, &value));
            self.line(&format!("for (long i = 0; i < {n}; i += {lanes}) {store};"));
            return;
        }
        for first in (0..n).step_by(lanes) {
            let address = address(name, &first.to_string());
            let store = self.take(vector::store(dtype, lanes, &address, &value));
            self.line(&format!("{store};"));
        }
    }

    /// Scratch that the caller provides; in a thread loop each worker has its own.
    fn provide(&mut self, name: &str, memory: &UOp) {
        let per_worker = matches!(self.frame().kind, Kind::Part { .. });
        let Op::Local { dtype, n, .. } = *memory.op() else {
            unreachable!("only locals are scratch");
        };
        self.scratch.push(Scratch {
            name: name.into(),
            dtype,
            n,
            per_worker,
        });
        if per_worker {
            self.give_scratch(name, dtype);
        }
    }
}

/// Where a combining store starts. A chain of fused multiply-adds starts at +0.0.
fn identity(combine: Combine, dtype: DType) -> Option<Scalar> {
    match combine {
        Combine::Set => None,
        Combine::Add => Some(Scalar::identity(ReduceOp::Add, dtype)),
        Combine::Max => Some(Scalar::identity(ReduceOp::Max, dtype)),
        Combine::Mul => Some(Scalar::identity(ReduceOp::Mul, dtype)),
        Combine::MulAcc => Some(Scalar::zero(dtype)),
    }
}
