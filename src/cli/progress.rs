//! How is progress shown? Bars, lines, JSON or nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Progress;
use super::terminal::{self, Terminal};
use crate::files::layout;
use crate::plan::Plan;
use crate::report::axes::number;
use crate::results::format::MemoryLine;
use crate::results::loss::{self, KindLoss};
use crate::results::timestamp;
use crate::results::verdict::OWNER_PREFIX;
use crate::run::observer::{Event, Observer};
use crate::task::Metric;
use crate::task::metric::PlannedMetric;
use crate::units::{Bytes, seconds};

/// The observer that the command line asks for.
pub fn observer(how: Progress, terminal: Terminal) -> Box<dyn Observer> {
    let how = match how {
        Progress::Auto if terminal.quiet => Progress::None,
        Progress::Auto if terminal::is_terminal() => Progress::Bars,
        Progress::Auto => Progress::Plain,
        asked => asked,
    };
    match how {
        Progress::None => Box::new(crate::run::observer::Silent),
        Progress::Json => Box::new(Json { terminal, begun: Instant::now(), first_step: 0 }),
        Progress::Bars => Box::new(People::new(terminal, true)),
        Progress::Plain | Progress::Auto => Box::new(People::new(terminal, false)),
    }
}

/// Says what is waited for and how long it has been, until it is dropped: on a terminal a line that moves, elsewhere a line
/// now and then. Nothing with `--quiet`.
pub fn waiting(terminal: Terminal, what: &'static str) -> Option<Waiting> {
    if terminal.quiet {
        return None;
    }
    if !terminal::is_terminal() {
        let begun = Instant::now();
        let say = move || terminal.say(&format!("{what}: {} so far", seconds(begun.elapsed().as_secs_f64())));
        return Some(Waiting { bar: None, _again: Again::every(WAITING_EVERY, say) });
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5)).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(Waiting { bar: Some(bar), _again: None })
}

/// Takes its line away when it is dropped.
pub struct Waiting {
    bar: Option<ProgressBar>,
    _again: Option<Again>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Does something again and again on a thread of its own, until it is dropped.
struct Again(#[expect(dead_code, reason = "its drop ends the thread")] std::sync::mpsc::SyncSender<()>);

impl Again {
    /// `None` without a thread for it: then nothing is said.
    fn every(period: Duration, mut work: impl FnMut() + Send + 'static) -> Option<Self> {
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
        let again = move || {
            // Until the other end is dropped.
            while ended.recv_timeout(period) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                work();
            }
        };
        std::thread::Builder::new().name("xrun waiting".into()).spawn(again).ok()?;
        Some(Self(end))
    }
}

/// As often it is said what is waited for, where nothing else is to be seen.
const WAITING_EVERY: Duration = Duration::from_secs(10);
/// A line is printed when this long has passed since the last one.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Bars or lines.
struct People {
    terminal: Terminal,
    bar: Option<ProgressBar>,
    begun: Instant,
    last_line: Instant,
    first_step: u64,
    steps: u64,
    epochs: u64,
    shown_any: bool,
    /// The loss of each kind of step of this process.
    losses: Vec<KindLoss>,
    /// Metrics of the plan, to group what a validation says.
    metrics: Vec<Metric>,
    /// The one that a checkpoint is best by.
    best_by: Option<String>,
}

impl People {
    fn new(terminal: Terminal, bars: bool) -> Self {
        let bar = bars.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            // A template with an error would be a bug: plain bars are good enough then.
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg} {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        let now = Instant::now();
        Self {
            terminal,
            bar,
            begun: now,
            last_line: now,
            first_step: 0,
            steps: 0,
            epochs: 0,
            shown_any: false,
            losses: Vec::new(),
            metrics: Vec::new(),
            best_by: None,
        }
    }

