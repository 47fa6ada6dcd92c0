//! What a schedule must know of the machine: the width of its vectors, its registers, its caches.
//!
//! [`Machine::native`] asks the processor and the system once; the others are fixed, for tests and
//! for looking at code for another machine. Nothing here changes a result, only how fast it comes;
//! but for two fields: large products of bf16 are summed by tiles or by dot products of pairs where
//! there are some, see [`Machine::bf16_tiles`] and [`Machine::bf16_dot`].

mod tiles;

use std::sync::OnceLock;

/// A processor, as far as schedules look at it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    /// Bytes in a vector register.
    pub vector_bytes: usize,
    /// How many vector registers there are.
    pub vector_registers: usize,
    /// Bytes of one core's first cache for data.
    pub l1: usize,
    /// Bytes of one core's second cache.
    pub l2: usize,
    /// Bytes of the last cache.
    pub l3: usize,
    /// Whether multiply-add is an instruction.
    pub fma: bool,
    /// Whether lanes of a load or store can be left out by a mask register.
    pub masks: bool,
    /// Whether there is a dot product of pairs of bf16 (AVX512-BF16) that sums more in a cycle than
    /// multiply-adds of f32 do. Large products of bf16 use it where there are no tiles; numbers below
    /// the normal ones count as 0 in them.
    pub bf16_dot: bool,
    /// Whether tiles of bf16 are multiplied in registers of their own (AMX), and the system lets this
    /// process do it.
    pub bf16_tiles: bool,
}

impl Machine {
    /// This machine.
    pub fn native() -> Machine {
        static NATIVE: OnceLock<Machine> = OnceLock::new();
        *NATIVE.get_or_init(|| {
            let found = instructions();
            let cache = |level, or| cache_bytes(level).unwrap_or(or);
            Machine {
                l1: cache(1, found.l1),
                l2: cache(2, found.l2),
                l3: cache(3, found.l3),
                bf16_tiles: found.vector_bytes == 64 && tiles::granted(),
                ..found
            }
        })
    }

    /// x86-64 with AVX-512.
    pub const fn avx512() -> Machine {
        Machine {
            vector_bytes: 64,
            vector_registers: 32,
            l1: 48 << 10,
            l2: 2 << 20,
            l3: 32 << 20,
            fma: true,
            masks: true,
            bf16_dot: false,
            bf16_tiles: false,
        }
    }

    /// x86-64 with AVX-512 and a dot product of pairs of bf16.
    pub const fn avx512_bf16() -> Machine {
        Machine {
            bf16_dot: true,
            ..Machine::avx512()
        }
    }

    /// x86-64 with AVX-512 and tiles of bf16.
    pub const fn amx() -> Machine {
        Machine {
            bf16_tiles: true,
            ..Machine::avx512()
        }
    }

    /// x86-64 with AVX2 and FMA.
    pub const fn avx2() -> Machine {
        Machine {
            vector_bytes: 32,
            vector_registers: 16,
            l1: 32 << 10,
            l2: 512 << 10,
            l3: 16 << 20,
            fma: true,
            masks: false,
            bf16_dot: false,
            bf16_tiles: false,
        }
    }

    /// A machine with vectors of 16 bytes, of which nothing else is known.
    pub const fn portable() -> Machine {
        Machine {
            vector_bytes: 16,
            vector_registers: 16,
            l1: 32 << 10,
            l2: 256 << 10,
            l3: 4 << 20,
            fma: false,
            masks: false,
            bf16_dot: false,
            bf16_tiles: false,
        }
    }

    /// How many elements of a size fill a vector.
    pub const fn lanes(&self, element_bytes: usize) -> usize {
        self.vector_bytes / element_bytes
    }
}

/// The machine by its instructions, with ordinary caches.
fn instructions() -> Machine {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        // Intel's processors from the first with AMX on, which are those with arithmetic on f16, start a
        // dot product every other cycle but two multiply-adds in each, which is half as much. Those
        // before them, and AMD's (which alone have SSE4a), start as many of both.
        let slow_dot = has!("avx512fp16") && !has!("sse4a");
        if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
            return Machine {
                bf16_dot: has!("avx512bf16") && !slow_dot,
                ..Machine::avx512()
            };
        }
        if has!("avx2") && has!("fma") {
            return Machine::avx2();
        }
        Machine::portable()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // Every 64-bit ARM has 32 registers of 16 bytes and a multiply-add.
        let arm = cfg!(target_arch = "aarch64");
        Machine {
            vector_registers: if arm { 32 } else { 16 },
            fma: arm,
            ..Machine::portable()
        }
    }
}

/// What Linux says about a cache that holds data.
fn cache_bytes(level: usize) -> Option<usize> {
    let read = |index: usize, file: &str| {
        let folder = "/sys/devices/system/cpu/cpu0/cache";
        let text = std::fs::read_to_string(format!("{folder}/index{index}/{file}")).ok()?;
        Some(text.trim().to_string())
    };
    let wanted = (0..8).find(|&index| {
        read(index, "level").is_some_and(|l| l == level.to_string())
            && read(index, "type").is_some_and(|t| t != "Instruction")
    })?;
    let size = read(wanted, "size")?;
    let (number, unit) = size.split_at(
        size.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(size.len()),
    );
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    Some(number.parse::<usize>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use crate::machine::Machine;

    #[test]
    fn a_machine_has_vectors_registers_and_growing_caches() {
        for machine in [
            Machine::native(),
            Machine::avx512(),
            Machine::avx512_bf16(),
            Machine::amx(),
            Machine::avx2(),
            Machine::portable(),
        ] {
            assert!(machine.vector_bytes.is_power_of_two() && machine.vector_bytes >= 16);
            assert!(machine.vector_registers >= 16);
            assert!(
                machine.l1 >= 4 << 10 && machine.l1 <= machine.l2,
                "{machine:?}"
            );
            assert!(machine.l2 <= machine.l3, "{machine:?}");
        }
        assert_eq!(Machine::avx512().lanes(4), 16);
    }
}
