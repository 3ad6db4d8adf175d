//! Steps of a command, from lines of its output or from a file of JSON lines that it appends to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use regex_lite::{Captures, Regex};
use serde_json::Value;

use super::output::Lines;
use super::progress_bar::ProgressBarParser;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::file;
use xrun_core::settings::step_pattern::{STEP, StepPattern};
use xrun_results::format::MetricsLine;
use xrun_verdict::table::STEP_COLUMNS;

/// Cap on the steps that wait to be written; those beyond it are dropped and counted.
const WAITING_MAX: usize = 1024;
/// Cap on the values of a step besides loss and learning rate.
pub const VALUES_MAX: usize = 32;
/// Cap on the bytes of a file that are read at once.
const READ_BYTES_MAX: u64 = 1 << 20;
const LOSS: &str = "loss";
const RATES: [&str; 2] = ["learning_rate", "lr"];

/// Buffer of the steps that wait to be written.
pub fn buffer() -> Buffer {
    let cap = Cap { items: WAITING_MAX as u64, bytes: (WAITING_MAX * VALUES_MAX * 64) as u64 };
    Buffer::new("steps_waiting", Policy::Refuse, cap)
        .because("steps between two writes; further ones are dropped and counted")
}

/// Values of a line that matches a pattern.
fn match_pattern(pattern: &StepPattern, line: &str) -> Option<StepValues> {
    let captures = pattern.expression().captures(line)?;
    let named = |name: &str| number(&captures, name);
    let names = pattern.expression().capture_names().flatten();
    let others = names.filter(|name| *name != STEP && *name != LOSS && !RATES.contains(name)).take(VALUES_MAX);
    Some(StepValues {
        step: step(named(STEP)?)?,
        loss: named(LOSS),
        learning_rate: RATES.iter().find_map(|name| named(name)),
        values: others.filter_map(|name| Some((name.to_owned(), named(name)?))).collect(),
    })
}

/// Finite number in a group of a match.
fn number(captures: &Captures<'_>, name: &str) -> Option<f64> {
    let text = captures.name(name)?.as_str();
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Number as a step; `None` outside of the range of steps.
fn step(value: f64) -> Option<u64> {
    (0.0..1e15).contains(&value).then_some(value as u64)
}

/// Values of a step, as reported in one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepValues {
    pub step: u64,
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
    pub values: BTreeMap<String, f64>,
}

static LOSS_OF: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:^|[\s,])(?:train_)?loss[=:]\s*(?<loss>[\d.eE+-]+)").ok());

/// Loss in the text after a progress bar.
pub fn loss_of(text: &str) -> Option<f64> {
    number(&LOSS_OF.as_ref()?.captures(text)?, LOSS)
}

/// Parser of steps in lines of output.
#[derive(Debug)]
pub enum StepParser {
    Pattern(StepPattern),
    ProgressBar(Mutex<ProgressBarParser>),
}

impl StepParser {
    /// Parser of progress bars.
    pub fn progress_bar() -> Self {
        Self::ProgressBar(Mutex::default())
    }

    fn parse(&self, line: &str) -> Option<StepValues> {
        match self {
            Self::Pattern(pattern) => match_pattern(pattern, line),
            Self::ProgressBar(parser) => parser.lock().unwrap_or_else(PoisonError::into_inner).parse(line),
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Pattern(_) => None,
            Self::ProgressBar(parser) => parser.lock().unwrap_or_else(PoisonError::into_inner).note(),
        }
    }
}

/// Counter of steps across epochs, where their numbers restart with each epoch.
#[derive(Clone, Copy, Debug, Default)]
struct StepCounter {
    /// Steps of the previous epochs.
    before: u64,
    /// Steps of all epochs so far.
    all: u64,
    /// Number that was read last; `None` before the first.
    newest: Option<u64>,
    /// 1 where the first step of this epoch has the number 0.
    shift: u64,
}

impl StepCounter {
    /// Number of a step since the start, from 1; `None` for one that was already counted. `is_completed` says that the
    /// number counts completed steps, as in progress bars, where 0 is no step.
    fn count(&mut self, step: u64, is_completed: bool) -> Option<u64> {
        let restarts = self.newest.is_none_or(|newest| step < newest);
        if restarts {
            self.before = self.all;
            self.shift = u64::from(step == 0 && !is_completed);
        }
        let is_new = if restarts { step + self.shift > 0 } else { self.newest.is_some_and(|newest| step > newest) };
        self.newest = Some(step);
        self.all = self.before + step + self.shift;
        is_new.then_some(self.all)
    }
}

