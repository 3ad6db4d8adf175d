//! Verdicts as text.

use serde::Serialize;

use super::formatting::{bytes, number};
use super::width::{columns_within, fold, table};
use crate::axis::RateUnit;
use crate::verdict::{SeriesVerdict, Verdict, VerdictWord};
use xrun_core::printable;
use xrun_core::units;
use xrun_core::units::seconds;

/// Verdict and a table of the series that moved, the most severe first, for a terminal of `width` characters.
pub fn text(verdict: &Verdict, width: Option<usize>) -> String {
    let (listed, hidden): (Vec<&SeriesVerdict>, Vec<&SeriesVerdict>) =
        verdict.series.iter().partition(|one| is_listed(one));
    // Without a moving series, all are listed.
    let (mut series, hidden) = if listed.is_empty() { (hidden, Vec::new()) } else { (listed, hidden) };
    series.sort_by(|a, b| {
        let by_process = || is_own_process(a).cmp(&is_own_process(b)).reverse();
        let by_growth = || b.findings.growth.total_cmp(&a.findings.growth);
        by_process()
            .then(b.findings.verdict.cmp(&a.findings.verdict))
            .then_with(by_growth)
            .then_with(|| a.name.cmp(&b.name))
    });
    let per = verdict.axis.rate_unit(verdict.window);
    let rows: Vec<Vec<String>> = series.into_iter().map(|one| row(one, per)).collect();
    let rate = format!(">{}", per.text);
    let header = ["series", "verdict", ">first", ">last", ">peak", &rate, ">interval", ">windows"];
    let length = |places: u64| verdict.axis.length(places as f64);
    let is_judged = verdict.series.iter().any(|one| one.findings.windows > 0);
    let windows = match is_judged {
        true => format!(
            "judged by the minimum of every {}, after a warm-up of {}",
            length(verdict.window),
            length(verdict.warm_up)
        ),
        false => "no window of samples is complete yet".to_owned(),
    };
    let left_out = match hidden.len() {
        0 => String::new(),
        count => {
            let names = if count == 1 { hidden[0].name.clone() } else { format!("{count} series; --json has them") };
            let note = format!("not shown (below {} or constant): {names}", bytes(LISTED_BYTES_MIN));
            format!("\n{}\n", fold(&note, width, 2))
        }
    };
    printable::lines(&format!(
        "{}\n{}\n\n{}{left_out}",
        fold(&format!("{}: {}", verdict.verdict.words(), verdict.message), width, 2),
        fold(&windows, width, 2),
        columns_within(&header, &rows, width, &["windows", "interval", "first", "peak"])
    ))
}

/// Returns `true` for a series of this process alone. The container includes other processes, so its series does not
/// decide the verdict.
fn is_own_process(one: &SeriesVerdict) -> bool {
    one.name != CONTAINER
}

/// Name of the series of the whole container's memory.
const CONTAINER: &str = "container";

/// Label of a series in a table of verdicts.
pub fn series_label(one: &SeriesVerdict) -> &str {
    if is_own_process(one) { &one.name } else { "container (all processes)" }
}

/// Peak in bytes below which a series is not listed.
const LISTED_BYTES_MIN: f64 = 65_536.0;

/// Returns `true` if a series is listed: it moved and is not small, or its verdict is worse than `stepped`.
fn is_listed(one: &SeriesVerdict) -> bool {
    let moves = one.first < one.peak || one.last < one.peak;
    let small = one.unit == "bytes" && one.peak < LISTED_BYTES_MIN;
    (moves && !small) || one.findings.verdict > VerdictWord::Stepped
}

fn row(one: &SeriesVerdict, per: RateUnit) -> Vec<String> {
    let amount = |value: f64| match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value)),
        "bytes" => bytes(value),
        "percent" => format!("{} %", number(value)),
        _ => number(value),
    };
    let findings = &one.findings;
    let rate = |slope: Option<f64>| slope.map(|slope| slope * per.length);
    let interval = |(low, high): (f64, f64)| match one.unit.as_str() {
        "bytes" => units::interval(low, high),
        _ => format!("{} to {}", number(low), number(high)),
    };
    let interval_ends = rate(findings.slope_low).zip(rate(findings.slope_high));
    vec![
        series_label(one).to_owned(),
        findings.verdict.words().to_owned(),
        amount(one.first),
        amount(one.last),
        amount(one.peak),
        rate(findings.slope).map_or_else(|| "-".into(), amount),
        interval_ends.map_or_else(|| "-".into(), interval),
        findings.windows.to_string(),
    ]
}

