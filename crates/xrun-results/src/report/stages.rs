//! Memory and loss by stage of the training, such as a round and a local epoch.
//!
//! A pipeline names the step values that identify the stage of a step. Steps of a stage need not be consecutive: each
//! node of a round has a first local epoch.

use std::collections::BTreeMap;
use std::fmt::Write;

use maud::{Markup, html};

use super::epochs::signed_change;
use super::formatting::{bytes, number};
use super::listing::columns;
use crate::format::{MemoryLine, MetricsLine};
use xrun_core::printable;

/// Maximum number of stages.
const STAGES_MAX: usize = 10_000;
/// Maximum number of runs of consecutive steps in one stage.
const RANGES_MAX: usize = 200_000;
/// Maximum number of rows, in a terminal and on a page.
const ROWS_SHOWN: usize = 24;
const ROWS_ON_PAGE: usize = 200;

/// Values that identify a stage, one for each name.
type StageKey = Vec<u64>;

/// Memory and loss of one stage.
#[derive(Clone, Debug, Default)]
struct StageRow {
    loss: f64,
    steps: u64,
    /// Minimum of memory in use between steps: of the device if it has a pool, otherwise of the heap.
    in_use: Option<u64>,
    /// Last value of reserved memory of the device's pool, or of RSS.
    reserved: Option<u64>,
}

/// Stages of a run: first from the metrics, then from the trace.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    names: Vec<String>,
    rows: BTreeMap<StageKey, StageRow>,
    has_pool: bool,
    /// Consecutive steps in one stage, at most [`RANGES_MAX`].
    ranges: Vec<StepRange>,
    /// A cap was reached: further steps are left out.
    is_full: bool,
}

/// Consecutive steps in one stage.
#[derive(Clone, Debug)]
struct StepRange {
    first: u64,
    last: u64,
    key: StageKey,
}

impl Stages {
    /// Stages named by a plan; there are none if it names none.
    pub(super) fn new(names: &[String]) -> Self {
        Self { names: names.to_vec(), ..Self::default() }
    }

    /// Adds a line of the metrics.
    pub(super) fn add_metrics(&mut self, line: &MetricsLine) {
        let MetricsLine::Train { step, loss, values, .. } = line else { return };
        if self.names.is_empty() || self.is_full {
            return;
        }
        let key: Option<StageKey> = self.names.iter().map(|name| values.get(name).map(|value| *value as u64)).collect();
        let Some(key) = key else { return };
        if (self.rows.len() == STAGES_MAX && !self.rows.contains_key(&key)) || self.ranges.len() == RANGES_MAX {
            self.is_full = true;
            return;
        }
        let row = self.rows.entry(key.clone()).or_default();
        (row.loss, row.steps) = (row.loss + loss, row.steps + 1);
        match self.ranges.last_mut() {
            Some(range) if range.key == key && range.last + 1 == *step => range.last = *step,
            _ => self.ranges.push(StepRange { first: *step, last: *step, key }),
        }
    }

    /// Adds a memory sample, after all metrics.
    pub(super) fn add_sample(&mut self, line: &MemoryLine) {
        let at = self.ranges.partition_point(|range| range.last < line.step);
        if let Some(range) = self.ranges.get(at).filter(|range| range.first <= line.step)
            && let Some(row) = self.rows.get_mut(&range.key)
        {
            self.has_pool |= line.device.is_some();
            let in_use = line.device.map_or(line.host.heap, |pool| pool.in_use);
            row.in_use = Some(row.in_use.map_or(in_use, |least| least.min(in_use)));
            row.reserved = line.device.map(|pool| pool.reserved).or(line.host.rss);
        }
    }

