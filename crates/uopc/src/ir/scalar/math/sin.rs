//! Sine and cosine for arguments of any size.
//!
//! The argument is taken modulo a quarter turn: x = q * pi/2 + r, with r as the sum of two numbers
//! so that it is accurate even where x lies close to a multiple of pi/2. Near 0 that takes two
//! fused multiply-adds; far away x times 2/pi is computed in integers, from those bits of 2/pi
//! that matter (Payne and Hanek). The k quarter turns of `SIN(k)` are added to q, an integer, so
//! that a cosine is as accurate as a sine.

use super::{Real, Truth, Word, horner};

/// The sine of x + k quarter turns.
pub fn sin_f32(x: f32, k: u32) -> f32 {
    if x.abs() < f32::FORMAT.far as f32 {
        sin_near(x, k)
    } else {
        sin_far(x, k)
    }
}

/// The sine of x + k quarter turns.
pub fn sin_f64(x: f64, k: u64) -> f64 {
    if x.abs() < f64::FORMAT.far {
        sin_near(x, k)
    } else {
        sin_far(x, k)
    }
}

/// The sine of x + k quarter turns for |x| below [`Format::far`](super::Format::far).
pub fn sin_near<R: Real>(x: R, k: R::Word) -> R {
    let f = R::FORMAT;
    let t = x
        .fma(x.constant(f.two_over_pi), x.constant(f.round))
        .named("t");
    let n = (t - x.constant(f.round)).named("n");
    // Exact, as in exp.
    let r = n.fma(x.constant(-f.half_pi[0]), x).named("r");
    // r - (w + more), where r may have lost so many digits that w is larger.
    let w = (n * x.constant(f.half_pi[1])).named("w");
    let lost = n.fma(x.constant(f.half_pi[1]), -w);
    let more = n.fma(x.constant(f.half_pi[2]), lost).named("more");
    let high = (r - w).named("high");
    let back = (r - high).named("back");
    let low = ((r - (high + back)) + (back - w) - more).named("low");
    let q = t.bits().plus(k).named("q");
    quadrant(x, high, low, q)
}

/// The sine of x + k quarter turns for |x| from [`Format::far`](super::Format::far) up, infinity
/// and NaN.
pub fn sin_far<R: Real>(x: R, k: R::Word) -> R {
    let f = R::FORMAT;
    let width = f.width;
    let bits = x.bits().named("bits");
    let word = |value| bits.constant(value);
    // |x| = m * 2^(exponent - bias - fraction).
    let magnitude = bits.and(word(f.sign - 1)).named("magnitude");
    let exponent = magnitude.right(word(f.fraction));
    let leading = word(1 << f.fraction);
    let m = magnitude
        .and(word((1 << f.fraction) - 1))
        .or(leading)
        .named("m");
    // Multiples of four quarter turns do not matter: the bits of 2/pi are read from the one that,
    // times m, counts double quarter turns. The table begins with `width` zeros.
    let place = exponent
        .minus(word(f.bias + f.fraction + 2 - width))
        .named("place");
    let index = place.right(word(width.ilog2() as u64)).named("index");
    let s = place.and(word(width - 1)).named("s");
    let window = |i| {
        let next = index.two_over_pi(i + 1).right(word(1));
        index
            .two_over_pi(i)
            .left(s)
            .or(next.right(word(width - 1).minus(s)))
    };
    let (w0, w1) = (window(0).named("w0"), window(1).named("w1"));
    let w2 = window(2).named("w2");
    // The product of m and the three words, dropping what is above them.
    let p2 = m.times(w2).named("p2");
    let low1 = m.times(w1).named("low1");
    let p1 = low1.plus(m.times_high(w2)).named("p1");
    let p0 = m
        .times(w0)
        .plus(m.times_high(w1))
        .plus(p1.below(low1))
        .named("p0");
    // Two bits of quarter turns, then the fraction; from a half up it counts as negative.
    let shifted = |a: R::Word, b: R::Word| a.left(word(2)).or(b.right(word(width - 2)));
    let f0 = shifted(p0, p1).named("f0");
    let f1 = shifted(p1, p2).named("f1");
    let f2 = p2.left(word(2));
    let turns = p0
        .right(word(width - 2))
        .plus(f0.right(word(width - 1)))
        .named("turns");
    // Half words are exact as floats.
    let half = word(width / 2);
    let low_half = |w: R::Word| w.and(word((1 << (width / 2)) - 1)).to_real();
    let piece = |value: R, i: u64| {
        value * x.constant(f64::from_bits((1023 - i * (width / 2)) << 52)) // 2^-(i * half a word)
    };
    let a = piece(f0.right_signed(half).to_real(), 1).named("a");
    let b = piece(low_half(f0), 2).named("b");
    let c = piece(f1.right(half).to_real(), 3).named("c");
    let d = piece(low_half(f1), 4).named("d");
    let e = piece(f2.right(half).to_real(), 5);
    let ab = (a + b).named("ab");
    let abc = (ab + c).named("abc");
    let sum = (abc + d).named("sum");
    let rest = ((b - (ab - a)) + (c - (abc - ab)) + (d - (sum - abc)) + e).named("rest");
    // The fraction in quarter turns becomes an angle.
    let pi = f.half_pi.map(|p| x.constant(p));
    let high = (sum * pi[0]).named("high");
    let lost = sum.fma(pi[0], -high);
    let low = sum.fma(pi[1], lost).named("low");
    let low = rest.fma(pi[0], low).named("low");
    // What holds for |x| holds for x with all signs turned.
    let sign = bits.and(word(f.sign)).named("sign");
    let minus = sign.right_signed(word(width - 1)).named("minus");
    let high = high.bits().xor(sign).real().named("high_x");
    let low = low.bits().xor(sign).real().named("low_x");
    let q = turns.xor(minus).minus(minus).plus(k).named("q");
    let y = quadrant(x, high, low, q).named("y");
    // Infinity and NaN have no sine.
    magnitude
        .real()
        .below(x.constant(f64::INFINITY))
        .select(y, x.constant(f64::NAN))
}

/// The sine of high + low + q quarter turns, where |high + low| is about pi/4 at most.
fn quadrant<R: Real>(x: R, high: R, low: R, q: R::Word) -> R {
    let f = R::FORMAT;
    let number = |value| high.constant(value);
    let word = |value| q.constant(value);
    let z = (high * high).named("z");
    // sin(high + low) = high + low + z*high*S(z) - low*z/2. Only 0 itself has the sine 0, with its
    // own sign.
    let tail = (number(-0.5) * z).fma(low, low).named("tail");
    let sine = high + (z * high).fma(horner(z, f.sin), tail);
    let sine = x.equals(number(0.0)).select(x, sine).named("sine");
    // cos(high + low) = 1 - z/2 + z*z*C(z) - (high*low + what z lacks of high*high, halved).
    let half = (number(0.5) * z).named("half_z");
    let near = (number(1.0) - half).named("near");
    let near_lost = (number(1.0) - near) - half;
    let z_lost = high.fma(high, -z);
    let other = high.fma(low, number(0.5) * z_lost).named("other");
    let rest = (z * z).fma(horner(z, f.cos), -other);
    let cosine = (near + (near_lost + rest)).named("cosine");
    let y = q.and(word(1)).nonzero().select(cosine, sine);
    let turned = q.and(word(2)).left(word(f.sign.ilog2() as u64 - 1));
    y.bits().xor(turned).real()
}
