//! Goals for the error rates of the verdict.

use super::assessment::VerdictWord;
use super::interval::upper_bound;
use super::series::{Set, Truth};
use super::table::{DATE_TOLERANCE, GOAL_NOISE_MAX, errors, percent, percentage, quantile};
use super::tally::{Row, count};

/// Goal and result.
pub struct Goal {
    pub name: &'static str,
    pub target: &'static str,
    pub result: String,
    /// Runs that the result is computed from.
    pub basis: String,
    pub met: bool,
}

/// Evaluates all goals.
pub fn goals(set: &Set, rows: &[&Row]) -> Vec<Goal> {
    let mut goals = false_alarms(set, rows);
    goals.push(power(rows, 4.0, "leaks of 4 × `growth_min`, noise ≤ 8 MiB: growing or slowing", "≥ 98 %", 0.98));
    goals.push(power(rows, 2.0, "leaks of 2 × `growth_min`, noise ≤ 8 MiB: growing or slowing", "≥ 90 %", 0.90));
    goals.push(never(
        rows,
        VerdictWord::GrewThenFlat,
        "*grew, then flat* of what rose by `growth_min` in its last third",
    ));
    let leaks: Vec<&Row> = rows.iter().copied().filter(|row| row.truth != Truth::Bounded).collect();
    goals.push(never(&leaks, VerdictWord::Stepped, "*stepped* of the same, but for bounded habits with a late step"));
    goals.push(dates(rows));
    goals
}

fn false_alarms(set: &Set, rows: &[&Row]) -> Vec<Goal> {
    let bounded: Vec<&Row> = rows.iter().copied().filter(|row| row.truth == Truth::Bounded).collect();
    let wrong = count(&bounded, VerdictWord::Growing);
    let overall = Goal {
        name: "`growing` of bounded habits, in all",
        target: "≤ 0.5 %",
        result: format!(
            "{} %, at most {} %",
            percent(wrong, bounded.len()),
            percentage(upper_bound(wrong, bounded.len()))
        ),
        basis: format!("{wrong} of {} runs", bounded.len()),
        met: wrong as f64 <= 0.005 * bounded.len() as f64,
    };
    let habits = set.habits.iter().filter_map(|habit| {
        let runs: Vec<&Row> = bounded.iter().copied().filter(|row| row.habit == habit.name).collect();
        let wrong = count(&runs, VerdictWord::Growing);
        (!runs.is_empty()).then_some((habit.name, wrong, runs.len()))
    });
    let rate = |(_, wrong, of): &(&str, usize, usize)| *wrong as f64 / *of as f64;
    // The first of equal rates.
    let worst = habits.reduce(|worst, other| if rate(&other) > rate(&worst) { other } else { worst });
    let worst = worst.map(|worst| Goal {
        name: "the same, of the worst habit",
        target: "≤ 2 %",
        result: format!("{} %, at most {} %", percent(worst.1, worst.2), percentage(upper_bound(worst.1, worst.2))),
        basis: format!("{} of {} runs, {}", worst.1, worst.2, worst.0),
        met: rate(&worst) <= 0.02,
    });
    std::iter::once(overall).chain(worst).collect()
}

fn power(rows: &[&Row], growth_multiple: f64, name: &'static str, target: &'static str, min_rate: f64) -> Goal {
    let fits = |row: &&Row| row.growth_multiple == growth_multiple && row.noise <= GOAL_NOISE_MAX;
    let leaks: Vec<&Row> = rows.iter().copied().filter(fits).collect();
    let found = leaks.iter().filter(|row| row.verdict().reports_growth()).count();
    Goal {
        name,
        target,
        result: format!("{} %", percent(found, leaks.len())),
        basis: format!("{found} of {} runs", leaks.len()),
        met: found as f64 >= min_rate * leaks.len() as f64,
    }
}

fn never(rows: &[&Row], verdict: VerdictWord, name: &'static str) -> Goal {
    let rising: Vec<&Row> =
        rows.iter().copied().filter(|row| row.late_rise > 1.0 && row.truth != Truth::RandomWalk).collect();
    let wrong = count(&rising, verdict);
    Goal { name, target: "never", result: wrong.to_string(), basis: format!("{} runs", rising.len()), met: wrong == 0 }
}

/// Evaluates the goal for the first steps of detected leaks.
fn dates(rows: &[&Row]) -> Goal {
    let fits = |row: &&Row| row.leaks() && [2.0, 4.0].contains(&row.growth_multiple) && row.noise <= GOAL_NOISE_MAX;
    let found: Vec<&Row> = rows.iter().copied().filter(|row| fits(row) && row.verdict().reports_growth()).collect();
    let errors = errors(&found);
    let dated = errors.len();
    // A detected leak without a first step counts as an error of the whole run.
    let errors: Vec<f64> = errors.into_iter().chain((dated..found.len()).map(|_| 1.0)).collect();
    let within = errors.iter().filter(|error| **error <= DATE_TOLERANCE).count();
    let percentile_90 = quantile(&errors, 0.9);
    Goal {
        name: "dates of those leaks: nine of ten within 10 % of the run",
        target: "≤ 10 %",
        result: percentile_90.map_or_else(|| "no dates".to_owned(), |error| format!("{} %", percentage(error))),
        basis: format!("{within} of {} dates within, {} found without a date", errors.len(), found.len() - dated),
        met: percentile_90.is_some_and(|error| error <= DATE_TOLERANCE),
    }
}
