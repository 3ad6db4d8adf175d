//! At which step is a command? From lines of its output, or from a file of JSON lines that it appends to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use regex_lite::{Captures, Regex};
use serde_json::Value;

use super::output::Lines;
use super::recognise::Recogniser;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::file;
use xrun_core::settings::step_pattern::{STEP, StepPattern};
use xrun_results::format::MetricsLine;
use xrun_verdict::table::STEP_NAMES;

/// Steps that wait to be written down. Where there are more at once, their numbers are left out and counted.
const WAITING_MAX: usize = 1024;
/// Of a step: its loss, its learning rate, and other numbers.
pub const VALUES_MAX: usize = 32;
/// More of a file is read with the next look.
const READ_BYTES_MAX: u64 = 1 << 20;
const LOSS: &str = "loss";
const RATES: [&str; 2] = ["learning_rate", "lr"];

/// What waits to be written down.
pub fn buffer() -> Buffer {
    let cap = Cap { items: WAITING_MAX as u64, bytes: (WAITING_MAX * VALUES_MAX * 64) as u64 };
    Buffer::new("steps_waiting", Policy::Refuse, cap)
        .because("steps of one look; more are counted, and their numbers left out")
}

/// What a pattern finds in a line.
fn find(pattern: &StepPattern, line: &str) -> Option<Found> {
    let captures = pattern.expression().captures(line)?;
    let named = |name: &str| number(&captures, name);
    let names = pattern.expression().capture_names().flatten();
    let others = names.filter(|name| *name != STEP && *name != LOSS && !RATES.contains(name)).take(VALUES_MAX);
    Some(Found {
        step: step(named(STEP)?)?,
        loss: named(LOSS),
        learning_rate: RATES.iter().find_map(|name| named(name)),
        values: others.filter_map(|name| Some((name.to_owned(), named(name)?))).collect(),
    })
}

fn number(captures: &Captures<'_>, name: &str) -> Option<f64> {
    let text = captures.name(name)?.as_str();
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

fn step(value: f64) -> Option<u64> {
    (0.0..1e15).contains(&value).then_some(value as u64)
}

/// What a line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub step: u64,
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
    pub values: BTreeMap<String, f64>,
}

static LOSS_OF: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:^|[\s,])(?:train_)?loss[=:]\s*(?<loss>[\d.eE+-]+)").ok());

/// The loss that stands behind a progress bar.
pub fn loss_of(text: &str) -> Option<f64> {
    number(&LOSS_OF.as_ref()?.captures(text)?, LOSS)
}

/// How steps are found in lines of output.
#[derive(Debug)]
pub enum Finder {
    Pattern(StepPattern),
    Recogniser(Mutex<Recogniser>),
}

impl Finder {
    /// Of progress bars.
    pub fn recogniser() -> Self {
        Self::Recogniser(Mutex::default())
    }

    fn find(&self, line: &str) -> Option<Found> {
        match self {
            Self::Pattern(pattern) => find(pattern, line),
            Self::Recogniser(known) => known.lock().unwrap_or_else(PoisonError::into_inner).find(line),
        }
    }

    fn words(&self) -> Option<String> {
        match self {
            Self::Pattern(_) => None,
            Self::Recogniser(known) => known.lock().unwrap_or_else(PoisonError::into_inner).words(),
        }
    }
}

/// Counts steps through, also where their numbers begin again with each epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// Steps of the epochs before, and those of this one so far with them.
    before: u64,
    all: u64,
    /// What was read last; `None` before the first.
    newest: Option<u64>,
    /// 1 where this epoch's first step has the number 0.
    shift: u64,
}

impl Counter {
    /// The number of a step since the start, from 1; `None` of one that was seen. `is_done` says that the number counts
    /// what is done, as bars do, so that 0 is no step.
    fn count(&mut self, step: u64, is_done: bool) -> Option<u64> {
        let begins = self.newest.is_none_or(|newest| step < newest);
        if begins {
            self.before = self.all;
            self.shift = u64::from(step == 0 && !is_done);
        }
        let is_new = if begins { step + self.shift > 0 } else { self.newest.is_some_and(|newest| step > newest) };
        self.newest = Some(step);
        self.all = self.before + step + self.shift;
        is_new.then_some(self.all)
    }
}

