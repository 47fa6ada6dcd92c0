//! The engines that tests compare: the loop interpreter and compiled C, on plain arrays.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::path::Path;

use uopc::debug;
use uopc::interp::{Array, Checks, LoopArg, LoopData, LoopKernel};
use uopc::ir::form::{LoopGraph, params};
use uopc::ir::op::ParamMode;
use uopc::runtime::c_device::CDevice;
use uopc::runtime::cache::ObjectCache;
use uopc::runtime::{Executable, Memory, Place, Pool};

/// The arrays of a launch, by slot.
pub type Slots = BTreeMap<u32, Array>;

/// The C compiler that is found first, without a disk cache.
pub fn c_device() -> CDevice {
    let pool = Pool::new(1 << 28);
    CDevice::new(None, &debug::search_path(), ObjectCache::none(), pool)
        .unwrap_or_else(|e| panic!("the tests need a C compiler: {e}"))
}

/// The same with a cache folder, so that devices with other teams find what one has compiled.
pub fn c_device_in(folder: &Path) -> CDevice {
    let pool = Pool::new(1 << 28);
    let cache = ObjectCache::open(folder, 1 << 28);
    CDevice::new(None, &debug::search_path(), cache, pool)
        .unwrap_or_else(|e| panic!("the tests need a C compiler: {e}"))
}

/// Runs a launch by the loop interpreter on the parameters that it reads at entry; the result
/// holds what it wrote.
pub fn interpret(loops: &LoopGraph, given: &Slots, checks: Checks) -> uopc::Result<Slots> {
    let list = params(loops.sink());
    let mut memory: Vec<Vec<u8>> = list
        .iter()
        .map(|p| at_entry(p.1, p.0, p.2.size() * p.3, given))
        .collect();
    let mut args: Vec<LoopArg> = list
        .iter()
        .zip(&mut memory)
        .map(|(&(_, mode, dtype, _), bytes)| LoopArg {
            dtype,
            data: match mode {
                ParamMode::In => LoopData::Read(bytes),
                ParamMode::Out | ParamMode::InOut => LoopData::Write(bytes),
            },
        })
        .collect();
    LoopKernel::new(loops)?.run(&mut args, checks)?;
    drop(args);
    Ok(written(loops, &memory))
}

/// Runs launch `k` of compiled code in the same way. `loops` is what was compiled.
pub fn run_compiled(code: &dyn Executable, k: usize, loops: &LoopGraph, given: &Slots) -> Slots {
    let pool = Pool::global();
    let memories: Vec<Memory> = params(loops.sink())
        .iter()
        .map(|p| {
            let bytes = at_entry(p.1, p.0, p.2.size() * p.3, given);
            let memory = pool.take(bytes.len()).expect("memory for a small array");
            memory.write_at(0, &bytes);
            memory
        })
        .collect();
    let places: Vec<Place> = memories.iter().map(Place::whole).collect();
    let scratch = pool.take(code.scratch(k)).expect("memory for scratch");
    // What scratch holds at entry must not matter either.
    scratch.write_at(0, &vec![0xa5; scratch.bytes()]);
    code.launch(k, &places, Some(&scratch))
        .unwrap_or_else(|e| panic!("{e}"));
    let memory: Vec<Vec<u8>> = places.iter().map(Place::to_bytes).collect();
    written(loops, &memory)
}

/// What a parameter holds at entry. An output holds rubbish, which must not matter.
fn at_entry(mode: ParamMode, slot: u32, bytes: usize, given: &Slots) -> Vec<u8> {
    match mode {
        ParamMode::Out => vec![0xa5; bytes],
        ParamMode::In | ParamMode::InOut => given[&slot].to_bytes(),
    }
}

fn written(loops: &LoopGraph, memory: &[Vec<u8>]) -> Slots {
    let list = params(loops.sink());
    let outputs = list
        .iter()
        .zip(memory)
        .filter(|(p, _)| p.1 != ParamMode::In);
    outputs
        .map(|(&(slot, _, dtype, n), bytes)| {
            (
                slot,
                Array::from_bytes(dtype, &[n], bytes).expect("n elements"),
            )
        })
        .collect()
}
