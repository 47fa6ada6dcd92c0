//! EXP, EXP2, LOG2 and SIN on f32 and f64.

/// e to the power x.
pub fn exp_f32(x: f32) -> f32 {
    (x as f64).exp() as f32
}

/// e to the power x.
pub fn exp_f64(x: f64) -> f64 {
    x.exp()
}

/// 2 to the power x.
pub fn exp2_f32(x: f32) -> f32 {
    (x as f64).exp2() as f32
}

/// 2 to the power x.
pub fn exp2_f64(x: f64) -> f64 {
    x.exp2()
}

/// Logarithm to base 2.
pub fn log2_f32(x: f32) -> f32 {
    (x as f64).log2() as f32
}

/// Logarithm to base 2.
pub fn log2_f64(x: f64) -> f64 {
    x.log2()
}

/// Sine of x + k quarter turns.
pub fn sin_f32(x: f32, k: u8) -> f32 {
    sin_f64(x as f64, k) as f32
}

/// Sine of x + k quarter turns.
pub fn sin_f64(x: f64, k: u8) -> f64 {
    match k & 3 {
        0 => x.sin(),
        1 => x.cos(),
        2 => -x.sin(),
        _ => -x.cos(),
    }
}
