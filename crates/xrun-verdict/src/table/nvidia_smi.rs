//! Repeated output of `nvidia-smi` and of `nvidia-smi -q`.

use std::path::Path;

use super::TraceError;
use super::grid::COLUMNS_MAX;
use super::rows::{Row, Rows};
use super::text::{FileHead, Lines, without_title};
use super::times::TimeParser;

/// Returns whether a file has such output.
pub fn recognizes(head: &FileHead) -> bool {
    let is_table = || {
        head.lines().any(|line| line.starts_with('|') && line.contains("NVIDIA-SMI"))
            && head.lines().any(|line| used(line).is_some())
    };
    head.lines().any(is_log) || is_table()
}

/// Returns whether a line begins the output of `nvidia-smi -q`.
fn is_log(line: &str) -> bool {
    line.starts_with("====") && line.contains("NVSMI LOG")
}

/// Memory in use on the second line of a GPU: `| N/A   30C    P0    55W / 400W |    700MiB / 40960MiB |`.
fn used(line: &str) -> Option<&str> {
    let cell = line.split('|').find(|cell| cell.contains("MiB /"))?;
    cell.split('/').next().map(str::trim)
}

/// Reader of blocks of output; a row for each GPU of each block.
pub struct NvidiaSmi {
    lines: Lines,
    names: Vec<String>,
    is_query: bool,
    time: String,
    gpu: String,
    /// Section of the query.
    section: String,
    /// Sizes of the GPU in the query: column and cell.
    sizes: Vec<(usize, String)>,
    ended: bool,
}

/// Column of the time, where the output has times, and that of the GPU.
const TIME: usize = 0;
const GPU: usize = 1;
const USED: usize = 2;

impl NvidiaSmi {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let is_query = head.lines().any(is_log);
        let has_times = head.lines().any(|line| time(line).is_some());
        let mut names = vec![if has_times { "time" } else { "no time" }.to_owned(), "gpu".to_owned()];
        if !is_query {
            names.push("memory.used [MiB]".to_owned());
        }
        Ok(Self {
            lines: Lines::open(path, head)?,
            names,
            is_query,
            time: String::new(),
            gpu: String::new(),
            section: String::new(),
            sizes: Vec::new(),
            ended: false,
        })
    }

    /// Writes the sizes of the GPU of the query; `false` where there are none.
    fn take(&mut self, row: &mut Row) -> bool {
        row.clear();
        row.line = self.lines.number;
        row.push(TIME, &self.time);
        row.push(GPU, &self.gpu);
        for (column, cell) in self.sizes.drain(..) {
            row.push(column, &cell);
        }
        row.len() > USED
    }

    /// Reads a line of a query; `true` where a row is complete.
    fn query_line(&mut self, line: &str, row: &mut Row) -> bool {
        let (key, value) = line.split_once(" : ").map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        let begins = is_log(line) || (key.starts_with("GPU ") && value.is_empty() && key.contains(':'));
        let done = begins && self.take(row);
        if let Some(gpu) = key.strip_prefix("GPU ").filter(|_| begins) {
            gpu.clone_into(&mut self.gpu);
        } else if let Some(time) = time(line) {
            time.clone_into(&mut self.time);
        } else if value.is_empty() {
            key.clone_into(&mut self.section);
        } else if self.section.contains("Memory") && value.ends_with("iB") {
            let name = format!("{} {key}", self.section);
            let column = self.names.iter().position(|found| *found == name);
            let column = column.or_else(|| {
                (self.names.len() < COLUMNS_MAX).then(|| {
                    self.names.push(name);
                    self.names.len() - 1
                })
            });
            self.sizes.extend(column.map(|column| (column, value.to_owned())));
        }
        done
    }
}

/// Time of a line: as `date` prints it, or of `Timestamp : …`.
fn time(line: &str) -> Option<&str> {
    let text = match line.split_once(" : ") {
        Some((key, value)) => Some(value.trim()).filter(|_| key.trim() == "Timestamp")?,
        None => without_title(line),
    };
    TimeParser::of("").is_date(text).then_some(text)
}

impl Rows for NvidiaSmi {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TraceError> {
        while !self.ended {
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else {
                self.ended = true;
                return Ok(self.is_query && self.take(row));
            };
            if self.is_query {
                if self.query_line(&line, row) {
                    return Ok(true);
                }
                continue;
            }
            if let Some(time) = time(&line) {
                time.clone_into(&mut self.time);
            } else if let Some(used) = used(&line) {
                row.clear();
                row.line = self.lines.number;
                row.push(TIME, &self.time);
                row.push(GPU, &self.gpu);
                row.push(USED, used);
                return Ok(true);
            } else {
                let first = line.trim_start_matches('|').split_whitespace().next();
                let index =
                    first.filter(|first| line.starts_with('|') && first.bytes().all(|byte| byte.is_ascii_digit()));
                if let Some(index) = index {
                    index.clone_into(&mut self.gpu);
                }
            }
        }
        Ok(false)
    }

    fn names(&self) -> &[String] {
        &self.names
    }
}
