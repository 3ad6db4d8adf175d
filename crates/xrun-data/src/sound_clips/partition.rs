//! Partition of clips among nodes: pure functions. Every clip belongs to exactly one node, and every node has one.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use xrun_core::dataset::error::DataError;
use xrun_core::seed::generator;

/// Number of draws of a Dirichlet partition until each node has enough clips.
const DRAWS_MAX: u64 = 1000;

/// Indices of clips by node, each ascending. They index a list of the caller, usually [`super::library::Library::clips_of`].
pub type Nodes = Vec<Vec<u32>>;

/// `clips` clips, dealt evenly and at random: sizes differ by one at most.
///
/// # Errors
/// There are fewer clips than nodes.
pub fn iid(clips: usize, nodes: usize, seed: u32) -> Result<Nodes, DataError> {
    let mut order: Vec<u32> = (0..clips as u32).collect();
    order.shuffle(&mut generator(seed, "partition iid", 0));
    let dealt = round_robin(order.into_iter().enumerate(), nodes);
    finished(dealt, "iid", &format!("{clips} clips for {nodes} nodes"))
}

/// Each class, or each value of a column, is with one node: dealt round robin in the order of their numbers, of those that have
/// clips. `values` has that of each clip; `how` is the partition and `noun` the values in messages.
///
/// # Errors
/// There are fewer values than nodes.
pub fn by_value(values: &[u32], nodes: usize, how: &str, noun: &str) -> Result<Nodes, DataError> {
    let numbers = numbered(values);
    let place = |number: &u32| numbers.partition_point(|other| other < number);
    let dealt = round_robin(values.iter().map(place).zip(0..), nodes);
    finished(dealt, how, &format!("{} {noun} for {nodes} nodes", numbers.len()))
}

/// Each class is shared among the nodes by proportions drawn from a Dirichlet distribution whose parameters are all `alpha`
/// (Hsu et al. 2019, <https://arxiv.org/abs/1909.06335>): the smaller, the more each node has of few classes. Drawn again, at
/// most 1,000 times, until each node has `least` clips. `classes` has the class of each clip.
///
/// # Errors
/// No draw gives each node its minimum number of clips.
pub fn dirichlet(classes: &[u32], nodes: usize, alpha: f64, least: usize, seed: u32) -> Result<Nodes, DataError> {
    let numbers = numbered(classes);
    let mut of_class = vec![Vec::new(); numbers.len()];
    for (clip, class) in (0_u32..).zip(classes) {
        of_class[numbers.partition_point(|other| other < class)].push(clip);
    }
    let least = least.max(1);
    if classes.len() < least.saturating_mul(nodes) || nodes == 0 {
        return Err(DataError::content(format!(
            "{} clips are fewer than {nodes} nodes with {least} clips each; use fewer nodes or a smaller \
             `min_clips_per_node`",
            classes.len()
        )));
    }
    for draw in 0..DRAWS_MAX {
        let random = &mut generator(seed, "partition dirichlet", draw);
        let mut dealt = vec![Vec::new(); nodes];
        for clips in &of_class {
            let mut clips = clips.clone();
            clips.shuffle(random);
            share(&clips, &proportions(random, nodes, alpha), &mut dealt);
        }
        if dealt.iter().all(|clips| clips.len() >= least) {
            return finished(dealt, "dirichlet", "");
        }
    }
    Err(DataError::content(format!(
        "a partition of {} clips of {} classes over {nodes} nodes by a Dirichlet distribution with alpha {alpha} was drawn \
         {DRAWS_MAX} times, and never had each node {least} clips; use fewer nodes, a larger `dirichlet_alpha` or a smaller \
         `min_clips_per_node`",
        classes.len(),
        numbers.len(),
    )))
}

/// Clips beside a number each: node k has those of the numbers k, k + nodes, and so on.
fn round_robin(numbered: impl Iterator<Item = (usize, u32)>, nodes: usize) -> Nodes {
    let mut dealt = vec![Vec::new(); nodes];
    for (number, clip) in numbered {
        if let Some(node) = number.checked_rem(nodes) {
            dealt[node].push(clip);
        }
    }
    dealt
}

/// The different numbers, ascending.
fn numbered(numbers: &[u32]) -> Vec<u32> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn finished(mut dealt: Nodes, how: &str, of: &str) -> Result<Nodes, DataError> {
    dealt.iter_mut().for_each(|clips| clips.sort_unstable());
    match dealt.iter().position(Vec::is_empty) {
        None if !dealt.is_empty() => Ok(dealt),
        node => Err(DataError::content(format!(
            "the partition \"{how}\" leaves node {} without a clip: {of}; use fewer nodes or another `partition`",
            node.unwrap_or(0)
        ))),
    }
}

/// Cuts the clips where the sums of the proportions say.
fn share(clips: &[u32], proportions: &[f64], dealt: &mut Nodes) {
    let (mut begin, mut sum) = (0, 0.0);
    let last = proportions.len() - 1;
    for (node, proportion) in proportions.iter().enumerate() {
        sum += proportion;
        // The sum of all need not be 1 to the last bit.
        let end =
            if node == last { clips.len() } else { ((sum * clips.len() as f64) as usize).clamp(begin, clips.len()) };
        dealt[node].extend(&clips[begin..end]);
        begin = end;
    }
}

/// A draw from a symmetric Dirichlet distribution: gamma variates over their sum. In logarithms, because with a small alpha
/// they are all smaller than the smallest float.
fn proportions(random: &mut impl Rng, count: usize, alpha: f64) -> Vec<f64> {
    let logarithms: Vec<f64> = (0..count).map(|_| log_gamma_variate(random, alpha)).collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts: Vec<f64> = logarithms.into_iter().map(|logarithm| libm::exp(logarithm - largest)).collect();
    let sum: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / sum).collect()
}

