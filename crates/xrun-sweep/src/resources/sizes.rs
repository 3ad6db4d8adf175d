//! Sizes of memory for the job arrays of a sweep: each size is an array of its own, and each run in it is given all of it.

use std::collections::BTreeMap;

/// Largest number of sizes: each is a job array.
pub const SIZES_MAX: usize = 4;
/// Largest number of different needs; with more, neighbours count as the larger one.
const NEEDS_MAX: usize = 32;
/// One size less is worth this fraction of all that is asked for, as its inverse.
const WORTH: u64 = 20;

/// Returns the sizes, ascending, that ask for the least memory in all. `needs` are bytes and the number of runs that need
/// them; equal ones may be repeated. The largest size is the largest need. Fewer sizes are taken where they cost at most a
/// twentieth more. Empty without needs.
pub fn sizes(needs: &[(u64, u64)]) -> Vec<u64> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (bytes, runs) in needs {
        *counts.entry(*bytes).or_default() += runs;
    }
    let counts: Vec<(u64, u64)> = counts.into_iter().collect();
    let counts: Vec<(u64, u64)> = counts
        .chunks(counts.len().div_ceil(NEEDS_MAX).max(1))
        .filter_map(|chunk| Some((chunk.last()?.0, chunk.iter().map(|(_, runs)| runs).sum())))
        .collect();
    let ways: Vec<(u128, Vec<u64>)> = (1..=SIZES_MAX).filter_map(|count| cut(&counts, count)).collect();
    let Some(least) = ways.iter().map(|(asked, _)| *asked).min() else { return Vec::new() };
    let most = least + least / u128::from(WORTH);
    ways.into_iter().find(|(asked, _)| *asked <= most).map(|(_, sizes)| sizes).unwrap_or_default()
}

/// The smallest size that is enough for a need; the largest one where none is.
pub fn size_of(sizes: &[u64], need: u64) -> Option<u64> {
    sizes.iter().copied().filter(|size| *size >= need).min().or_else(|| sizes.iter().copied().max())
}

/// Returns the best `count` sizes for needs in ascending order, and the memory that they ask for in all; `None` for fewer needs.
fn cut(counts: &[(u64, u64)], count: usize) -> Option<(u128, Vec<u64>)> {
    let (largest, _) = *counts.last()?;
    // Memory for the needs from this one on when all are given the largest of them.
    let asked =
        |from: usize| counts[from..].iter().map(|(_, runs)| u128::from(*runs) * u128::from(largest)).sum::<u128>();
    if count == 1 {
        return Some((asked(0), vec![largest]));
    }
    let ways = (1..counts.len()).filter_map(|from| {
        let (before, mut sizes) = cut(&counts[..from], count - 1)?;
        sizes.push(largest);
        Some((before + asked(from), sizes))
    });
    ways.min_by_key(|(asked, _)| *asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(sizes: &[u64], needs: &[(u64, u64)]) -> u128 {
        needs.iter().map(|(bytes, runs)| u128::from(size_of(sizes, *bytes).unwrap()) * u128::from(*runs)).sum()
    }

    #[test]
    fn a_few_large_trials_do_not_make_all_large() {
        let needs = [(300, 7), (310, 2), (8_000, 1)];
        assert_eq!(sizes(&needs), [310, 8_000], "a third size would save a hundredth");
        assert_eq!(total(&[310, 8_000], &needs), 10_790, "and one size for all is 80,000");
        assert_eq!(sizes(&[(5, 3), (5, 4)]), [5]);
        assert_eq!(sizes(&[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn every_need_has_one_size_that_is_enough(
            needs in proptest::collection::vec((1u64..1 << 44, 1u64..50), 1..300),
        ) {
            let sizes = sizes(&needs);
            prop_assert!((1..=SIZES_MAX).contains(&sizes.len()) && sizes.is_sorted());
            prop_assert_eq!(sizes.last().copied(), needs.iter().map(|(bytes, _)| *bytes).max());
            for (bytes, _) in &needs {
                prop_assert!(size_of(&sizes, *bytes).unwrap() >= *bytes);
            }
        }

        #[test]
        fn no_other_sizes_ask_for_clearly_less(needs in proptest::collection::vec((1u64..1000, 1u64..9), 1..8)) {
            let found = total(&sizes(&needs), &needs);
            let all: Vec<u64> = needs.iter().map(|(bytes, _)| *bytes).collect();
            let largest = *all.iter().max().unwrap();
            for chosen in 0..1_usize << all.len() {
                let mut some: Vec<u64> = all.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, b)| *b).collect();
                some.push(largest);
                some.sort_unstable();
                some.dedup();
                if some.len() <= SIZES_MAX {
                    prop_assert!(found <= total(&some, &needs) * 21 / 20 + 1, "{:?}", some);
                }
            }
        }
    }
}
