//! Does any input from elsewhere make xrun panic, hang, take much memory, or say another number without a word?
//!
//! ```text
//! .ci/fuzz [--inputs N] [--seed S] [--minutes M] [--only TARGET] [--from NUMBER]
//! ```
//! Each input is a pure function of (seed, target, number). A target is worked on by a process of its own, so that a stack
//! that overflows is a finding as any other; a finding is printed with the number that makes it again (`--from`).

#![expect(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used, reason = "a tool that prints a table")]

mod mutate;
mod picture_texts;
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

/// A hang: so long at work on one input, or asleep with it. Not by the clock, as others may keep the machine busy.
const LONG: Duration = Duration::from_secs(20);
/// Between two looks at the targets.
const LOOK: Duration = Duration::from_millis(20);
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
            "--seconds" => options.limit = Duration::from_secs(number()),
            "--from" => options.from = number(),
            "--only" => options.only = Some(value),
            "--worker" => options.worker = Some(value.into()),
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

fn main() {
    xrun::Program::new().built_in().register();
    let options = options();
    match &options.worker {
        Some(said) => work(&options, said),
        None => std::process::exit(conduct(&options)),
    }
}

/// What a worker writes down after each input, for whoever outlives it.
#[derive(Clone, Copy, Default)]
struct Progress {
    next: u64,
    accepted: u64,
    panics: u64,
    findings: u64,
    /// Of the processor.
    slowest_us: u64,
    all_us: u64,
    heap: u64,
    /// 1 when all is done.
    done: u64,
}

impl Progress {
    fn write(&self, file: &File) {
        let Self { next, accepted, panics, findings, slowest_us, all_us, heap, done } = *self;
        let numbers = [next, accepted, panics, findings, slowest_us, all_us, heap, done];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0).unwrap();
    }

    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let at = |index: usize| {
            bytes.get(8 * index..8 * index + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        let [next, accepted, panics, findings] = [at(0), at(1), at(2), at(3)];
        Self { next, accepted, panics, findings, slowest_us: at(4), all_us: at(5), heap: at(6), done: at(7) }
    }
}

/// The processor's time of this process, all its threads together.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The same of another process, and whether it sleeps; as proc(5) has it.
fn worked_by(process: u32) -> Option<(Duration, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // SAFETY: asks for a number.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Some((Duration::from_millis(1000 * ticks / a_second), fields[0] == "S"))
}

/// Goes through the inputs of one target.
fn work(options: &Options, said: &Path) {
    let target = TARGETS.iter().find(|target| Some(target.name) == options.only.as_deref()).expect("a target");
    let place = tempfile::tempdir_in(said.parent().unwrap()).unwrap();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(said).unwrap();
    let mut progress = Progress { next: options.from, ..Progress::read(said) };
    xrun::panics::install_hook();
    let mut run = (target.open)(place.path());
    let began = Instant::now();
    for number in options.from..options.inputs {
        if began.elapsed() > options.limit {
            break;
        }
        let mut random = xrun::seed::generator(options.seed, target.name, number);
        // Before the input: what it takes down with it is known by this number.
        (progress.next, progress.heap) = (number, progress.heap);
        progress.write(&file);
        xrun::heap::take_peak();
        let before = xrun::heap::read().bytes;
        let (begun, answer) = (worked(), xrun::panics::caught(|| run(&mut random)));
        let took = worked().saturating_sub(begun);
        let heap = xrun::heap::take_peak().saturating_sub(before);
        progress.slowest_us = progress.slowest_us.max(took.as_micros() as u64);
        progress.all_us += took.as_micros() as u64;
        progress.heap = progress.heap.max(heap);
        let finding = match answer {
            Err(panic) => {
                progress.panics += 1;
                Some(format!("panic: {panic}"))
            }
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
    /// The input it is at, the processor's time before it, and for how long it slept since.
    at: (u64, Duration, Duration),
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
    let start = |target: &'static Target, from: u64, died: u64, began: Instant| {
        let said = place.path().join(target.name);
        let left = options.limit.saturating_sub(begun.elapsed()).as_secs();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--only", target.name, "--worker", said.to_str().unwrap()])
            .args(["--inputs", &each(target).to_string(), "--from", &from.to_string()])
            .args(["--seed", &options.seed.to_string(), "--seconds", &left.to_string()])
            .env("XRUN_CACHE", place.path().join("cache"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Running { target, child, said, at: (from, Duration::ZERO, Duration::ZERO), begun: began, died }
    };
    println!(
        "| target | inputs | accepted | refused | panics | other findings | longest | at work | most heap |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let (mut waiting, mut running) = (chosen.into_iter(), Vec::<Running>::new());
    let (mut findings, mut all, mut at_work) = (0, 0, Duration::ZERO);
    loop {
        while running.len() < PROCESSES
            && let Some(target) = waiting.next()
        {
            running.push(start(target, options.from, 0, Instant::now()));
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(LOOK);
        let mut still = Vec::with_capacity(PROCESSES);
        for mut one in running {
            let progress = Progress::read(&one.said);
            let (worked, sleeps) = worked_by(one.child.id()).unwrap_or_default();
            if progress.next != one.at.0 {
                one.at = (progress.next, worked, Duration::ZERO);
            }
            one.at.2 += if sleeps { LOOK } else { Duration::ZERO };
            let hangs = worked.saturating_sub(one.at.1).max(one.at.2) > LONG;
            if hangs {
                one.child.kill().unwrap();
                one.child.wait().unwrap();
            }
            match one.child.try_wait().unwrap() {
                None => still.push(one),
                Some(_) if progress.done == 1 => {
                    let count = progress.next - options.from;
                    let found = progress.findings + one.died;
                    let took = Duration::from_micros(progress.all_us);
                    (findings, all, at_work) = (findings + found, all + count, at_work + took);
                    println!(
                        "| {} | {count} | {} | {} | {} | {} | {:.1} ms | {:.0} s | {:.1} MiB |",
                        one.target.name,
                        progress.accepted,
                        (count - progress.accepted).saturating_sub(found),
                        progress.panics,
                        found - progress.panics,
                        progress.slowest_us as f64 / 1000.0,
                        took.as_secs_f64(),
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
    println!(
        "{all} inputs, seed {}, {findings} findings; {:.0} s of the processor, {:.0} s by the clock",
        options.seed,
        at_work.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
    i32::from(findings > 0)
}