    /// A line that stays, above the bar if there is one.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.terminal.say(text)),
            None => self.terminal.say(text),
        }
    }

    fn started(&mut self, plan: &Plan, device: &str, run: &std::path::Path, step: u64) {
        self.begun = Instant::now();
        self.last_line = self.begun;
        self.first_step = step;
        self.steps = plan.steps;
        self.epochs = plan.epochs();
        self.metrics.clone_from(&plan.facts.metrics);
        self.best_by = plan.best_by().map(|metric| metric.name.to_owned());
        let from = if step > 0 { format!(", from step {step}") } else { String::new() };
        self.line(&format!("{} on {device}: {}{from}", plan.experiment.experiment.name, plan.steps_words()));
        self.line(&format!("results in {}", run.display()));
        if let Some(bar) = &self.bar {
            bar.set_length(plan.steps);
            bar.set_position(step);
            bar.reset_eta();
        }
    }

    fn step(&mut self, step: u64, fields: &[String]) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            bar.set_message(fitting(fields, room_beside_bar(self.steps)));
            return;
        }
        let message = fields.join(" · ");
        if step == self.steps || !self.shown_any || self.last_line.elapsed() >= LINE_EVERY {
            self.shown_any = true;
            self.last_line = Instant::now();
            let left = self.left(step).map_or_else(String::new, |left| format!(" · {left} left"));
            self.terminal.say(&format!("step {step}/{} · {message}{left}", self.steps));
        }
    }

    /// Of this process, with validations and all else that is between the steps.
    fn steps_per_second(&self, step: u64) -> f64 {
        (step - self.first_step) as f64 / self.begun.elapsed().as_secs_f64().max(1e-9)
    }

    fn left(&self, step: u64) -> Option<String> {
        let rate = self.steps_per_second(step);
        (rate > 0.0 && step < self.steps).then(|| seconds((self.steps - step) as f64 / rate))
    }
}

impl Observer for People {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { run, plan, device, step } => self.started(plan, device, run, step),
            Event::Step { step, epoch, report, memory, suspects, .. } => {
                loss::add(&mut self.losses, report.kind, report.loss, loss::averaged_over(Some(self.steps)));
                // The most important first: what does not fit is left out.
                let fields = [
                    format!("epoch {epoch}/{}", self.epochs),
                    loss_words(&self.losses, report.kind),
                    suspected(suspects),
                    format!("{:.1} steps/s overall", self.steps_per_second(step)),
                ];
                let fields = fields.into_iter().chain(memory.into_iter().flat_map(memory_words));
                let fields: Vec<String> = fields.filter(|field| !field.is_empty()).collect();
                self.step(step, &fields);
            }
            Event::Growing { .. } => {}
            Event::Validating { step } => match &self.bar {
                Some(bar) => bar.set_message(format!("validating at step {step} …")),
                None if self.terminal.verbose => self.terminal.say(&format!("validating at step {step}")),
                None => {}
            },
            Event::Validated { step, metrics } => {
                let fields = grouped(metrics, &self.metrics, self.best_by.as_deref());
                let width = if self.terminal.verbose { usize::MAX } else { terminal::error_width() };
                self.line(&validation_line(step, &fields, width));
            }
            Event::Saved { step, best } => {
                if self.terminal.verbose {
                    self.line(&format!("step {step}: checkpoint{}", if best { ", the best so far" } else { "" }));
                }
            }
            Event::Ended { .. } => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

/// Columns that the bar, the numbers beside it and the time that is left need.
fn room_beside_bar(steps: u64) -> usize {
    const BAR: usize = 24;
    // `12 min 05 s left`, and the spaces between.
    const LEFT: usize = 20;
    terminal::error_width().saturating_sub(BAR + LEFT + 2 * steps.to_string().len() + 3)
}

/// As many of the fields as have room as a whole; the first one is always there.
fn fitting(fields: &[String], room: usize) -> String {
    let mut text = String::new();
    for field in fields {
        let separator = if text.is_empty() { "" } else { " · " };
        let length = text.chars().count() + separator.chars().count() + field.chars().count();
        if text.is_empty() || length <= room {
            text.push_str(separator);
            text.push_str(field);
        }
    }
    text
}

/// More kinds of steps than this, and only that of this step is shown.
const KINDS_SHOWN: usize = 2;

/// `loss 1.7241`, or, where steps alternate, `loss detection 1.7241, triplet 0.0282`: moving averages, which do not jump
/// from kind to kind.
fn loss_words(losses: &[KindLoss], kind: &str) -> String {
    let of = |loss: &KindLoss| format!("{} {:.4}", loss.kind, loss.last);
    match losses {
        [only] => format!("loss {:.4}", only.last),
        few if few.len() <= KINDS_SHOWN => format!("loss {}", few.iter().map(of).collect::<Vec<_>>().join(", ")),
        many => {
            many.iter().find(|loss| loss.kind == kind).map_or_else(String::new, |loss| format!("loss {}", of(loss)))
        }
    }
}

/// `step 8: validation · map50 0.4974 · map 0.2500`. Of a line that is wider than the terminal only the first fields, as
/// what comes first matters most.
fn validation_line(step: u64, fields: &[String], width: usize) -> String {
    let begin = format!("step {step}: validation · ");
    let whole = fields.join(" · ");
    if fields.len() < 2 || begin.chars().count() + whole.chars().count() <= width {
        return begin + &whole;
    }
    let end = format!(" · all in {}", layout::METRICS);
    let room = width.saturating_sub(begin.chars().count() + end.chars().count());
    begin + &fitting(fields, room) + &end
}

/// `map50 0.4974`, and of a family with several lines one field: `Perplexity full 1.01, 8 bit 1.01`.
fn grouped(metrics: &[(String, Option<f64>)], planned: &[Metric], best_by: Option<&str>) -> Vec<String> {
    let mut fields: Vec<(Option<&str>, String)> = Vec::new();
    // What a checkpoint is best by comes first, the others in the order of the plan, and what it does not know last.
    let of_plan = |name: &str| planned.iter().position(|metric| metric.name == name).unwrap_or(usize::MAX);
    let place = |name: &str| (best_by != Some(name), of_plan(name));
    let mut sorted: Vec<(&str, f64)> =
        metrics.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?))).collect();
    sorted.sort_by_key(|(name, _)| place(name));
    for (name, value) in sorted {
        let metric = planned.iter().find(|metric| metric.name == name);
        let unit = metric.map_or("", |metric| PlannedMetric::percent(metric.unit));
        // A line with a name of its own is told within its family.
        let family = metric.filter(|metric| metric.line != metric.name);
        let Some(family) = family else {
            fields.push((None, format!("{name} {value:.4}{unit}")));
            continue;
        };
        let said = format!("{} {}{unit}", family.line, number(value));
        match fields.iter_mut().find(|(known, _)| *known == Some(family.family)) {
            Some((_, text)) => text.push_str(&format!(", {said}")),
            None => fields.push((Some(family.family), format!("{} {said}", family.family.to_lowercase()))),
        }
    }
    fields.into_iter().map(|(_, text)| text).collect()
}

