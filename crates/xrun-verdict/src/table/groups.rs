//! Tables with interleaved rows of several GPUs, processes or machines.

use std::collections::VecDeque;

use super::column_names::words;
use super::rows::Row;

/// Cap on the groups of a table; rows of further ones are ignored.
pub const GROUPS_MAX: usize = 64;
/// Columns of nvidia-smi that identify a group, in order of preference for its label.
const NVIDIA_SMI_COLUMNS: &[&str] = &[
    "index",
    "gpu",
    "uuid",
    "gpu_uuid",
    "pci_bus_id",
    "gpu_bus_id",
    "serial",
    "gpu_serial",
    "pid",
    "name",
    "gpu_name",
    "process_name",
];
/// Columns of other tables and logs that identify a group.
const OTHER_COLUMNS: &[&str] = &[
    "gpu_index",
    "gpu_id",
    "gpu_uuid",
    "gpu_idx",
    "device_id",
    "rank",
    "local_rank",
    "global_rank",
    "pid",
    "process_id",
    "worker_id",
    "host",
    "hostname",
    "container",
    "container_id",
    "pod",
];
/// Columns that identify a group where their cells are few and no sizes: `gpu` may be the memory of one.
const LIKELY_COLUMNS: &[&str] = &["gpu", "device", "worker", "process", "node", "name", "source"];
/// Largest number of a GPU, a worker or a process in [`LIKELY_COLUMNS`].
const NUMBER_MAX: u64 = 1024;

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
    pub fn of(names: &[String], nvidia_smi: bool, rows: &[Row]) -> Self {
        let normalized: Vec<String> = names.iter().map(|name| words(name).join("_")).collect();
        let position = |wanted: &&str| normalized.iter().position(|name| name == wanted);
        let listed = if nvidia_smi { NVIDIA_SMI_COLUMNS } else { OTHER_COLUMNS };
        let likely = LIKELY_COLUMNS.iter().filter(|_| !nvidia_smi).filter_map(position);
        let at = listed.iter().filter_map(position).chain(likely.filter(|at| identifies(rows, *at)));
        Self { columns: at.map(|at| (at, names[at].clone())).collect(), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn has(&self, column: usize) -> bool {
        self.columns.iter().any(|(at, _)| *at == column)
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
            let value = |group: &Vec<String>| group.get(column).cloned();
            (1..self.groups.len())
                .all(|at| !self.groups[..at].iter().any(|before| value(before) == value(&self.groups[at])))
        };
        let has_words = |column: usize| self.groups.iter().all(|group| group[column].contains(char::is_alphabetic));
        let is_name = |column: usize| words(&self.columns[column].1).join("_") == "name" && has_words(column);
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
    match words(column).join("_").as_str() {
        "index" | "gpu" | "gpu_index" | "gpu_id" => format!("GPU {value}"),
        "uuid" | "gpu_uuid" | "pci_bus_id" | "gpu_bus_id" | "name" | "gpu_name" | "process_name" => value.to_owned(),
        "container" | "container_id" | "pod" | "source" => value.to_owned(),
        _ => format!("{} {value}", column.replace('_', " ")),
    }
}

/// Rounds of rows of several GPUs without an identifying column: each round has one row of each GPU, in the same order
/// and close together in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// Rows in a round.
    pub size: usize,
    /// Longest gap within a round, in milliseconds.
    gap: i64,
    last: Option<i64>,
    at: usize,
}

/// Number of rows from which rounds are recognised.
pub const ROWS_FOR_ROUNDS: usize = 512;

impl Rounds {
    /// Recognises rounds from the times of the first rows; `None` where rows come one by one or irregularly.
    pub fn find(times: &[i64]) -> Option<Self> {
        let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut sorted = gaps.clone();
        sorted.sort_unstable();
        // With rounds of up to 16 rows, at least one gap in twenty lies between two rounds.
        let gap = sorted.get(sorted.len() * 19 / 20)? / 4;
        let rounds: Vec<usize> = gaps.split(|one| *one > gap).map(|inside| inside.len() + 1).collect();
        // The last round may be incomplete.
        let (_, whole) = rounds.split_last()?;
        let size = *whole.first()?;
        let (regular, enough) = (whole.iter().all(|one| *one == size), whole.len() >= 4);
        (regular && enough && size > 1).then_some(Self { size, gap, last: None, at: 0 })
    }

    /// Index within its round of a row with this time.
    pub fn index(&mut self, time: i64) -> usize {
        let begins = self.last.is_none_or(|last| time.abs_diff(last) > self.gap.unsigned_abs());
        self.at = if begins { 0 } else { (self.at + 1) % self.size };
        self.last = Some(time);
        self.at
    }
}

/// Ranks that write the same steps into one log without a column that names them: each step has a row of each rank, in
/// the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    /// Number of ranks.
    pub count: usize,
    /// Newest steps, with the number of rows of each.
    recent: VecDeque<(i64, usize)>,
}

/// Number of different steps in which rows of one step are expected.
const RECENT_STEPS: usize = 32;

