//! Does any input from elsewhere make xrun panic, hang, take much memory, or say another number without a word?
//!
//! ```text
//! cargo run --release --no-default-features --example fuzz -- [--inputs N] [--seed S] [--minutes M] [--only TARGET]
//! ```
//! Each input is a pure function of (seed, target, number). A target is worked on by a process of its own, so that a stack
//! that overflows is a finding as any other; a finding is printed with the number that makes it again (`--from`).

#![expect(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used, reason = "a tool that prints a table")]

mod mutate;
mod samples;
mod targets;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use targets::{TARGETS, Target};

/// A hang.
const LONG: Duration = Duration::from_secs(20);
/// Much, for inputs of some kilobytes.
const HEAP_MAX: u64 = 1 << 30;
/// Targets at work at once.
const PROCESSES: usize = 2;

struct Options {
    inputs: u64,
    seed: u32,
    limit: Duration,
    only: Option<String>,
    from: u64,
    /// Of a worker: where it says what it is at.
    worker: Option<PathBuf>,
}

fn options() -> Options {
    let mut options =
        Options { inputs: 1_000_000, seed: 1, limit: Duration::from_secs(30 * 60), only: None, from: 0, worker: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{word} {value}: expected a number"));
        match word.as_str() {
            "--inputs" => options.inputs = number(),
            "--seed" => options.seed = number() as u32,
            "--minutes" => options.limit = Duration::from_secs(60 * number()),
            "--from" => options.from = number(),
            "--only" => options.only = Some(value),
            "--worker" => options.worker = Some(value.into()),
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

fn main() {
    let options = options();
    match &options.worker {
        Some(said) => work(&options, said),
        None => std::process::exit(conduct(&options)),
    }
}

/// What a worker writes down after each input, for whoever outlives it: eight numbers.
#[derive(Clone, Copy, Default)]
struct Progress {
    next: u64,
    accepted: u64,
    findings: u64,
    slowest_us: u64,
    heap: u64,
    /// 1 when all is done.
    done: u64,
}

impl Progress {
    fn write(&self, file: &File) {
        let numbers = [self.next, self.accepted, self.findings, self.slowest_us, self.heap, self.done];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0).unwrap();
    }

    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let at = |index: usize| {
            bytes.get(8 * index..8 * index + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        Self { next: at(0), accepted: at(1), findings: at(2), slowest_us: at(3), heap: at(4), done: at(5) }
    }
}

/// Goes through the inputs of one target.
fn work(options: &Options, said: &Path) {
    let target = TARGETS.iter().find(|target| Some(target.name) == options.only.as_deref()).expect("a target");
    let place = tempfile::tempdir_in(said.parent().unwrap()).unwrap();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(said).unwrap();
    let mut progress = Progress { next: options.from, ..Progress::read(said) };
    xrun::panics::keep();
    let mut run = (target.open)(place.path());
    let began = Instant::now();
    for number in options.from..options.inputs {
        if began.elapsed() > options.limit {
            break;
        }
        let mut random = xrun::data::seed::generator(options.seed, target.name, number);
        // Before the input: what it takes down with it is known by this number.
        (progress.next, progress.heap) = (number, progress.heap);
        progress.write(&file);
        xrun::memory::heap::take_high();
        let before = xrun::memory::heap::read().bytes;
        let (begun, answer) = (Instant::now(), xrun::panics::caught(|| run(&mut random)));
        let took = begun.elapsed();
        let heap = xrun::memory::heap::take_high().saturating_sub(before);
        progress.slowest_us = progress.slowest_us.max(took.as_micros() as u64);
        progress.heap = progress.heap.max(heap);
        let finding = match answer {
            Err(panic) => Some(format!("panic: {panic}")),
            Ok(Err(finding)) => Some(finding),
            Ok(Ok(accepted)) => {
                progress.accepted += u64::from(accepted);
                (heap > HEAP_MAX).then(|| format!("takes {heap} bytes"))
            }
        };
        if let Some(finding) = finding {
            progress.findings += 1;
            println!("FINDING {} --seed {} --from {number}: {finding}", target.name, options.seed);
            std::io::stdout().flush().unwrap();
        }
        progress.next = number + 1;
    }
    progress.done = 1;
    progress.write(&file);
}

struct Running {
    target: &'static Target,
    child: Child,
    said: PathBuf,
    /// The input it is at, and since when.
    at: (u64, Instant),
    begun: Instant,
    died: u64,
}

/// Works on all targets, a few at once; prints the table and answers with the exit code.
fn conduct(options: &Options) -> i32 {
    let place = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let chosen: Vec<&'static Target> =
        TARGETS.iter().filter(|target| options.only.as_deref().is_none_or(|only| only == target.name)).collect();
    let shares: u64 = chosen.iter().map(|target| target.share).sum();
    let each = |target: &Target| (options.inputs * target.share).div_ceil(shares) + options.from;
    let begun = Instant::now();
    let time = options.limit * PROCESSES as u32 / (chosen.len() as u32).max(PROCESSES as u32);
    let start = |target: &'static Target, from: u64, died: u64, began: Instant| {
        let said = place.path().join(target.name);
        let left = time.saturating_sub(began.elapsed()).as_secs().div_ceil(60).max(1);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--only", target.name, "--worker", said.to_str().unwrap()])
            .args(["--inputs", &each(target).to_string(), "--from", &from.to_string()])
            .args(["--seed", &options.seed.to_string(), "--minutes", &left.to_string()])
            .env("XRUN_CACHE", place.path().join("cache"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Running { target, child, said, at: (from, Instant::now()), begun: began, died }
    };
    println!(
        "| target | inputs | a second | accepted | findings | slowest | most heap |\n|---|---|---|---|---|---|---|"
    );
    let (mut waiting, mut running, mut findings, mut all) = (chosen.into_iter(), Vec::<Running>::new(), 0, 0);
    loop {
        while running.len() < PROCESSES
            && let Some(target) = waiting.next()
        {
            running.push(start(target, options.from, 0, Instant::now()));
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut still = Vec::with_capacity(PROCESSES);
        for mut one in running {
            let progress = Progress::read(&one.said);
            if progress.next != one.at.0 {
                one.at = (progress.next, Instant::now());
            }
            let hangs = one.at.1.elapsed() > LONG;
            if hangs {
                one.child.kill().unwrap();
                one.child.wait().unwrap();
            }
            match one.child.try_wait().unwrap() {
                None => still.push(one),
                Some(_) if progress.done == 1 => {
                    let (count, seconds) = (progress.next - options.from, one.begun.elapsed().as_secs_f64());
                    let found = progress.findings + one.died;
                    (findings, all) = (findings + found, all + count);
                    println!(
                        "| {} | {count} | {:.0} | {:.0} % | {found} | {:.0} ms | {:.1} MiB |",
                        one.target.name,
                        count as f64 / seconds,
                        100.0 * progress.accepted as f64 / count.max(1) as f64,
                        progress.slowest_us as f64 / 1000.0,
                        progress.heap as f64 / f64::from(1 << 20),
                    );
                }
                // Its process is gone: that input is a finding, and the next one follows.
                Some(status) => {
                    let what = if hangs { "hangs".to_owned() } else { format!("ends its process: {status}") };
                    println!("FINDING {} --seed {} --from {}: {what}", one.target.name, options.seed, progress.next);
                    still.push(start(one.target, progress.next + 1, one.died + 1, one.begun));
                }
            }
        }
        running = still;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{all} inputs in {seconds:.0} s, {:.0} a second, {findings} findings", all as f64 / seconds);
    i32::from(findings > 0)
}
