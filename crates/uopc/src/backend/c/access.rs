//! Memory in C: how elements are read and written, and what is read gets a name.
//!
//! An access of a vector loop is one of neighbouring elements if its index grows by one from lane to
//! lane, else one of elements at equal distances or at any places. Lanes whose condition is false
//! neither read nor write.

use rustc_hash::FxHashSet;

use super::fold::Folder;
use super::frame::Kind;
use super::registers::{Layout, Run, run};
use super::render::{Renderer, STACK_LIMIT};
use super::scalar::{bare, c_type, literal};
use super::share::conjuncts;
use super::vector::helper::{Kind as VectorKind, VectorHelper};
use super::vector::{self, Index, vector_type};
use crate::ir::affine::{Linear, coefficient, is_exact};
use crate::ir::op::{Combine, Op, Space};
use crate::ir::{DType, Scalar, UOp};

/// Elements of memory.
enum Place {
    /// A variable.
    Variable(String),
    /// The element of that pointer's memory at that offset; of several lanes the first, and how
    /// far it is to the next.
    Elements {
        pointer: String,
        offset: String,
        stride: i128,
    },
    /// Elements of that pointer's memory at the places that a vector says.
    Scattered {
        pointer: String,
        dtype: DType,
        places: String,
    },
}

impl Renderer<'_> {
    // ---- names ----

    pub(super) fn named_value(&mut self, u: &UOp) {
        // Most integers are named for indices, which look through names.
        if self.wide && !u.dtype().is_float() && !matches!(u.src()[0].op(), Op::Load) {
            self.frame().introduced.insert(u.clone());
            self.frame().postpone(u);
            return;
        }
        self.write_name(u);
    }

    /// Writes the line that computes a named value.
    pub(super) fn write_name(&mut self, u: &UOp) {
        let value = &u.src()[0];
        let lanes = self.lanes.of(u);
        let is_load = matches!(value.op(), Op::Load);
        let text = match (is_load, lanes) {
            (true, 1) => self.loaded(value),
            (true, _) => self.loaded_lanes(value, lanes),
            (false, _) => self.expression(value).to_string(),
        };
        let kind = if is_load { "val" } else { "alu" };
        let Op::Let { id } = u.op() else {
            unreachable!("names are LETs");
        };
        let frame = self.frame();
        let id = match frame.kind {
            Kind::Nest => {
                frame.names += 1;
                frame.names
            }
            Kind::Kernel | Kind::Part { .. } => *id as usize,
        };
        let name = format!("{kind}{id}");
        let c_type = self.type_of(u.dtype(), lanes);
        let text = if self.wide { bare(&text) } else { &text };
        let line = format!("{c_type} {name} = {text};");
        let frame = self.frame();
        frame.write_postponed(u, &line);
        frame.introduced.insert(u.clone());
        frame.name(u, name);
    }

    pub(super) fn type_of(&mut self, dtype: DType, lanes: usize) -> String {
        if lanes == 1 {
            return c_type(dtype).into();
        }
        self.helpers.insert(vector::type_helper(dtype, lanes));
        vector_type(dtype, lanes)
    }

    // ---- places ----

    /// Where an access of so many lanes finds its elements.
    fn place(&mut self, memory: &UOp, index: &UOp, lanes: usize) -> Place {
        let is_local = matches!(memory.op(), Op::Local { .. });
        if let Some(text) = is_local.then(|| self.variable(memory, index)).flatten() {
            return Place::Variable(text);
        }
        if lanes == 1 {
            let (pointer, offset) = self.element(memory, index);
            return Place::Elements {
                pointer,
                offset,
                stride: 0,
            };
        }
        let range = self.lanes.range_of(index);
        let growth = match &range {
            Some(range) => coefficient(index, range, &mut self.bounds),
            None => Some(0),
        };
        match (range, growth) {
            (Some(range), Some(stride)) => {
                let first = at_first(index, &range);
                let (pointer, offset) = self.element(memory, &first);
                Place::Elements {
                    pointer,
                    offset,
                    stride,
                }
            }
            (None, _) => {
                let (pointer, offset) = self.element(memory, index);
                Place::Elements {
                    pointer,
                    offset,
                    stride: 0,
                }
            }
            (Some(_), None) => {
                let first = UOp::constant(Scalar::zero(index.dtype()));
                let (pointer, _) = self.element(memory, &first);
                let places = self.lanes_of(index, lanes);
                Place::Scattered {
                    pointer,
                    dtype: index.dtype(),
                    places,
                }
            }
        }
    }

    /// The variable that holds the elements, if the memory is variables.
    fn variable(&mut self, memory: &UOp, index: &UOp) -> Option<String> {
        let Op::Local {
            n, space, dtype, ..
        } = *memory.op()
        else {
            return None;
        };
        let layout = self.layouts.get(memory).copied();
        if space == Space::Arena || n.saturating_mul(dtype.size()) > STACK_LIMIT {
            return None;
        }
        match layout {
            None if n == 1 => Some(self.expression(memory).to_string()),
            Some(Layout::Variables(lanes)) => {
                let name = self.expression(memory);
                let run = run(index, &mut self.lanes, &mut self.bounds);
                // Behind the last one lies only what a gate forbids: any name does.
                let first = run.map_or(0, |run| run.first).min(n - lanes);
                Some(variable(&name, n, lanes, first))
            }
            Some(Layout::Array(_)) | None => None,
        }
    }

    /// A pointer and a scalar offset from it.
    fn element(&mut self, memory: &UOp, index: &UOp) -> (String, String) {
        let is_nest = matches!(self.frame().kind, Kind::Nest);
        if !is_nest || self.frame().introduced.contains(memory) {
            let pointer = self.expression(memory).to_string();
            return (pointer, self.index(index));
        }
        match self.pointer_argument(memory, index) {
            (pointer, Some(own)) => (pointer, self.sum(&own)),
            (pointer, None) => (pointer, self.index(index)),
        }
    }

    /// Whether the first of the elements lies at a multiple of so many.
    fn is_aligned(&mut self, index: &UOp, lanes: usize) -> bool {
        let Some(range) = self.lanes.range_of(index) else {
            return false;
        };
        let first = at_first(index, &range);
        is_exact(&first, &mut self.bounds) && Linear::of(&first).divisor() % lanes as i128 == 0
    }

    // ---- loads ----

    /// A scalar LOAD.
    pub(super) fn loaded(&mut self, u: &UOp) -> String {
        let element = match self.place(&u.src()[0], &u.src()[1], 1) {
            Place::Variable(text) => text,
            Place::Elements {
                pointer, offset, ..
            } => format!("{pointer}[{offset}]"),
            Place::Scattered { .. } => unreachable!("one element is no vector of places"),
        };
        let mut conditions = Vec::new();
        if let Some(gate) = u.src().get(2) {
            conditions.push(self.expression(gate).to_string());
        }
        // Where no lane computes, nothing is read that may not be there.
        if let Some((mask, lanes)) = self.mask(&[])
            && !self.is_inside(&u.src()[0], &u.src()[1], 1)
        {
            let any = VectorHelper::new(VectorKind::Any, DType::I32, lanes);
            let text = format!("{}({})", any.name(), bare(&mask));
            conditions.push(self.take((text, vec![any.into()])));
        }
        if conditions.is_empty() {
            return element;
        }
        // C evaluates one side only, so a false gate reads nothing.
        let zero = literal(Scalar::zero(u.dtype()));
        format!("({}?{element}:{zero})", conditions.join("&&"))
    }

    /// A LOAD of several lanes.
    fn loaded_lanes(&mut self, u: &UOp, lanes: usize) -> String {
        let dtype = u.dtype();
        let (of_lanes, scalar): (Vec<UOp>, Vec<UOp>) = match u.src().get(2) {
            Some(gate) => conjuncts(gate)
                .into_iter()
                .partition(|u| self.lanes.of(u) > 1),
            None => (Vec::new(), Vec::new()),
        };
        let place = self.place(&u.src()[0], &u.src()[1], lanes);
        let text = match place {
            Place::Variable(text) => {
                let text = match self.lanes.of(&u.src()[1]) {
                    1 => self.take(vector::splat(dtype, lanes, &text)),
                    _ => text,
                };
                match self.conjunction(&of_lanes, lanes) {
                    Some(gate) => {
                        let zero = self.zero(dtype, lanes);
                        let sources = [DType::Bool, dtype, dtype];
                        let args = [gate.as_str(), &text, &zero];
                        self.take(vector::call(&Op::Where, dtype, &sources, &args, lanes))
                    }
                    None => text,
                }
            }
            place => {
                let mask = match self.is_scratch_run(&u.src()[0], &u.src()[1], lanes) {
                    true if of_lanes.is_empty() => None,
                    _ => self.mask(&of_lanes).map(|(mask, _)| mask),
                };
                self.read(&place, dtype, lanes, mask.as_deref())
            }
        };
        if scalar.is_empty() {
            return text;
        }
        let scalar: Vec<_> = scalar.iter().map(|u| self.expression(u)).collect();
        let zero = self.zero(dtype, lanes);
        format!("({}?{text}:{zero})", scalar.join("&&"))
    }

    fn read(&mut self, place: &Place, dtype: DType, lanes: usize, mask: Option<&str>) -> String {
        let spelled = match place {
            Place::Variable(text) => (text.clone(), Vec::new()),
            Place::Elements {
                pointer,
                offset,
                stride: 1,
            } => {
                let address = address(pointer, offset);
                match mask {
                    Some(mask) => vector::load_masked(dtype, lanes, &address, mask),
                    None => vector::load(dtype, lanes, &address),
                }
            }
            Place::Elements {
                pointer,
                offset,
                stride,
            } => {
                let stride = stride.to_string();
                let index = Index::Strided {
                    start: offset,
                    stride: &stride,
                };
                vector::gather(dtype, lanes, pointer, &index, mask)
            }
            Place::Scattered {
                pointer,
                dtype: of_places,
                places,
            } => {
                let index = Index::Vector {
                    dtype: *of_places,
                    text: places,
                };
                vector::gather(dtype, lanes, pointer, &index, mask)
            }
        };
        self.take(spelled)
    }

    fn zero(&mut self, dtype: DType, lanes: usize) -> String {
        let zero = literal(Scalar::zero(dtype));
        self.take(vector::splat(dtype, lanes, &zero))
    }

    /// The conditions together as a mask.
    fn conjunction(&mut self, conditions: &[UOp], lanes: usize) -> Option<String> {
        let texts: Vec<String> = conditions.iter().map(|u| self.lanes_of(u, lanes)).collect();
        match &texts[..] {
            [] => None,
            [one] => Some(one.clone()),
            _ => Some(format!("({})", texts.join("&"))),
        }
    }

    /// The lanes that compute here and for which the conditions hold, and how many there are; `None`
    /// if that is all of them.
    fn mask(&mut self, gate: &[UOp]) -> Option<(String, usize)> {
        let mut conditions: Vec<UOp> = self.frame().masks.iter().flatten().cloned().collect();
        conditions.extend(gate.iter().cloned());
        let mut met = FxHashSet::default();
        conditions.retain(|u| met.insert(u.clone()));
        let lanes = conditions.iter().map(|u| self.lanes.of(u)).max()?;
        let mask = self.conjunction(&conditions, lanes)?;
        Some((mask, lanes))
    }

    /// Whether so many elements from an index on are in the memory for sure.
    fn is_inside(&mut self, memory: &UOp, index: &UOp, lanes: usize) -> bool {
        let (Op::Local { n, .. } | Op::Param { n, .. }) = *memory.op() else {
            return false;
        };
        let index = self.bounds.of(index);
        index.lo >= 0 && index.hi + (lanes as i128) <= n as i128
    }

    /// Whether the elements are known ones of scratch memory that only this thread has. They may be
    /// read, and written as they were, whatever lanes compute.
    fn is_scratch_run(&mut self, memory: &UOp, index: &UOp, lanes: usize) -> bool {
        let Op::Local { n, space, .. } = *memory.op() else {
            return false;
        };
        let run = run(index, &mut self.lanes, &mut self.bounds);
        let inside = |run: Run| run.lanes == lanes && run.first + lanes <= n;
        space != Space::Arena && run.is_some_and(inside)
    }

    // ---- stores ----

    /// A STORE; of two that are a dot product of pairs the second one, with their words.
    pub(super) fn store(&mut self, u: &UOp, words: Option<&[UOp; 2]>) {
        let (memory, index) = (&u.src()[0], &u.src()[1]);
        let dtype = memory.dtype();
        let lanes = self.lanes.of(index);
        let place = self.place(memory, index, lanes);
        let mask = match lanes {
            1 => None,
            _ => self.mask(&[]).map(|(mask, _)| mask),
        };
        let known = self.is_scratch_run(memory, index, lanes);
        let Op::Store { combine, .. } = *u.op() else {
            unreachable!("a store is a STORE");
        };
        let value = match lanes {
            1 => self.combined(u, combine, &place),
            _ => {
                let mask = mask.as_deref().filter(|_| !known);
                match words {
                    Some(words) => {
                        let old = self.read(&place, dtype, lanes, mask);
                        self.dot(words, &old, lanes)
                    }
                    None => self.combined_lanes(u, combine, &place, lanes, mask),
                }
            }
        };
        let text = match (&place, lanes, &mask) {
            (Place::Variable(name), 1, _) | (Place::Variable(name), _, None) => {
                format!("{name} = {value}")
            }
            (Place::Variable(name), _, Some(mask)) => {
                let sources = [DType::Bool, dtype, dtype];
                let args = [mask.as_str(), &value, name];
                let value = self.take(vector::call(&Op::Where, dtype, &sources, &args, lanes));
                format!("{name} = {value}")
            }
            (
                Place::Elements {
                    pointer, offset, ..
                },
                1,
                _,
            ) => format!("{pointer}[{offset}] = {value}"),
            // A register's lanes are chosen; a masked store would keep it in memory.
            (place, _, Some(mask)) if known => {
                let old = self.read(place, dtype, lanes, None);
                let sources = [DType::Bool, dtype, dtype];
                let args = [mask.as_str(), &value, &old];
                let value = self.take(vector::call(&Op::Where, dtype, &sources, &args, lanes));
                self.write(place, dtype, lanes, &value, None, false)
            }
            (place, _, mask) => {
                let streams = mask.is_none()
                    && self.streamed.contains(memory)
                    && self.is_aligned(index, lanes);
                self.write(place, dtype, lanes, &value, mask.as_deref(), streams)
            }
        };
        self.line(&format!("{text};"));
    }

    /// What a scalar store writes.
    fn combined(&mut self, u: &UOp, combine: Combine, place: &Place) -> String {
        let target = match place {
            Place::Variable(text) => text.clone(),
            Place::Elements {
                pointer, offset, ..
            } => format!("{pointer}[{offset}]"),
            Place::Scattered { .. } => unreachable!("one element is no vector of places"),
        };
        let dtype = u.src()[0].dtype();
        let value = self.expression(&u.src()[2]);
        let op = match combine {
            Combine::Set => return value.to_string(),
            Combine::Add => Op::Add,
            Combine::Max => Op::Max,
            Combine::Mul => Op::Mul,
            Combine::MulAcc => {
                let b = self.expression(&u.src()[3]);
                let args: [&str; 3] = [&value, &b, &target];
                return self.apply(&Op::MulAcc, dtype, &[dtype; 3], &args);
            }
        };
        self.apply(&op, dtype, &[dtype; 2], &[&*target, &value])
    }

    /// What a store of several lanes writes.
    fn combined_lanes(
        &mut self,
        u: &UOp,
        combine: Combine,
        place: &Place,
        lanes: usize,
        mask: Option<&str>,
    ) -> String {
        let dtype = u.src()[0].dtype();
        let value = self.lanes_of(&u.src()[2], lanes);
        let op = match combine {
            Combine::Set => return value,
            Combine::Add => Op::Add,
            Combine::Max => Op::Max,
            Combine::Mul => Op::Mul,
            Combine::MulAcc => {
                let b = self.lanes_of(&u.src()[3], lanes);
                let old = self.read(place, dtype, lanes, mask);
                let args = [value.as_str(), &b, &old];
                let spelled = vector::call(&Op::MulAcc, dtype, &[dtype; 3], &args, lanes);
                return self.take(spelled);
            }
        };
        let old = self.read(place, dtype, lanes, mask);
        let args = [old.as_str(), &value];
        self.take(vector::call(&op, dtype, &[dtype; 2], &args, lanes))
    }

    fn write(
        &mut self,
        place: &Place,
        dtype: DType,
        lanes: usize,
        value: &str,
        mask: Option<&str>,
        streams: bool,
    ) -> String {
        let spelled = match place {
            Place::Variable(_) => unreachable!("variables are assigned"),
            Place::Elements {
                pointer,
                offset,
                stride: 1,
            } => {
                let address = address(pointer, offset);
                match mask {
                    Some(mask) => vector::store_masked(dtype, lanes, &address, value, mask),
                    None if streams => {
                        self.frame().streams = true;
                        vector::store_stream(dtype, lanes, &address, value)
                    }
                    None => vector::store(dtype, lanes, &address, value),
                }
            }
            Place::Elements {
                pointer,
                offset,
                stride,
            } => {
                let stride = stride.to_string();
                let index = Index::Strided {
                    start: offset,
                    stride: &stride,
                };
                vector::scatter(dtype, lanes, pointer, &index, value, mask)
            }
            Place::Scattered {
                pointer,
                dtype: of_places,
                places,
            } => {
                let index = Index::Vector {
                    dtype: *of_places,
                    text: places,
                };
                vector::scatter(dtype, lanes, pointer, &index, value, mask)
            }
        };
        self.take(spelled)
    }
}

/// An index in the first lane.
fn at_first(index: &UOp, range: &UOp) -> UOp {
    let mut folder = Folder::through_names();
    folder.set(range, &UOp::constant(Scalar::zero(range.dtype())));
    folder.of(index)
}

/// `data0+ridx0*16`.
pub(super) fn address(pointer: &str, offset: &str) -> String {
    match (offset, offset.starts_with('-')) {
        ("0", _) => pointer.into(),
        (_, true) => format!("{pointer}{offset}"),
        (_, false) => format!("{pointer}+{offset}"),
    }
}

/// The variable for the run of elements that begins at one: `acc0_2`, or `acc0` for all of them.
pub(super) fn variable(name: &str, n: usize, lanes: usize, first: usize) -> String {
    match n == lanes {
        true => name.into(),
        false => format!("{name}_{}", first / lanes),
    }
}
