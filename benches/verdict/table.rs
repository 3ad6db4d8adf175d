//! How often is the verdict wrong, as tables in Markdown?

use std::fmt::Write;

use super::goals::goals;
use super::interval::upper;
use super::outcome::Answer;
use super::series::{Family, Set, Truth};
use super::tally::{NOISES, Row, TIMES, count};

/// Rows of one habit each, in the order of the set.
fn by_habit<'a>(set: &Set, rows: &[&'a Row]) -> Vec<(&'static str, Vec<&'a Row>)> {
    let of = |name| rows.iter().copied().filter(|row| row.habit == name).collect::<Vec<_>>();
    let all = set.habits.iter().map(|habit| (habit.name, of(habit.name)));
    all.filter(|(_, rows)| !rows.is_empty()).collect()
}

pub fn percent(part: usize, of: usize) -> String {
    match of {
        0 => "–".to_owned(),
        of => share(part as f64 / of as f64),
    }
}

/// Exact where it is nothing or all; else with digits enough not to be rounded to either.
pub fn share(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        100.0 => "100".to_owned(),
        few @ ..1.0 => format!("{few:.2}"),
        most @ 99.9.. => format!("{most:.2}"),
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

/// All tables.
pub fn markdown(set: &Set, rows: &[Row], command: &str) -> String {
    let mut text = format!("## The verdict on the {} set\n\n`{command}`: {} runs.\n", set.name, rows.len());
    let all: Vec<&Row> = rows.iter().collect();
    goals_met(&mut text, set, &all);
    false_alarms(&mut text, set, &all);
    apart(&mut text, set, &all);
    power(&mut text, &all);
    power_by_habit(&mut text, set, &all);
    dates(&mut text, set, &all);
    rest(&mut text, &all);
    by_length(&mut text, &all);
    text
}

fn goals_met(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Goals";
    let explanation = "Of issue 11, on this set.";
    heading(text, title, explanation, &["goal", "asked", "found", "of", "met"]);
    for goal in goals(set, rows) {
        let met = if goal.met { "yes" } else { "**no**" };
        line(text, goal.name, &[goal.asked.to_owned(), goal.found, goal.of, met.to_owned()]);
    }
}

/// What is said when neither `growing` nor `slowing` is.
const ELSE: [Answer; 6] =
    [Answer::Bounded, Answer::GrewThenFlat, Answer::Stepped, Answer::Suspect, Answer::Inconclusive, Answer::Other];

fn false_alarms(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "False alarms";
    let explanation = "Of runs that are at rest when they end. *At most* is the upper end of the two-sided 95 % interval \
                       of Clopper and Pearson. The last columns say what was said in place of it, in runs.";
    let mut columns = vec!["habit", "runs", "growing", "%", "at most %", "slowing", "%", "at most %"];
    columns.extend(ELSE.map(Answer::name));
    heading(text, title, explanation, &columns);
    let bounded: Vec<&Row> = rows.iter().copied().filter(|row| row.truth == Truth::Bounded).collect();
    let mut habits = by_habit(set, &bounded);
    habits.push(("**all**", bounded.clone()));
    for (name, rows) in habits {
        let mut cells = vec![rows.len().to_string()];
        for answer in [Answer::Growing, Answer::Slowing] {
            let wrong = count(&rows, answer);
            cells.extend([wrong.to_string(), percent(wrong, rows.len()), share(upper(wrong, rows.len()))]);
        }
        cells.extend(ELSE.map(|answer| count(&rows, answer).to_string()));
        line(text, name, &cells);
    }
}

fn apart(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Neither bounded nor a leak";
    let explanation = "Caches that are still filling, and random walks: in no goal. A nearly full cache gains between \
                       half of `growth_min` and all of it in the last third of the run, another one more.";
    let mut columns = vec!["habit", "runs"];
    columns.extend(Answer::ALL.map(Answer::name));
    heading(text, title, explanation, &columns);
    let apart = |row: &&Row| !row.leaks() && row.truth != Truth::Bounded;
    let apart: Vec<&Row> = rows.iter().copied().filter(apart).collect();
    for (name, rows) in by_habit(set, &apart) {
        let mut cells = vec![rows.len().to_string()];
        cells.extend(Answer::ALL.map(|answer| count(&rows, answer).to_string()));
        line(text, name, &cells);
    }
}

fn found(rows: &[&Row]) -> String {
    percent(rows.iter().filter(|row| row.answer().rises()).count(), rows.len())
}

fn power(text: &mut String, rows: &[&Row]) {
    let title = "Leaks that are found";
    let explanation = "In per cent: `growing` or `slowing` was said. All habits, by growth over the run and by noise.";
    let names: Vec<String> = NOISES.iter().map(|noise| format!("{noise} MiB")).collect();
    let mut columns = vec!["growth", "runs of each noise"];
    columns.extend(names.iter().map(String::as_str));
    heading(text, title, explanation, &columns);
    for times in TIMES {
        let cell = |noise: f64| {
            rows.iter().copied().filter(|row| row.times == times && row.noise == noise).collect::<Vec<&Row>>()
        };
        let mut cells = vec![cell(NOISES[0]).len().to_string()];
        cells.extend(NOISES.map(|noise| found(&cell(noise))));
        line(text, &format!("{times} × `growth_min`"), &cells);
    }
}

/// What noise of the goals ends at, in MiB.
pub const NOISE_OF_GOALS: f64 = 8.0;

fn power_by_habit(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Leaks that are found, by habit";
    let explanation = "The same with noise of at most 8 MiB and with 30 MiB, by growth in `growth_min`. The last columns \
                       say what was said of those of 4 and 8 times `growth_min` with noise of at most 8 MiB, in runs.";
    let mut columns =
        vec!["habit", "≤ 8: 1 ×", "2 ×", "4 ×", "8 ×", "30: 1 ×", "2 ×", "4 ×", "8 ×", "growing", "slowing"];
    columns.extend(ELSE.map(Answer::name));
    heading(text, title, explanation, &columns);
    let leaks: Vec<&Row> = rows.iter().copied().filter(|row| row.leaks()).collect();
    let mut habits = by_habit(set, &leaks);
    habits.push(("**all**", leaks.clone()));
    for (name, rows) in habits {
        let mut cells = Vec::new();
        for little in [true, false] {
            let fits = |row: &&Row| (row.noise <= NOISE_OF_GOALS) == little;
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            cells.extend(
                TIMES.map(|times| found(&rows.iter().copied().filter(|row| row.times == times).collect::<Vec<&Row>>())),
            );
        }
        let large = |row: &&Row| row.times >= 4.0 && row.noise <= NOISE_OF_GOALS;
        let large: Vec<&Row> = rows.iter().copied().filter(large).collect();
        cells.extend([Answer::Growing, Answer::Slowing].map(|answer| count(&large, answer).to_string()));
        cells.extend(ELSE.map(|answer| count(&large, answer).to_string()));
        line(text, name, &cells);
    }
}

/// The value below which a share of them lies; they are sorted.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

/// Date errors, sorted.
pub fn errors(rows: &[&Row]) -> Vec<f64> {
    let mut errors: Vec<f64> = rows.iter().filter_map(|row| row.date_error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// A date within this share of the run is right.
pub const DATE: f64 = 0.1;

fn dates(text: &mut String, set: &Set, rows: &[&Row]) {
    let title = "Dates";
    let explanation = "How far *since step N* is from where the leak began, in per cent of the run, for leaks of at least \
                       2 × `growth_min` with noise of at most 8 MiB that were found.";
    heading(text, title, explanation, &["habit", "found", "with a date", "median", "90 %", "within 10 %"]);
    let fits = |row: &&Row| row.leaks() && row.times >= 2.0 && row.noise <= NOISE_OF_GOALS && row.answer().rises();
    let found: Vec<&Row> = rows.iter().copied().filter(fits).collect();
    let mut habits = by_habit(set, &found);
    for times in TIMES {
        let of: Vec<&Row> = found.iter().copied().filter(|row| row.times == times).collect();
        match times {
            2.0 => habits.push(("**all of 2 ×**", of)),
            4.0 => habits.push(("**all of 4 ×**", of)),
            8.0 => habits.push(("**all of 8 ×**", of)),
            _ => {}
        }
    }
    habits.push(("**all**", found.clone()));
    for (name, rows) in habits {
        let errors = errors(&rows);
        let of = |part| quantile(&errors, part).map_or_else(|| "–".to_owned(), share);
        let near = errors.iter().filter(|error| **error <= DATE).count();
        let cells = [rows.len().to_string(), errors.len().to_string(), of(0.5), of(0.9), percent(near, errors.len())];
        line(text, name, &cells);
    }
}

fn rest(text: &mut String, rows: &[&Row]) {
    let title = "At rest, said of what is not";
    let explanation = "What was said of runs whose level rose by more than `growth_min` in their last third, in runs. A \
                       bounded habit does so where a buffer is made late: `stepped` is right of it, *grew, then flat* is \
                       not.";
    let mut columns = vec!["runs", "all", "growing", "slowing"];
    columns.extend(ELSE.map(Answer::name));
    heading(text, title, explanation, &columns);
    let late: Vec<&Row> = rows.iter().copied().filter(|row| row.late > 1.0).collect();
    type Fits = fn(&Row) -> bool;
    let kinds: [(&str, Fits); 5] = [
        ("leaks, noise of at most 8 MiB", |row| row.leaks() && row.noise <= NOISE_OF_GOALS),
        ("leaks, noise of 30 MiB", |row| row.leaks() && row.noise > NOISE_OF_GOALS),
        ("of all leaks, those that rose by more than 2 × `growth_min`", |row| row.leaks() && row.late > 2.0),
        ("caches that are far from full", |row| row.family == Family::Filling),
        ("bounded habits with a late step", |row| row.truth == Truth::Bounded),
    ];
    for (name, fits) in kinds {
        let rows: Vec<&Row> = late.iter().copied().filter(|row| fits(row)).collect();
        let mut cells = vec![rows.len().to_string()];
        cells.extend([Answer::Growing, Answer::Slowing].map(|answer| count(&rows, answer).to_string()));
        cells.extend(ELSE.map(|answer| count(&rows, answer).to_string()));
        line(text, name, &cells);
    }
}

fn by_length(text: &mut String, rows: &[&Row]) {
    let title = "By length";
    let explanation =
        "In per cent: false alarms of all bounded habits, and leaks that are found with noise of at most 8 MiB.";
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
        cells.extend([Answer::Growing, Answer::Slowing].map(|answer| percent(count(&bounded, answer), bounded.len())));
        for times in [2.0, 4.0] {
            let fits = |row: &&Row| row.times == times && row.noise <= NOISE_OF_GOALS;
            let leaks: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            cells.extend([leaks.len().to_string(), found(&leaks)]);
        }
        line(text, name, &cells);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_not_all_is_not_rounded_to_all() {
        let shown = [0.0, 0.0004, 0.0054, 0.123_45, 0.9995, 1.0].map(super::share);
        assert_eq!(shown, ["0", "0.04", "0.54", "12.3", "99.95", "100"]);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(super::quantile(&[], 0.5), None);
        assert_eq!(super::quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(super::quantile(&[1.0, 2.0, 3.0, 4.0], 0.9), Some(4.0));
    }
}
