//! Whether this process may use the processor's tile registers (AMX) for products of bf16.
//!
//! Their state is large, so that Linux has each process ask for it once; the answer holds for all of
//! its threads, those that come later included.

#![allow(unsafe_code)]

/// Whether the processor multiplies tiles of bf16 and the system lets this process do it.
pub(super) fn granted() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = text.lines().find(|line| line.starts_with("flags"));
        let has = |flag| flags.is_some_and(|l| l.split_whitespace().any(|word| word == flag));
        has("amx_tile") && has("amx_bf16") && ask()
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Asks the system for the tile registers.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn ask() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const REQUEST: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let answer: u64;
    // SAFETY: this call changes which state of the processor the system saves for this process and
    // touches none of its memory; the instruction overwrites the three registers that are named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") REQUEST,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}