/// The steps of a command; threads that read its output share it.
#[derive(Debug)]
pub struct Steps {
    finder: Option<Finder>,
    newest: AtomicU64,
    /// The newest step with a loss.
    told: AtomicU64,
    lines: AtomicU64,
    matched: AtomicU64,
    left_out: AtomicU64,
    counter: Mutex<Counter>,
    numbers: SyncSender<MetricsLine>,
    /// Names of numbers that measure the result.
    metrics: BTreeSet<String>,
}

impl Steps {
    /// The other end gives the numbers of steps that have a loss, or one of the metrics.
    pub fn new(finder: Option<Finder>, metrics: BTreeSet<String>) -> (Self, Receiver<MetricsLine>) {
        let (numbers, received) = sync_channel(WAITING_MAX);
        let zero = || AtomicU64::new(0);
        let (newest, told, lines, matched, left_out) = (zero(), zero(), zero(), zero(), zero());
        (Self { finder, newest, told, lines, matched, left_out, counter: Mutex::default(), numbers, metrics }, received)
    }

    /// The newest step; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.newest.load(Relaxed)
    }

    /// Lines so far, and those that had a step.
    pub fn lines(&self) -> (u64, u64) {
        (self.lines.load(Relaxed), self.matched.load(Relaxed))
    }

    /// What was recognised without a pattern, for people.
    pub fn recognised(&self) -> Option<String> {
        self.finder.as_ref()?.words()
    }

    /// Steps whose numbers were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// A line of output.
    pub fn output(&self, line: &[u8]) {
        self.lines.fetch_add(1, Relaxed);
        let Some(finder) = &self.finder else { return };
        if let Some(found) = finder.find(&String::from_utf8_lossy(line)) {
            self.found(found);
        }
    }

    /// A line of a file.
    fn json(&self, line: &[u8]) {
        self.lines.fetch_add(1, Relaxed);
        let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(line) else { return };
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let Some(step) = STEP_NAMES.iter().find_map(|name| number(name)).and_then(step) else { return };
        let is_value = |name: &str| name != LOSS && !STEP_NAMES.contains(&name) && !RATES.contains(&name);
        let others = object.iter().filter(|(name, value)| value.is_number() && is_value(name)).take(VALUES_MAX);
        self.found(Found {
            step,
            loss: number(LOSS),
            learning_rate: RATES.iter().find_map(|name| number(name)),
            values: others.filter_map(|(name, value)| Some((short(name), value.as_f64()?))).collect(),
        });
    }

    fn found(&self, found: Found) {
        self.matched.fetch_add(1, Relaxed);
        let is_done = matches!(self.finder, Some(Finder::Recogniser(_)));
        let counted = self.counter.lock().unwrap_or_else(PoisonError::into_inner).count(found.step, is_done);
        let step = match counted {
            Some(step) => self.newest.fetch_max(step, Relaxed).max(step),
            // A bar shows a step before its loss is told.
            None if found.loss.is_some() || found.values.keys().any(|name| self.metrics.contains(name)) => {
                self.newest()
            }
            None => return,
        };
        self.hand_on(step, found);
    }

    fn hand_on(&self, step: u64, mut found: Found) {
        let (metrics, values) = std::mem::take(&mut found.values)
            .into_iter()
            .partition::<BTreeMap<String, f64>, _>(|(name, _)| self.metrics.contains(name));
        self.train(step, &found, values);
        if !metrics.is_empty() {
            let metrics = metrics.into_iter().map(|(name, value)| (name, Some(value))).collect();
            self.send(MetricsLine::Validation { step, epoch: 0, metrics, intervals: BTreeMap::new() });
        }
    }

    /// Scalars that were written for a step whose number needs no counting.
    pub fn scalars(&self, found: Found) {
        self.lines.fetch_add(1, Relaxed);
        self.matched.fetch_add(1, Relaxed);
        self.newest.fetch_max(found.step, Relaxed);
        self.hand_on(found.step, found);
    }

    fn train(&self, step: u64, found: &Found, values: BTreeMap<String, f64>) {
        let Some(loss) = found.loss.filter(|_| step > self.told.fetch_max(step, Relaxed)) else { return };
        let line = MetricsLine::Train {
            step,
            epoch: 0,
            batch: STEP.to_owned(),
            loss,
            learning_rate: found.learning_rate,
            gradient_norm: None,
            gradient_norm_median: None,
            values,
        };
        self.send(line);
    }

    fn send(&self, line: MetricsLine) {
        if self.numbers.try_send(line).is_err() {
            self.left_out.fetch_add(1, Relaxed);
        }
    }
}

/// A name from a file, no longer than a line of the results can hold.
fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Reads what is appended to a file, a piece at a time.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// Where it was read to; what was there before the start is another run's.
    at: u64,
    lines: Lines,
}

