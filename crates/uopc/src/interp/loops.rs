//! Runs a loop graph on bytes in memory, statement by statement as the list says.
//!
//! This is the oracle for compiled loops and, with [`Checks::Bounds`], the device of machines
//! without a C compiler. Loops run serially whatever their kind.

use smallvec::SmallVec;

use super::tape::{Access, Memory, Step, Tape, compile};
use crate::error::{Error, Result};
use crate::ir::form::LoopGraph;
use crate::ir::op::ParamMode;
use crate::ir::{DType, Scalar};

/// How much is checked while running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checks {
    /// That accesses stay inside their memory.
    Bounds,
    /// Also that every element read from a local or an output was written before, that every
    /// element of an output is written in the end, and that an inout element is not read after
    /// it was written. For tests: it costs a bit for each element and about half the speed.
    All,
}

/// The memory of one parameter, little-endian.
pub struct LoopArg<'a> {
    /// The type of its elements.
    pub dtype: DType,
    /// Its elements.
    pub data: LoopData<'a>,
}

/// Memory that is read, or read and written.
pub enum LoopData<'a> {
    /// For a parameter of mode in.
    Read(&'a [u8]),
    /// For a parameter of any mode.
    Write(&'a mut [u8]),
}

/// A launch, ready to run any number of times.
pub struct LoopKernel {
    tape: Tape,
}

/// Compiles and runs a launch once, with all checks; see [`LoopKernel::run`].
///
/// # Errors
/// As [`LoopKernel::new`] and [`LoopKernel::run`].
pub fn run(loops: &LoopGraph, args: &mut [LoopArg]) -> Result<()> {
    LoopKernel::new(loops)?.run(args, Checks::All)
}

impl LoopKernel {
    /// Prepares a launch.
    ///
    /// # Errors
    /// When the graph breaks the rules of the loop form.
    pub fn new(loops: &LoopGraph) -> Result<LoopKernel> {
        Ok(LoopKernel {
            tape: compile(loops)?,
        })
    }

    /// Runs the launch. `args` are the memories of the parameters in ascending order of slots, as
    /// [`params`](crate::ir::form::params) lists them.
    ///
    /// # Errors
    /// When the arguments do not fit the parameters, or a check fails. The outputs may then be
    /// written in part.
    pub fn run(&self, args: &mut [LoopArg], checks: Checks) -> Result<()> {
        let tape = &self.tape;
        if args.len() != tape.params {
            let (have, want) = (args.len(), tape.params);
            return fail(tape, format!("{have} arguments for {want} parameters"));
        }
        let mut cells: Vec<Cells> = Vec::with_capacity(tape.memories.len());
        for (memory, arg) in tape.memories.iter().zip(args.iter_mut()) {
            cells.push(Cells::of_param(tape, memory, arg, checks)?);
        }
        let locals = &tape.memories[tape.params..];
        cells.extend(locals.iter().map(|memory| Cells::of_local(memory, checks)));
        run_steps(tape, &mut cells)?;
        for (memory, cells) in tape.memories.iter().zip(&cells) {
            if memory.mode == Some(ParamMode::Out)
                && let Some(hole) = cells.written.as_ref().and_then(|w| w.first_hole(memory.n))
            {
                let name = &memory.name;
                return fail(tape, format!("element {hole} of {name} is never written"));
            }
        }
        Ok(())
    }
}

/// The elements of one memory while a launch runs.
struct Cells<'a> {
    dtype: DType,
    storage: Storage<'a>,
    /// Which elements were written, if that is checked.
    written: Option<Bits>,
    /// Whether only written elements may be read (else, for inout: only others).
    read_written: bool,
}

enum Storage<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    /// Locals keep the bits of scalars.
    Words(Vec<u64>),
}

