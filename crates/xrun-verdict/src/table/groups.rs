//! Rows of several GPUs, processes or machines that are interleaved.

use std::collections::{BTreeSet, VecDeque};

use super::names::plain;
use super::rows::Row;

/// Cap on the groups of a table; rows of further ones are ignored.
pub const GROUPS_MAX: usize = 64;
/// Columns that identify a group, in order of preference for its label.
const COLUMNS: &str = "index gpu_index gpu_id gpu_idx device_id uuid gpu_uuid pci_bus_id gpu_bus_id serial gpu_serial rank local_rank \
                       global_rank pid process_id worker_id host hostname container container_id pod";
/// Columns that identify a group where their cells are few and no sizes: `gpu` may be the memory of one.
const LIKELY_COLUMNS: &str = "gpu device worker process node name gpu_name process_name source";
/// Largest number of a GPU, a worker or a process in [`LIKELY_COLUMNS`].
const NUMBER_MAX: u64 = 1024;
/// Number of rows from which groups are recognised.
pub const FIRST_ROWS: usize = 512;

/// Returns whether a column of this name may be the label of a row.
pub fn is_label(name: &str) -> bool {
    let name = plain(name);
    [COLUMNS, LIKELY_COLUMNS].iter().any(|list| list.split_whitespace().any(|one| one == name))
}

/// Groups of the rows of a table: one for each combination of values in its identifying columns.
#[derive(Clone, Debug, Default)]
pub struct RowGroups {
    /// Index and name of each identifying column.
    columns: Vec<(usize, String)>,
    /// Values of the identifying columns, for each group.
    groups: Vec<Vec<String>>,
    /// True if there are more than [`GROUPS_MAX`].
    pub full: bool,
}

impl RowGroups {
    /// Groups of a table with these columns and first rows.
    pub fn of(names: &[String], rows: &[Row]) -> Self {
        let normalized: Vec<String> = names.iter().map(|name| plain(name)).collect();
        let position = |wanted: &str| normalized.iter().position(|name| name == wanted);
        let likely = LIKELY_COLUMNS.split_whitespace().filter_map(position);
        let listed = COLUMNS.split_whitespace().filter_map(position);
        let at = listed.filter(|at| normalized[*at] != "index" || identifies(rows, *at));
        let at = at.chain(likely.filter(|at| identifies(rows, *at)));
        Self { columns: at.map(|at| (at, names[at].clone())).collect(), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn has(&self, column: usize) -> bool {
        self.columns.iter().any(|(at, _)| *at == column)
    }

    /// Returns whether the groups are processes, each of which has memory of its own and may end.
    pub fn are_processes(&self) -> bool {
        self.columns.iter().any(|(_, name)| ["pid", "process_id"].contains(&plain(name).as_str()))
    }

    /// Index of the group of a row; `None` beyond [`GROUPS_MAX`].
    pub fn index(&mut self, row: &Row) -> Option<usize> {
        let same = |group: &Vec<String>| self.columns.iter().zip(group).all(|((at, _), value)| row.get(*at) == value);
        if let Some(number) = self.groups.iter().position(same) {
            return Some(number);
        }
        self.full |= self.groups.len() == GROUPS_MAX;
        (!self.full).then(|| {
            self.groups.push(self.columns.iter().map(|(at, _)| row.get(*at).to_owned()).collect());
            self.groups.len() - 1
        })
    }

    /// Label of a group; `None` when it is the only one.
    pub fn label(&self, group: usize) -> Option<String> {
        let values = self.groups.get(group).filter(|_| self.groups.len() > 1)?;
        // One column is enough if it distinguishes all groups.
        let is_unique = |column: usize| {
            let values: BTreeSet<&String> = self.groups.iter().map(|group| &group[column]).collect();
            values.len() == self.groups.len()
        };
        let has_words = |column: usize| self.groups.iter().all(|group| group[column].contains(char::is_alphabetic));
        let is_name = |column: usize| plain(&self.columns[column].1) == "name" && has_words(column);
        let unique = || (0..self.columns.len()).filter(|column| is_unique(*column));
        match unique().find(|column| is_name(*column)).or_else(|| unique().next()) {
            Some(column) => Some(value_label(&self.columns[column].1, &values[column])),
            None => {
                let all: Vec<String> =
                    self.columns.iter().zip(values).map(|((_, name), value)| value_label(name, value)).collect();
                Some(all.join(", "))
            }
        }
    }
}

/// Returns whether a column identifies groups: few cells, each of them in several rows, and no sizes.
fn identifies(rows: &[Row], column: usize) -> bool {
    let cells = || rows.iter().map(|row| row.get(column)).filter(|cell| !cell.is_empty());
    let is_name = |cell: &str| match cell.parse::<u64>() {
        Ok(number) => number < NUMBER_MAX,
        Err(_) => cell.parse::<f64>().is_err() && !cell.ends_with(['B', '%']),
    };
    let mut different: Vec<&str> = Vec::new();
    for cell in cells() {
        if !different.contains(&cell) {
            different.push(cell);
        }
        if !is_name(cell) || different.len() > GROUPS_MAX {
            return false;
        }
    }
    !different.is_empty() && 2 * different.len() <= cells().count()
}

fn value_label(column: &str, value: &str) -> String {
    match plain(column).as_str() {
        "index" | "gpu" | "gpu_index" | "gpu_id" => format!("GPU {value}"),
        "uuid" | "gpu_uuid" | "pci_bus_id" | "gpu_bus_id" | "name" | "gpu_name" | "process_name" => value.to_owned(),
        "container" | "container_id" | "pod" | "source" => value.to_owned(),
        _ => format!("{} {value}", column.replace('_', " ")),
    }
}

/// Rounds of rows, in which each group has at most one.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    seen: BTreeSet<usize>,
    /// Number of rounds and of rows so far.
    pub count: u64,
    pub rows: u64,
}

impl Rounds {
    /// Adds a row; returns whether it begins another round.
    pub fn begins(&mut self, group: usize) -> bool {
        self.rows += 1;
        let begins = self.seen.contains(&group) || self.count == 0;
        if begins {
            self.seen.clear();
            self.count += 1;
        }
        self.seen.insert(group);
        begins
    }
}

/// Ranks or GPUs that write into one log without a column that names them: each step has a row of each, in the same order; or
/// their times are close together.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    /// Number of ranks.
    pub count: usize,
    /// Longest distance of rows that belong together: 0 of steps, a part of the distance of others of times.
    pub tolerance: u64,
    /// Newest positions, with the number of rows of each.
    recent: VecDeque<(i64, usize)>,
}

