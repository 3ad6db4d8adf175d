//! Reading what was appended to a file of lines, at a cost independent of its length.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::read;
use xrun_core::files::file;

/// Follows a file of lines to which another process appends.
#[derive(Clone, Debug)]
pub struct RecordTail {
    path: PathBuf,
    /// Maximum number of bytes read at a time; older lines are skipped.
    max_bytes: u64,
    /// Offset up to which all lines have been read.
    offset: Option<u64>,
}

/// Lines that were appended.
#[derive(Clone, Debug)]
pub struct Appended<T> {
    /// Records, in order.
    pub records: Vec<T>,
    /// At least one line is damaged.
    pub damaged: bool,
    /// The file became shorter and was read from the start again.
    pub restarted: bool,
}

impl RecordTail {
    /// Follows a file. The first read covers at most its last `max_bytes` bytes, each later one at most `max_bytes` appended
    /// bytes.
    pub fn new(path: &Path, max_bytes: u64) -> Self {
        Self { path: path.to_path_buf(), max_bytes, offset: None }
    }

    /// Records appended since the last call; at first those at the end. Empty if the file is missing.
    pub fn read_new<T: DeserializeOwned>(&mut self) -> Appended<T> {
        let restarted = self.offset.is_some_and(|at| self.length().is_some_and(|length| length < at));
        if restarted {
            self.offset = None;
        }
        let (bytes, starts_within_line) = self.bytes().unwrap_or_default();
        let (complete, rest) = bytes.split_at(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        // A line whose beginning was skipped cannot be parsed.
        let lines = complete.split_inclusive(|&byte| byte == b'\n').skip(usize::from(starts_within_line));
        let (mut records, mut damaged) = (Vec::new(), read::is_line_with_damaged_end(rest));
        for line in lines {
            match read::parse_line(line) {
                Ok(record) => records.push(record),
                Err(_) => damaged = true,
            }
        }
        self.offset = self.offset.map(|at| at + complete.len() as u64);
        Appended { records, damaged, restarted }
    }

    fn length(&self) -> Option<u64> {
        Some(std::fs::metadata(&self.path).ok()?.len())
    }

    /// Unread bytes, at most `max_bytes`, and whether they begin within a line.
    fn bytes(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let mut file = file::open(&self.path)?;
        let length = file.metadata()?.len();
        let known = self.offset.unwrap_or_default();
        let start = known.max(length.saturating_sub(self.max_bytes));
        self.offset = Some(start);
        if start == length {
            return Ok((Vec::new(), false));
        }
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(self.max_bytes).read_to_end(&mut bytes)?;
        Ok((bytes, start > known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_appended_whole_lines_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory.jsonl");
        let mut tail = RecordTail::new(&path, 100);
        let mut news = || tail.read_new::<u64>();
        assert!(news().records.is_empty(), "there is no file yet");
        append(&path, "1\n2\n3");
        assert_eq!(news().records, [1, 2]);
        assert!(news().records.is_empty());
        append(&path, "4\n5\n");
        assert_eq!(news().records, [34, 5]);
        append(&path, "what\n6\n");
        let found = news();
        assert!(found.damaged && found.records == [6]);
    }

    #[test]
    fn only_the_end_of_a_long_file_is_read_and_a_shorter_file_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        (0..100).for_each(|number| append(&path, &format!("{}\n", 1000 + number)));
        let mut tail = RecordTail::new(&path, 22);
        assert_eq!(tail.read_new::<u64>().records, [1096, 1097, 1098, 1099]);
        std::fs::remove_file(&path).unwrap();
        append(&path, "7\n");
        let found = tail.read_new::<u64>();
        assert!(found.restarted && found.records == [7]);
    }
}