impl<'a> Cells<'a> {
    fn of_param(
        tape: &Tape,
        memory: &Memory,
        arg: &'a mut LoopArg,
        checks: Checks,
    ) -> Result<Cells<'a>> {
        let bytes = memory.n.saturating_mul(memory.dtype.size());
        let (name, dtype) = (&memory.name, arg.dtype);
        if dtype != memory.dtype {
            return fail(
                tape,
                format!("{name} is {}, its argument {dtype}", memory.dtype),
            );
        }
        let storage = match &mut arg.data {
            LoopData::Read(data) => Storage::Read(data),
            LoopData::Write(data) => Storage::Write(data),
        };
        let have = match &storage {
            Storage::Read(data) => data.len(),
            Storage::Write(data) => data.len(),
            Storage::Words(words) => words.len(),
        };
        if have < bytes {
            return fail(
                tape,
                format!("{name} takes {bytes} bytes, its argument has {have}"),
            );
        }
        if memory.mode != Some(ParamMode::In) && matches!(storage, Storage::Read(_)) {
            return fail(
                tape,
                format!("{name} is written, its argument is read-only"),
            );
        }
        let tracked = checks == Checks::All && memory.mode != Some(ParamMode::In);
        Ok(Cells {
            dtype,
            storage,
            written: tracked.then(|| Bits::new(memory.n)),
            read_written: memory.mode == Some(ParamMode::Out),
        })
    }

    fn of_local(memory: &Memory, checks: Checks) -> Cells<'a> {
        Cells {
            dtype: memory.dtype,
            storage: Storage::Words(vec![0; memory.n]),
            written: (checks == Checks::All).then(|| Bits::new(memory.n)),
            read_written: true,
        }
    }

    fn begin(&mut self, start: Option<u64>) {
        if let (Some(value), Storage::Words(words)) = (start, &mut self.storage) {
            words.fill(value);
        }
        if let Some(written) = &mut self.written {
            written.0.fill(if start.is_some() { u64::MAX } else { 0 });
        }
    }

    /// The element's bits; its index was checked.
    fn read(&self, i: usize) -> u64 {
        match &self.storage {
            Storage::Words(words) => words[i],
            Storage::Read(data) => read_bytes(self.dtype, data, i),
            Storage::Write(data) => read_bytes(self.dtype, data, i),
        }
    }

    /// Sets the element; its index was checked.
    fn write(&mut self, i: usize, bits: u64) {
        match &mut self.storage {
            Storage::Words(words) => words[i] = bits,
            Storage::Write(data) => write_bytes(self.dtype, data, i, bits),
            Storage::Read(_) => unreachable!("outputs were found to be writable"),
        }
        if let Some(written) = &mut self.written {
            written.set(i);
        }
    }
}

fn read_bytes(dtype: DType, data: &[u8], i: usize) -> u64 {
    let bits = match dtype.size() {
        1 => data[i] as u64,
        2 => u16::from_le_bytes(data.as_chunks().0[i]) as u64,
        4 => u32::from_le_bytes(data.as_chunks().0[i]) as u64,
        _ => u64::from_le_bytes(data.as_chunks().0[i]),
    };
    // What others wrote may hold NaNs with a payload and bools above 1.
    if dtype.is_float() || dtype == DType::Bool {
        Scalar::from_bits(dtype, bits).bits()
    } else {
        bits
    }
}

fn write_bytes(dtype: DType, data: &mut [u8], i: usize, bits: u64) {
    match dtype.size() {
        1 => data[i] = bits as u8,
        2 => data.as_chunks_mut().0[i] = (bits as u16).to_le_bytes(),
        4 => data.as_chunks_mut().0[i] = (bits as u32).to_le_bytes(),
        _ => data.as_chunks_mut().0[i] = bits.to_le_bytes(),
    }
}

/// A set of elements.
struct Bits(Vec<u64>);

impl Bits {
    fn new(n: usize) -> Bits {
        Bits(vec![0; n.div_ceil(64)])
    }

    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn first_hole(&self, n: usize) -> Option<usize> {
        (0..n).find(|&i| !self.has(i))
    }
}

