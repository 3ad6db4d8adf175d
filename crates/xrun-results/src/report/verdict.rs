//! Verdicts as text.

use super::formatting::{bytes, number, signed_bytes};
use super::table::Table;
use super::width::fold;
use crate::verdict::{SeriesVerdict, Verdict, VerdictWord};
use xrun_core::printable;
use xrun_core::units;

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
    let table = series_table(verdict, series.into_iter());
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
        table.text_within(width, &["windows", "since", "interval", "first", "peak"])
    ))
}

/// Returns `true` for a series of this process alone. The container includes other processes, so its series does not
/// decide the verdict.
fn is_own_process(one: &SeriesVerdict) -> bool {
    one.name != CONTAINER
}

/// Name of the series of the whole container's memory.
const CONTAINER: &str = "container";

/// Peak in bytes below which a series is not listed.
const LISTED_BYTES_MIN: f64 = 65_536.0;

/// Returns `true` if a series is listed: it moved and is not small, or its verdict is worse than `stepped`.
fn is_listed(one: &SeriesVerdict) -> bool {
    let moves = one.first < one.peak || one.last < one.peak;
    let small = one.unit == "bytes" && one.peak < LISTED_BYTES_MIN;
    (moves && !small) || one.findings.verdict > VerdictWord::Stepped
}

/// Table of series.
pub fn series_table<'a>(verdict: &Verdict, series: impl Iterator<Item = &'a SeriesVerdict>) -> Table {
    let per = verdict.axis.rate_unit(verdict.window);
    let row = |one: &SeriesVerdict| {
        let amount = |value: f64| match one.unit.as_str() {
            "bytes" => signed_bytes(value),
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
            if is_own_process(one) { one.name.clone() } else { "container (all processes)".into() },
            findings.verdict.words().to_owned(),
            amount(one.first),
            amount(one.last),
            amount(one.peak),
            rate(findings.slope).map_or_else(|| "-".into(), amount),
            interval_ends.map_or_else(|| "-".into(), interval),
            findings.since.map_or(String::new(), |since| verdict.axis.position(since as f64)),
            findings.windows.to_string(),
        ]
    };
    let rate = format!(">{}", per.text);
    let header = ["series", "verdict", ">first", ">last", ">peak", &rate, ">interval", ">since", ">windows"];
    Table::new(&header, series.map(row).collect())
}
