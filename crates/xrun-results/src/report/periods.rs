//! Memory and loss by epoch, and by stage of the training, such as a round and a local epoch.
//!
//! A pipeline names the step values that identify the stage of a step. Steps of a stage need not be consecutive: each
//! node of a round has a first local epoch.

use std::collections::BTreeMap;
use std::fmt::Write;

use maud::{Markup, html};

use super::formatting::{bytes, number};
use super::table::Table;
use crate::format::{MemoryLine, MetricsLine};
use xrun_core::printable;

/// Maximum number of kinds of steps; the rest are `other kinds`.
pub const KINDS_MAX: usize = 6;

/// Maximum number of rows (some 30 MB), and of runs of consecutive steps in one stage.
const ROWS_MAX: usize = 100_000;
/// Maximum number of rows in a table: the first and the last.
const ROWS_SHOWN: usize = 24;
/// Name of the only value of periods that are epochs.
const EPOCH: &str = "epoch";

/// Bytes of each of [`LEVELS`].
type Levels = [Option<u64>; 4];

/// Quantities: of memory in use the minimum, of the others the last value.
static LEVELS: [(&str, &str); 4] =
    [("heap", "min"), ("RSS", "end"), ("device in use", "min"), ("device reserved", "end")];

/// Memory and loss of one period.
#[derive(Clone, Debug, Default)]
struct PeriodRow {
    /// Sum of the losses and number of steps, by the index of the kind of step.
    losses: Vec<(f64, u64)>,
    levels: Levels,
}

/// Periods of a run: first from the metrics, then from the trace, of which the newest process counts.
#[derive(Clone, Debug, Default)]
pub struct Periods {
    /// Names of the values of a key.
    names: Vec<String>,
    /// Kinds of steps, at most [`KINDS_MAX`]; the losses of others are left out.
    kinds: Vec<String>,
    rows: BTreeMap<Vec<u64>, PeriodRow>,
    /// First and last of consecutive steps in one stage, and its key; at most [`ROWS_MAX`].
    ranges: Vec<(u64, u64, Vec<u64>)>,
    /// Process, step and levels of its first sample.
    start: Option<(u32, u64, Levels)>,
    end: Levels,
}

impl Periods {
    /// Epochs.
    pub(super) fn epochs() -> Self {
        Self::stages(&[EPOCH.to_owned()])
    }

    /// Stages named by a plan; there are none if it names none.
    pub(super) fn stages(names: &[String]) -> Self {
        Self { names: names.to_vec(), ..Self::default() }
    }

    fn are_epochs(&self) -> bool {
        self.names == [EPOCH]
    }

    /// The row of a key; `None` if there are too many.
    fn row(&mut self, key: &[u64]) -> Option<&mut PeriodRow> {
        let has_room = self.rows.len() < ROWS_MAX || self.rows.contains_key(key);
        has_room.then(|| self.rows.entry(key.to_vec()).or_default())
    }

    /// Index of a kind of step; `None` if there are too many.
    fn kind(&mut self, name: &str) -> Option<usize> {
        let at = self.kinds.iter().position(|known| known == name).unwrap_or(self.kinds.len());
        if at == self.kinds.len() && at < KINDS_MAX {
            self.kinds.push(name.to_owned());
        }
        (at < KINDS_MAX).then_some(at)
    }

    /// Adds a line of the metrics.
    pub(super) fn add_metrics(&mut self, line: &MetricsLine) {
        let MetricsLine::Train { step, epoch, batch, loss, values, .. } = line else { return };
        let value =
            |name: &String| if name == EPOCH { Some(*epoch) } else { values.get(name).map(|value| *value as u64) };
        let key: Option<Vec<u64>> = self.names.iter().map(value).collect();
        let Some(key) = key.filter(|key| !key.is_empty() && self.ranges.len() < ROWS_MAX) else { return };
        let kind = self.kind(batch).filter(|_| loss.is_finite());
        let Some(row) = self.row(&key) else { return };
        if let Some(kind) = kind {
            row.losses.resize(row.losses.len().max(kind + 1), (0.0, 0));
            let (sum, steps) = &mut row.losses[kind];
            (*sum, *steps) = (*sum + loss, *steps + 1);
        }
        match self.ranges.last_mut() {
            Some((_, last, known)) if *known == key && *last + 1 == *step => *last = *step,
            _ => self.ranges.push((*step, *step, key)),
        }
    }

