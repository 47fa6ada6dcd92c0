//! The interpreter as a device: it needs no compiler, and it is the oracle of the others.

use std::sync::Arc;

use crate::error::Result;
use crate::interp::loops::{Checks, LoopArg, LoopData, LoopKernel};
use crate::ir::DType;
use crate::ir::form::params;
use crate::ir::op::ParamMode;
use crate::runtime::{Code, Device, DeviceCounts, Executable, Memory, Parameter, Place, Pool};

/// Runs loop graphs without compiling them.
pub struct InterpDevice {
    pool: Arc<Pool>,
}

impl InterpDevice {
    /// The device, with memory from that pool.
    pub fn new(pool: Arc<Pool>) -> InterpDevice {
        InterpDevice { pool }
    }
}

impl Device for InterpDevice {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn compile(&self, launches: &[Code]) -> Result<Box<dyn Executable>> {
        let launches = launches.iter().map(|code| {
            let found = params(code.loops.sink());
            let parameters = found.iter().map(|&(slot, mode, dtype, n)| Parameter {
                slot,
                mode,
                bytes: n.saturating_mul(dtype.size()),
            });
            Ok(Launch {
                kernel: LoopKernel::new(code.loops)?,
                parameters: parameters.collect(),
                dtypes: found.iter().map(|p| p.2).collect(),
            })
        });
        let launches = launches.collect::<Result<_>>()?;
        Ok(Box::new(Interpreted { launches }))
    }

    fn steps_per_second(&self) -> u64 {
        100_000_000
    }

    fn counts(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
}

struct Interpreted {
    launches: Vec<Launch>,
}

struct Launch {
    kernel: LoopKernel,
    parameters: Vec<Parameter>,
    dtypes: Vec<DType>,
}

impl Executable for Interpreted {
    fn parameters(&self, launch: usize) -> &[Parameter] {
        &self.launches[launch].parameters
    }

    fn scratch(&self, _launch: usize) -> usize {
        0
    }

    fn launch(&self, launch: usize, args: &[Place], _scratch: Option<&Memory>) -> Result<()> {
        let launch = &self.launches[launch];
        Parameter::check(&launch.parameters, args);
        // References into memory that is written are never given out, so that part is copied.
        let mut copies: Vec<Option<Vec<u8>>> = Vec::with_capacity(args.len());
        for arg in args {
            copies.push(match arg {
                Place::Shared(_) => None,
                Place::Owned { .. } => Some(arg.to_bytes()),
            });
        }
        let mut bound = Vec::with_capacity(args.len());
        let each = launch.parameters.iter().zip(&launch.dtypes);
        for (((parameter, &dtype), arg), copy) in each.zip(args).zip(&mut copies) {
            let bytes = parameter.bytes;
            let data = match (copy, arg) {
                (Some(copy), _) => {
                    let data = &mut copy[..bytes];
                    match parameter.mode {
                        ParamMode::In => LoopData::Read(data),
                        ParamMode::Out | ParamMode::InOut => LoopData::Write(data),
                    }
                }
                (None, Place::Shared(storage)) => LoopData::Read(&storage.as_bytes()[..bytes]),
                (None, Place::Owned { .. }) => unreachable!("owned memory was copied above"),
            };
            bound.push(LoopArg { dtype, data });
        }
        launch.kernel.run(&mut bound, Checks::Bounds)?;
        drop(bound);
        for ((parameter, arg), copy) in launch.parameters.iter().zip(args).zip(&copies) {
            if let (Place::Owned { memory, offset, .. }, Some(copy)) = (arg, copy)
                && parameter.mode != ParamMode::In
            {
                memory.write_at(*offset, &copy[..parameter.bytes]);
            }
        }
        Ok(())
    }
}
