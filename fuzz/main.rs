//! Fuzz test: finds inputs on which xrun panics, hangs, uses too much memory, or silently changes an answer.
//!
//! ```text
//! .ci/fuzz [--inputs N] [--seed S] [--minutes M] [--only TARGET] [--from NUMBER]
//! ```
//! Each input is a pure function of (seed, target, number). Each target runs in a separate process, so that a stack overflow is a
//! finding like any other. A finding is printed with the number that reproduces it (`--from`).

#![expect(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used, reason = "a tool that prints a table")]

mod image_text;
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

xrun::count_heap!();

/// Processor time, or time asleep, after which an input counts as a hang. Not wall-clock time, as the machine may be busy.
const HANG_AFTER: Duration = Duration::from_secs(20);
/// Interval between checks of the workers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Largest heap of an input of some kilobytes, in bytes.
const HEAP_MAX: u64 = 1 << 30;
/// Number of targets that run at once.
const WORKERS: usize = 2;

struct Options {
    inputs: u64,
    seed: u32,
    limit: Duration,
    only: Option<String>,
    from: u64,
    /// Progress file, in a worker process.
    worker: Option<PathBuf>,
}

fn options() -> Options {
    let mut options =
        Options { inputs: 1_000_000, seed: 1, limit: Duration::from_secs(30 * 60), only: None, from: 0, worker: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{option} needs a value"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{option} {value}: expected a number"));
        match option.as_str() {
            "--inputs" => options.inputs = number(),
            "--seed" => options.seed = number() as u32,
            "--minutes" => options.limit = Duration::from_secs(60 * number()),
            "--seconds" => options.limit = Duration::from_secs(number()),
            "--from" => options.from = number(),
            "--only" => options.only = Some(value),
            "--worker" => options.worker = Some(value.into()),
            _ => panic!("unknown option {option}"),
        }
    }
    options
}

fn main() {
    xrun::Program::new().built_in().register();
    let options = options();
    match &options.worker {
        Some(progress_path) => run_worker(&options, progress_path),
        None => std::process::exit(schedule(&options)),
    }
}

/// Progress of a worker, which it writes before each input so that the parent can continue after a crash.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Number of the current input.
    next: u64,
    accepted: u64,
    panics: u64,
    findings: u64,
    /// Largest processor time of an input.
    slowest_us: u64,
    /// Processor time of all inputs.
    total_us: u64,
    /// Largest heap of an input, in bytes.
    heap: u64,
    /// 1 after the last input.
    done: u64,
}

impl Progress {
    fn write(&self, file: &File) {
        let Self { next, accepted, panics, findings, slowest_us, total_us, heap, done } = *self;
        let numbers = [next, accepted, panics, findings, slowest_us, total_us, heap, done];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0).unwrap();
    }

    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let at = |index: usize| {
            bytes.get(8 * index..8 * index + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        let [next, accepted, panics, findings] = [at(0), at(1), at(2), at(3)];
        Self { next, accepted, panics, findings, slowest_us: at(4), total_us: at(5), heap: at(6), done: at(7) }
    }
}

/// Returns the processor time of this process, over all threads.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of another process, and `true` if it sleeps; from `/proc/PID/stat`, see proc(5).
fn cpu_time_of(process: u32) -> Option<(Duration, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // SAFETY: sysconf has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Some((Duration::from_millis(1000 * ticks / ticks_per_second), fields[0] == "S"))
}

