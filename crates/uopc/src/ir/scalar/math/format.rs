//! The constants of [`math`](super) that depend on the width of the float.
//!
//! The polynomials are near-minimax fits, their coefficients rounded one after the other to the
//! format, lowest degree first, and the later ones fitted again each time.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E};

/// Constants for one float format. Every number is exactly a number of that format.
pub struct Format {
    /// Bits in all.
    pub width: u64,
    /// Bits of the stored significand.
    pub fraction: u64,
    /// What is added to an exponent to store it.
    pub bias: u64,
    /// The sign bit.
    pub sign: u64,
    /// 1.5 * 2^fraction: adding it rounds a number to an integer, which is left in the low bits.
    pub round: f64,
    /// The smallest normal number.
    pub least_normal: f64,
    /// A power of two that makes every subnormal normal, and minus its exponent.
    pub scale: (f64, f64),
    /// The bits of the square root of 1/2.
    pub root_half: u64,
    /// The range in which exp is neither 0 nor infinite, and a little more.
    pub exp_range: (f64, f64),
    /// The same for exp2.
    pub exp2_range: (f64, f64),
    /// ln 2 as the sum of two numbers.
    pub ln_2: [f64; 2],
    /// 1 / ln 2 as the sum of two numbers.
    pub log2_e: [f64; 2],
    /// pi / 2 as the sum of three numbers.
    pub half_pi: [f64; 3],
    /// 2 / pi.
    pub two_over_pi: f64,
    /// From here on sine takes its argument apart in integers.
    pub far: f64,
    /// (e^z - 1 - z) / z^2 for |z| up to ln(2)/2: coefficients of 1, z, z^2, ...
    pub exp: &'static [f64],
    /// (L - 2s) / s^3 for L = log((1+s) / (1-s)), s up to 3 - sqrt(8): of 1, s^2, s^4, ...
    pub log: &'static [f64],
    /// (sin(r) - r) / r^3 for |r| up to pi/4: of 1, r^2, r^4, ...
    pub sin: &'static [f64],
    /// (cos(r) - 1 + r^2/2) / r^4 for |r| up to pi/4: of 1, r^2, r^4, ...
    pub cos: &'static [f64],
}

impl Format {
    /// f32.
    pub const SINGLE: Format = Format {
        width: 32,
        fraction: 23,
        bias: 127,
        sign: 0x8000_0000,
        round: 12_582_912.0,
        least_normal: f32::MIN_POSITIVE as f64,
        scale: (16_777_216.0, -24.0),
        root_half: 0x3f35_04f3,
        exp_range: (-105.0, 89.0),
        exp2_range: (-151.0, 129.0),
        ln_2: [0.6931471824645996, -1.9046542121259336e-9],
        log2_e: [1.4426950216293335, 1.925963033500011e-8],
        half_pi: [
            1.5707963705062866,
            -4.371138828673793e-8,
            -1.7151245100058819e-15,
        ],
        two_over_pi: 0.6366197466850281,
        far: 131_072.0,
        exp: &[
            0.5,
            0.16666513681411743,
            0.04166645184159279,
            0.008369406685233116,
            0.0013936141040176153,
        ],
        log: &[
            0.6666666269302368,
            0.40000849962234497,
            0.28510144352912903,
            0.24029092490673065,
        ],
        sin: &[
            -0.1666666716337204,
            0.00833337102085352,
            -0.00019849395903293043,
            2.7941327971348073e-6,
        ],
        cos: &[
            0.04166664555668831,
            -0.0013887290842831135,
            2.4428645701846108e-5,
        ],
    };

    /// f64.
    pub const DOUBLE: Format = Format {
        width: 64,
        fraction: 52,
        bias: 1023,
        sign: 1 << 63,
        round: 6_755_399_441_055_744.0,
        least_normal: f64::MIN_POSITIVE,
        scale: (18_014_398_509_481_984.0, -54.0),
        root_half: 0x3fe6_a09e_667f_3bcd,
        exp_range: (-746.0, 710.0),
        exp2_range: (-1076.0, 1025.0),
        ln_2: [LN_2, 2.3190468138462996e-17],
        log2_e: [LOG2_E, 2.0355273740931033e-17],
        half_pi: [FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33],
        two_over_pi: FRAC_2_PI,
        far: 1_073_741_824.0,
        exp: &[
            0.5,
            0.16666666666666685,
            0.041666666666666685,
            0.008333333333315875,
            0.0013888888888873255,
            0.00019841269898982712,
            2.480158734930974e-5,
            2.755723245961517e-6,
            2.7557251689028445e-7,
            2.5112823098906728e-8,
            2.092182082937587e-9,
        ],
        log: &[
            0.6666666666666736,
            0.39999999999405034,
            0.2857142874423165,
            0.22222198403083,
            0.18183572504150583,
            0.1531385313789698,
            0.14797840067142343,
        ],
        sin: &[
            -0.1666666666666663,
            0.008333333333321894,
            -0.00019841269829419753,
            2.755731356256736e-6,
            -2.5050738337308127e-8,
            1.5895664943617217e-10,
        ],
        cos: &[
            0.041666666666666595,
            -0.001388888888887339,
            2.4801587289041504e-5,
            -2.755731422829501e-7,
            2.087570669777651e-9,
            -1.1358798905706606e-11,
        ],
    };
}

/// Word `i` of the table for f32: one 32-bit word of zeros, then the bits of 2 / pi.
pub fn half_of_two_over_pi(i: usize) -> u32 {
    let word = TWO_OVER_PI[i.div_ceil(2)];
    if i % 2 == 1 {
        (word >> 32) as u32
    } else {
        word as u32
    }
}

/// One word of zeros, then the bits of 2 / pi after the binary point.
pub const TWO_OVER_PI: [u64; 21] = [
    0x0000_0000_0000_0000,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
    0xf0cf_bc20_9af4_361d,
];