impl Tail {
    /// From the end of what is there now.
    pub fn new(path: &Path) -> Self {
        let at = std::fs::metadata(path).map_or(0, |found| found.len());
        Self { path: path.to_path_buf(), at, lines: Lines::default() }
    }

    /// Hands on what was appended since. A file that is not there yet has nothing.
    pub fn read(&mut self, steps: &Steps) {
        let Ok(mut file) = file::open(&self.path) else { return };
        let length = file.metadata().map_or(0, |found| found.len());
        if length < self.at {
            // It was written anew.
            (self.at, self.lines) = (0, Lines::default());
        }
        if length == self.at || file.seek(SeekFrom::Start(self.at)).is_err() {
            return;
        }
        let mut bytes = Vec::with_capacity((length - self.at).min(READ_BYTES_MAX) as usize);
        if let Ok(count) = file.take(READ_BYTES_MAX).read_to_end(&mut bytes) {
            self.at += count as u64;
            self.lines.add(&bytes, |line| steps.json(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_numbers_are_found_in_lines_of_all_sorts() {
        let pattern =
            StepPattern::new(r"step[ =](?<step>[\d,]+).*loss[ =](?<loss>[\d.eE+-]+)(?: acc (?<acc>[\d.]+))?").unwrap();
        let (steps, numbers) = Steps::new(Some(Finder::Pattern(pattern)), BTreeSet::new());
        for line in
            ["nothing", "step 1 loss 2.5", "step=1,200 loss=1e-1 acc 0.5", "step 1200 loss 3", "step x loss nan"]
        {
            steps.output(line.as_bytes());
        }
        assert_eq!((steps.newest(), steps.lines()), (1200, (5, 3)));
        let lines: Vec<MetricsLine> = numbers.try_iter().collect();
        assert_eq!(lines.len(), 2, "a step that was seen is not written again: {lines:?}");
        assert!(matches!(&lines[1], MetricsLine::Train { loss, values, .. } if *loss == 0.1 && values["acc"] == 0.5));
    }

    #[test]
    fn numbers_that_begin_again_with_each_epoch_are_counted_on() {
        let counted = |steps: &[u64], is_done: bool| -> Vec<u64> {
            let mut counter = Counter::default();
            steps.iter().filter_map(|step| counter.count(*step, is_done)).collect()
        };
        assert_eq!(counted(&[1, 2, 2, 3, 1, 2, 3], false), [1, 2, 3, 4, 5, 6]);
        // As `range` counts.
        assert_eq!(counted(&[0, 1, 2, 2, 0, 1, 2], false), [1, 2, 3, 4, 5, 6]);
        // A bar begins with what is not done yet.
        assert_eq!(counted(&[0, 1, 2, 2, 3, 0, 1], true), [1, 2, 3, 4]);
        assert_eq!(counted(&[900, 901], false), [900, 901]);
    }

    #[test]
    fn a_pattern_that_goes_back_elsewhere_takes_no_time() {
        let (steps, _numbers) =
            Steps::new(Some(Finder::Pattern(StepPattern::new(r"(a+)+(?<step>\d)$").unwrap())), BTreeSet::new());
        let begun = std::time::Instant::now();
        steps.output(&vec![b'a'; 16 * 1024]);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        assert_eq!(steps.newest(), 0);
    }

    #[test]
    fn only_what_is_appended_to_a_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        xrun_core::files::write::replace(&path, b"{\"step\": 900}\n").unwrap();
        let (steps, numbers) = Steps::new(None, BTreeSet::new());
        let mut tail = Tail::new(&path);
        tail.read(&steps);
        assert_eq!(steps.newest(), 0, "another run's");
        let text =
            "{\"step\": 900}\n{\"global_step\": 3, \"loss\": 0.5, \"note\": \"x\", \"acc\": 1}\nnonsense\n{\"step\": 4";
        xrun_core::files::write::replace(&path, text.as_bytes()).unwrap();
        tail.read(&steps);
        assert_eq!(steps.newest(), 3);
        xrun_core::files::write::replace(&path, format!("{text}}}\n").as_bytes()).unwrap();
        tail.read(&steps);
        assert_eq!((steps.newest(), numbers.try_iter().count()), (4, 1));
        xrun_core::files::write::replace(&path, b"{\"iter\": 1}\n").unwrap();
        tail.read(&steps);
        assert_eq!(steps.newest(), 5, "written anew");
    }
}
