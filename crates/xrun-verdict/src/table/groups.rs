//! Rows of a table that has those of several GPUs, processes or machines one after the other.

use super::names::words;

/// The most that are told apart.
pub const GROUPS_MAX: usize = 64;
/// Columns of nvidia-smi that say whose a row is, what reads best first.
const OF_NVIDIA_SMI: &[&str] = &[
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
/// And of other tables.
const OF_OTHERS: &[&str] =
    &["gpu_index", "gpu_id", "gpu_uuid", "device_id", "rank", "local_rank", "pid", "host", "hostname", "node"];

/// The columns of a table that say whose a row is, and all that they said.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Their places in a row, and their names.
    columns: Vec<(usize, String)>,
    seen: Vec<Vec<String>>,
    /// There were too many.
    pub full: bool,
}

impl Groups {
    /// The groups of a table with these columns.
    pub fn of(names: &[String], nvidia_smi: bool) -> Self {
        let list = if nvidia_smi { OF_NVIDIA_SMI } else { OF_OTHERS };
        let plain: Vec<String> = names.iter().map(|name| words(name).join("_")).collect();
        let columns = list.iter().filter_map(|wanted| {
            let at = plain.iter().position(|name| name == wanted)?;
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

    /// The number of the one whose row it is; `None` when there are too many.
    pub fn number(&mut self, row: &[String]) -> Option<usize> {
        let cell = |at: usize| row.get(at).map_or("", String::as_str);
        let same = |seen: &Vec<String>| self.columns.iter().zip(seen).all(|((at, _), known)| cell(*at) == known);
        if let Some(number) = self.seen.iter().position(same) {
            return Some(number);
        }
        self.full |= self.seen.len() == GROUPS_MAX;
        (!self.full).then(|| {
            self.seen.push(self.columns.iter().map(|(at, _)| cell(*at).to_owned()).collect());
            self.seen.len() - 1
        })
    }

    /// The name of one; `None` when it is the only one.
    pub fn label(&self, number: usize) -> Option<String> {
        let seen = self.seen.get(number).filter(|_| self.seen.len() > 1)?;
        // One column that tells all apart is enough.
        let alone = |column: usize| {
            let of = |seen: &Vec<String>| seen.get(column).cloned();
            (1..self.seen.len()).all(|at| !self.seen[..at].iter().any(|before| of(before) == of(&self.seen[at])))
        };
        match (0..self.columns.len()).find(|column| alone(*column)) {
            Some(column) => Some(called(&self.columns[column].1, &seen[column])),
            None => {
                let all: Vec<String> =
                    self.columns.iter().zip(seen).map(|((_, name), value)| called(name, value)).collect();
                Some(all.join(", "))
            }
        }
    }
}

fn called(column: &str, value: &str) -> String {
    match words(column).join("_").as_str() {
        "index" | "gpu" | "gpu_index" | "gpu_id" => format!("GPU {value}"),
        "uuid" | "gpu_uuid" | "pci_bus_id" | "gpu_bus_id" | "name" | "gpu_name" | "process_name" => value.to_owned(),
        other => format!("{} {value}", other.replace('_', " ")),
    }
}

/// Rows of several in turn, where no column says whose they are: each round has one of each, close together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    pub size: usize,
    /// A longer gap than this is between two rounds, in milliseconds.
    gap: i64,
    last: Option<i64>,
    at: usize,
}

/// The number of rows that are looked at.
pub const ROWS_FOR_ROUNDS: usize = 512;

impl Rounds {
    /// Finds them in the times of the first rows; `None` where rows come one by one, or in no order.
    pub fn find(times: &[i64]) -> Option<Self> {
        let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut sorted = gaps.clone();
        sorted.sort_unstable();
        // Of rounds of up to 16 rows, one gap in twenty is one between two of them.
        let gap = sorted.get(sorted.len() * 19 / 20)? / 4;
        let rounds: Vec<usize> = gaps.split(|one| *one > gap).map(|inside| inside.len() + 1).collect();
        // The last one may have been cut off.
        let (_, whole) = rounds.split_last()?;
        let size = *whole.first()?;
        let (regular, enough) = (whole.iter().all(|one| *one == size), whole.len() >= 4);
        (regular && enough && size > 1).then_some(Self { size, gap, last: None, at: 0 })
    }

    /// The owner of the row that was taken then: its number in the round.
    pub fn number(&mut self, time: i64) -> usize {
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
    fn the_first_column_that_tells_all_apart_names_them() {
        let names = row(&["timestamp", "name", "index", "memory.used [MiB]"]);
        let mut groups = Groups::of(&names, true);
        let first = groups.number(&row(&["t", "H100", "0", "5"]));
        assert_eq!((first, groups.label(0)), (Some(0), None), "one needs no name");
        assert_eq!(groups.number(&row(&["t", "H100", "1", "5"])), Some(1));
        assert_eq!(groups.number(&row(&["u", "H100", "0", "6"])), Some(0));
        assert_eq!((groups.label(0), groups.label(1)), (Some("GPU 0".into()), Some("GPU 1".into())));
        let mut groups = Groups::of(&row(&["rank", "host", "rss"]), false);
        for (rank, host) in [("0", "a"), ("1", "a"), ("0", "b")] {
            groups.number(&row(&[rank, host, "7"]));
        }
        assert_eq!(groups.label(2), Some("rank 0, host b".into()));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut groups = Groups::of(&row(&["pid", "rss"]), false);
        let numbers: Vec<Option<usize>> = (0..100).map(|pid| groups.number(&row(&[&pid.to_string(), "7"]))).collect();
        assert_eq!(numbers.iter().flatten().count(), GROUPS_MAX);
        assert!(groups.full && groups.number(&row(&["3", "8"])) == Some(3));
    }

    #[test]
    fn rounds_are_found_by_the_gaps_between_them() {
        let of = |gpus: i64| -> Vec<i64> { (0..100).map(|row| row / gpus * 1003 + row % gpus * 4).collect() };
        assert_eq!(Rounds::find(&of(1)), None);
        for size in [2usize, 4, 8] {
            let mut rounds = Rounds::find(&of(size as i64)).unwrap();
            let numbers: Vec<usize> = of(size as i64).into_iter().map(|time| rounds.number(time)).collect();
            assert!(numbers.iter().enumerate().all(|(row, number)| *number == row % size), "{numbers:?}");
        }
        let uneven: Vec<i64> = (0..100).map(|row| row * 1000 + row * row % 700).collect();
        assert_eq!(Rounds::find(&uneven), None, "one GPU on a busy machine");
        assert_eq!(Rounds::find(&[]), None);
        assert_eq!(Rounds::find(&[5; 100]), None);
    }
}