/// What the newest sample says, the most important first.
fn memory_words(line: &MemoryLine) -> Vec<String> {
    let device = line.device.map(|pool| format!("device {} of {}", Bytes(pool.in_use), Bytes(pool.reserved)));
    let heap = format!("heap {}", Bytes(line.host.heap));
    let resident = line.host.resident.map(|bytes| format!("resident {}", Bytes(bytes)));
    std::iter::once(heap).chain(device).chain(resident).collect()
}

/// What looks as if it grew. The owner if there is one, as it says more than the total.
fn suspected(suspects: &[String]) -> String {
    let owner = suspects.iter().find_map(|name| name.strip_prefix(OWNER_PREFIX));
    match owner.or(suspects.first().map(String::as_str)) {
        Some(name) => format!("suspect: {name} may be growing"),
        None => String::new(),
    }
}

/// A line of JSON an event.
struct Json {
    terminal: Terminal,
    begun: Instant,
    first_step: u64,
}

impl Observer for Json {
    fn event(&mut self, event: Event<'_>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let value = match event {
            Event::Started { run, plan, device, step } => {
                (self.begun, self.first_step) = (Instant::now(), step);
                serde_json::json!({
                    "event": "started", "time": now(), "run": run.display().to_string(), "device": device, "step": step,
                    "steps": plan.steps, "steps_per_epoch": plan.steps_per_epoch,
                })
            }
            Event::Step { step, epoch, report, learning_rate, norm, memory, suspects } => serde_json::json!({
                "event": "step", "time": now(), "seconds": seconds, "step": step, "epoch": epoch, "batch": report.kind,
                "loss": report.loss,
                "learning_rate": learning_rate,
                "gradient_norm_median": norm,
                "items": report.items,
                "steps_per_second_overall": (step - self.first_step) as f64 / seconds.max(1e-9),
                "suspects": suspects,
                "heap": memory.map(|line| line.host.heap),
                "resident": memory.and_then(|line| line.host.resident),
                "device_in_use": memory.and_then(|line| line.device).map(|pool| pool.in_use),
            }),
            Event::Validating { step } => {
                serde_json::json!({ "event": "validating", "time": now(), "seconds": seconds, "step": step })
            }
            Event::Validated { step, metrics } => {
                let metrics: serde_json::Map<_, _> =
                    metrics.iter().map(|(name, value)| (name.clone(), serde_json::json!(value))).collect();
                serde_json::json!({
                    "event": "validated", "time": now(), "seconds": seconds, "step": step, "metrics": metrics,
                })
            }
            Event::Saved { step, best } => {
                serde_json::json!({ "event": "saved", "time": now(), "seconds": seconds, "step": step, "best": best })
            }
            Event::Growing { .. } | Event::Ended { .. } => return,
        };
        self.terminal.event(&value);
    }
}