/// Number of different steps in which rows of one step are expected.
const RECENT_STEPS: usize = 32;

/// Cap on the processes that take turns.
const TURN_MAX: usize = 16;

impl Ranks {
    /// Recognises ranks from the positions of the first rows; `None` where nearly each row has one of its own.
    pub fn find(positions: &[i64], are_times: bool) -> Option<Self> {
        let mut gaps: Vec<i64> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        // With rounds of up to 16 rows, at least one gap in twenty lies between two rounds.
        let gap = gaps.get(gaps.len() * 19 / 20)?.unsigned_abs() / 4;
        let tolerance = if are_times { gap } else { 0 };
        let mut ranks = Self { count: usize::MAX, tolerance, recent: VecDeque::new() };
        let mut counts = Vec::new();
        for position in positions {
            let oldest = ranks.recent.front().map(|(_, rows)| *rows);
            if ranks.index(*position) == 0 && ranks.recent.len() == RECENT_STEPS {
                counts.extend(oldest);
            }
        }
        counts.extend(ranks.recent.iter().map(|(_, rows)| *rows));
        // The last step may be incomplete.
        counts.pop();
        let count = *counts.first()?;
        let regular = counts.iter().filter(|one| **one == count).count();
        let enough = if are_times { counts.len() } else { counts.len() * 3 / 4 };
        let is_regular = counts.len() >= 4 && regular >= enough && count > 1;
        is_regular.then(|| Self { count, tolerance, recent: VecDeque::new() })
    }

    /// Recognises processes whose rows take turns by their values, which are nearly the same again after each turn.
    pub fn in_turn(values: &[f64]) -> Option<Self> {
        let moved = |by: usize| {
            let moves = values.iter().zip(values.iter().skip(by)).map(|(early, late)| (late - early).abs());
            moves.sum::<f64>() / values.len().saturating_sub(by).max(1) as f64
        };
        let is_turn = |count: &usize| values.len() >= 8 * count && 20.0 * moved(*count) < moved(1);
        let count = (2..=TURN_MAX).find(is_turn)?;
        Some(Self { count, tolerance: 0, recent: VecDeque::new() })
    }

    /// Forgets the rows so far.
    pub fn begin_anew(&mut self) {
        self.recent.clear();
    }

    /// Rank of a row at this position: the number of rows of the same position before it.
    pub fn index(&mut self, position: i64) -> usize {
        let same = |(recent, _): &&mut (i64, usize)| position.abs_diff(*recent) <= self.tolerance;
        if let Some((_, rows)) = self.recent.iter_mut().rev().find(same) {
            *rows += 1;
            return (*rows - 1).min(self.count - 1);
        }
        if self.recent.len() == RECENT_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back((position, 1));
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn row(cells: &[&str]) -> Row {
        let mut row = Row::default();
        row.cells.extend(cells.iter().enumerate().map(|(at, cell)| (at, (*cell).to_owned())));
        row
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let mut groups = RowGroups::of(&strings(&["pid", "rss"]), &[]);
        let numbers: Vec<Option<usize>> = (0..100).map(|pid| groups.index(&row(&[&pid.to_string(), "7"]))).collect();
        assert_eq!(numbers.iter().flatten().count(), GROUPS_MAX);
        assert!(groups.full && groups.index(&row(&["3", "8"])) == Some(3));
    }

    #[test]
    fn gpus_are_recognised_by_the_gaps_between_their_times() {
        let times = |gpus: i64| -> Vec<i64> { (0..100).map(|row| row / gpus * 1003 + row % gpus * 4).collect() };
        assert_eq!(Ranks::find(&times(1), true), None);
        for size in [2usize, 4, 8] {
            let mut ranks = Ranks::find(&times(size as i64), true).unwrap();
            let numbers: Vec<usize> = times(size as i64).into_iter().map(|time| ranks.index(time)).collect();
            assert!(numbers.iter().enumerate().all(|(row, number)| *number == row % size), "{numbers:?}");
        }
        let uneven: Vec<i64> = (0..100).map(|row| row * 1000 + row * row % 700).collect();
        assert_eq!(Ranks::find(&uneven, true), None, "one GPU on a busy machine");
        assert_eq!((Ranks::find(&[], true), Ranks::find(&[5; 100], true)), (None, None));
    }
}