    /// Adds a memory sample, after all metrics.
    pub(super) fn add_sample(&mut self, line: &MemoryLine) {
        let (in_use, reserved) = (line.device.map(|pool| pool.in_use), line.device.map(|pool| pool.reserved));
        let now: Levels = [Some(line.host.heap), line.host.rss, in_use, reserved];
        if self.start.is_none_or(|(segment, ..)| segment != line.segment) {
            self.start = Some((line.segment, line.step, now));
            self.rows.values_mut().for_each(|row| row.levels = Levels::default());
        }
        self.end = now;
        let key = if self.are_epochs() {
            // Samples before the first epoch belong to the start.
            (line.epoch > 0).then(|| vec![line.epoch])
        } else {
            let at = self.ranges.partition_point(|(_, last, _)| *last < line.step);
            self.ranges.get(at).filter(|(first, ..)| *first <= line.step).map(|(.., key)| key.clone())
        };
        let Some(row) = key.and_then(|key| self.row(&key)) else { return };
        for ((known, now), (_, kept)) in row.levels.iter_mut().zip(now).zip(LEVELS) {
            *known = if kept == "min" { known.iter().copied().chain(now).min() } else { now.or(*known) };
        }
    }

    fn sampled(&self) -> impl Iterator<Item = (&Vec<u64>, &PeriodRow)> {
        self.rows.iter().filter(|(_, row)| row.levels[0].is_some())
    }

    /// Returns `true` without a period that has samples, as for a watched command.
    pub fn is_empty(&self) -> bool {
        self.sampled().next().is_none()
    }

    /// Index of the most frequent kind of step: losses of different kinds have no common mean.
    fn dominant_kind(&self) -> Option<usize> {
        let steps = |kind: usize| {
            self.rows.values().filter_map(|row| row.losses.get(kind)).map(|(_, steps)| steps).sum::<u64>()
        };
        (0..self.kinds.len()).max_by_key(|kind| steps(*kind))
    }

    fn titles(&self) -> Vec<String> {
        self.names.iter().map(|name| printable::line(&name.replace('_', " "), 40)).collect()
    }

    /// Memory at the start, of each period and at the end, with the change since the start, as in docs/origins.md.
    fn table(&self) -> Table {
        let start = self.start.map_or(Levels::default(), |(.., levels)| levels);
        let shown: Vec<usize> = (0..LEVELS.len()).filter(|at| start[*at].is_some()).collect();
        let cells = |key: Vec<String>, levels: &Levels, loss: String| {
            let size = |at: &usize| {
                let level = levels[*at].map_or("-".into(), |level| bytes(level as f64));
                [level, signed_change(levels[*at], start[*at])]
            };
            key.into_iter().chain(shown.iter().flat_map(size)).chain([loss]).collect::<Vec<_>>()
        };
        let end = |name: &str, levels: &Levels| {
            let mut key = vec![String::new(); self.names.len()];
            key[0] = name.to_owned();
            cells(key, levels, "-".into())
        };
        let kind = self.dominant_kind();
        let row = |(key, row): (&Vec<u64>, &PeriodRow)| {
            let loss = kind.and_then(|kind| row.losses.get(kind)).filter(|(_, steps)| *steps > 0);
            let loss = loss.map_or("-".into(), |(sum, steps)| number(sum / *steps as f64));
            cells(key.iter().map(u64::to_string).collect(), &row.levels, loss)
        };
        let count = self.sampled().count();
        let is_shown = |at: &usize| *at < ROWS_SHOWN / 2 || at + ROWS_SHOWN / 2 >= count;
        let rows = self.sampled().enumerate().filter(|(at, _)| is_shown(at)).map(|(_, one)| row(one));
        let titles = |at: &usize| [format!(">{} ({})", LEVELS[*at].0, LEVELS[*at].1), ">since start".into()];
        let header = self.titles().into_iter().chain(shown.iter().flat_map(titles)).chain([">mean loss".into()]);
        let rows = [end("start", &start)].into_iter().chain(rows).chain([end("end", &self.end)]);
        Table { header: header.collect(), rows: rows.collect() }
    }