/// RFC 3339, UTC, to the millisecond.
fn now() -> String {
    timestamp::time().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipelines::{fewshot_detection, qat_language_model};

    #[test]
    fn what_is_waited_for_is_said_again_until_the_wait_is_over() {
        let (tell, told) = std::sync::mpsc::sync_channel(64);
        let again = Again::every(Duration::from_millis(2), move || {
            let _ = tell.try_send(());
        });
        (0..3).for_each(|_| told.recv_timeout(Duration::from_secs(20)).unwrap());
        drop(again);
        // The thread ends, and what it says with goes with it.
        while told.recv_timeout(Duration::from_secs(20)).is_ok() {}
        assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn fields_that_do_not_fit_are_left_out_as_a_whole() {
        let fields = ["epoch 1/10", "loss 1.7", "5.1 steps/s", "heap 16 MiB"].map(str::to_owned);
        assert_eq!(fitting(&fields, 80), "epoch 1/10 · loss 1.7 · 5.1 steps/s · heap 16 MiB");
        assert_eq!(fitting(&fields, 37), "epoch 1/10 · loss 1.7 · 5.1 steps/s");
        assert_eq!(fitting(&fields, 0), "epoch 1/10");
    }

    #[test]
    fn the_loss_does_not_jump_from_kind_to_kind() {
        let mut losses = Vec::new();
        loss::add(&mut losses, "detection", 8.0, 5.0);
        assert_eq!(loss_words(&losses, "detection"), "loss 8.0000");
        loss::add(&mut losses, "triplet", 0.5, 5.0);
        let both = "loss detection 8.0000, triplet 0.5000";
        assert_eq!((loss_words(&losses, "detection"), loss_words(&losses, "triplet")), (both.into(), both.into()));
        loss::add(&mut losses, "other", 1.0, 5.0);
        assert_eq!(loss_words(&losses, "triplet"), "loss triplet 0.5000");
    }

    #[test]
    fn a_validation_is_told_family_by_family() {
        let value = |name: &str, value: f64| (name.to_owned(), Some(value));
        let widths = [value("f1_2_bit", 50.0), value("perplexity_2_bit", 2.5), value("perplexity_full", 2.25)];
        let all: Vec<_> = widths.into_iter().chain([value("perplexity", 2.375), ("f1_full".into(), None)]).collect();
        let told = grouped(&all, qat_language_model::precision::METRICS, None);
        assert_eq!(told, ["perplexity mean 2.375, full 2.25, 2 bit 2.5", "f1 2 bit 50 %"]);
        let detection = [value("map", 0.25), value("map50", 0.5), value("unknown", 1.0)];
        let told = grouped(&detection, fewshot_detection::prepare::METRICS, Some("map50"));
        assert_eq!(told, ["map50 0.5000", "map 0.2500", "unknown 1.0000"]);
        let told = grouped(&detection, fewshot_detection::prepare::METRICS, Some("map"));
        assert_eq!(told, ["map 0.2500", "map50 0.5000", "unknown 1.0000"]);
    }

    #[test]
    fn a_long_validation_is_cut_to_what_matters_most() {
        let fields = ["map50 0.5000", "map 0.2500", "recall 0.1000"].map(str::to_owned);
        let whole = "step 8: validation · map50 0.5000 · map 0.2500 · recall 0.1000";
        assert_eq!(validation_line(8, &fields, whole.chars().count()), whole);
        let shorter = validation_line(8, &fields, whole.chars().count() - 1);
        assert_eq!(shorter, "step 8: validation · map50 0.5000 · all in metrics.jsonl");
        assert_eq!(validation_line(8, &fields, 10), shorter, "what a checkpoint is best by is always told");
        assert_eq!(validation_line(8, &fields[..1], 10), "step 8: validation · map50 0.5000", "that is all");
    }
}
