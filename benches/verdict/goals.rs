//! Which goals of the issue are met?

use super::interval::upper;
use super::outcome::Answer;
use super::series::{Set, Truth};
use super::table::{DATE, NOISE_OF_GOALS, errors, percent, quantile, share};
use super::tally::{Row, count};

/// A goal and what was found.
pub struct Goal {
    pub name: &'static str,
    pub asked: &'static str,
    pub found: String,
    /// What that was counted on.
    pub of: String,
    pub met: bool,
}

/// All goals of section 1 that a benchmark can show.
pub fn goals(set: &Set, rows: &[&Row]) -> Vec<Goal> {
    let mut goals = false_alarms(set, rows);
    goals.push(power(rows, 4.0, "leaks of 4 × `growth_min`, noise ≤ 8 MiB: growing or slowing", "≥ 98 %", 0.98));
    goals.push(power(rows, 2.0, "leaks of 2 × `growth_min`, noise ≤ 8 MiB: growing or slowing", "≥ 90 %", 0.90));
    goals.push(never(rows, Answer::GrewThenFlat, "*grew, then flat* of what rose by `growth_min` in its last third"));
    let leaks: Vec<&Row> = rows.iter().copied().filter(|row| row.truth != Truth::Bounded).collect();
    goals.push(never(&leaks, Answer::Stepped, "*stepped* of the same, but for bounded habits with a late step"));
    goals.push(dates(rows));
    goals
}

fn false_alarms(set: &Set, rows: &[&Row]) -> Vec<Goal> {
    let bounded: Vec<&Row> = rows.iter().copied().filter(|row| row.truth == Truth::Bounded).collect();
    let wrong = count(&bounded, Answer::Growing);
    let in_all = Goal {
        name: "`growing` of bounded habits, in all",
        asked: "≤ 0.5 %",
        found: format!("{} %, at most {} %", percent(wrong, bounded.len()), share(upper(wrong, bounded.len()))),
        of: format!("{wrong} of {} runs", bounded.len()),
        met: wrong as f64 <= 0.005 * bounded.len() as f64,
    };
    let habits = set.habits.iter().filter_map(|habit| {
        let of: Vec<&Row> = bounded.iter().copied().filter(|row| row.habit == habit.name).collect();
        let wrong = count(&of, Answer::Growing);
        (!of.is_empty()).then_some((habit.name, wrong, of.len()))
    });
    let rate = |(_, wrong, of): &(&str, usize, usize)| *wrong as f64 / *of as f64;
    // The first of those that are equally bad.
    let worst = habits.reduce(|worst, other| if rate(&other) > rate(&worst) { other } else { worst });
    let worst = worst.map(|worst| Goal {
        name: "the same, of the worst habit",
        asked: "≤ 2 %",
        found: format!("{} %, at most {} %", percent(worst.1, worst.2), share(upper(worst.1, worst.2))),
        of: format!("{} of {} runs, {}", worst.1, worst.2, worst.0),
        met: rate(&worst) <= 0.02,
    });
    std::iter::once(in_all).chain(worst).collect()
}

fn power(rows: &[&Row], times: f64, name: &'static str, asked: &'static str, least: f64) -> Goal {
    let fits = |row: &&Row| row.times == times && row.noise <= NOISE_OF_GOALS;
    let leaks: Vec<&Row> = rows.iter().copied().filter(fits).collect();
    let found = leaks.iter().filter(|row| row.answer().rises()).count();
    Goal {
        name,
        asked,
        found: format!("{} %", percent(found, leaks.len())),
        of: format!("{found} of {} runs", leaks.len()),
        met: found as f64 >= least * leaks.len() as f64,
    }
}

fn never(rows: &[&Row], answer: Answer, name: &'static str) -> Goal {
    let rising: Vec<&Row> = rows.iter().copied().filter(|row| row.late > 1.0 && row.truth != Truth::Walk).collect();
    let wrong = count(&rising, answer);
    Goal { name, asked: "never", found: wrong.to_string(), of: format!("{} runs", rising.len()), met: wrong == 0 }
}

/// Of leaks that the goals ask to be found.
fn dates(rows: &[&Row]) -> Goal {
    let fits = |row: &&Row| row.leaks() && [2.0, 4.0].contains(&row.times) && row.noise <= NOISE_OF_GOALS;
    let found: Vec<&Row> = rows.iter().copied().filter(|row| fits(row) && row.answer().rises()).collect();
    let errors = errors(&found);
    let dated = errors.len();
    // What has no date is dated wrongly.
    let errors: Vec<f64> = errors.into_iter().chain((dated..found.len()).map(|_| 1.0)).collect();
    let near = errors.iter().filter(|error| **error <= DATE).count();
    let ninety = quantile(&errors, 0.9);
    Goal {
        name: "dates of those leaks: nine of ten within 10 % of the run",
        asked: "≤ 10 %",
        found: ninety.map_or_else(|| "no dates".to_owned(), |error| format!("{} %", share(error))),
        of: format!("{near} of {} dates within, {} found without a date", errors.len(), found.len() - dated),
        met: ninety.is_some_and(|error| error <= DATE),
    }
}
