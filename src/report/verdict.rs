//! A verdict as text.

use super::axes::{bytes, number};
use super::listing::columns;
use crate::results::printable;
use crate::results::verdict::{SeriesVerdict, Verdict};

/// The sentence, then a table of all series: what grows first.
pub fn text(verdict: &Verdict) -> String {
    let mut series: Vec<&SeriesVerdict> = verdict.series.iter().collect();
    series.sort_by(|a, b| b.findings.verdict.cmp(&a.findings.verdict).then(a.name.cmp(&b.name)));
    let rows: Vec<Vec<String>> = series.into_iter().map(row).collect();
    let header = ["series", "verdict", ">first", ">last", ">peak", ">a step", ">interval", ">windows"];
    let windows =
        format!("floors of windows of {} steps, after a warm-up of {} steps", verdict.window, verdict.warm_up);
    printable::lines(&format!(
        "{}: {}\n{windows}\n\n{}",
        verdict.verdict.words(),
        verdict.message,
        columns(&header, &rows)
    ))
}

fn row(one: &SeriesVerdict) -> Vec<String> {
    let amount = |value: f64| match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value)),
        "bytes" => bytes(value),
        _ => number(value),
    };
    let findings = &one.findings;
    let interval = findings.slope_low.zip(findings.slope_high);
    vec![
        one.name.clone(),
        findings.verdict.words().to_owned(),
        amount(one.first),
        amount(one.last),
        amount(one.peak),
        findings.slope.map_or_else(|| "-".into(), amount),
        interval.map_or_else(|| "-".into(), |(low, high)| format!("{} to {}", amount(low), amount(high))),
        findings.floors.to_string(),
    ]
}
