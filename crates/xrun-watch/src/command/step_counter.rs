//! Steps of a whole command, from numbers that restart with each epoch and that several ranks may write.

/// Newest numbers that are remembered: a rank is at most as many behind.
const LAG_MAX: usize = 4;
/// Numbers in a row that show that a training has begun again.
const CONFIRMED: u32 = 3;

/// Number of a step, as a line shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepNumber {
    pub step: u64,
    pub total: Option<u64>,
    pub epoch: Option<u64>,
    /// True if the number counts completed steps, as in bars, where 0 is no step.
    pub is_completed: bool,
    /// True if another bar or another training begins with it.
    pub starts_pass: bool,
}

/// Counter of steps across epochs, restarts and ranks.
#[derive(Clone, Debug, Default)]
pub struct StepCounter {
    /// Steps of the passes before this one.
    steps_before: u64,
    /// Steps so far.
    total_steps: u64,
    pass: Option<Pass>,
    /// Newest numbers of the pass before.
    previous: Vec<u64>,
    /// True if a rank was seen that is behind another.
    several_ranks: bool,
    /// Numbers that may be those of a training that begins again.
    restart: Option<Restart>,
}

/// Pass over the data, in which numbers rise.
#[derive(Clone, Debug)]
struct Pass {
    first: u64,
    newest: u64,
    total: Option<u64>,
    epoch: Option<u64>,
    /// 1 where the first step has the number 0.
    shift: u64,
    /// Newest different numbers, the newest last; at most [`LAG_MAX`].
    recent: Vec<u64>,
    /// Count of different numbers.
    values: u64,
    /// Smallest difference between two numbers in a row.
    stride: u64,
    /// True if a rank was still in the pass before; it begins this pass later.
    has_late_rank: bool,
}

/// Numbers in a row that may be those of a training that begins again.
#[derive(Clone, Copy, Debug)]
struct Restart {
    first: StepNumber,
    newest: u64,
    count: u32,
}

impl Pass {
    fn new(number: StepNumber) -> Self {
        let StepNumber { step, total, epoch, is_completed, .. } = number;
        let shift = u64::from(step == 0 && !is_completed);
        Self {
            first: step,
            newest: step,
            total,
            epoch,
            shift,
            recent: vec![step],
            values: 1,
            stride: u64::MAX,
            has_late_rank: false,
        }
    }

    fn is_finished(&self) -> bool {
        self.total.is_some_and(|total| self.newest + self.shift >= total)
    }

    fn advance(&mut self, number: StepNumber) {
        self.stride = self.stride.min(number.step - self.newest);
        self.newest = number.step;
        self.values += 1;
        self.total = number.total.or(self.total);
        self.epoch = number.epoch.or(self.epoch);
        if self.recent.len() == LAG_MAX {
            self.recent.remove(0);
        }
        self.recent.push(number.step);
    }

    /// Returns whether a number is that of a rank which is a little behind.
    fn is_behind(&self, step: u64) -> bool {
        step >= self.recent[0]
    }

    fn follows(&self, step: u64, before: u64) -> bool {
        step > before && (step - before) / 2 <= self.stride
    }
}

impl StepCounter {
    /// Steps since the start, with this one; `None` for a number that was already counted.
    pub fn count(&mut self, number: StepNumber) -> Option<u64> {
        let step = number.step;
        let Some(pass) = &mut self.pass else { return self.begin(number) };
        let known = number.epoch.zip(pass.epoch);
        let is_later = known.is_some_and(|(epoch, current)| epoch > current);
        let is_earlier = known.is_some_and(|(epoch, current)| epoch < current);
        if number.starts_pass {
            return self.begin(number);
        }
        if is_earlier {
            // A rank that is still in the epoch before, or a training that begins again.
            let starts_pass = step <= pass.first && !self.previous.contains(&step);
            return if starts_pass { self.begin(number) } else { None };
        }
        if is_later && (step <= pass.newest || pass.is_finished()) {
            let is_behind = step > pass.first && pass.recent.contains(&step);
            return if is_behind { None } else { self.begin(number) };
        }
        if step == pass.newest {
            return None;
        }
        if step < pass.newest {
            return self.count_lower(number);
        }
        // A rank that is still at the end of the pass before.
        let is_early = self.previous.last().is_some_and(|end| pass.newest * 2 < *end);
        let is_behind = self.several_ranks && is_early && self.previous.contains(&step);
        if is_behind && !pass.follows(step, pass.newest) {
            pass.has_late_rank = true;
            return None;
        }
        if let Some(restart) = self.restart.filter(|restart| pass.follows(step, restart.newest)) {
            return self.confirm(Restart { newest: step, count: restart.count + 1, ..restart }, number);
        }
        self.restart = None;
        pass.advance(number);
        self.total_steps = self.steps_before + step + pass.shift;
        Some(self.total_steps)
    }