/// The logarithm of a gamma variate of this shape (Marsaglia and Tsang 2000); below 1 by way of the shape that is larger by 1.
fn log_gamma_variate(random: &mut impl Rng, shape: f64) -> f64 {
    // From above 0.
    let mut uniform = || 1.0 - random.random::<f64>();
    let boost = if shape < 1.0 { libm::log(uniform()) / shape } else { 0.0 };
    let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let normal = libm::sqrt(-2.0 * libm::log(uniform())) * libm::cos(std::f64::consts::TAU * uniform());
        let v = 1.0 + c * normal;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        if libm::log(uniform()) < 0.5 * normal * normal + d - d * v + d * libm::log(v) {
            return libm::log(d) + libm::log(v) + boost;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clips(nodes: &Nodes) -> Vec<u32> {
        let mut all: Vec<u32> = nodes.concat();
        all.sort_unstable();
        all
    }

    /// So many clips of each class, one class after another.
    fn classes(count: u32, each: usize) -> Vec<u32> {
        (0..count).flat_map(|class| std::iter::repeat_n(class, each)).collect()
    }

    proptest! {
        #[test]
        fn every_clip_is_with_exactly_one_node_or_it_is_an_error(
            classes in prop::collection::vec(0_u32..12, 0..200),
            nodes in 1_usize..12,
            seed in 0_u32..50,
            alpha in prop_oneof![Just(0.001), Just(0.1), Just(1.0), Just(100.0)],
            least in 0_usize..6,
        ) {
            let all: Vec<u32> = (0..classes.len() as u32).collect();
            for (least, dealt) in [
                (1, iid(classes.len(), nodes, seed)),
                (1, by_value(&classes, nodes, "by-class", "classes")),
                (least.max(1), dirichlet(&classes, nodes, alpha, least, seed)),
            ] {
                match dealt {
                    Ok(dealt) => {
                        prop_assert_eq!(dealt.len(), nodes);
                        prop_assert!(dealt.iter().all(|clips| clips.len() >= least));
                        prop_assert!(dealt.iter().all(|clips| clips.is_sorted()));
                        prop_assert_eq!(&clips(&dealt), &all);
                    }
                    Err(error) => prop_assert!(error.to_string().contains("use fewer nodes"), "{}", error),
                }
            }
        }
    }

    #[test]
    fn classes_and_values_stay_whole_and_are_dealt_round_robin() {
        let by_value = |values: &[u32], nodes| by_value(values, nodes, "by-class", "classes");
        let dealt = by_value(&[7, 3, 3, 5, 7, 9], 2).unwrap();
        assert_eq!(dealt, [vec![0, 1, 2, 4], vec![3, 5]], "3 and 7, 5 and 9");
        assert_eq!(by_value(&[0, 1, 0, 2], 3).unwrap(), [vec![0, 2], vec![1], vec![3]]);
        let message = by_value(&[1, 1, 2], 3).unwrap_err().to_string();
        assert!(message.contains("leaves node 2 without a clip: 2 classes for 3 nodes"), "{message}");
    }

    #[test]
    fn without_structure_sizes_differ_by_one_and_the_seed_decides() {
        let dealt = iid(103, 5, 1).unwrap();
        let sizes: Vec<usize> = dealt.iter().map(Vec::len).collect();
        assert_eq!(sizes, [21, 21, 21, 20, 20]);
        assert_eq!(iid(103, 5, 1).unwrap(), dealt);
        assert_ne!(iid(103, 5, 2).unwrap(), dealt);
        assert!(iid(3, 4, 0).is_err() && iid(3, 0, 0).is_err());
    }

    #[test]
    fn proportions_have_the_moments_of_a_dirichlet_distribution() {
        // Of one part of N with parameter a: mean 1/N, variance (N - 1) / (N^2 (N a + 1)).
        for alpha in [0.1, 0.5, 1.0, 10.0] {
            let (nodes, draws) = (5, 20_000);
            let random = &mut generator(3, "test", 0);
            let drawn: Vec<f64> = (0..draws).map(|_| proportions(random, nodes, alpha)[0]).collect();
            let mean = drawn.iter().sum::<f64>() / draws as f64;
            let variance = drawn.iter().map(|part| (part - mean) * (part - mean)).sum::<f64>() / draws as f64;
            let count = nodes as f64;
            let expected = (count - 1.0) / (count * count * (count * alpha + 1.0));
            assert!((mean - 0.2).abs() < 0.01, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "alpha {alpha}: variance {variance}, not {expected}");
        }
    }

    #[test]
    fn a_small_alpha_gives_nodes_few_classes_and_a_large_one_all() {
        let of = classes(10, 100);
        let held = |alpha| {
            let dealt = dirichlet(&of, 5, alpha, 8, 1).unwrap();
            let held = dealt
                .iter()
                .map(|clips| numbered(&clips.iter().map(|clip| of[*clip as usize]).collect::<Vec<_>>()).len());
            held.sum::<usize>() as f64 / 5.0
        };
        let (few, all) = (held(0.05), held(100.0));
        assert!(few < 6.0 && all > 9.9, "{few} and {all}");
        assert_eq!(dirichlet(&of, 5, 0.5, 8, 1).unwrap(), dirichlet(&of, 5, 0.5, 8, 1).unwrap());
        assert_ne!(dirichlet(&of, 5, 0.5, 8, 1).unwrap(), dirichlet(&of, 5, 0.5, 8, 2).unwrap());
    }
}