fn run_steps(tape: &Tape, cells: &mut [Cells]) -> Result<()> {
    let mut r = tape.registers.clone();
    let mut pc = 0;
    while let Some(step) = tape.steps.get(pc) {
        pc += 1;
        match step {
            Step::Loop {
                counter,
                extent,
                signed,
                exit,
            } => {
                r[*counter as usize] = 0;
                if as_index(*signed, r[*extent as usize]) <= 0 {
                    pc = *exit;
                }
            }
            Step::Next {
                counter,
                extent,
                signed,
                body,
            } => {
                r[*counter as usize] += 1;
                let (k, n) = (r[*counter as usize], r[*extent as usize]);
                if as_index(*signed, k) < as_index(*signed, n) {
                    pc = *body;
                }
            }
            Step::Begin { memory, start } => cells[*memory as usize].begin(*start),
            Step::One { to, f, a } => r[*to as usize] = f(r[*a as usize]),
            Step::Two { to, f, a, b } => r[*to as usize] = f(r[*a as usize], r[*b as usize]),
            Step::Three { to, f, a, b, c } => {
                r[*to as usize] = f(r[*a as usize], r[*b as usize], r[*c as usize]);
            }
            Step::Any(any) => {
                let args: SmallVec<[u64; 3]> = any.args.iter().map(|&a| r[a as usize]).collect();
                r[any.to as usize] = any.f.call(&args);
            }
            Step::Load { to, at } => {
                r[*to as usize] = if at.gate.is_none_or(|g| r[g as usize] != 0) {
                    let i = place(tape, at, &r, "load from")?;
                    readable(tape, cells, at, i)?;
                    cells[at.memory as usize].read(i)
                } else {
                    0
                };
            }
            Step::Store { at, value } => {
                if at.gate.is_none_or(|g| r[g as usize] != 0) {
                    let i = place(tape, at, &r, "store to")?;
                    cells[at.memory as usize].write(i, r[*value as usize]);
                }
            }
            Step::Update(update) => {
                let at = &update.at;
                if at.gate.is_none_or(|g| r[g as usize] != 0) {
                    let i = place(tape, at, &r, "store to")?;
                    readable(tape, cells, at, i)?;
                    let cells = &mut cells[at.memory as usize];
                    let old = cells.read(i);
                    // The old element stands first in a sum and last in a fused multiply-add.
                    let new = match update.values[..] {
                        [a] => update.f.call(&[old, r[a as usize]]),
                        [a, b] => update.f.call(&[r[a as usize], r[b as usize], old]),
                        _ => unreachable!("a store has one value or two"),
                    };
                    cells.write(i, new);
                }
            }
        }
    }
    Ok(())
}

/// The number in a register of dtype i32 or i64.
fn as_index(dtype: DType, bits: u64) -> i64 {
    if dtype == DType::I32 {
        bits as i32 as i64
    } else {
        bits as i64
    }
}

/// The element that an access names, if it is inside.
fn place(tape: &Tape, at: &Access, r: &[u64], what: &str) -> Result<usize> {
    let memory = &tape.memories[at.memory as usize];
    let index = as_index(at.signed, r[at.index as usize]);
    match usize::try_from(index) {
        Ok(i) if i < memory.n => Ok(i),
        _ => {
            let (name, n) = (&memory.name, memory.n);
            fail(
                tape,
                format!("{what} {name} at {index}, outside its {n} elements"),
            )
        }
    }
}

fn readable(tape: &Tape, cells: &[Cells], at: &Access, i: usize) -> Result<()> {
    let cell = &cells[at.memory as usize];
    match &cell.written {
        Some(written) if written.has(i) != cell.read_written => {
            let name = &tape.memories[at.memory as usize].name;
            let when = if cell.read_written { "before" } else { "after" };
            fail(
                tape,
                format!("element {i} of {name} is read {when} it is written"),
            )
        }
        _ => Ok(()),
    }
}

fn fail<T>(tape: &Tape, message: String) -> Result<T> {
    let message = format!("kernel {}: {message}", tape.name);
    Err(Error::Verify {
        form: "loop graph",
        message,
        site: None,
    })
}
