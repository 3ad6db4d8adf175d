//! Asynchronous successive halving: the trial that is promoted to the next rung.
//!
//! Li, Jamieson, Rostamizadeh, Gonina, Ben-Tzur, Hardt, Recht and Talwalkar 2020, "A System for Massively Parallel
//! Hyperparameter Tuning", algorithm 2. Whenever a job is free, the rungs are examined from the highest down: of the trials
//! with a result there, the best `1 / reduction_factor` may be promoted, and the best of those that were not yet is. If no
//! rung has one, a new trial begins at the first rung.
//!
//! Two differences from the paper: a promoted trial continues from its checkpoint, and the number of trials is fixed, so the
//! search ends when none is left and none may be promoted. The choice is a pure function of the results.

/// State of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialState {
    /// Its cost (lower is better) at each rung where it has a result, from the first rung on.
    pub costs: Vec<f64>,
    /// Number of rungs that it was assigned so far; 0 before it begins.
    pub rungs_assigned: usize,
    /// True if it finished or failed.
    pub is_over: bool,
}

/// The next job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Train this trial to this rung.
    Train {
        /// Index of the trial, from 0.
        trial: usize,
        /// Index of the rung, from 0.
        rung: usize,
    },
    /// No job, at least until an active one has its result.
    Nothing,
}

/// Chooses the next job. `trials` are the trials in the order in which they were drawn; `rungs` is the number of rungs, the end
/// of a run included.
pub fn choose(trials: &[TrialState], rungs: usize, reduction_factor: u64) -> Choice {
    for rung in (0..rungs.saturating_sub(1)).rev() {
        let mut there: Vec<(f64, usize)> =
            trials.iter().enumerate().filter_map(|(at, trial)| Some((*trial.costs.get(rung)?, at))).collect();
        // The first one of equal trials.
        there.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let may = there.len() / usize::try_from(reduction_factor).unwrap_or(usize::MAX).max(1);
        let waits = |at: usize| trials[at].rungs_assigned == rung + 1 && !trials[at].is_over;
        if let Some((_, trial)) = there.into_iter().take(may).find(|(cost, at)| cost.is_finite() && waits(*at)) {
            return Choice::Train { trial, rung: rung + 1 };
        }
    }
    match trials.iter().position(|trial| trial.rungs_assigned == 0 && !trial.is_over) {
        Some(trial) => Choice::Train { trial, rung: 0 },
        None => Choice::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a whole search, one process at a time: what was trained, in order, as trial and rung, both from 1.
    fn search(costs: &[[f64; 3]], reduction_factor: u64) -> Vec<(usize, usize)> {
        let mut trials = vec![TrialState::default(); costs.len()];
        let mut trained = Vec::new();
        while let Choice::Train { trial, rung } = choose(&trials, 3, reduction_factor) {
            trials[trial].rungs_assigned = rung + 1;
            trials[trial].costs.push(costs[trial][rung]);
            trials[trial].is_over = rung == 2;
            trained.push((trial + 1, rung + 1));
        }
        trained
    }

    /// Nine trials, a third of which are promoted. The costs of the first rung are 0.9, 0.1, 0.5, 0.4, 0.2, 0.8, 0.3, 0.7, 0.6.
    ///
    /// By hand: after trials 1, 2, 3 one of three may go on: trial 2 (0.1). At the second rung is one result, and a third
    /// of one is none. After 4 and 5 there are five results, and one may go on: 2, which has. After 6 there are six, and two
    /// may: 2 and 5 (0.2). After 9 there are nine, and three may: 2, 5 and 7 (0.3); at the second rung are then three
    /// results, of which 7's (0.05) is the best, so that 7 is trained to the end.
    #[test]
    fn trials_are_promoted_in_the_order_that_was_worked_out_by_hand() {
        let firsts = [0.9, 0.1, 0.5, 0.4, 0.2, 0.8, 0.3, 0.7, 0.6];
        let mut costs = firsts.map(|first| [first, first, first]);
        costs[6] = [0.3, 0.05, 0.04];
        let expected =
            [(1, 1), (2, 1), (3, 1), (2, 2), (4, 1), (5, 1), (6, 1), (5, 2), (7, 1), (8, 1), (9, 1), (7, 2), (7, 3)];
        assert_eq!(search(&costs, 3), expected);
    }

    #[test]
    fn the_first_of_equals_is_promoted_and_a_failed_trial_never() {
        let known = |cost: f64, is_over: bool| TrialState { costs: vec![cost], rungs_assigned: 1, is_over };
        let equal = [known(0.5, false), known(0.5, false)];
        assert_eq!(choose(&equal, 2, 2), Choice::Train { trial: 0, rung: 1 });
        let failed = [known(f64::INFINITY, true), known(0.5, false), known(0.7, false), known(0.9, false)];
        assert_eq!(choose(&failed, 2, 4), Choice::Train { trial: 1, rung: 1 }, "what failed counts among the four");
        let all = [known(f64::INFINITY, false), known(f64::INFINITY, false)];
        assert_eq!(choose(&all, 2, 2), Choice::Nothing, "without a number none is the best");
        assert_eq!(choose(&[], 2, 2), Choice::Nothing);
    }

    proptest! {
        #[test]
        fn as_many_reach_the_end_as_the_factor_says(costs in proptest::collection::vec(0u8..50, 9..40)) {
            let table: Vec<[f64; 3]> = costs.iter().map(|cost| [f64::from(*cost); 3]).collect();
            let trained = search(&table, 3);
            let at = |rung| trained.iter().filter(|(_, to)| *to == rung).count();
            prop_assert_eq!(at(1), costs.len());
            prop_assert!(at(2) >= costs.len() / 3 && at(3) >= at(2) / 3 && at(3) >= 1, "{:?}", trained);
            let best = costs.iter().min().unwrap();
            let ends: Vec<usize> = trained.iter().filter(|(_, to)| *to == 3).map(|(trial, _)| *trial).collect();
            prop_assert!(ends.iter().any(|trial| costs[trial - 1] == *best), "the best came to the end");
        }
    }
}
