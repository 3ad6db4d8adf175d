//! Error rates of the verdict as tables in Markdown.

use std::fmt::Write;

use super::assessment::VerdictWord;
use super::goals::goals;
use super::interval::upper_bound;
use super::series::{Category, Set, Truth};
use super::tally::{GROWTH_MULTIPLES, NOISES, Row, count};

/// Groups rows by habit, in the order of the set.
fn by_habit<'a>(set: &Set, rows: &[&'a Row]) -> Vec<(&'static str, Vec<&'a Row>)> {
    let with_name = |name| rows.iter().copied().filter(|row| row.habit == name).collect::<Vec<_>>();
    let all = set.habits.iter().map(|habit| (habit.name, with_name(habit.name)));
    all.filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Formats `part` of `total` as a percentage.
pub fn percent(part: usize, total: usize) -> String {
    match total {
        0 => "–".to_owned(),
        total => percentage(part as f64 / total as f64),
    }
}

/// Formats a fraction as a percentage, with enough digits that only 0 and 1 are shown as 0 and 100.
pub fn percentage(fraction: f64) -> String {
    match 100.0 * fraction {
        0.0 => "0".to_owned(),
        100.0 => "100".to_owned(),
        small @ ..1.0 => format!("{small:.2}"),
        large @ 99.9.. => format!("{large:.2}"),
        percent => format!("{percent:.1}"),
    }
}

fn heading(text: &mut String, title: &str, explanation: &str, columns: &[&str]) {
    let _ = write!(text, "\n### {title}\n\n{explanation}\n\n| {} |\n|---|", columns.join(" | "));
    let _ = writeln!(text, "{}", "---:|".repeat(columns.len() - 1));
}

fn line(text: &mut String, name: &str, cells: &[String]) {
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

/// Formats all tables.
pub fn markdown(set: &Set, rows: &[Row], command: &str) -> String {
    let mut text = format!("## The verdict on the {} set\n\n`{command}`: {} runs.\n", set.name, rows.len());
    let all: Vec<&Row> = rows.iter().collect();
    goals_met(&mut text, set, &all);
    false_alarms(&mut text, set, &all);
    undetermined(&mut text, set, &all);
    power(&mut text, &all);
    power_by_habit(&mut text, set, &all);
    dates(&mut text, set, &all);
    late_rises(&mut text, &all);
    by_length(&mut text, &all);
    text
}

fn goals_met(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Goals";
    let explanation = "Evaluated on this set.";
    heading(text, title, explanation, &["goal", "target", "result", "runs", "met"]);
    for goal in goals(set, rows) {
        let met = if goal.met { "yes" } else { "**no**" };
        line(text, goal.name, &[goal.target.to_owned(), goal.result, goal.basis, met.to_owned()]);
    }
}

/// Verdicts other than `growing` and `slowing`.
const OTHER_VERDICTS: [VerdictWord; 6] = [
    VerdictWord::Bounded,
    VerdictWord::GrewThenFlat,
    VerdictWord::Stepped,
    VerdictWord::Suspect,
    VerdictWord::Inconclusive,
    VerdictWord::Other,
];

fn false_alarms(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "False alarms";
    let explanation = "Runs that have stopped growing when they end. *At most* is the upper bound of the two-sided 95 % \
                       interval of Clopper and Pearson. The last columns count the other verdicts.";
    let mut columns = vec!["habit", "runs", "growing", "%", "at most %", "slowing", "%", "at most %"];
    columns.extend(OTHER_VERDICTS.map(VerdictWord::name));
    heading(text, title, explanation, &columns);
    let bounded: Vec<&Row> = rows.iter().copied().filter(|row| row.truth == Truth::Bounded).collect();
    let mut habits = by_habit(set, &bounded);
    habits.push(("**all**", bounded.clone()));
    for (name, rows) in habits {
        let mut cells = vec![rows.len().to_string()];
        for verdict in [VerdictWord::Growing, VerdictWord::Slowing] {
            let wrong = count(&rows, verdict);
            cells.extend([wrong.to_string(), percent(wrong, rows.len()), percentage(upper_bound(wrong, rows.len()))]);
        }
        cells.extend(OTHER_VERDICTS.map(|verdict| count(&rows, verdict).to_string()));
        line(text, name, &cells);
    }
}

fn undetermined(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Neither bounded nor a leak";
    let explanation = "Caches that are still filling, and random walks, which no goal covers. A nearly full cache grows by \
                       half to all of `growth_min` in the last third of the run, the others by more.";
    let mut columns = vec!["habit", "runs"];
    columns.extend(VerdictWord::ALL.map(VerdictWord::name));
    heading(text, title, explanation, &columns);
    let undetermined = |row: &&Row| !row.leaks() && row.truth != Truth::Bounded;
    let undetermined: Vec<&Row> = rows.iter().copied().filter(undetermined).collect();
    for (name, rows) in by_habit(set, &undetermined) {
        let mut cells = vec![rows.len().to_string()];
        cells.extend(VerdictWord::ALL.map(|verdict| count(&rows, verdict).to_string()));
        line(text, name, &cells);
    }
}

/// Formats the percentage of runs whose verdict reports growth.
fn detected(rows: &[&Row]) -> String {
    percent(rows.iter().filter(|row| row.verdict().reports_growth()).count(), rows.len())
}

fn power(text: &mut String, rows: &[&Row]) {
    let title = "Leaks that are found";
    let explanation =
        "Percentage of leaks with the verdict `growing` or `slowing`, by growth over the run and by noise; all habits.";
    let names: Vec<String> = NOISES.iter().map(|noise| format!("{noise} MiB")).collect();
    let mut columns = vec!["growth", "runs of each noise"];
    columns.extend(names.iter().map(String::as_str));
    heading(text, title, explanation, &columns);
    for times in GROWTH_MULTIPLES {
        let cell = |noise: f64| {
            rows.iter().copied().filter(|row| row.growth_multiple == times && row.noise == noise).collect::<Vec<&Row>>()
        };
        let mut cells = vec![cell(NOISES[0]).len().to_string()];
        cells.extend(NOISES.map(|noise| detected(&cell(noise))));
        line(text, &format!("{times} × `growth_min`"), &cells);
    }
}

/// Largest noise that the goals cover, in MiB.
pub const GOAL_NOISE_MAX: f64 = 8.0;

fn power_by_habit(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Leaks that are found, by habit";
    let explanation = "The same percentage with noise of at most 8 MiB and of 30 MiB, by growth in `growth_min`. The last \
                       columns count the verdicts on leaks of 4 and 8 times `growth_min` with noise of at most 8 MiB.";
    let mut columns =
        vec!["habit", "≤ 8: 1 ×", "2 ×", "4 ×", "8 ×", "30: 1 ×", "2 ×", "4 ×", "8 ×", "growing", "slowing"];
    columns.extend(OTHER_VERDICTS.map(VerdictWord::name));
    heading(text, title, explanation, &columns);
    let leaks: Vec<&Row> = rows.iter().copied().filter(|row| row.leaks()).collect();
    let mut habits = by_habit(set, &leaks);
    habits.push(("**all**", leaks.clone()));
    for (name, rows) in habits {
        let mut cells = Vec::new();
        for low_noise in [true, false] {
            let fits = |row: &&Row| (row.noise <= GOAL_NOISE_MAX) == low_noise;
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            cells.extend(GROWTH_MULTIPLES.map(|times| {
                detected(&rows.iter().copied().filter(|row| row.growth_multiple == times).collect::<Vec<&Row>>())
            }));
        }
        let large = |row: &&Row| row.growth_multiple >= 4.0 && row.noise <= GOAL_NOISE_MAX;
        let large: Vec<&Row> = rows.iter().copied().filter(large).collect();
        cells.extend([VerdictWord::Growing, VerdictWord::Slowing].map(|verdict| count(&large, verdict).to_string()));
        cells.extend(OTHER_VERDICTS.map(|verdict| count(&large, verdict).to_string()));
        line(text, name, &cells);
    }
}

/// Returns a quantile of sorted values.
pub fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the errors of first steps, sorted.
pub fn errors(rows: &[&Row]) -> Vec<f64> {
    let mut errors: Vec<f64> = rows.iter().filter_map(|row| row.date_error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Largest error of a correct first step, as a fraction of the run.
pub const DATE_TOLERANCE: f64 = 0.1;

fn dates(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Dates";
    let explanation = "Distance of *since step N* from the first step of the leak, in percent of the run, for detected leaks \
                       of at least 2 × `growth_min` with noise of at most 8 MiB.";
    heading(text, title, explanation, &["habit", "found", "with a date", "median", "90 %", "within 10 %"]);
    let fits = |row: &&Row| {
        row.leaks() && row.growth_multiple >= 2.0 && row.noise <= GOAL_NOISE_MAX && row.verdict().reports_growth()
    };
    let found: Vec<&Row> = rows.iter().copied().filter(fits).collect();
    let mut habits = by_habit(set, &found);
    for times in GROWTH_MULTIPLES {
        let detected: Vec<&Row> = found.iter().copied().filter(|row| row.growth_multiple == times).collect();
        match times {
            2.0 => habits.push(("**all of 2 ×**", detected)),
            4.0 => habits.push(("**all of 4 ×**", detected)),
            8.0 => habits.push(("**all of 8 ×**", detected)),
            _ => {}
        }
    }
    habits.push(("**all**", found.clone()));
    for (name, rows) in habits {
        let errors = errors(&rows);
        let quantile_of_errors = |fraction| quantile(&errors, fraction).map_or_else(|| "–".to_owned(), percentage);
        let within = errors.iter().filter(|error| **error <= DATE_TOLERANCE).count();
        let cells = [
            rows.len().to_string(),
            errors.len().to_string(),
            quantile_of_errors(0.5),
            quantile_of_errors(0.9),
            percent(within, errors.len()),
        ];
        line(text, name, &cells);
    }
}

fn late_rises(text: &mut String, rows: &[&Row]) {
    let title = "Growth that is reported as bounded";
    let explanation = "Verdicts on runs whose level rose by more than `growth_min` in their last third, in runs. A bounded \
                       habit does so if a buffer is allocated late: then `stepped` is right, *grew, then flat* is wrong.";
    let mut columns = vec!["runs", "all", "growing", "slowing"];
    columns.extend(OTHER_VERDICTS.map(VerdictWord::name));
    heading(text, title, explanation, &columns);
    let late: Vec<&Row> = rows.iter().copied().filter(|row| row.late_rise > 1.0).collect();
    type Fits = fn(&Row) -> bool;
    let kinds: [(&str, Fits); 5] = [
        ("leaks, noise of at most 8 MiB", |row| row.leaks() && row.noise <= GOAL_NOISE_MAX),
        ("leaks, noise of 30 MiB", |row| row.leaks() && row.noise > GOAL_NOISE_MAX),
        ("of all leaks, those that rose by more than 2 × `growth_min`", |row| row.leaks() && row.late_rise > 2.0),
        ("caches that are far from full", |row| row.category == Category::Filling),
        ("bounded habits with a late step", |row| row.truth == Truth::Bounded),
    ];
    for (name, fits) in kinds {
        let rows: Vec<&Row> = late.iter().copied().filter(|row| fits(row)).collect();
        let mut cells = vec![rows.len().to_string()];
        cells.extend([VerdictWord::Growing, VerdictWord::Slowing].map(|verdict| count(&rows, verdict).to_string()));
        cells.extend(OTHER_VERDICTS.map(|verdict| count(&rows, verdict).to_string()));
        line(text, name, &cells);
    }
}

fn by_length(text: &mut String, rows: &[&Row]) {
    let title = "By length";
    let explanation =
        "Percentages of false alarms of all bounded habits, and of detected leaks with noise of at most 8 MiB.";
    let columns = ["run", "bounded runs", "growing", "slowing", "leaks of 2 ×", "found", "leaks of 4 ×", "found"];
    heading(text, title, explanation, &columns);
    type Fits = fn(&Row) -> bool;
    let kinds: [(&str, Fits); 5] = [
        ("fewer than 1,000 steps", |row| row.steps < 1000),
        ("1,000 to 10,000 steps", |row| (1000..10_000).contains(&row.steps)),
        ("10,000 steps and more", |row| row.steps >= 10_000),
        ("with epochs", |row| row.epochs),
        ("without epochs", |row| !row.epochs),
    ];
    for (name, fits) in kinds {
        let rows: Vec<&Row> = rows.iter().copied().filter(|row| fits(row)).collect();
        let bounded: Vec<&Row> = rows.iter().copied().filter(|row| row.truth == Truth::Bounded).collect();
        let mut cells = vec![bounded.len().to_string()];
        cells.extend(
            [VerdictWord::Growing, VerdictWord::Slowing]
                .map(|verdict| percent(count(&bounded, verdict), bounded.len())),
        );
        for times in [2.0, 4.0] {
            let fits = |row: &&Row| row.growth_multiple == times && row.noise <= GOAL_NOISE_MAX;
            let leaks: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            cells.extend([leaks.len().to_string(), detected(&leaks)]);
        }
        line(text, name, &cells);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_0_and_1_are_shown_as_0_and_100_percent() {
        let shown = [0.0, 0.0004, 0.0054, 0.123_45, 0.9995, 1.0].map(super::percentage);
        assert_eq!(shown, ["0", "0.04", "0.54", "12.3", "99.95", "100"]);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(super::quantile(&[], 0.5), None);
        assert_eq!(super::quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(super::quantile(&[1.0, 2.0, 3.0, 4.0], 0.9), Some(4.0));
    }
}
