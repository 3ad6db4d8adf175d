//! Which node makes which step, and on which of its clips? A pure function of the step's number and the seed.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::settings::{Aggregation, Settings};
use xrun_core::seed::generator;

/// A round of more steps is taken to be as these many are.
const STEPS_LOOKED_AT: u64 = 50_000;

/// How rounds go.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    seed: u32,
    /// Clips to train on of each node.
    clips: Vec<u64>,
    nodes_per_round: usize,
    batch_size: u64,
    local_epochs: u64,
    local_steps: Option<u64>,
    weighted: bool,
    drop_rate: f64,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0, as all numbers here.
    pub round: u64,
    /// The node that makes the step.
    pub node: usize,
    /// The pass of the node over its clips in this round.
    pub local_epoch: u64,
    /// Its pass over them since the run began.
    pub pass: u64,
    /// Which batch of the pass.
    pub batch: u64,
    /// Whether this is the node's first pass of the round, and its last.
    pub first_pass: bool,
    /// Whether this is the node's last pass of the round.
    pub last_pass: bool,
    /// The node's first step of the round, and its last.
    pub begins_turn: bool,
    /// The node's last step of the round.
    pub ends_turn: bool,
    /// The round's last step.
    pub ends_round: bool,
}

impl Rounds {
    /// `clips` are those to train on of each node, at least one each; `batch_size` of them make a step.
    pub fn new(settings: &Settings, clips: Vec<u64>, batch_size: usize, seed: u32) -> Self {
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

    /// Batches in a pass of a node over its clips.
    fn batches(&self, node: usize) -> u64 {
        self.clips[node].div_ceil(self.batch_size).max(1)
    }

    /// Steps of a node in a round.
    fn turn(&self, node: usize) -> u64 {
        self.local_steps.unwrap_or_else(|| self.local_epochs.saturating_mul(self.batches(node)))
    }

    /// Nodes that take part in a round, ascending.
    pub fn takes_part(&self, round: u64) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.clips.len()).collect();
        if self.nodes_per_round < nodes.len() {
            nodes.shuffle(&mut generator(self.seed, "nodes", round));
            nodes.truncate(self.nodes_per_round);
            nodes.sort_unstable();
        }
        nodes
    }

    /// Steps of a round. All rounds are equally long: those of fewer nodes than there are have `local_steps`.
    pub fn steps(&self) -> u64 {
        self.takes_part(0).into_iter().map(|node| self.turn(node)).fold(0, u64::saturating_add).max(1)
    }

    /// Where step `number` is, from 0.
    pub fn place(&self, number: u64) -> Place {
        let steps = self.steps();
        let (round, mut within) = (number / steps, number % steps);
        let nodes = self.takes_part(round);
        for (at, node) in nodes.iter().copied().enumerate() {
            let turn = self.turn(node);
            if within < turn {
                let batches = self.batches(node);
                let ends_turn = within + 1 == turn;
                return Place {
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
        unreachable!("a round is as long as the turns of its nodes")
    }

    /// Clips of a step, by their number among those of the node. The last batch of a pass may be smaller.
    pub fn clips(&self, place: &Place) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.clips[place.node] as usize).collect();
        // Nodes have 2^24 passes each before the numbers of one reach those of the next.
        order.shuffle(&mut generator(self.seed, "order of clips", (place.node as u64) << 24 | place.pass));
        let first = (place.batch * self.batch_size) as usize;
        let last = (first + self.batch_size as usize).min(order.len());
        order[first..last].to_vec()
    }

    /// Whether what a node learnt in a round reaches the server.
    fn arrives(&self, round: u64, node: usize) -> bool {
        self.drop_rate == 0.0 || {
            let number = round.wrapping_mul(self.clips.len() as u64).wrapping_add(node as u64);
            generator(self.seed, "lost results", number).random::<f64>() >= self.drop_rate
        }
    }

    /// The weight of a node in the mean of a round; `None` where its result is lost. The weights of those that arrive sum to
    /// one.
    pub fn weight(&self, round: u64, node: usize) -> Option<f64> {
        let of = |node: usize| if self.weighted { self.clips[node] as f64 } else { 1.0 };
        let arrived = self.takes_part(round).into_iter().filter(|node| self.arrives(round, *node));
        let all: f64 = arrived.map(of).sum();
        self.arrives(round, node).then(|| of(node) / all)
    }

    /// The fraction of all steps that are so.
    pub fn fraction(&self, is_so: impl Fn(&Place) -> bool) -> f64 {
        let steps = self.steps().min(STEPS_LOOKED_AT);
        (0..steps).filter(|number| is_so(&self.place(*number))).count() as f64 / steps as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn rounds(settings: Settings, clips: &[u64]) -> Rounds {
        Rounds::new(&settings, clips.to_vec(), 4, 7)
    }

    #[test]
    fn a_round_by_hand() {
        let rounds = rounds(Settings { local_epochs: 2, ..Settings::default() }, &[5, 4]);
        assert_eq!(rounds.steps(), 2 * 2 + 2, "two batches of five clips, one of four, twice");
        let places: Vec<(u64, usize, u64, u64)> = (0..7)
            .map(|number| rounds.place(number))
            .map(|place| (place.round, place.node, place.local_epoch, place.batch))
            .collect();
        let expected =
            [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1), (0, 1, 0, 0), (0, 1, 1, 0), (1, 0, 0, 0)];
        assert_eq!(places, expected);
        let ends: Vec<bool> = (0..6).map(|number| rounds.place(number).ends_turn).collect();
        assert_eq!(ends, [false, false, false, true, false, true]);
        assert!(rounds.place(5).ends_round && !rounds.place(3).ends_round && rounds.place(4).begins_turn);
        assert_eq!(rounds.place(6).pass, 2, "the third pass over the clips");
    }

    #[test]
    fn weights_sum_to_one_over_those_that_arrive() {
        let all = rounds(Settings::default(), &[2, 6]);
        assert_eq!((all.weight(0, 0), all.weight(0, 1)), (Some(0.25), Some(0.75)));
        let equal = rounds(Settings { aggregation: Aggregation::Equal, ..Settings::default() }, &[2, 6]);
        assert_eq!(equal.weight(3, 1), Some(0.5));
        let lossy = rounds(Settings { drop_rate: 0.4, ..Settings::default() }, &[2, 6, 9]);
        let (mut lost, mut none) = (0, 0);
        for round in 0..1000 {
            let weights: Vec<f64> = (0..3).filter_map(|node| lossy.weight(round, node)).collect();
            assert!(weights.is_empty() || (weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            (lost, none) = (lost + 3 - weights.len(), none + usize::from(weights.is_empty()));
        }
        assert!((1050..1350).contains(&lost), "{lost} of 3,000 were lost");
        assert!(none > 20, "{none} rounds in which nothing came");
    }

    #[test]
    fn some_nodes_are_drawn_anew_for_each_round_and_each_comes_at_last() {
        let some = Settings { nodes_per_round: Some(2), local_steps: Some(3), ..Settings::default() };
        let rounds = rounds(some, &[9; 20]);
        assert_eq!(rounds.steps(), 6);
        let drawn: Vec<Vec<usize>> = (0..200).map(|round| rounds.takes_part(round)).collect();
        assert!(drawn.iter().all(|nodes| nodes.len() == 2 && nodes[0] < nodes[1]));
        assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), 20);
    }

    proptest! {
        /// Whatever the shape of a round, a pass has each clip of the node once.
        #[test]
        fn a_pass_has_each_clip_once(
            clips in proptest::collection::vec(1u64..20, 1..6),
            epochs in 1u64..4,
            round in 0u64..5,
        ) {
            let rounds = rounds(Settings { local_epochs: epochs, ..Settings::default() }, &clips);
            let mut seen = vec![Vec::new(); clips.len()];
            let mut turns = 0;
            for number in round * rounds.steps()..(round + 1) * rounds.steps() {
                let place = rounds.place(number);
                prop_assert_eq!(place.round, round);
                seen[place.node].extend(rounds.clips(&place));
                turns += usize::from(place.ends_turn);
            }
            prop_assert_eq!(turns, clips.len());
            for (seen, clips) in seen.iter_mut().zip(&clips) {
                seen.sort_unstable();
                let expected: Vec<usize> = (0..*clips as usize).flat_map(|clip| vec![clip; epochs as usize]).collect();
                prop_assert_eq!(&*seen, &expected);
            }
        }

        /// Passes are numbered on through the rounds, so that three rounds of one epoch are one round of three.
        #[test]
        fn rounds_of_one_epoch_are_a_round_of_several(clips in 1u64..20) {
            let short = rounds(Settings { local_epochs: 1, ..Settings::default() }, &[clips]);
            let long = rounds(Settings { local_epochs: 3, ..Settings::default() }, &[clips]);
            for number in 0..2 * long.steps() {
                prop_assert_eq!(short.clips(&short.place(number)), long.clips(&long.place(number)));
            }
        }
    }
}
