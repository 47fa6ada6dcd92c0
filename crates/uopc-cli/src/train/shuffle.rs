//! The order in which samples are seen: a function of the seed and the epoch alone, so that a run
//! that goes on needs no state of a generator.

/// The numbers from 0 to `n - 1` in the order of this epoch.
///
/// ```
/// use uopc_cli::train::shuffle::order;
///
/// assert_eq!(order(0, 1, 1437), order(0, 1, 1437));
/// assert_ne!(order(0, 1, 1437), order(0, 2, 1437));
/// ```
pub fn order(seed: u64, epoch: u64, n: usize) -> Vec<u32> {
    // Mixing the seed before adding the epoch keeps (0, 1) and (1, 0) apart.
    let mut state = mix(seed).wrapping_add(epoch);
    let mut order: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        state = state.wrapping_add(GOLDEN);
        // The high half of the product is a number from 0 to i, even to within 2^-40.
        let j = (mix(state) as u128 * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

/// 2^64 divided by the golden ratio: the step of the SplitMix64 generator.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's mixing function: each bit of the result depends on each of the argument.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_number_once() {
        let mut seen = order(3, 7, 1000);
        assert_ne!(seen, (0..1000).collect::<Vec<u32>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<u32>>());
        assert_eq!(order(3, 7, 0), [0u32; 0]);
        assert_eq!(order(3, 7, 1), [0]);
    }

    #[test]
    fn seeds_and_epochs_differ() {
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(s, e)| order(s, e, 50));
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| b != a));
        }
    }

    /// Every place is taken by every number about equally often.
    #[test]
    fn it_is_even() {
        let mut count = [[0u32; 5]; 5];
        for epoch in 0..10_000 {
            for (place, number) in order(1, epoch, 5).into_iter().enumerate() {
                count[place][number as usize] += 1;
            }
        }
        // 2000 are expected, with a deviation of 40; five deviations are 200.
        let all = count.iter().flatten();
        assert!(all.clone().all(|&c| (1800..2200).contains(&c)), "{count:?}");
    }
}