impl Ranks {
    /// Recognises ranks from the steps of the first rows; `None` where nearly each row has a step of its own.
    pub fn find(steps: &[i64]) -> Option<Self> {
        let mut ranks = Self { count: usize::MAX, recent: VecDeque::new() };
        let mut counts = Vec::new();
        for step in steps {
            let oldest = ranks.recent.front().map(|(_, rows)| *rows);
            if ranks.index(*step) == 0 && ranks.recent.len() == RECENT_STEPS {
                counts.extend(oldest);
            }
        }
        counts.extend(ranks.recent.iter().map(|(_, rows)| *rows));
        // The last step may be incomplete.
        counts.pop();
        let count = *counts.first()?;
        let regular = counts.iter().filter(|one| **one == count).count();
        let is_regular = counts.len() >= 4 && regular * 4 >= counts.len() * 3 && count > 1;
        is_regular.then(|| Self { count, recent: VecDeque::new() })
    }

    /// Rank of a row with this step: the number of rows of the same step before it.
    pub fn index(&mut self, step: i64) -> usize {
        if let Some((_, rows)) = self.recent.iter_mut().find(|(recent, _)| *recent == step) {
            *rows += 1;
            return (*rows - 1).min(self.count - 1);
        }
        if self.recent.len() == RECENT_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back((step, 1));
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
        cells.iter().enumerate().for_each(|(at, cell)| row.push(at, cell));
        row
    }

    #[test]
    fn ranks_are_recognised_by_rows_of_the_same_step() {
        let steps: Vec<i64> = (0..100).flat_map(|step| [step * 10, step * 10]).collect();
        let mut ranks = Ranks::find(&steps).unwrap();
        assert_eq!(steps.iter().map(|step| ranks.index(*step)).collect::<Vec<_>>()[..4], [0, 1, 0, 1]);
        assert_eq!(Ranks::find(&(0..100).collect::<Vec<i64>>()), None);
        assert_eq!(Ranks::find(&(0..200).map(|row| row % 100).collect::<Vec<i64>>()), None, "two epochs");
        assert_eq!(Ranks::find(&[1, 2, 2, 3, 4, 4, 5, 6, 6, 7]), None, "a validation after every second step");
    }

    #[test]
    fn a_column_of_few_numbers_identifies_rows_and_one_of_sizes_does_not() {
        let of = |cells: &[&str]| {
            let rows: Vec<Row> = cells.iter().map(|cell| row(&["1", cell])).collect();
            !RowGroups::of(&strings(&["step", "gpu"]), false, &rows).is_empty()
        };
        assert!(of(&["0", "1", "0", "1"]) && of(&["cuda:0", "cuda:1", "cuda:0", "cuda:1"]));
        assert!(
            !of(&["10.5", "10.6", "10.5", "10.6"]) && !of(&["1000", "1010", "1020", "1030"]) && !of(&["5000", "5000"])
        );
    }

    #[test]
    fn the_first_column_that_distinguishes_all_groups_labels_them() {
        let names = strings(&["timestamp", "name", "index", "memory.used [MiB]"]);
        let mut groups = RowGroups::of(&names, true, &[]);
        let first = groups.index(&row(&["t", "H100", "0", "5"]));
        assert_eq!((first, groups.label(0)), (Some(0), None), "a single group has no label");
        assert_eq!(groups.index(&row(&["t", "H100", "1", "5"])), Some(1));
        assert_eq!(groups.index(&row(&["u", "H100", "0", "6"])), Some(0));
        assert_eq!((groups.label(0), groups.label(1)), (Some("GPU 0".into()), Some("GPU 1".into())));
        let mut groups = RowGroups::of(&strings(&["rank", "host", "rss"]), false, &[]);
        for (rank, host) in [("0", "a"), ("1", "a"), ("0", "b")] {
            groups.index(&row(&[rank, host, "7"]));
        }
        assert_eq!(groups.label(2), Some("rank 0, host b".into()));
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let mut groups = RowGroups::of(&strings(&["pid", "rss"]), false, &[]);
        let numbers: Vec<Option<usize>> = (0..100).map(|pid| groups.index(&row(&[&pid.to_string(), "7"]))).collect();
        assert_eq!(numbers.iter().flatten().count(), GROUPS_MAX);
        assert!(groups.full && groups.index(&row(&["3", "8"])) == Some(3));
    }

    #[test]
    fn rounds_are_recognised_by_the_gaps_between_them() {
        let times = |gpus: i64| -> Vec<i64> { (0..100).map(|row| row / gpus * 1003 + row % gpus * 4).collect() };
        assert_eq!(Rounds::find(&times(1)), None);
        for size in [2usize, 4, 8] {
            let mut rounds = Rounds::find(&times(size as i64)).unwrap();
            let numbers: Vec<usize> = times(size as i64).into_iter().map(|time| rounds.index(time)).collect();
            assert!(numbers.iter().enumerate().all(|(row, number)| *number == row % size), "{numbers:?}");
        }
        let uneven: Vec<i64> = (0..100).map(|row| row * 1000 + row * row % 700).collect();
        assert_eq!(Rounds::find(&uneven), None, "one GPU on a busy machine");
        assert_eq!(Rounds::find(&[]), None);
        assert_eq!(Rounds::find(&[5; 100]), None);
    }
}
