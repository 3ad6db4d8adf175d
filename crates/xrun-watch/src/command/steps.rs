//! Steps of a command, from lines of its output or from a file of JSON lines that it appends to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use regex_lite::Captures;
use serde_json::Value;

use super::output::Lines;
use super::printed_phases::PrintedPhases;
use super::step_counter::{StepCounter, StepNumber};
use super::step_formats::{is_epoch, loss_rank, step_rank};
use super::step_source::{SourceNote, SourceSelector};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::file;
use xrun_core::settings::step_pattern::{STEP, StepPattern};
use xrun_results::format::MetricsLine;

/// Cap on the steps that wait to be written; those beyond it are dropped and counted.
const WAITING_MAX: usize = 1024;
/// Cap on the values of a step besides loss and learning rate.
const VALUES_MAX: usize = 32;
/// Cap on the bytes of a file that are read at once.
const READ_BYTES_MAX: u64 = 1 << 20;
const LOSS: &str = "loss";
const EPOCH: &str = "epoch";
/// Name of the source of steps that the command reports itself.
const REPORTED: &str = "`xrun.step`";
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
    let epoch = named(EPOCH).and_then(step);
    let names = pattern.expression().capture_names().flatten();
    let others = names.filter(|name| *name != STEP && *name != LOSS && !RATES.contains(name)).take(VALUES_MAX);
    Some(StepValues {
        number: StepNumber { step: step(named(STEP)?)?, epoch, ..StepNumber::default() },
        loss: number_or_nan(&captures, LOSS),
        learning_rate: RATES.iter().find_map(|name| named(name)),
        values: others.filter_map(|name| Some((name.to_owned(), named(name)?))).collect(),
        is_log: false,
    })
}

/// Finite number in a group of a match.
fn number(captures: &Captures<'_>, name: &str) -> Option<f64> {
    number_or_nan(captures, name).filter(|value| value.is_finite())
}

/// Number in a group of a match, finite or not.
fn number_or_nan(captures: &Captures<'_>, name: &str) -> Option<f64> {
    captures.name(name)?.as_str().replace(',', "").parse().ok()
}

/// Number as a step; `None` outside of the range of steps.
fn step(value: f64) -> Option<u64> {
    (0.0..1e15).contains(&value).then_some(value as u64)
}

/// Values of a step, as reported in one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepValues {
    pub number: StepNumber,
    /// Loss, finite or not.
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
    pub values: BTreeMap<String, f64>,
    /// True if the line belongs to the newest step, and begins none.
    pub is_log: bool,
}

/// Parser of steps in lines of output.
#[derive(Debug)]
pub enum StepParser {
    Pattern(StepPattern),
    /// Recognised bars and lines.
    Recognised(Mutex<SourceSelector>),
}

impl StepParser {
    /// Parser of the formats that are recognised.
    pub fn recognised() -> Self {
        Self::Recognised(Mutex::default())
    }

