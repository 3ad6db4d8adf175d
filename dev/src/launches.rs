//! `dev launches`: the kernels of one step, from what the stand-in driver recorded of two runs (`STAND_IN_LAUNCHES`).

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use crate::Result;

/// Threads below which a kernel leaves most of a GPU idle: an H100 has 132 multiprocessors of 2,048 threads, and hides latency with some
/// of them.
const THREADS_MIN: u64 = 8192;
/// Elements of its largest buffer for each thread above which a kernel with so few threads is slow.
const LOOP_MAX: u64 = 256;
/// Kernels that the table lists.
const LISTED: usize = 10;

/// Arguments of `dev launches`.
#[derive(Debug, Args)]
pub struct LaunchesArguments {
    /// Record of a run.
    shorter: PathBuf,
    /// Record of the same run with one step more.
    longer: PathBuf,
    /// Kernel that may loop in few threads, by a part of its name.
    #[arg(long, value_name = "NAME")]
    allow: Vec<String>,
}

/// Launch of a kernel.
#[derive(Debug, Deserialize, PartialEq, Eq, Hash)]
struct Launch {
    kernel: String,
    grid: [u64; 3],
    block: [u64; 3],
    /// True if its code has a loop.
    loops: bool,
    /// Elements of each buffer, and the bytes of it that are read and written if the kernel passes over it once.
    buffers: Vec<[u64; 3]>,
}

impl Launch {
    fn threads(&self) -> u64 {
        self.grid.iter().chain(&self.block).product()
    }

    /// Elements of the largest buffer: those that the threads must pass over, if each element is used once.
    fn elements(&self) -> u64 {
        self.buffers.iter().map(|[elements, ..]| *elements).max().unwrap_or(0)
    }

    /// Elements of the largest buffer for each thread; 1 without a loop.
    fn length(&self) -> u64 {
        if self.loops { self.elements().div_ceil(self.threads()).max(1) } else { 1 }
    }

    fn loops_alone(&self) -> bool {
        self.threads() < THREADS_MIN && self.length() > LOOP_MAX
    }
}

/// Table of a step's kernels, and whether none of them loops over many elements in few threads.
///
/// # Errors
/// A record cannot be read, or the longer run has no launches more.
pub fn run(arguments: &LaunchesArguments) -> Result<(String, bool)> {
    let mut counts = HashMap::new();
    count(&arguments.longer, 1, &mut counts)?;
    count(&arguments.shorter, -1, &mut counts)?;
    // The buffers of a validation after the steps may have other lengths in the two runs, as allocations are rounded up, and
    // kernels of its own.
    let mut alike: HashMap<_, (i64, Vec<(Launch, u64)>)> = HashMap::new();
    for (launch, count) in counts {
        let (all, more) = alike.entry((launch.kernel.clone(), launch.grid, launch.block)).or_default();
        *all += count;
        more.extend(u64::try_from(count).ok().filter(|count| *count > 0).map(|count| (launch, count)));
    }
    let mut step = Vec::new();
    for (all, mut more) in alike.into_values() {
        let mut left = u64::try_from(all).unwrap_or(0);
        more.sort_by_key(|(launch, _)| std::cmp::Reverse(launch.elements()));
        for (launch, count) in more {
            let taken = left.min(count);
            left -= taken;
            step.extend((taken > 0).then_some((launch, taken)));
        }
    }
    if step.is_empty() {
        let [longer, shorter] = [&arguments.longer, &arguments.shorter].map(|record| record.display());
        return Err(format!("{longer} has no launch that {shorter} lacks").into());
    }
    step.sort_by_key(|(launch, count)| std::cmp::Reverse((launch.elements() * count, launch.kernel.clone())));
    let sum = |of: &dyn Fn(&Launch) -> u64| -> u64 { step.iter().map(|(launch, count)| of(launch) * count).sum() };
    let bytes =
        |at: usize| sum(&|launch| launch.buffers.iter().map(|buffer| buffer[at]).sum()) as f64 / f64::from(1 << 20);
    let unknown = sum(&|launch| u64::from(launch.buffers.is_empty()));
    let mut page = format!(
        "{} launches ({unknown} without sizes), {:.1} MiB read, {:.1} MiB written\n",
        sum(&|_| 1),
        bytes(1),
        bytes(2)
    );
    let line = |(launch, count): &(Launch, u64)| {
        format!(
            "{count:>7} {:>10} {:>8} {:>12}  {}\n",
            launch.threads(),
            launch.length(),
            launch.elements(),
            launch.kernel
        )
    };
    let _ = writeln!(page, "{:>7} {:>10} {:>8} {:>12}  kernel", "times", "threads", "loop", "elements");
    page.extend(step.iter().take(LISTED).map(line));
    let is_allowed = |launch: &Launch| arguments.allow.iter().any(|name| launch.kernel.contains(name.as_str()));
    let alone: Vec<_> = step.iter().filter(|(launch, _)| launch.loops_alone() && !is_allowed(launch)).collect();
    if !alone.is_empty() {
        let _ =
            writeln!(page, "with fewer than {THREADS_MIN} threads that loop over more than {LOOP_MAX} elements each:");
        page.extend(alone.iter().map(|launch| line(launch)));
    }
    Ok((page, alone.is_empty()))
}

/// Adds a number for each launch of a record.
fn count(record: &Path, each: i64, counts: &mut HashMap<Launch, i64>) -> Result<()> {
    let file = std::fs::File::open(record).map_err(|error| format!("{}: {error}", record.display()))?;
    for line in BufReader::new(file).lines() {
        let launch = serde_json::from_str(&line?).map_err(|error| format!("{}: {error}", record.display()))?;
        *counts.entry(launch).or_insert(0) += each;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_what_the_longer_run_has_more_and_a_long_loop_in_few_threads_fails() {
        let directory = tempfile::tempdir().unwrap();
        let launch = |kernel: &str, blocks: u64, loops: bool| {
            let buffers = "[[6291456,25165824,0],[768,0,3072]]";
            format!(
                "{{\"kernel\":\"{kernel}\",\"grid\":[{blocks},1,1],\"block\":[256,1,1],\"loops\":{loops},\"buffers\":{buffers}}}\n"
            )
        };
        let record = |name: &str, text: String| {
            let path = directory.path().join(name);
            xrun_core::files::write::replace(&path, text.as_bytes()).unwrap();
            path
        };
        let (scale, sums) = (launch("scale", 3, false), launch("column_sums", 3, true));
        let (wide, start) = (launch("row_sums", 32, true), launch("fill", 1, true));
        let shorter = record("shorter", [&*start, &scale].concat());
        let longer = record("longer", [&*scale, &start, &scale, &sums, &wide].concat());
        let run = |shorter: &PathBuf, longer: &PathBuf, allow: &[&str]| {
            let allow = allow.iter().map(|name| (*name).to_owned()).collect();
            run(&LaunchesArguments { shorter: shorter.clone(), longer: longer.clone(), allow })
        };
        let (page, is_fine) = run(&shorter, &longer, &[]).unwrap();
        assert!(!is_fine && page.starts_with("3 launches (0 without sizes), 72.0 MiB read"), "{page}");
        assert!(page.ends_with("1        768     8192      6291456  column_sums\n"), "{page}");
        assert!(run(&shorter, &longer, &["column"]).unwrap().1);
        assert!(run(&longer, &shorter, &[]).is_err());
    }
}
