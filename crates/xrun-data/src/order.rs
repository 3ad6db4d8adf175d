//! Order of examples: each once an epoch, a pure function of seed, epoch and position.
//!
//! A list of all numbers, shuffled, would have to be kept or made again for each batch. A Feistel network over the
//! next power of four, walked until it falls inside (Black and Rogaway 2002), needs neither.

use rand::RngExt;

use xrun_core::seed::generator;

const ROUNDS: usize = 4;

/// A permutation of `0..count`.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The order of one epoch; `purpose` keeps training and validation apart.
    pub fn new(seed: u32, purpose: &str, epoch: u64, count: u64) -> Self {
        let random = &mut generator(seed, purpose, epoch);
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.random()) }
    }

    /// Example at a position below `count`.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.count);
        let mut value = self.shuffled(position);
        while value >= self.count {
            value = self.shuffled(value);
        }
        value
    }

    fn shuffled(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// Items in the order of a [`Permutation`].
pub fn permuted<T: Copy>(items: &[T], seed: u32, purpose: &str, epoch: u64) -> impl Iterator<Item = T> {
    let order = Permutation::new(seed, purpose, epoch, items.len() as u64);
    (0..items.len() as u64).map(move |position| items[order.at(position) as usize])
}

/// The finaliser of SplitMix64 (Steele et al. 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_comes_once(seed in 0u32..100, count in 1u64..500) {
            let order = Permutation::new(seed, "x", 0, count);
            let mut seen: Vec<u64> = (0..count).map(|position| order.at(position)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn epochs_differ_and_look_shuffled() {
        let order = |epoch| {
            let order = Permutation::new(7, "x", epoch, 100);
            (0..100).map(|position| order.at(position)).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(0), order(1));
        let neighbours = order(0).windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 10, "{neighbours} of 99 neighbours stayed neighbours");
    }
}