    /// Asks the source that is recognised; `None` for a pattern.
    fn ask<T>(&self, question: impl Fn(&SourceSelector) -> Option<T>) -> Option<T> {
        match self {
            Self::Pattern(_) => None,
            Self::Recognised(source) => question(&source.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Event of the steps of a command.
#[derive(Clone, Debug)]
pub enum StepEvent {
    Metrics(MetricsLine),
    /// The loss of this step is not a number.
    LossNotFinite(u64),
    /// The steps so far were not those of the training: they begin anew.
    Anew,
}

#[cfg(test)]
impl StepEvent {
    /// Metrics of the event.
    pub fn metrics(self) -> Option<MetricsLine> {
        match self {
            Self::Metrics(line) => Some(line),
            Self::LossNotFinite(_) | Self::Anew => None,
        }
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
    /// True if there was no room for [`StepEvent::Anew`].
    missed_anew: AtomicBool,
    /// True if the command reports its steps itself.
    is_reported: AtomicBool,
    /// True if the newest output does not end with a line break.
    within_line: AtomicBool,
    counter: Mutex<StepCounter>,
    phases: Mutex<PrintedPhases>,
    sender: SyncSender<StepEvent>,
    /// Names of numbers that measure the result.
    metrics: BTreeSet<String>,
}

impl Steps {
    /// Steps without a line. The receiver gets the values of steps that have a loss or one of the metrics.
    pub fn new(parser: Option<StepParser>, metrics: BTreeSet<String>) -> (Self, Receiver<StepEvent>) {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let steps = Self {
            parser,
            newest: AtomicU64::new(0),
            newest_with_loss: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            matched: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            missed_anew: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            within_line: AtomicBool::new(false),
            counter: Mutex::default(),
            phases: Mutex::default(),
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

    /// Note on the source of steps that was recognised, for people.
    pub fn source_note(&self) -> Option<SourceNote> {
        if self.is_reported.load(Relaxed) {
            return Some(SourceNote { name: REPORTED.to_owned(), total: None });
        }
        self.parser.as_ref()?.ask(SourceSelector::note)
    }

    /// Pattern that may find the steps where none was recognised.
    pub fn suggestion(&self) -> Option<String> {
        self.parser.as_ref()?.ask(|source| source.rising.pattern.clone())
    }

    /// Number of metrics lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Notes whether the newest output ends within a line.
    pub fn set_within_line(&self, within: bool) {
        self.within_line.store(within, Relaxed);
    }

    /// Returns whether the newest output ends within a line, as a bar does.
    pub fn is_within_line(&self) -> bool {
        self.within_line.load(Relaxed)
    }

    /// Reads a line of output.
    pub fn read_output(&self, line: &[u8]) {
        self.lines.fetch_add(1, Relaxed);
        let line = String::from_utf8_lossy(line);
        let is_step = match &self.parser {
            None => return,
            Some(_) if self.is_reported.load(Relaxed) => return,
            Some(StepParser::Pattern(pattern)) => {
                match_pattern(pattern, &line).map(|values| self.add(values)).is_some()
            }
            Some(StepParser::Recognised(source)) => {
                // Locked until the step is counted: two streams are read at the same time.
                let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                let found = source.read(&line);
                if found.as_ref().is_some_and(|found| found.is_anew) {
                    self.begin_anew();
                }
                found.map(|found| self.add(found.values)).is_some()
            }
        };
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).read(&line, is_step);
    }

    /// Phase in which memory grows by what the output shows, given the growth by the verdict.
    pub fn growing_phase(&self, growth: f64) -> Option<String> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).growing(growth)
    }

    /// Forgets the steps so far.
    fn begin_anew(&self) {
        *self.counter.lock().unwrap_or_else(PoisonError::into_inner) = StepCounter::default();
        self.newest.store(0, Relaxed);
        self.newest_with_loss.store(0, Relaxed);
        if self.sender.try_send(StepEvent::Anew).is_err() {
            self.missed_anew.store(true, Relaxed);
        }
    }

    /// Takes the events so far. Where too many waited, steps begin anew after them.
    pub fn take_events(&self, events: &Receiver<StepEvent>) -> Vec<StepEvent> {
        let missed = self.missed_anew.swap(false, Relaxed).then_some(StepEvent::Anew);
        events.try_iter().chain(missed).collect()
    }

    /// Reads a step that the command reports itself, in place of those that its output shows.
    pub fn read_report(&self, line: &[u8]) {
        if !self.is_reported.swap(true, Relaxed) && self.newest() > 0 {
            self.begin_anew();
        }
        self.read_json(line, false);
    }

    /// Reads a JSON line of a file. `starts_pass` says that its step does not follow those before.
    fn read_json(&self, line: &[u8], starts_pass: bool) {
        self.lines.fetch_add(1, Relaxed);
        let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(line) else { return };
        // OpenMMLab's validations have numbers of their own.
        let is_log = object.get("mode").and_then(Value::as_str).is_some_and(|mode| mode != "train");
        // Some write numbers as text.
        let as_number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        let ranked = |rank: fn(&str) -> Option<usize>| {
            let ranked = object.iter().filter_map(|(name, value)| Some((rank(name)?, as_number(value)?)));
            ranked.min_by_key(|(rank, _)| *rank).map(|(_, number)| number)
        };
        let Some(step) = ranked(step_rank).and_then(step) else { return };
        let epoch = object.iter().find(|(name, _)| is_epoch(name)).and_then(|(_, value)| value.as_u64());
        let is_value = |name: &str| name != LOSS && step_rank(name).is_none() && !RATES.contains(&name);
        let others = object.iter().filter(|(name, value)| value.is_number() && is_value(name)).take(VALUES_MAX);
        self.add(StepValues {
            number: StepNumber { step, epoch, starts_pass, ..StepNumber::default() },
            loss: ranked(loss_rank).filter(|_| !is_log),
            learning_rate: RATES.iter().find_map(|name| as_number(object.get(*name)?)),
            values: others.filter_map(|(name, value)| Some((truncated(name), value.as_f64()?))).collect(),
            is_log,
        });
    }

    /// Counts a step and sends its values.
    fn add(&self, mut values: StepValues) {
        self.matched.fetch_add(1, Relaxed);
        let count = || self.counter.lock().unwrap_or_else(PoisonError::into_inner).count(values.number);
        let step = match (!values.is_log).then(count).flatten() {
            Some(step) => self.newest.fetch_max(step, Relaxed).max(step),
            // A progress bar shows a step before its loss is logged.
            None if values.loss.is_some() || values.values.keys().any(|name| self.metrics.contains(name)) => {
                self.newest()
            }
            None => return,
        };
        let (metrics, others) = std::mem::take(&mut values.values)
            .into_iter()
            .partition::<BTreeMap<String, f64>, _>(|(name, _)| self.metrics.contains(name));
        self.send_train(step, &values, others);
        if !metrics.is_empty() {
            let metrics = metrics.into_iter().map(|(name, value)| (name, Some(value))).collect();
            self.send(StepEvent::Metrics(MetricsLine::Validation {
                step,
                epoch: 0,
                metrics,
                intervals: BTreeMap::new(),
            }));
        }
    }

    fn send_train(&self, step: u64, values: &StepValues, others: BTreeMap<String, f64>) {
        let is_new = || step > self.newest_with_loss.fetch_max(step, Relaxed);
        let Some(loss) = values.loss.filter(|_| is_new()) else { return };
        if !loss.is_finite() {
            // JSON has no such number.
            return self.send(StepEvent::LossNotFinite(step));
        }
        self.send(StepEvent::Metrics(MetricsLine::Train {
            step,
            epoch: 0,
            batch: STEP.to_owned(),
            loss,
            learning_rate: values.learning_rate,
            gradient_norm: None,
            gradient_norm_median: None,
            values: others,
        }));
    }

    fn send(&self, event: StepEvent) {
        if self.sender.try_send(event).is_err() {
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
        let Ok(length) = std::fs::metadata(&self.path).map(|metadata| metadata.len()) else { return };
        // The file was truncated or replaced.
        let mut starts_pass = length < self.at;
        if starts_pass {
            (self.at, self.lines) = (0, Lines::default());
        }
        let Some(mut file) = file::open(&self.path).ok().filter(|_| length > self.at) else { return };
        let mut bytes = Vec::with_capacity((length - self.at).min(READ_BYTES_MAX) as usize);
        let read = file.seek(SeekFrom::Start(self.at)).and_then(|_| file.take(READ_BYTES_MAX).read_to_end(&mut bytes));
        if read.is_ok() {
            self.at += bytes.len() as u64;
            self.lines.add(&bytes, |line| steps.read_json(line, std::mem::take(&mut starts_pass)));
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
        let lines: Vec<MetricsLine> = numbers.try_iter().filter_map(StepEvent::metrics).collect();
        assert_eq!(lines.len(), 2, "a step is written once: {lines:?}");
        assert!(matches!(&lines[1], MetricsLine::Train { loss, values, .. } if *loss == 0.1 && values["acc"] == 0.5));
    }

    #[test]
    fn a_loss_that_is_no_number_is_an_event_without_metrics() {
        let pattern = StepPattern::new(r"step (?<step>\d+) loss (?<loss>\S+)").unwrap();
        for parser in [StepParser::Pattern(pattern), StepParser::recognised()] {
            let (steps, events) = Steps::new(Some(parser), BTreeSet::new());
            (1..=4).for_each(|step| steps.read_output(format!("step {step} loss 0.{step}").as_bytes()));
            ["nan", "inf"].iter().zip(5..).for_each(|(loss, step)| {
                steps.read_output(format!("step {step} loss {loss}").as_bytes());
            });
            let not_finite = |event: StepEvent| match event {
                StepEvent::LossNotFinite(step) => Some(step),
                StepEvent::Metrics(_) | StepEvent::Anew => None,
            };
            let found: Vec<u64> = events.try_iter().filter_map(not_finite).collect();
            assert_eq!((found, steps.newest()), (vec![5, 6], 6));
        }
    }

    #[test]
    fn json_lines_of_trainers_are_read() {
        let (steps, numbers) = Steps::new(None, BTreeSet::from(["bbox_mAP".to_owned()]));
        for line in [
            // LLaMA-Factory.
            r#"{"current_steps": 5, "total_steps": 90, "loss": 1.5, "lr": 0.0001, "epoch": 0.02, "elapsed_time": "0:00:05"}"#,
            // OpenMMLab, whose validation has numbers of its own.
            r#"{"mode": "train", "epoch": 1, "iter": 10, "lr": 0.01, "loss_cls": 0.2, "loss": 0.75}"#,
            r#"{"mode": "val", "epoch": 1, "iter": 3, "bbox_mAP": 0.25}"#,
            // fairseq writes numbers as text, Detectron2 a total.
            r#"{"loss": "0.5", "num_updates": "20", "lr": "5e-06"}"#,
            r#"{"iteration": 39, "total_loss": 0.25, "loss_cls": 9.0}"#,
        ] {
            steps.read_json(line.as_bytes(), false);
        }
        let lines: Vec<MetricsLine> = numbers.try_iter().filter_map(StepEvent::metrics).collect();
        let found: Vec<(u64, f64)> = lines
            .iter()
            .map(|line| match line {
                MetricsLine::Train { step, loss, .. } => (*step, *loss),
                MetricsLine::Validation { step, metrics, .. } => (*step, metrics["bbox_mAP"].unwrap()),
            })
            .collect();
        assert_eq!(found, [(5, 1.5), (10, 0.75), (10, 0.25), (20, 0.5), (39, 0.25)]);
    }

    #[test]
    fn reported_steps_replace_those_of_the_output() {
        let (steps, numbers) = Steps::new(Some(StepParser::recognised()), BTreeSet::new());
        (100..120).for_each(|step| steps.read_output(format!("step {step} loss 0.5").as_bytes()));
        assert_eq!(steps.newest(), 119);
        steps.read_report(br#"{"step":1,"loss":0.25,"accuracy":0.5}"#);
        steps.read_output(b"step 120 loss 0.5");
        assert_eq!(steps.newest(), 1);
        let events = steps.take_events(&numbers);
        assert!(matches!(events[events.len() - 2], StepEvent::Anew));
        let last = events.into_iter().filter_map(StepEvent::metrics).next_back();
        assert!(matches!(last, Some(MetricsLine::Train { step: 1, values, .. }) if values["accuracy"] == 0.5));
        assert_eq!(steps.source_note().unwrap().name, REPORTED);
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