    /// Returns `true` without a stage.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn header(&self) -> Vec<String> {
        let titles =
            if self.has_pool { ["device in use (min)", "reserved (end)"] } else { ["heap (min)", "RSS (end)"] };
        let names = self.names.iter().map(|name| printable::line(&name.replace('_', " "), 40));
        let rest = ["steps", titles[0], "change", titles[1], "change", "mean loss"];
        names.chain(rest.map(str::to_owned)).map(|title| format!(">{title}")).collect()
    }

    /// Cells of each row, with the changes since the row before.
    fn cells(&self) -> Vec<Vec<String>> {
        let size = |size: Option<u64>| size.map_or("-".into(), |size| bytes(size as f64));
        let rows: Vec<(&StageKey, &StageRow)> = self.rows.iter().collect();
        let cells = |at: usize| {
            let (key, row) = rows[at];
            let before = at.checked_sub(1).map(|at| rows[at].1);
            let changed =
                |now: Option<u64>, get: &dyn Fn(&StageRow) -> Option<u64>| signed_change(now, before.and_then(get));
            let rest = [
                row.steps.to_string(),
                size(row.in_use),
                changed(row.in_use, &|row| row.in_use),
                size(row.reserved),
                changed(row.reserved, &|row| row.reserved),
                number(row.loss / row.steps.max(1) as f64),
            ];
            key.iter().map(u64::to_string).chain(rest).collect()
        };
        (0..rows.len()).map(cells).collect()
    }

    /// Sentence on the largest growth of memory in use from one row to the next.
    fn largest_growth(&self) -> Option<String> {
        let rows: Vec<(&StageKey, &StageRow)> = self.rows.iter().collect();
        let grown = |at: usize| {
            let (before, now) = (rows[at - 1].1.in_use?, rows[at].1.in_use?);
            Some((now.saturating_sub(before), at))
        };
        let (most, at) = (1..rows.len()).filter_map(grown).max_by_key(|(most, at)| (*most, usize::MAX - at))?;
        let named = self.names.iter().zip(rows[at].0);
        let place: Vec<String> =
            named.map(|(name, key)| format!("{} {key}", printable::line(&name.replace('_', " "), 40))).collect();
        (most > 0).then(|| format!("largest growth: +{} in {}", bytes(most as f64), place.join(", ")))
    }

    /// For a terminal; of many rows the first and the last.
    pub fn text(&self) -> String {
        let mut cells = self.cells();
        let left_out = cells.len().saturating_sub(ROWS_SHOWN);
        if left_out > 0 {
            cells.drain(ROWS_SHOWN / 2..ROWS_SHOWN / 2 + left_out);
        }
        let header = self.header();
        let mut text = columns(&header.iter().map(String::as_str).collect::<Vec<_>>(), &cells);
        if left_out > 0 {
            let _ = writeln!(text, "({left_out} rows in the middle are not shown)");
        }
        if let Some(largest) = self.largest_growth() {
            let _ = writeln!(text, "{largest}");
        }
        text
    }

    /// Table for the page.
    pub fn html(&self) -> Markup {
        let cells = self.cells();
        let left_out = cells.len().saturating_sub(ROWS_ON_PAGE);
        html! {
            @if !self.is_empty() {
                h2 { "Memory by " (self.names.iter().map(|name| name.replace('_', " ")).collect::<Vec<_>>().join(" and ")) }
                @if let Some(largest) = self.largest_growth() { p { (largest) "." } }
                div.wide { table {
                    thead { tr { @for title in self.header() { th.r { (title.trim_start_matches('>')) } } } }
                    tbody { @for row in cells.iter().take(ROWS_ON_PAGE) { tr { @for cell in row { td.r { (cell) } } } } }
                } }
                @if left_out > 0 { p { (left_out) " more rows are not shown." } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use crate::report::sample::{PLAIN, finished, write_lines};
    use crate::view::RunView;
    use xrun_core::files::{layout, write};

    /// Two rounds of two nodes with two local epochs each: 10 MiB per round, and 3 MiB more in the second epoch of
    /// the second.
    #[test]
    fn equal_stages_share_a_row_and_the_largest_growth_is_named() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let names = ["round".to_owned(), "local_epoch".to_owned()];
        let first: MemoryLine = read::memory(&run).unwrap().next().unwrap().unwrap();
        let (mut metrics, mut memory) = (Vec::new(), Vec::new());
        for step in 1..=8_u64 {
            let (round, epoch) = ((step - 1) / 4 + 1, (step - 1) % 2 + 1);
            let values = [("round", round), ("local_epoch", epoch)];
            metrics.push(MetricsLine::Train {
                step,
                epoch: round,
                batch: "local".into(),
                loss: step as f64,
                learning_rate: Some(0.1),
                gradient_norm: None,
                gradient_norm_median: None,
                values: values.map(|(name, value)| (name.to_owned(), value as f64)).into(),
            });
            let mut line = MemoryLine { step, epoch: round, ..first.clone() };
            line.device = None;
            line.host.heap = (100 + 10 * round + if (round, epoch) == (2, 2) { 3 } else { 0 }) << 20;
            memory.push(line);
        }
        write_lines(&run.join(layout::METRICS), &metrics);
        write_lines(&run.join(layout::MEMORY), &memory);
        let stages = |names: &[String]| {
            let mut plan = read::plan(&run).unwrap();
            plan.stages = names.to_vec();
            write::replace_json(&run.join(layout::PLAN), &plan).unwrap();
            RunView::open(&run).stages().map(Stages::text)
        };
        let text = stages(&names).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 1 + 4 + 1, "{text}");
        assert_eq!((rows[1][..3].to_vec(), rows[1].last()), (vec!["1", "1", "2"], Some(&"2")), "steps 1 and 3: {text}");
        insta::assert_snapshot!(text);
        assert!(stages(&[]).is_none() && stages(&["nowhere".into()]).is_none());
    }
}