/// Result of one leak of `xrun leaks`: the leaking run and its control run.
#[derive(Clone, Debug, Serialize)]
pub struct LeakCheck {
    /// Name of the leak.
    pub name: String,
    /// Verdict on the leaking run.
    pub leaky: VerdictWord,
    /// Verdict on the control run.
    pub bounded: VerdictWord,
    /// Name of the judged series.
    pub series: String,
    /// Expected slope of the leaking run in bytes per step; total bytes if `ends`.
    pub slope_expected: f64,
    /// Slope measured in the leaking run, in the unit of `slope_expected`.
    pub slope_measured: Option<f64>,
    /// The growth of this leak ends; both slopes are total bytes.
    pub ends: bool,
    /// Owner that the verdict should name.
    pub owner_expected: String,
    /// Owner that the verdict names.
    pub owner_named: Option<String>,
    /// Step at which the leaking run was first suspected.
    pub suspected_at: Option<u64>,
    /// Duration of both runs in seconds; near 0 for the second use of a control run.
    pub seconds: f64,
    /// Deviations from the expectation; empty if there are none.
    pub wrong: Vec<String>,
    /// Reason why the leak was not run on this device; all other fields are meaningless then.
    pub left_out: Option<&'static str>,
}

impl LeakCheck {
    /// A pair whose runs gave no verdict.
    pub fn failed(name: &str, why: String) -> Self {
        Self {
            name: name.to_owned(),
            leaky: VerdictWord::Inconclusive,
            bounded: VerdictWord::Inconclusive,
            series: String::new(),
            slope_expected: 0.0,
            slope_measured: None,
            ends: false,
            owner_expected: String::new(),
            owner_named: None,
            suspected_at: None,
            seconds: 0.0,
            wrong: vec![why],
            left_out: None,
        }
    }

    /// A pair that cannot be run on this device.
    pub fn skipped(name: &str, why: &'static str) -> Self {
        Self { wrong: Vec::new(), left_out: Some(why), ..Self::failed(name, String::new()) }
    }
}

/// Table of the results of `xrun leaks`, and the leaks left out.
pub fn leak_table(all: &[LeakCheck], width: Option<usize>) -> String {
    let header =
        ["leak", "verdict", ">expected", ">measured", "owner", ">suspected at", "control run", ">time", "result"];
    let (left_out, run): (Vec<&LeakCheck>, Vec<&LeakCheck>) = all.iter().partition(|pair| pair.left_out.is_some());
    let rows: Vec<Vec<String>> = run
        .into_iter()
        .map(|pair| {
            let per = if pair.ends { " in total" } else { "/step" };
            vec![
                pair.name.clone(),
                pair.leaky.words().to_owned(),
                format!("{}{per}", bytes(pair.slope_expected)),
                pair.slope_measured.map_or_else(|| "-".into(), |slope| format!("{}{per}", bytes(slope.max(0.0)))),
                pair.owner_named.clone().unwrap_or_else(|| "-".into()),
                pair.suspected_at.map_or_else(|| "-".into(), |step| format!("step {step}")),
                pair.bounded.words().to_owned(),
                seconds(pair.seconds),
                if pair.wrong.is_empty() { "as expected".to_owned() } else { pair.wrong.join("; ") },
            ]
        })
        .collect();
    let left_out = left_out.iter().filter_map(|pair| Some(format!("skipped: {} {}\n", pair.name, pair.left_out?)));
    let table = if rows.is_empty() { String::new() } else { table(&header, &rows, width) };
    let lines: Vec<String> = std::iter::once(table).filter(|table| !table.is_empty()).chain(left_out).collect();
    printable::lines(&lines.join("\n"))
}