    /// Counts a number below the newest one.
    fn count_lower(&mut self, number: StepNumber) -> Option<u64> {
        let step = number.step;
        let pass = self.pass.as_mut()?;
        if pass.is_finished() && step <= pass.first {
            return self.begin(number);
        }
        if let Some(restart) = self.restart.filter(|restart| step > restart.newest) {
            if !pass.is_behind(step) || pass.follows(step, restart.newest) {
                return self.confirm(Restart { newest: step, count: restart.count + 1, ..restart }, number);
            }
            self.restart = None;
        }
        let is_early = self.previous.last().is_some_and(|end| pass.newest * 2 < *end);
        let is_late_rank = pass.has_late_rank && is_early;
        let from_the_beginning = step <= pass.first.max(1) && pass.values >= LAG_MAX as u64 && !is_late_rank;
        if from_the_beginning && self.restart.is_none() {
            self.restart = Some(Restart { first: number, newest: step, count: 1 });
            return None;
        }
        self.several_ranks |= pass.is_behind(step);
        // Otherwise steps are repeated from a checkpoint.
        None
    }

    /// Begins again once enough numbers show it.
    fn confirm(&mut self, restart: Restart, number: StepNumber) -> Option<u64> {
        if restart.count < CONFIRMED {
            self.restart = Some(restart);
            return None;
        }
        self.begin(restart.first);
        self.count(number)
    }

    fn begin(&mut self, number: StepNumber) -> Option<u64> {
        let mut pass = Pass::new(number);
        if let Some(ended) = self.pass.take() {
            (self.previous, pass.stride) = (ended.recent, ended.stride);
        }
        self.steps_before = self.total_steps;
        self.total_steps += number.step + pass.shift;
        self.restart = None;
        self.pass = Some(pass);
        (self.total_steps > self.steps_before).then_some(self.total_steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: impl IntoIterator<Item = StepNumber>) -> Vec<u64> {
        let mut counter = StepCounter::default();
        numbers.into_iter().filter_map(|number| counter.count(number)).collect()
    }

    fn last(numbers: impl IntoIterator<Item = StepNumber>) -> u64 {
        counted(numbers).last().copied().unwrap_or_default()
    }

    fn line(step: u64) -> StepNumber {
        StepNumber { step, ..StepNumber::default() }
    }

    fn bar(step: u64, total: u64) -> StepNumber {
        StepNumber { total: Some(total), is_completed: true, ..line(step) }
    }

    #[test]
    fn numbers_that_restart_are_counted_through() {
        assert_eq!(last((1..=5).chain(1..=5).map(line)), 10);
        // From 0, like `range`.
        assert_eq!(last((0..5).chain(0..5).map(line)), 10);
        // A bar begins with 0 completed steps, and short ones end at their total.
        assert_eq!(counted([0, 1, 2, 0, 1, 2].map(|step| bar(step, 2))), [1, 2, 3, 4]);
        assert_eq!(counted([900, 901].map(line)), [900, 901]);
        // An epoch that ends before its total.
        assert_eq!(last((0..=30).chain(0..=30).map(|step| bar(step, 100))), 60);
    }

    #[test]
    fn ranks_that_are_behind_count_nothing() {
        let ranks = (1..=120_u64)
            .flat_map(|step| [step, step, step.saturating_sub(1).max(1), step, step.saturating_sub(2).max(1)]);
        assert_eq!(last(ranks.map(line)), 120);
        // Over two epochs, in which the last ranks end after the first have begun anew.
        let epoch = |from: u64| (from..=20).flat_map(|step| [step, (step - 1).max(1)]);
        for begun in [vec![1, 19, 20, 1, 2, 20, 2], vec![0, 1, 2, 3, 4, 5, 18, 19, 20, 0, 1, 2]] {
            let two = epoch(1).chain(begun.iter().copied()).chain(epoch(3));
            assert_eq!(last(two.map(|step| bar(step, 20))), 40, "{begun:?}");
        }
    }

    #[test]
    fn an_epoch_in_the_line_decides() {
        let at = |epoch: u64, step: u64| StepNumber { epoch: Some(epoch), ..line(step) };
        assert_eq!(last([at(1, 50), at(1, 100), at(2, 50), at(1, 100), at(2, 100)]), 200);
        // Numbers that go on across epochs.
        assert_eq!(last([at(1, 50), at(1, 100), at(2, 150), at(2, 200)]), 200);
    }

    #[test]
    fn steps_that_are_repeated_from_a_checkpoint_count_once() {
        assert_eq!(last((1..=50).chain(40..=80).map(line)), 80);
    }

    proptest::proptest! {
        #[test]
        fn steps_rise_whatever_the_numbers(numbers in proptest::collection::vec((0u64..30, 0u64..4, 0u64..30), 0..200)) {
            let numbers = numbers.into_iter().map(|(step, epoch, total)| StepNumber {
                step,
                epoch: epoch.checked_sub(1),
                total: Some(total).filter(|total| *total > 15),
                is_completed: total % 2 == 0,
                starts_pass: total == 7,
            });
            let counted = counted(numbers);
            proptest::prop_assert!(counted.is_sorted_by(|a, b| a < b), "{counted:?}");
        }
    }
}