    /// Sentences below the table: what it leaves out, the total growth, and the largest from one period to the next.
    fn notes(&self) -> Vec<String> {
        let Some((segment, step, start)) = self.start else { return Vec::new() };
        let mut notes = Vec::new();
        if segment > 0 {
            notes.push(format!("process {} only, resumed after step {step}", segment + 1));
        }
        if let left_out @ 1.. = self.sampled().count().saturating_sub(ROWS_SHOWN) {
            notes.push(format!("{left_out} rows in the middle are not shown"));
        }
        let names = || LEVELS.iter().map(|(name, _)| name).enumerate().filter(|(at, _)| start[*at].is_some());
        let total = names().map(|(at, name)| format!("{name} {}", signed_change(self.end[at], start[at])));
        notes.push(format!("total growth: {}", total.collect::<Vec<_>>().join(", ")));
        let largest = |(at, name): (usize, &&str)| {
            let (mut before, mut most, mut place) = (start[at], 0, None);
            for (key, row) in self.sampled() {
                let grown = row.levels[at].zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
                if grown > most {
                    (most, place) = (grown, Some(key));
                }
                before = row.levels[at];
            }
            let place = self.titles().into_iter().zip(place?).map(|(name, value)| format!("{name} {value}"));
            Some(format!("{name} +{} in {}", bytes(most as f64), place.collect::<Vec<_>>().join(", ")))
        };
        let largest: Vec<String> = names().filter_map(largest).collect();
        notes.extend((!largest.is_empty()).then(|| format!("largest growth: {}", largest.join(", "))));
        notes
    }

    /// For a terminal, in which a table wider than `width` is split; empty without periods.
    pub fn text(&self, width: Option<usize>) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut text = self.table().text(width);
        for note in self.notes() {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// For the page.
    pub fn html(&self) -> Markup {
        html! {
            @if !self.is_empty() {
                h2 { "Memory by " (self.titles().join(" and ")) }
                (self.table().html())
                @for note in self.notes() { p.note { (note) "." } }
            }
        }
    }
}

fn signed_change(now: Option<u64>, before: Option<u64>) -> String {
    match now.zip(before) {
        Some((now, before)) if now >= before => format!("+{}", bytes((now - before) as f64)),
        Some((now, before)) => format!("-{}", bytes((before - now) as f64)),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use crate::report::sample::{PLAIN, finished, write_lines};
    use crate::view::RunView;
    use xrun_core::files::{layout, write};

    #[test]
    fn the_largest_growth_includes_epochs_that_are_not_shown() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let first = read::memory(&run).unwrap().next().unwrap().unwrap();
        // 10 MiB per epoch for 60 epochs, except 12 MiB in epoch 30.
        let line = |epoch: u64| {
            let mut line = MemoryLine { epoch, step: epoch, ..first.clone() };
            line.host.heap = ((epoch * 10 + if epoch >= 30 { 2 } else { 0 }) << 20) + (100 << 20);
            line
        };
        write_lines(&run.join(layout::MEMORY), &(0..=60).map(line).collect::<Vec<_>>());
        let table = RunView::open(&run).trace().epochs.text(None);
        assert!(!table.lines().any(|line| line.starts_with("30 ")), "that row is not shown: {table}");
        insta::assert_snapshot!(table);
    }

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
            RunView::open(&run).trace().stages.text(None)
        };
        let text = stages(&names);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows[2][..2].to_vec(), rows[2].last()), (vec!["1", "1"], Some(&"2")), "steps 1 and 3: {text}");
        insta::assert_snapshot!(text);
        assert!(stages(&[]).is_empty() && stages(&["nowhere".into()]).is_empty());
    }
}
