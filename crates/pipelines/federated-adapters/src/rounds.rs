//! Schedule of a federated training: the node and the clips of each step, a pure function of its number and the seed.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::settings::{Aggregation, FederatedAdapters};
use xrun_core::seed::generator;

/// Maximum number of steps that [`Rounds::fraction`] evaluates.
const STEPS_SAMPLED_MAX: u64 = 50_000;

/// Schedule of rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    seed: u32,
    /// Number of training clips of each node.
    clips: Vec<u64>,
    nodes_per_round: usize,
    batch_size: u64,
    local_epochs: u64,
    local_steps: Option<u64>,
    weighted: bool,
    drop_rate: f64,
}

/// Position of a step in its round; all numbers are from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundPosition {
    /// Number of the round.
    pub round: u64,
    /// Node of the step.
    pub node: usize,
    /// Local epoch of the node in this round.
    pub local_epoch: u64,
    /// Local epoch of the node since the start of the run.
    pub pass: u64,
    /// Number of the batch in its local epoch.
    pub batch: u64,
    /// True if this is the node's first local epoch of the round.
    pub first_pass: bool,
    /// True if this is the node's last local epoch of the round.
    pub last_pass: bool,
    /// True if this is the node's first step of the round.
    pub begins_turn: bool,
    /// True if this is the node's last step of the round.
    pub ends_turn: bool,
    /// True if this is the last step of the round.
    pub ends_round: bool,
}

impl Rounds {
    /// Schedule of nodes with `clips` training clips each, at least one per node, in batches of `batch_size`.
    pub fn new(settings: &FederatedAdapters, clips: Vec<u64>, batch_size: usize, seed: u32) -> Self {
        Self {
            seed,
            nodes_per_round: settings.nodes_per_round().min(clips.len()).max(1),
            clips,
            batch_size: batch_size as u64,
            local_epochs: settings.local_epochs,
            local_steps: settings.local_steps,
            weighted: settings.aggregation == Aggregation::Weighted,
            drop_rate: settings.drop_rate,
        }
    }

    /// Number of batches in a local epoch of a node.
    fn batches_per_epoch(&self, node: usize) -> u64 {
        self.clips[node].div_ceil(self.batch_size).max(1)
    }

    /// Number of steps of a node in a round.
    fn turn_steps(&self, node: usize) -> u64 {
        self.local_steps.unwrap_or_else(|| self.local_epochs.saturating_mul(self.batches_per_epoch(node)))
    }

