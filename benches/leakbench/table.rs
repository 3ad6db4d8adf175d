//! Results as tables in Markdown.

use std::fmt::Write;

use xrun::verdict::VerdictWord;

use super::assessment::{reports_growth, reports_rest};
use super::goals::goals;
use super::interval::Rate;
use super::rivals::RIVALS;
use super::series::{Category, Set};
use super::tally::Row;

/// Largest error of a correct first step, as a fraction of the run.
pub const DATE_TOLERANCE: f64 = 0.1;

/// Formats the tables of rules and goals of a set.
pub fn markdown(set: &Set, rows: &[Row]) -> String {
    let mut text = String::new();
    rules(&mut text, set, rows);
    goals_met(&mut text, set, rows);
    text
}

fn heading(text: &mut String, title: &str, columns: &[&str]) {
    let _ = write!(text, "\n### {title}\n\n| {} |\n|---|", columns.join(" | "));
    let _ = writeln!(text, "{}", "---|".repeat(columns.len() - 1));
}

fn line(text: &mut String, name: &str, cells: &[String]) {
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

fn percentage(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "–".into(), |fraction| format!("{:.0}", 100.0 * fraction))
}

/// Returns the median of values.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Answers of one rule.
struct Rule<'a> {
    name: &'a str,
    grows: &'a dyn Fn(&Row) -> bool,
    rests: &'a dyn Fn(&Row) -> bool,
    delay: &'a dyn Fn(&Row) -> Option<f64>,
    date: &'a dyn Fn(&Row) -> Option<f64>,
}

/// Formats one line for xrun and one for each rival.
fn rules(text: &mut String, set: &Set, rows: &[Row]) {
    let columns = [
        "rule",
        "precision, %",
        "recall: leaks found, %",
        "false alarms, % of bounded",
        "leaks called bounded, %",
        "delay, % of the run (median)",
        "dates within 10 %, %",
    ];
    heading(text, &format!("The {} half: rules", set.name), &columns);
    let no_date = |_: &Row| None;
    rule(
        text,
        rows,
        &Rule {
            name: "**xrun**",
            grows: &|row| reports_growth(row.assessment.judgement),
            rests: &|row| reports_rest(row.assessment.judgement),
            delay: &|row| row.delays[0],
            date: &|row| row.date_error,
        },
    );
    for (at, rival) in RIVALS.iter().enumerate() {
        rule(
            text,
            rows,
            &Rule {
                name: rival.name,
                grows: &|row| row.rivals[at],
                // A rule with two answers calls bounded whatever it does not call growing.
                rests: &|row| !row.rivals[at],
                delay: &|row| row.delays[at + 1],
                date: &no_date,
            },
        );
    }
}

fn rule(text: &mut String, rows: &[Row], rule: &Rule<'_>) {
    let leaks = || rows.iter().filter(|row| row.leaks());
    let judged = rows.iter().filter(|row| (row.leaks() || row.is_bounded()) && (rule.grows)(row));
    let dates = leaks().filter(|row| (rule.grows)(row)).filter_map(|row| (rule.date)(row));
    let cells = [
        Rate::of(judged, |row| row.leaks()).text(),
        Rate::of(leaks(), |row| (rule.grows)(row)).text(),
        Rate::of(rows.iter().filter(|row| row.is_bounded()), |row| (rule.grows)(row)).text(),
        Rate::of(leaks(), |row| (rule.rests)(row)).text(),
        percentage(median(leaks().filter_map(|row| (rule.delay)(row)))),
        Rate::of(dates, |error| *error <= DATE_TOLERANCE).text(),
    ];
    line(text, rule.name, &cells);
}

fn goals_met(text: &mut String, set: &Set, rows: &[Row]) {
    heading(text, &format!("The {} half: goals of xrun", set.name), &["goal", "target", "result, %", "met"]);
    for goal in goals(set, rows) {
        let met = if goal.met { "yes" } else { "**no**" };
        let result = goal.habit.map_or_else(|| goal.rate.text(), |habit| format!("{}, {habit}", goal.rate.text()));
        line(text, goal.name, &[goal.target.to_owned(), result, met.to_owned()]);
    }
}

/// Judgements with a column; others cannot occur.
fn judgements() -> impl Iterator<Item = VerdictWord> {
    use VerdictWord::{Exceeded, Filling, Retained};
    VerdictWord::ALL.iter().copied().filter(|judgement| !matches!(judgement, Filling | Retained | Exceeded))
}

/// Formats one line for each habit.
pub fn habits(set: &Set, rows: &[Row]) -> String {
    let mut text = String::new();
    let mut columns = vec!["habit", "truth", "runs", "right, %"];
    columns.extend(judgements().map(VerdictWord::words));
    columns.push("dates within 10 %, %");
    heading(&mut text, &format!("The {} half: verdicts of xrun by habit", set.name), &columns);
    for habit in set.habits {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.habit == habit.name).collect();
        if rows.is_empty() {
            continue;
        }
        let truth = match habit.expected.category {
            Category::Bounded => "bounded",
            Category::Growing => "leak",
            Category::Filling => "filling",
            Category::RandomWalk => "none",
        };
        let right = Rate::of(&rows, |row| row.expected.right.contains(&row.assessment.judgement));
        let right = Some(right.fraction()).filter(|_| !habit.expected.right.is_empty());
        let mut cells = vec![truth.to_owned(), rows.len().to_string(), percentage(right)];
        cells.extend(judgements().map(|judgement| {
            match rows.iter().filter(|row| row.assessment.judgement == judgement).count() {
                0 => String::new(),
                count => count.to_string(),
            }
        }));
        let dates = Rate::of(rows.iter().filter_map(|row| row.date_error), |error| *error <= DATE_TOLERANCE);
        cells.push(percentage(Some(dates.fraction()).filter(|_| dates.runs > 0)));
        line(&mut text, habit.name, &cells);
    }
    text
}
