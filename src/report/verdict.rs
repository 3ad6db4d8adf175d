//! A verdict as text.

use serde::Serialize;

use super::axes::{bytes, number};
use super::listing::columns;
use super::width::{columns_within, fold};
use crate::results::printable;
use crate::results::verdict::{Judgement, SeriesVerdict, Verdict};
use crate::units::{self, seconds};

/// The sentence, then a table of all series: what grows first. Fits a terminal of `width` characters.
pub fn text(verdict: &Verdict, width: Option<usize>) -> String {
    let mut series: Vec<&SeriesVerdict> = verdict.series.iter().collect();
    series.sort_by(|a, b| b.findings.verdict.cmp(&a.findings.verdict).then(a.name.cmp(&b.name)));
    let rows: Vec<Vec<String>> = series.into_iter().map(row).collect();
    let header = ["series", "verdict", ">first", ">last", ">peak", ">a step", ">interval", ">windows"];
    let windows =
        format!("floors of windows of {} steps, after a warm-up of {} steps", verdict.window, verdict.warm_up);
    printable::lines(&format!(
        "{}\n{}\n\n{}",
        fold(&format!("{}: {}", verdict.verdict.words(), verdict.message), width, 2),
        fold(&windows, width, 2),
        columns_within(&header, &rows, width, &["windows", "interval", "first", "peak"])
    ))
}

fn row(one: &SeriesVerdict) -> Vec<String> {
    let amount = |value: f64| match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value)),
        "bytes" => bytes(value),
        _ => number(value),
    };
    let findings = &one.findings;
    let interval = |(low, high): (f64, f64)| match one.unit.as_str() {
        "bytes" => units::interval(low, high),
        _ => format!("{} to {}", number(low), number(high)),
    };
    let ends = findings.slope_low.zip(findings.slope_high);
    vec![
        one.name.clone(),
        findings.verdict.words().to_owned(),
        amount(one.first),
        amount(one.last),
        amount(one.peak),
        findings.slope.map_or_else(|| "-".into(), amount),
        ends.map_or_else(|| "-".into(), interval),
        findings.floors.to_string(),
    ]
}

/// A row of `xrun leaks`.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    pub name: String,
    pub leaky: Judgement,
    pub bounded: Judgement,
    pub series: String,
    /// Bytes a step, of the leaky run.
    pub slope_expected: f64,
    pub slope_measured: Option<f64>,
    pub owner_expected: String,
    pub owner_named: Option<String>,
    /// The step at which the leaky run was first suspected.
    pub suspected_at: Option<u64>,
    /// Of both runs; next to nothing where a twin had been run for another pair.
    pub seconds: f64,
    /// What is wrong; empty when all is as expected.
    pub wrong: Vec<String>,
    /// Why it was not run on this device; then all else says nothing.
    pub left_out: Option<&'static str>,
}

impl Pair {
    /// One that gave no answer.
    pub fn failed(name: &str, why: String) -> Self {
        Self {
            name: name.to_owned(),
            leaky: Judgement::Inconclusive,
            bounded: Judgement::Inconclusive,
            series: String::new(),
            slope_expected: 0.0,
            slope_measured: None,
            owner_expected: String::new(),
            owner_named: None,
            suspected_at: None,
            seconds: 0.0,
            wrong: vec![why],
            left_out: None,
        }
    }

    /// One that this device has nothing to show of.
    pub fn left_out(name: &str, why: &'static str) -> Self {
        Self { wrong: Vec::new(), left_out: Some(why), ..Self::failed(name, String::new()) }
    }
}

/// The table of `xrun leaks`, and those that were left out.
pub fn pairs(all: &[Pair]) -> String {
    let header =
        ["leak", "verdict", ">expected", ">measured", "named", ">suspected at", "bounded twin", ">took", "result"];
    let (left_out, run): (Vec<&Pair>, Vec<&Pair>) = all.iter().partition(|pair| pair.left_out.is_some());
    let rows: Vec<Vec<String>> = run
        .into_iter()
        .map(|pair| {
            vec![
                pair.name.clone(),
                pair.leaky.words().to_owned(),
                format!("{}/step", bytes(pair.slope_expected)),
                pair.slope_measured.map_or_else(|| "-".into(), |slope| format!("{}/step", bytes(slope.max(0.0)))),
                pair.owner_named.clone().unwrap_or_else(|| "-".into()),
                pair.suspected_at.map_or_else(|| "-".into(), |step| format!("step {step}")),
                pair.bounded.words().to_owned(),
                seconds(pair.seconds),
                if pair.wrong.is_empty() { "as expected".to_owned() } else { pair.wrong.join("; ") },
            ]
        })
        .collect();
    let left_out = left_out.iter().filter_map(|pair| Some(format!("left out: {} {}\n", pair.name, pair.left_out?)));
    let table = if rows.is_empty() { String::new() } else { columns(&header, &rows) };
    let lines: Vec<String> = std::iter::once(table).filter(|table| !table.is_empty()).chain(left_out).collect();
    printable::lines(&lines.join("\n"))
}
