//! DLPack, the protocol by which array libraries hand each other memory: structures of C in a
//! capsule. Both its forms are spoken, the plain one and the versioned one of DLPack 1.
//!
//! A capsule belongs to whoever renames it: before that, its own destructor gives the memory back,
//! afterwards the consumer calls the deleter, once.

mod export;
mod import;

use std::ffi::{CStr, c_void};

use uopc::DType;

pub use import::import;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct RawTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: Type,
    shape: *mut i64,
    /// In elements; null for row-major order.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: RawTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: RawTensor,
}

const READ_ONLY: u64 = 1 << 0;
const IS_COPIED: u64 = 1 << 1;

const CPU: i32 = 1;
/// Memory of the host that a GPU's driver has pinned; the CPU reads it like any other.
const PINNED: [i32; 2] = [3, 11];

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";
const USED: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// More axes than any library has: beyond this a description is not believed.
const MOST_AXES: i32 = 64;

const TYPES: [(DType, u8, u8); 13] = [
    (DType::I8, 0, 8),
    (DType::I16, 0, 16),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::U8, 1, 8),
    (DType::U16, 1, 16),
    (DType::U32, 1, 32),
    (DType::U64, 1, 64),
    (DType::F16, 2, 16),
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::BF16, 4, 16),
    (DType::Bool, 6, 8),
];

fn device_name(kind: i32) -> String {
    let name = match kind {
        CPU => "the CPU",
        2 => "CUDA",
        3 => "pinned memory (CUDA)",
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        9 => "VPI",
        10 => "ROCm",
        11 => "pinned memory (ROCm)",
        13 => "managed memory (CUDA)",
        14 => "oneAPI",
        15 => "WebGPU",
        16 => "Hexagon",
        17 => "MAIA",
        18 => "Trainium",
        other => return format!("device type {other}"),
    };
    name.into()
}
