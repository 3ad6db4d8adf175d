//! What is new at the end of a file of lines, however long the file is?

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::read;
use xrun_core::files::file;

/// Follows a file of lines while somebody appends to it. Reads its end only.
#[derive(Clone, Debug)]
pub struct Tail {
    path: PathBuf,
    /// What is read at a time, in bytes; older lines are skipped.
    most: u64,
    /// Up to here all lines are known.
    at: Option<u64>,
}

/// Lines that were appended.
#[derive(Clone, Debug)]
pub struct News<T> {
    /// As many as were read, in their order.
    pub records: Vec<T>,
    /// A line is not what was written.
    pub damaged: bool,
    /// The file begins anew: it is shorter than it was.
    pub anew: bool,
}

impl<T> Default for News<T> {
    fn default() -> Self {
        Self { records: Vec::new(), damaged: false, anew: false }
    }
}

impl Tail {
    /// Reads at most the last `most` bytes, and later at most that many of what was appended.
    pub fn new(path: &Path, most: u64) -> Self {
        Self { path: path.to_path_buf(), most, at: None }
    }

    /// The records that were appended since the last call; at first those at the end. None where the file is missing.
    pub fn news<T: DeserializeOwned>(&mut self) -> News<T> {
        let anew = self.at.is_some_and(|at| self.length().is_some_and(|length| length < at));
        if anew {
            self.at = None;
        }
        let (bytes, cut) = self.bytes().unwrap_or_default();
        let (complete, rest) = bytes.split_at(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        // What begins in the middle of a line says nothing.
        let lines = complete.split_inclusive(|&byte| byte == b'\n').skip(usize::from(cut));
        let (mut records, mut damaged) = (Vec::new(), read::is_whole_but_for_its_end(rest));
        for line in lines {
            match read::parsed(line) {
                Ok(record) => records.push(record),
                Err(_) => damaged = true,
            }
        }
        self.at = self.at.map(|at| at + complete.len() as u64);
        News { records, damaged, anew }
    }

    fn length(&self) -> Option<u64> {
        Some(std::fs::metadata(&self.path).ok()?.len())
    }

    /// What was not read yet, as far as it is not too much, and whether that begins in the middle of a line.
    fn bytes(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let mut file = file::open(&self.path)?;
        let length = file.metadata()?.len();
        let known = self.at.unwrap_or_default();
        let start = known.max(length.saturating_sub(self.most));
        self.at = Some(start);
        if start == length {
            return Ok((Vec::new(), false));
        }
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(self.most).read_to_end(&mut bytes)?;
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
    fn only_what_was_appended_is_read_and_a_line_that_is_being_written_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.jsonl");
        let mut tail = Tail::new(&path, 100);
        let mut news = || tail.news::<u64>();
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
    fn of_a_long_file_only_the_end_is_read_and_a_shorter_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        (0..100).for_each(|number| append(&path, &format!("{}\n", 1000 + number)));
        let mut tail = Tail::new(&path, 22);
        assert_eq!(tail.news::<u64>().records, [1096, 1097, 1098, 1099]);
        std::fs::remove_file(&path).unwrap();
        append(&path, "7\n");
        let found = tail.news::<u64>();
        assert!(found.anew && found.records == [7]);
    }
}
