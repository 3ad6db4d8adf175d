//! Goals for the error rates of the verdict.

use xrun::verdict::VerdictWord;

use super::assessment::{reports_growth, reports_rest};
use super::interval::Rate;
use super::series::Set;
use super::table::DATE_TOLERANCE;
use super::tally::Row;

/// Goal and result.
pub struct Goal {
    pub name: &'static str,
    pub target: &'static str,
    pub rate: Rate,
    /// Habit that the rate is of, if not all.
    pub habit: Option<&'static str>,
    pub met: bool,
}

/// Evaluates all goals.
pub fn goals(set: &Set, rows: &[Row]) -> Vec<Goal> {
    let at_most =
        |name, target, rate: Rate, most: f64| Goal { name, target, rate, habit: None, met: rate.fraction() <= most };
    let at_least =
        |name, target, rate: Rate, least: f64| Goal { name, target, rate, habit: None, met: rate.fraction() >= least };
    let bounded = || rows.iter().filter(|row| row.is_bounded());
    let alarm = |row: &&Row| row.assessment.judgement == VerdictWord::Growing;
    let of_habit = |name: &'static str| Rate::of(bounded().filter(|row| row.habit == name), alarm);
    let worst = set.habits.iter().map(|habit| (habit.name, of_habit(habit.name)));
    let worst = worst.max_by(|a, b| a.1.fraction().total_cmp(&b.1.fraction()));
    let leaks = || rows.iter().filter(|row| row.leaks());
    let dates = leaks().filter_map(|row| row.date_error);
    let mut goals = vec![at_most("bounded, called growing", "≤ 0.5", Rate::of(bounded(), alarm), 0.005)];
    goals.extend(worst.map(|(name, rate)| {
        let goal = at_most("the same, of the worst habit", "≤ 3", rate, 0.03);
        Goal { habit: Some(name), ..goal }
    }));
    goals.extend([
        at_least(
            "leaks found: growing, slowing or retained",
            "≥ 92",
            Rate::of(leaks(), |row| reports_growth(row.assessment.judgement)),
            0.92,
        ),
        at_most(
            "leaks called bounded, stepped or grew, then flat",
            "≤ 2",
            Rate::of(leaks(), |row| reports_rest(row.assessment.judgement)),
            0.02,
        ),
        at_least("dates within 10 % of the run", "≥ 85", Rate::of(dates, |error| *error <= DATE_TOLERANCE), 0.85),
    ]);
    goals
}