/// Steps of a command, shared by the threads that read its output.
#[derive(Debug)]
pub struct Steps {
    parser: Option<StepParser>,
    newest: AtomicU64,
    /// Newest step with a loss.
    newest_with_loss: AtomicU64,
    lines: AtomicU64,
    /// Number of lines with a step.
    matched: AtomicU64,
    /// Number of metrics lines that were dropped.
    dropped: AtomicU64,
    counter: Mutex<StepCounter>,
    sender: SyncSender<MetricsLine>,
    /// Names of numbers that measure the result.
    metrics: BTreeSet<String>,
}

impl Steps {
    /// Steps without a line. The receiver gets the values of steps that have a loss or one of the metrics.
    pub fn new(parser: Option<StepParser>, metrics: BTreeSet<String>) -> (Self, Receiver<MetricsLine>) {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let steps = Self {
            parser,
            newest: AtomicU64::new(0),
            newest_with_loss: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            matched: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            counter: Mutex::default(),
            sender,
            metrics,
        };
        (steps, receiver)
    }

    /// Newest step; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.newest.load(Relaxed)
    }

    /// Number of lines so far, and of those with a step.
    pub fn lines(&self) -> (u64, u64) {
        (self.lines.load(Relaxed), self.matched.load(Relaxed))
    }

    /// Note on the progress bar that was recognised, for people.
    pub fn progress_bar_note(&self) -> Option<String> {
        self.parser.as_ref()?.note()
    }

    /// Number of metrics lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Reads a line of output.
    pub fn read_output(&self, line: &[u8]) {
        self.lines.fetch_add(1, Relaxed);
        let Some(parser) = &self.parser else { return };
        if let Some(values) = parser.parse(&String::from_utf8_lossy(line)) {
            self.add(values);
        }
    }

    /// Reads a JSON line of a file.
    fn read_json(&self, line: &[u8]) {
        self.lines.fetch_add(1, Relaxed);
        let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(line) else { return };
        let number = |name: &str| object.get(name).and_then(Value::as_f64);
        let Some(step) = STEP_COLUMNS.iter().find_map(|name| number(name)).and_then(step) else { return };
        let is_value = |name: &str| name != LOSS && !STEP_COLUMNS.contains(&name) && !RATES.contains(&name);
        let others = object.iter().filter(|(name, value)| value.is_number() && is_value(name)).take(VALUES_MAX);
        self.add(StepValues {
            step,
            loss: number(LOSS),
            learning_rate: RATES.iter().find_map(|name| number(name)),
            values: others.filter_map(|(name, value)| Some((truncated(name), value.as_f64()?))).collect(),
        });
    }

    /// Counts a step and sends its values.
    fn add(&self, values: StepValues) {
        self.matched.fetch_add(1, Relaxed);
        let is_completed = matches!(self.parser, Some(StepParser::ProgressBar(_)));
        let counted = self.counter.lock().unwrap_or_else(PoisonError::into_inner).count(values.step, is_completed);
        let step = match counted {
            Some(step) => self.newest.fetch_max(step, Relaxed).max(step),
            // A progress bar shows a step before its loss is logged.
            None if values.loss.is_some() || values.values.keys().any(|name| self.metrics.contains(name)) => {
                self.newest()
            }
            None => return,
        };
        self.send_values(step, values);
    }

    /// Sends the values of a step as lines of training and validation.
    fn send_values(&self, step: u64, mut values: StepValues) {
        let (metrics, others) = std::mem::take(&mut values.values)
            .into_iter()
            .partition::<BTreeMap<String, f64>, _>(|(name, _)| self.metrics.contains(name));
        self.send_train(step, &values, others);
        if !metrics.is_empty() {
            let metrics = metrics.into_iter().map(|(name, value)| (name, Some(value))).collect();
            self.send(MetricsLine::Validation { step, epoch: 0, metrics, intervals: BTreeMap::new() });
        }
    }

    /// Adds the scalars of a step of an event file, whose steps do not restart.
    pub fn add_scalars(&self, values: StepValues) {
        self.lines.fetch_add(1, Relaxed);
        self.matched.fetch_add(1, Relaxed);
        self.newest.fetch_max(values.step, Relaxed);
        self.send_values(values.step, values);
    }

    fn send_train(&self, step: u64, values: &StepValues, others: BTreeMap<String, f64>) {
        let is_new = || step > self.newest_with_loss.fetch_max(step, Relaxed);
        let Some(loss) = values.loss.filter(|_| is_new()) else { return };
        let line = MetricsLine::Train {
            step,
            epoch: 0,
            batch: STEP.to_owned(),
            loss,
            learning_rate: values.learning_rate,
            gradient_norm: None,
            gradient_norm_median: None,
            values: others,
        };
        self.send(line);
    }

    fn send(&self, line: MetricsLine) {
        if self.sender.try_send(line).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// First 64 characters of a name from a file.
fn truncated(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Reader of the lines that are appended to a file.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// Offset up to which it was read; earlier contents belong to another run.
    at: u64,
    lines: Lines,
}

impl Tail {
    /// Reader from the current end of the file on.
    pub fn new(path: &Path) -> Self {
        let at = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        Self { path: path.to_path_buf(), at, lines: Lines::default() }
    }

    /// Reads what was appended since; nothing where the file does not exist yet.
    pub fn read(&mut self, steps: &Steps) {
        let Ok(mut file) = file::open(&self.path) else { return };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length < self.at {
            // The file was truncated or replaced.
            (self.at, self.lines) = (0, Lines::default());
        }
        if length == self.at || file.seek(SeekFrom::Start(self.at)).is_err() {
            return;
        }
        let mut bytes = Vec::with_capacity((length - self.at).min(READ_BYTES_MAX) as usize);
        if let Ok(count) = file.take(READ_BYTES_MAX).read_to_end(&mut bytes) {
            self.at += count as u64;
            self.lines.add(&bytes, |line| steps.read_json(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_values_are_parsed_by_a_pattern() {
        let pattern =
            StepPattern::new(r"step[ =](?<step>[\d,]+).*loss[ =](?<loss>[\d.eE+-]+)(?: acc (?<acc>[\d.]+))?").unwrap();
        let (steps, numbers) = Steps::new(Some(StepParser::Pattern(pattern)), BTreeSet::new());
        for line in
            ["nothing", "step 1 loss 2.5", "step=1,200 loss=1e-1 acc 0.5", "step 1200 loss 3", "step x loss nan"]
        {
            steps.read_output(line.as_bytes());
        }
        assert_eq!((steps.newest(), steps.lines()), (1200, (5, 3)));
        let lines: Vec<MetricsLine> = numbers.try_iter().collect();
        assert_eq!(lines.len(), 2, "a step is written once: {lines:?}");
        assert!(matches!(&lines[1], MetricsLine::Train { loss, values, .. } if *loss == 0.1 && values["acc"] == 0.5));
    }

    #[test]
    fn steps_that_restart_with_each_epoch_are_counted_through() {
        let counted = |steps: &[u64], is_completed: bool| -> Vec<u64> {
            let mut counter = StepCounter::default();
            steps.iter().filter_map(|step| counter.count(*step, is_completed)).collect()
        };
        assert_eq!(counted(&[1, 2, 2, 3, 1, 2, 3], false), [1, 2, 3, 4, 5, 6]);
        // From 0, like `range`.
        assert_eq!(counted(&[0, 1, 2, 2, 0, 1, 2], false), [1, 2, 3, 4, 5, 6]);
        // A progress bar begins with 0 completed steps.
        assert_eq!(counted(&[0, 1, 2, 2, 3, 0, 1], true), [1, 2, 3, 4]);
        assert_eq!(counted(&[900, 901], false), [900, 901]);
    }

    #[test]
    fn a_pattern_prone_to_backtracking_is_fast() {
        let (steps, _numbers) =
            Steps::new(Some(StepParser::Pattern(StepPattern::new(r"(a+)+(?<step>\d)$").unwrap())), BTreeSet::new());
        let begun = std::time::Instant::now();
        steps.read_output(&vec![b'a'; 16 * 1024]);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        assert_eq!(steps.newest(), 0);
    }

    #[test]
    fn only_lines_appended_to_a_file_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
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
        assert_eq!(steps.newest(), 5, "the file was replaced");
    }
}
