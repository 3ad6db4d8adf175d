//! `xrun sweep FILE`: run an experiment once for each of many values, and compare.

use std::path::Path;
use std::time::{Duration, Instant};

use super::SweepArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::read_sweep::{self, Family};
use crate::results::format::Outcome;
use crate::results::layout;
use crate::run::stop::{StopSignal, exit_code};
use crate::sweep::conduct::{Conduct, Conducted, Event, Process, conduct};
use crate::sweep::launch::Local;
use crate::sweep::plan::{self, PlannedPoint};
use crate::sweep::points::{RunId, words};
use crate::sweep::record::Record;
use crate::sweep::{table, text};
use crate::units::seconds;

/// Of more runs than this, not every one gets a line.
const LINES_MAX: usize = 100;
const LINE_EVERY: Duration = Duration::from_secs(2);

pub fn run(arguments: &SweepArguments) -> Result<u8, Failure> {
    let terminal = Terminal { quiet: arguments.quiet, verbose: arguments.verbose };
    let (folder, record) = match (&arguments.resume, &arguments.file) {
        (Some(folder), _) => {
            // Through `latest` the folder would change when another sweep starts.
            let folder = std::fs::canonicalize(folder)
                .map_err(|error| Failure::Usage(format!("{}: {error}", folder.display())))?;
            Record::open(&folder).map_err(Failure::failed)?
        }
        (None, Some(file)) => {
            let family = read_sweep::read(file, &overrides(arguments), super::environment())?;
            let points = plan::plan(&family)?;
            if arguments.dry_run {
                list(&family, &points, arguments.json, terminal);
                return Ok(0);
            }
            let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let record = Record::new(&family, &points, command);
            let folder = record.create(&arguments.results.folder, &family).map_err(Failure::failed)?;
            (folder, record)
        }
        (None, None) => return Err(Failure::Usage("which file? xrun sweep FILE".into())),
    };
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let path = folder.path.as_path();
    terminal.say(&format!(
        "{}: {} points, {} runs, in {}",
        record.experiment,
        record.points.len(),
        record.order.len(),
        path.display()
    ));
    if arguments.jobs > 1 {
        terminal.say(&format!("{} runs share the machine: speeds are not those of one alone", arguments.jobs));
    }
    let how = Conduct { fail_fast: arguments.fail_fast, retry_failed: arguments.retry_failed };
    let mut launcher = Local::new(arguments.jobs.into()).map_err(Failure::failed)?;
    let mut lines = Lines::new(&record, terminal);
    let conducted = conduct(path, &record, how, &mut launcher, &stop, &mut |event| lines.event(event));
    let table = table::write(path, &record);
    let conducted = conducted.map_err(|error| Failure::Failed(format!("{error}; {}", how_to_go_on(path))))?;
    let table = table.map_err(Failure::failed)?;
    match arguments.json {
        true => terminal.json(&table),
        false if !arguments.quiet => terminal.answer(&text::text(&table)),
        false => {}
    }
    terminal.say(&format!("report: {}", path.join(layout::REPORT).display()));
    let finished = table.rows.iter().flat_map(|row| &row.runs).filter(|run| run.finished).count();
    match conducted {
        Conducted::Stopped { left } => {
            terminal.error(&format!("stopped by a signal: {left} of {} runs are not done", record.order.len()));
            terminal.say(&how_to_go_on(path));
            Ok(exit_code(Outcome::Interrupted))
        }
        Conducted::FailedFast { left } => {
            terminal.error(&format!("a run failed, and --fail-fast was given: {left} runs were not started"));
            terminal.say(&how_to_go_on(path));
            Ok(exit_code(Outcome::Failed))
        }
        Conducted::AllDone if finished < record.order.len() => {
            terminal.error(&format!("{} of {} runs did not finish", record.order.len() - finished, record.order.len()));
            Ok(exit_code(Outcome::Failed))
        }
        Conducted::AllDone => Ok(0),
    }
}

fn how_to_go_on(sweep: &Path) -> String {
    format!("to continue: xrun sweep --resume {}", sweep.display())
}

fn overrides(arguments: &SweepArguments) -> Vec<String> {
    let mut all = arguments.overrides.all();
    all.extend(arguments.name.iter().map(|name| format!("experiment.name={name:?}")));
    all.extend(arguments.mode.iter().map(|mode| format!("sweep.mode=\"{}\"", mode.word())));
    all.extend(arguments.samples.iter().map(|samples| format!("sweep.samples={samples}")));
    all.extend(arguments.repeats.iter().map(|repeats| format!("sweep.repeats={repeats}")));
    all
}

fn list(family: &Family, points: &[PlannedPoint], json: bool, terminal: Terminal) {
    let keys: Vec<&str> = family.axes.iter().map(|axis| axis.key.as_str()).collect();
    if json {
        let points: Vec<serde_json::Value> = points
            .iter()
            .enumerate()
            .map(|(at, point)| {
                serde_json::json!({
                    "point": at + 1, "values": point.values, "steps": point.steps, "buffer_bytes": point.buffer_bytes,
                })
            })
            .collect();
        terminal.json(&serde_json::json!({ "keys": keys, "repeats": family.sweep.repeats, "points": points }));
        return;
    }
    terminal.answer(&text::plan(&keys, points, family.sweep.repeats));
}

/// Says how it goes.
struct Lines<'a> {
    record: &'a Record,
    terminal: Terminal,
    begun: Instant,
    last: Option<Instant>,
    /// Ended since this process began.
    ended: usize,
    all: usize,
}

impl<'a> Lines<'a> {
    fn new(record: &'a Record, terminal: Terminal) -> Self {
        Self { record, terminal, begun: Instant::now(), last: None, ended: 0, all: record.order.len() }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Begins { done: 0, .. } => {}
            Event::Begins { left, done } => self.terminal.say(&format!("{done} runs are done, {left} are left")),
            Event::Waits { run } => {
                self.terminal.say(&format!("{run}: a process of before still works on it; waiting for it to stop"));
            }
            Event::Stops { running } => self.terminal.say(&format!("stopping: {running} runs write their checkpoints")),
            Event::Ended { run, process, left } => self.ended(run, process, left),
        }
    }

    fn ended(&mut self, run: RunId, process: &Process, left: usize) {
        self.ended += 1;
        let good = process.exit_code == Some(0);
        let due = self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY);
        if good && left > 0 && self.all > LINES_MAX && !due && !self.terminal.verbose {
            return;
        }
        self.last = Some(Instant::now());
        let how = match (process.exit_code, process.signal) {
            (Some(0), _) => format!("finished in {}", seconds(process.seconds)),
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "gone".into(),
        };
        let why = process.message.as_ref().filter(|_| !good).map_or_else(String::new, |why| format!(": {why}"));
        let time = self.begun.elapsed().as_secs_f64() / self.ended as f64 * left as f64;
        let time = if left > 0 { format!(" · about {} left", seconds(time)) } else { String::new() };
        let values = words(self.record.keys.iter().map(String::as_str), self.record.values(run.point).iter());
        self.terminal.say(&format!("{}/{} · {run} · {values} · {how}{why}{time}", self.all - left, self.all));
    }
}