    /// Nodes of a round, ascending.
    pub fn participants(&self, round: u64) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.clips.len()).collect();
        if self.nodes_per_round < nodes.len() {
            nodes.shuffle(&mut generator(self.seed, "nodes", round));
            nodes.truncate(self.nodes_per_round);
            nodes.sort_unstable();
        }
        nodes
    }

    /// Number of steps of a round. All rounds are equally long, because drawing a part of the nodes requires `local_steps`.
    pub fn steps(&self) -> u64 {
        self.participants(0).into_iter().map(|node| self.turn_steps(node)).fold(0, u64::saturating_add).max(1)
    }

    /// Position of step `number`, from 0.
    pub fn position(&self, number: u64) -> RoundPosition {
        let steps = self.steps();
        let (round, mut within) = (number / steps, number % steps);
        let nodes = self.participants(round);
        for (at, node) in nodes.iter().copied().enumerate() {
            let turn = self.turn_steps(node);
            if within < turn {
                let batches = self.batches_per_epoch(node);
                let ends_turn = within + 1 == turn;
                return RoundPosition {
                    round,
                    node,
                    local_epoch: within / batches,
                    pass: round * turn.div_ceil(batches) + within / batches,
                    batch: within % batches,
                    first_pass: within < batches,
                    last_pass: within / batches == (turn - 1) / batches,
                    begins_turn: within == 0,
                    ends_turn,
                    ends_round: ends_turn && at + 1 == nodes.len(),
                };
            }
            within -= turn;
        }
        unreachable!("a round is the sum of the turns of its nodes")
    }

    /// Clips of a step, by their index among those of the node. The last batch of a local epoch may be smaller.
    pub fn clips(&self, position: &RoundPosition) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.clips[position.node] as usize).collect();
        // Generators of two nodes coincide only after 2^24 local epochs.
        order.shuffle(&mut generator(self.seed, "order of clips", (position.node as u64) << 24 | position.pass));
        let first = (position.batch * self.batch_size) as usize;
        let last = (first + self.batch_size as usize).min(order.len());
        order[first..last].to_vec()
    }

    /// Returns whether the result of a node reaches the server.
    fn result_arrives(&self, round: u64, node: usize) -> bool {
        self.drop_rate == 0.0 || {
            let number = round.wrapping_mul(self.clips.len() as u64).wrapping_add(node as u64);
            generator(self.seed, "lost results", number).random::<f64>() >= self.drop_rate
        }
    }

    /// Weight of a node in the mean of a round; `None` if its result is lost. The weights of a round sum to one.
    pub fn weight(&self, round: u64, node: usize) -> Option<f64> {
        let weight = |node: usize| if self.weighted { self.clips[node] as f64 } else { 1.0 };
        let arrived = self.participants(round).into_iter().filter(|node| self.result_arrives(round, *node));
        let all: f64 = arrived.map(weight).sum();
        self.result_arrives(round, node).then(|| weight(node) / all)
    }

    /// Fraction of the steps whose position satisfies `predicate`.
    pub fn fraction(&self, predicate: impl Fn(&RoundPosition) -> bool) -> f64 {
        let steps = self.steps().min(STEPS_SAMPLED_MAX);
        (0..steps).filter(|number| predicate(&self.position(*number))).count() as f64 / steps as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn rounds(settings: FederatedAdapters, clips: &[u64]) -> Rounds {
        Rounds::new(&settings, clips.to_vec(), 4, 7)
    }

    #[test]
    fn a_round_by_hand() {
        let rounds = rounds(FederatedAdapters { local_epochs: 2, ..FederatedAdapters::default() }, &[5, 4]);
        assert_eq!(rounds.steps(), 2 * 2 + 2, "two batches of five clips, one of four, twice");
        let positions: Vec<(u64, usize, u64, u64)> = (0..7)
            .map(|number| rounds.position(number))
            .map(|position| (position.round, position.node, position.local_epoch, position.batch))
            .collect();
        let expected =
            [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1), (0, 1, 0, 0), (0, 1, 1, 0), (1, 0, 0, 0)];
        assert_eq!(positions, expected);
        let ends: Vec<bool> = (0..6).map(|number| rounds.position(number).ends_turn).collect();
        assert_eq!(ends, [false, false, false, true, false, true]);
        assert!(rounds.position(5).ends_round && !rounds.position(3).ends_round && rounds.position(4).begins_turn);
        assert_eq!(rounds.position(6).pass, 2, "the third local epoch");
    }

    #[test]
    fn weights_of_results_that_arrive_sum_to_one() {
        let all = rounds(FederatedAdapters::default(), &[2, 6]);
        assert_eq!((all.weight(0, 0), all.weight(0, 1)), (Some(0.25), Some(0.75)));
        let equal =
            rounds(FederatedAdapters { aggregation: Aggregation::Equal, ..FederatedAdapters::default() }, &[2, 6]);
        assert_eq!(equal.weight(3, 1), Some(0.5));
        let lossy = rounds(FederatedAdapters { drop_rate: 0.4, ..FederatedAdapters::default() }, &[2, 6, 9]);
        let (mut lost, mut none) = (0, 0);
        for round in 0..1000 {
            let weights: Vec<f64> = (0..3).filter_map(|node| lossy.weight(round, node)).collect();
            assert!(weights.is_empty() || (weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            (lost, none) = (lost + 3 - weights.len(), none + usize::from(weights.is_empty()));
        }
        assert!((1050..1350).contains(&lost), "{lost} of 3,000 were lost");
        assert!(none > 20, "{none} rounds without results");
    }

    #[test]
    fn nodes_are_drawn_per_round_and_each_takes_part() {
        let some = FederatedAdapters { nodes_per_round: Some(2), local_steps: Some(3), ..FederatedAdapters::default() };
        let rounds = rounds(some, &[9; 20]);
        assert_eq!(rounds.steps(), 6);
        let drawn: Vec<Vec<usize>> = (0..200).map(|round| rounds.participants(round)).collect();
        assert!(drawn.iter().all(|nodes| nodes.len() == 2 && nodes[0] < nodes[1]));
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), 20);
    }

    proptest! {
        #[test]
        fn a_local_epoch_has_each_clip_once(
            clips in proptest::collection::vec(1u64..20, 1..6),
            epochs in 1u64..4,
            round in 0u64..5,
        ) {
            let rounds = rounds(FederatedAdapters { local_epochs: epochs, ..FederatedAdapters::default() }, &clips);
            let mut trained = vec![Vec::new(); clips.len()];
            let mut turns = 0;
            for number in round * rounds.steps()..(round + 1) * rounds.steps() {
                let position = rounds.position(number);
                prop_assert_eq!(position.round, round);
                trained[position.node].extend(rounds.clips(&position));
                turns += usize::from(position.ends_turn);
            }
            prop_assert_eq!(turns, clips.len());
            for (trained, clips) in trained.iter_mut().zip(&clips) {
            trained.sort_unstable();
                let expected: Vec<usize> = (0..*clips as usize).flat_map(|clip| vec![clip; epochs as usize]).collect();
                prop_assert_eq!(&*trained, &expected);
            }
        }

        /// Local epochs are numbered across rounds.
        #[test]
        fn three_rounds_of_one_epoch_equal_one_round_of_three(clips in 1u64..20) {
            let short = rounds(FederatedAdapters { local_epochs: 1, ..FederatedAdapters::default() }, &[clips]);
            let long = rounds(FederatedAdapters { local_epochs: 3, ..FederatedAdapters::default() }, &[clips]);
            for number in 0..2 * long.steps() {
                prop_assert_eq!(short.clips(&short.position(number)), long.clips(&long.position(number)));
            }
        }
    }
}