/// Runs the inputs of one target, in a worker process.
fn run_worker(options: &Options, progress_path: &Path) {
    let target =
        TARGETS.iter().find(|target| Some(target.name) == options.only.as_deref()).expect("a worker has a target");
    let directory = tempfile::tempdir_in(progress_path.parent().unwrap()).unwrap();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(progress_path).unwrap();
    let mut progress = Progress { next: options.from, ..Progress::read(progress_path) };
    xrun::panics::install_hook();
    let mut run = (target.open)(directory.path());
    let started = Instant::now();
    for number in options.from..options.inputs {
        if started.elapsed() > options.limit {
            break;
        }
        let mut random = xrun::seed::generator(options.seed, target.name, number);
        // Written before the input, so that a crash is attributed to this number.
        progress.next = number;
        progress.write(&file);
        xrun::heap::take_peak();
        let before = xrun::heap::read().bytes;
        let (cpu_before, outcome) = (cpu_time(), xrun::panics::caught(|| run(&mut random)));
        let cpu = cpu_time().saturating_sub(cpu_before);
        let heap = xrun::heap::take_peak().saturating_sub(before);
        progress.slowest_us = progress.slowest_us.max(cpu.as_micros() as u64);
        progress.total_us += cpu.as_micros() as u64;
        progress.heap = progress.heap.max(heap);
        let finding = match outcome {
            Err(panic) => {
                progress.panics += 1;
                Some(format!("panic: {panic}"))
            }
            Ok(Err(finding)) => Some(finding),
            Ok(Ok(accepted)) => {
                progress.accepted += u64::from(accepted);
                (heap > HEAP_MAX).then(|| format!("uses {heap} bytes of heap"))
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

struct Worker {
    target: &'static Target,
    child: Child,
    progress_path: PathBuf,
    /// Number of the current input.
    input: u64,
    /// Processor time of the process before the input.
    cpu_before: Duration,
    /// Time asleep since the input began.
    asleep: Duration,
    /// Number of inputs that killed a worker of this target.
    deaths: u64,
}

/// Runs all targets, a few at once; prints the table and returns the exit code.
fn schedule(options: &Options) -> i32 {
    let directory = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let chosen: Vec<&'static Target> =
        TARGETS.iter().filter(|target| options.only.as_deref().is_none_or(|only| only == target.name)).collect();
    let total_weight: u64 = chosen.iter().map(|target| target.weight).sum();
    let inputs_of = |target: &Target| (options.inputs * target.weight).div_ceil(total_weight) + options.from;
    let started = Instant::now();
    let start = |target: &'static Target, from: u64, deaths: u64| {
        let progress_path = directory.path().join(target.name);
        let left = options.limit.saturating_sub(started.elapsed()).as_secs();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--only", target.name, "--worker", progress_path.to_str().unwrap()])
            .args(["--inputs", &inputs_of(target).to_string(), "--from", &from.to_string()])
            .args(["--seed", &options.seed.to_string(), "--seconds", &left.to_string()])
            .env("XRUN_CACHE", directory.path().join("cache"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Worker { target, child, progress_path, input: from, cpu_before: Duration::ZERO, asleep: Duration::ZERO, deaths }
    };
    println!(
        "| target | inputs | accepted | refused | panics | other findings | longest | total time | largest heap |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let (mut waiting, mut workers) = (chosen.into_iter(), Vec::<Worker>::new());
    let (mut findings, mut total_inputs, mut total_cpu) = (0, 0, Duration::ZERO);
    loop {
        while workers.len() < WORKERS
            && let Some(target) = waiting.next()
        {
            workers.push(start(target, options.from, 0));
        }
        if workers.is_empty() {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
        let mut remaining = Vec::with_capacity(WORKERS);
        for mut worker in workers {
            let progress = Progress::read(&worker.progress_path);
            let (cpu_time, sleeps) = cpu_time_of(worker.child.id()).unwrap_or_default();
            if progress.next != worker.input {
                (worker.input, worker.cpu_before, worker.asleep) = (progress.next, cpu_time, Duration::ZERO);
            }
            worker.asleep += if sleeps { POLL_INTERVAL } else { Duration::ZERO };
            let is_hanging = cpu_time.saturating_sub(worker.cpu_before).max(worker.asleep) > HANG_AFTER;
            if is_hanging {
                worker.child.kill().unwrap();
                worker.child.wait().unwrap();
            }
            match worker.child.try_wait().unwrap() {
                None => remaining.push(worker),
                Some(_) if progress.done == 1 => {
                    let count = progress.next - options.from;
                    let target_findings = progress.findings + worker.deaths;
                    let cpu = Duration::from_micros(progress.total_us);
                    (findings, total_inputs, total_cpu) =
                        (findings + target_findings, total_inputs + count, total_cpu + cpu);
                    println!(
                        "| {} | {count} | {} | {} | {} | {} | {:.1} ms | {:.0} s | {:.1} MiB |",
                        worker.target.name,
                        progress.accepted,
                        (count - progress.accepted).saturating_sub(target_findings),
                        progress.panics,
                        target_findings - progress.panics,
                        progress.slowest_us as f64 / 1000.0,
                        cpu.as_secs_f64(),
                        progress.heap as f64 / f64::from(1 << 20),
                    );
                }
                // The process died: the input is a finding, and a new worker continues with the next one.
                Some(status) => {
                    let what = if is_hanging { "hangs".to_owned() } else { format!("kills its process: {status}") };
                    println!("FINDING {} --seed {} --from {}: {what}", worker.target.name, options.seed, progress.next);
                    remaining.push(start(worker.target, progress.next + 1, worker.deaths + 1));
                }
            }
        }
        workers = remaining;
    }
    println!(
        "{total_inputs} inputs, seed {}, {findings} findings; {:.0} s of processor time, {:.0} s of wall time",
        options.seed,
        total_cpu.as_secs_f64(),
        started.elapsed().as_secs_f64()
    );
    i32::from(findings > 0)
}
