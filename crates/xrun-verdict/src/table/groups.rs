//! Tables with interleaved rows of several GPUs, processes or machines.

use super::column_names::words;

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
/// Columns of other tables that identify a group.
const OTHER_COLUMNS: &[&str] =
    &["gpu_index", "gpu_id", "gpu_uuid", "device_id", "rank", "local_rank", "pid", "host", "hostname", "node"];

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
    /// Groups of a table with these columns.
    pub fn of(names: &[String], nvidia_smi: bool) -> Self {
        let list = if nvidia_smi { NVIDIA_SMI_COLUMNS } else { OTHER_COLUMNS };
        let normalized: Vec<String> = names.iter().map(|name| words(name).join("_")).collect();
        let columns = list.iter().filter_map(|wanted| {
            let at = normalized.iter().position(|name| name == wanted)?;
            Some((at, names[at].clone()))
        });
        Self { columns: columns.collect(), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn has(&self, column: usize) -> bool {
        self.columns.iter().any(|(at, _)| *at == column)
    }

    /// Index of the group of a row; `None` beyond [`GROUPS_MAX`].
    pub fn index(&mut self, row: &[String]) -> Option<usize> {
        let cell = |at: usize| row.get(at).map_or("", String::as_str);
        let same = |group: &Vec<String>| self.columns.iter().zip(group).all(|((at, _), value)| cell(*at) == value);
        if let Some(number) = self.groups.iter().position(same) {
            return Some(number);
        }
        self.full |= self.groups.len() == GROUPS_MAX;
        (!self.full).then(|| {
            self.groups.push(self.columns.iter().map(|(at, _)| cell(*at).to_owned()).collect());
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
        match (0..self.columns.len()).find(|column| is_unique(*column)) {
            Some(column) => Some(value_label(&self.columns[column].1, &values[column])),
            None => {
                let all: Vec<String> =
                    self.columns.iter().zip(values).map(|((_, name), value)| value_label(name, value)).collect();
                Some(all.join(", "))
            }
        }
    }
}

fn value_label(column: &str, value: &str) -> String {
    match words(column).join("_").as_str() {
        "index" | "gpu" | "gpu_index" | "gpu_id" => format!("GPU {value}"),
        "uuid" | "gpu_uuid" | "pci_bus_id" | "gpu_bus_id" | "name" | "gpu_name" | "process_name" => value.to_owned(),
        other => format!("{} {value}", other.replace('_', " ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn the_first_column_that_distinguishes_all_groups_labels_them() {
        let names = row(&["timestamp", "name", "index", "memory.used [MiB]"]);
        let mut groups = RowGroups::of(&names, true);
        let first = groups.index(&row(&["t", "H100", "0", "5"]));
        assert_eq!((first, groups.label(0)), (Some(0), None), "a single group has no label");
        assert_eq!(groups.index(&row(&["t", "H100", "1", "5"])), Some(1));
        assert_eq!(groups.index(&row(&["u", "H100", "0", "6"])), Some(0));
        assert_eq!((groups.label(0), groups.label(1)), (Some("GPU 0".into()), Some("GPU 1".into())));
        let mut groups = RowGroups::of(&row(&["rank", "host", "rss"]), false);
        for (rank, host) in [("0", "a"), ("1", "a"), ("0", "b")] {
            groups.index(&row(&[rank, host, "7"]));
        }
        assert_eq!(groups.label(2), Some("rank 0, host b".into()));
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let mut groups = RowGroups::of(&row(&["pid", "rss"]), false);
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
