//! Progress of a run: bar, lines, JSON events or nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Progress;
use super::terminal::{self, Terminal};
use crate::plan::Plan;
use crate::report::formatting::number;
use crate::results::format::MemoryLine;
use crate::results::loss::{self, KindLoss};
use crate::results::timestamp;
use crate::results::verdict::OWNER_PREFIX;
use crate::run::observer::{Event, Observer};
use crate::task::Metric;
use crate::task::metric::PlannedMetric;
use crate::units::{Bytes, seconds};

/// Observer that shows progress in the format of `--progress`.
pub fn observer(format: Progress, terminal: Terminal) -> Box<dyn Observer> {
    let format = match format {
        Progress::Auto if terminal.quiet => Progress::None,
        Progress::Auto if terminal::stderr_is_terminal() => Progress::Bars,
        Progress::Auto => Progress::Plain,
        other => other,
    };
    match format {
        Progress::None => Box::new(crate::run::observer::Silent),
        Progress::Json => {
            Box::new(JsonProgress { terminal, start_time: Instant::now(), first_step: 0, last_batch: Instant::now() })
        }
        Progress::Bars => Box::new(TextProgress::new(terminal, true)),
        Progress::Plain | Progress::Auto => Box::new(TextProgress::new(terminal, false)),
    }
}

/// Shows that long work is in progress, until the spinner is dropped. Shows nothing with `--quiet` and without a terminal.
pub fn spinner(terminal: Terminal, what: &'static str) -> Option<Spinner> {
    if terminal.quiet || !terminal::stderr_is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5)).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {time}") {
        let time = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // A terminal that is gone shows nothing.
            let _ = text.write_str(&seconds(state.elapsed().as_secs_f64()));
        };
        bar.set_style(style.with_key("time", time));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(Spinner(bar))
}

/// Indicator of long work. Its line is cleared when it is dropped.
pub struct Spinner(ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Interval of the lines of progress without a bar.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shortest interval of JSON events on the batches of a validation.
const BATCH_EVERY: Duration = Duration::from_secs(1);

/// Progress as a bar or as lines.
struct TextProgress {
    terminal: Terminal,
    bar: Option<ProgressBar>,
    start_time: Instant,
    last_line: Instant,
    first_step: u64,
    steps: u64,
    epochs: u64,
    printed_line: bool,
    /// Moving average of the loss for each kind of step, in this process.
    losses: Vec<KindLoss>,
    /// Metrics of the plan, by which those of a validation are grouped.
    metrics: Vec<Metric>,
    /// Metric that selects the best checkpoint.
    best_by: Option<String>,
    /// Metrics of the last validation.
    validated: Vec<(String, Option<f64>)>,
}

impl TextProgress {
    fn new(terminal: Terminal, bars: bool) -> Self {
        let bar = bars.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            let width = bar_width(terminal::stderr_width());
            let template = format!("{{bar:{width}}} {{wide_msg}} {{prefix}}");
            // An invalid template would be a bug; the default bar is good enough then.
            let style = ProgressStyle::with_template(template.trim_start_matches("{bar:0} "))
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        let now = Instant::now();
        Self {
            terminal,
            bar,
            start_time: now,
            last_line: now,
            first_step: 0,
            steps: 0,
            epochs: 0,
            printed_line: false,
            losses: Vec::new(),
            metrics: Vec::new(),
            best_by: None,
            validated: Vec::new(),
        }
    }

    /// Prints a line, above the bar if there is one.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.terminal.info(text)),
            None => self.terminal.info(text),
        }
    }

    fn started(&mut self, plan: &Plan, device: &str, run: &std::path::Path, step: u64) {
        self.start_time = Instant::now();
        self.last_line = self.start_time;
        self.first_step = step;
        self.steps = plan.steps;
        self.epochs = plan.epochs();
        self.metrics.clone_from(&plan.facts.metrics);
        self.best_by = plan.best_by().map(|metric| metric.name.to_owned());
        let from = if step > 0 { format!(", from step {step}") } else { String::new() };
        self.line(&format!("{} on {device}: {}{from}", plan.experiment.experiment.name, plan.steps_text()));
        self.line(&format!("results: {}", run.display()));
        if let Some(bar) = &self.bar {
            bar.set_length(plan.steps);
            bar.set_position(step);
        }
    }

    /// Shows a step. `fields` are in order of importance; `left`: remaining seconds.
    fn step(&mut self, step: u64, fields: &[String], left: Option<f64>) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            let left = left_text(left, "");
            bar.set_message(join_fitting(fields, message_width(terminal::stderr_width(), &left)));
            bar.set_prefix(left);
            return;
        }
        // The step begins the line.
        let own = fields.iter().map(String::as_str).filter(|field| !field.starts_with(STEP));
        let message = own.collect::<Vec<_>>().join(" · ");
        if step == self.steps || !self.printed_line || self.last_line.elapsed() >= LINE_EVERY {
            self.printed_line = true;
            self.last_line = Instant::now();
            self.terminal.info(&format!("{STEP}{step}/{} · {message}{}", self.steps, left_text(left, " · ")));
        }
    }

    /// Shows how far a validation is; without a bar at intervals, so that a short one prints nothing.
    fn batch_validated(&mut self, step: u64, done: u64, all: u64, left: Option<f64>) {
        let text = format!("validating at step {step}: {done}/{all}");
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_prefix(left_text(left, ""));
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            self.terminal.info(&format!("{text}{}", left_text(left, " · ")));
        }
    }
}

impl Observer for TextProgress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { run, plan, device, step } => self.started(plan, device, run, step),
            Event::Step { step, epoch, report, memory, suspects, left, .. } => {
                loss::add(&mut self.losses, report.kind, report.loss, loss::averaging_window(Some(self.steps)));
                // Of this process, with validations and everything else between steps.
                let rate = (step - self.first_step) as f64 / self.start_time.elapsed().as_secs_f64().max(1e-9);
                // Most important first: fields that do not fit are omitted.
                let [heap, rss, device] = memory.map(memory_texts).unwrap_or_default();
                let fields = [
                    format!("epoch {epoch}/{}", self.epochs),
                    loss_text(&self.losses, report.kind),
                    rss,
                    suspect_text(suspects),
                    format!("{STEP}{step}/{}", self.steps),
                    format!("{rate:.1} steps/s overall"),
                    device,
                    heap,
                ];
                let fields: Vec<String> = fields.into_iter().filter(|field| !field.is_empty()).collect();
                self.step(step, &fields, left.filter(|_| step < self.steps));
            }
            // One line that stays, whatever fits into the bar.
            Event::Growing { step, verdict } => self.line(&format!("step {step}: {}", verdict.message)),
            Event::Rung { taken } => self.line(&format!("step {}: {}", taken.step, taken.message())),
            Event::Diverging { step, verdict } => {
                self.line(&format!("step {step}: {}: {}", verdict.verdict.words(), verdict.message));
            }
            Event::Validating { step, left } => match &self.bar {
                Some(bar) => {
                    bar.set_message(format!("validating at step {step} …"));
                    bar.set_prefix(left_text(left, ""));
                }
                None if self.terminal.verbose => self.terminal.info(&format!("validating at step {step}")),
                None => {}
            },
            Event::BatchValidated { step, done, all, left } => self.batch_validated(step, done, all, left),
            Event::Validated { step, metrics } => {
                let news = news(metrics, &self.validated, &self.metrics);
                let fields = metric_fields(&news, &self.metrics, self.best_by.as_deref());
                self.validated = metrics.to_vec();
                self.line(&format!("step {step}: validation · {}", fields.join(" · ")));
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

/// Remaining time behind a separator; empty while unknown.
fn left_text(left: Option<f64>, separator: &str) -> String {
    left.map_or_else(String::new, |left| format!("{separator}{} left", seconds(left)))
}

/// Columns of the bar in a terminal; 0 in a narrow one, where numbers say more.
fn bar_width(columns: usize) -> usize {
    match columns {
        ..100 => 0,
        100..140 => 16,
        _ => 24,
    }
}

/// Beginning of the field with the number of the step.
const STEP: &str = "step ";

/// Columns for the message between the bar and the remaining time.
fn message_width(columns: usize, left: &str) -> usize {
    let bar = match bar_width(columns) {
        0 => 0,
        width => width + 1,
    };
    columns.saturating_sub(bar + left.chars().count() + 1)
}

/// Joins the fields that fit into `width` characters as a whole; the first one is always included.
fn join_fitting(fields: &[String], width: usize) -> String {
    let mut text = String::new();
    for field in fields {
        let separator = if text.is_empty() { "" } else { " · " };
        let length = text.chars().count() + separator.chars().count() + field.chars().count();
        if text.is_empty() || length <= width {
            text.push_str(separator);
            text.push_str(field);
        }
    }
    text
}

/// Largest number of kinds of steps whose losses are shown together.
const KINDS_SHOWN_MAX: usize = 2;

/// Moving average of the loss: `loss 1.7241`, or `loss detection 1.7241, triplet 0.0282` if the kind of step alternates.
fn loss_text(losses: &[KindLoss], kind: &str) -> String {
    let with_kind = |loss: &KindLoss| format!("{} {:.4}", loss.kind, loss.last);
    match losses {
        [only] => format!("loss {:.4}", only.last),
        few if few.len() <= KINDS_SHOWN_MAX => {
            format!("loss {}", few.iter().map(with_kind).collect::<Vec<_>>().join(", "))
        }
        many => {
            let current = many.iter().find(|loss| loss.kind == kind);
            current.map_or_else(String::new, |loss| format!("loss {}", with_kind(loss)))
        }
    }
}

/// Metrics of a validation without baselines that are as they were in the one before.
fn news(
    metrics: &[(String, Option<f64>)],
    before: &[(String, Option<f64>)],
    planned: &[Metric],
) -> Vec<(String, Option<f64>)> {
    let is_baseline = |name: &str| planned.iter().any(|metric| metric.name == name && metric.direction.is_none());
    metrics.iter().filter(|metric| !(is_baseline(&metric.0) && before.contains(metric))).cloned().collect()
}

/// Fields of a validation such as `map50 0.4974`. Metrics of one family share a field: `perplexity full 1.01, 8 bit 1.01`.
fn metric_fields(metrics: &[(String, Option<f64>)], planned: &[Metric], best_by: Option<&str>) -> Vec<String> {
    let mut fields: Vec<(Option<&str>, String)> = Vec::new();
    // The metric that selects the best checkpoint comes first, then those of the plan, then unknown ones.
    let index = |name: &str| planned.iter().position(|metric| metric.name == name).unwrap_or(usize::MAX);
    let order = |name: &str| (best_by != Some(name), index(name));
    let mut sorted: Vec<(&str, f64)> =
        metrics.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?))).collect();
    sorted.sort_by_key(|(name, _)| order(name));
    for (name, value) in sorted {
        let metric = planned.iter().find(|metric| metric.name == name);
        let unit = metric.map_or("", |metric| PlannedMetric::percent(metric.unit));
        // A metric with a line name of its own is shown within its family.
        let family = metric.filter(|metric| metric.line != metric.name);
        let Some(family) = family else {
            fields.push((None, format!("{name} {value:.4}{unit}")));
            continue;
        };
        let entry = format!("{} {}{unit}", family.line, number(value));
        match fields.iter_mut().find(|(known, _)| *known == Some(family.family)) {
            Some((_, text)) => text.push_str(&format!(", {entry}")),
            None => fields.push((Some(family.family), format!("{} {entry}", family.family.to_lowercase()))),
        }
    }
    fields.into_iter().map(|(_, text)| text).collect()
}

/// Fields of a memory sample: heap, RSS, device; a field is empty where it is not measured.
fn memory_texts(line: &MemoryLine) -> [String; 3] {
    let device = line.device.map(|pool| format!("device {} of {}", Bytes(pool.in_use), Bytes(pool.reserved)));
    let rss = line.host.rss.map(|bytes| format!("RSS {}", Bytes(bytes)));
    [format!("heap {}", Bytes(line.host.heap)), rss.unwrap_or_default(), device.unwrap_or_default()]
}

/// Message about a series that seems to grow; preferably an owner, which is more specific than a total.
fn suspect_text(suspects: &[String]) -> String {
    let owner = suspects.iter().find_map(|name| name.strip_prefix(OWNER_PREFIX));
    match owner.or(suspects.first().map(String::as_str)) {
        Some(name) => format!("suspect: {name} may grow"),
        None => String::new(),
    }
}

/// Progress as one JSON object per event.
struct JsonProgress {
    terminal: Terminal,
    start_time: Instant,
    first_step: u64,
    /// Time of the last event on a batch of a validation.
    last_batch: Instant,
}

impl Observer for JsonProgress {
    fn event(&mut self, event: Event<'_>) {
        let seconds = self.start_time.elapsed().as_secs_f64();
        let value = match event {
            Event::Started { run, plan, device, step } => {
                (self.start_time, self.first_step) = (Instant::now(), step);
                serde_json::json!({
                    "event": "started", "time": now(), "run": run.display().to_string(), "device": device, "step": step,
                    "steps": plan.steps, "steps_per_epoch": plan.steps_per_epoch,
                })
            }
            Event::Step { step, epoch, report, learning_rate, norm, memory, suspects, left } => serde_json::json!({
                "event": "step", "time": now(), "seconds": seconds, "step": step, "epoch": epoch, "batch": report.kind,
                "loss": report.loss,
                "learning_rate": learning_rate,
                "gradient_norm_median": norm,
                "items": report.items,
                "steps_per_second_overall": (step - self.first_step) as f64 / seconds.max(1e-9),
                "seconds_left": left,
                "suspects": suspects,
                "heap": memory.map(|line| line.host.heap),
                "rss": memory.and_then(|line| line.host.rss),
                "device_in_use": memory.and_then(|line| line.device).map(|pool| pool.in_use),
            }),
            Event::Validating { step, left } => {
                self.last_batch = Instant::now();
                serde_json::json!({
                    "event": "validating", "time": now(), "seconds": seconds, "step": step, "seconds_left": left,
                })
            }
            Event::BatchValidated { .. } if self.last_batch.elapsed() < BATCH_EVERY => return,
            Event::BatchValidated { step, done, all, left } => {
                self.last_batch = Instant::now();
                serde_json::json!({
                    "event": "batch_validated", "time": now(), "seconds": seconds, "step": step, "done": done, "all": all,
                    "seconds_left": left,
                })
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
            Event::Growing { step, verdict } => serde_json::json!({
                "event": "growing", "time": now(), "seconds": seconds, "step": step, "verdict": verdict.verdict,
                "owner": verdict.owner, "message": verdict.message,
            }),
            Event::Rung { taken } => serde_json::json!({
                "event": "rung", "time": now(), "seconds": seconds, "step": taken.step, "rung": taken.rung,
                "level": taken.level, "bits": taken.bits, "climbed": taken.climbed, "gives": taken.gives,
                "message": taken.message(),
            }),
            Event::Diverging { step, verdict } => serde_json::json!({
                "event": "diverging", "time": now(), "seconds": seconds, "step": step, "message": verdict.message,
            }),
            Event::Ended { .. } => return,
        };
        self.terminal.event(&value);
    }
}

/// Current time in RFC 3339, UTC, with milliseconds.
fn now() -> String {
    timestamp::time().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipelines::{fewshot_detection, image_classification, qat_language_model};

    #[test]
    fn fields_that_do_not_fit_are_omitted_as_a_whole() {
        let fields = ["epoch 1/10", "loss 1.7", "5.1 steps/s", "heap 16 MiB"].map(str::to_owned);
        assert_eq!(join_fitting(&fields, 80), "epoch 1/10 · loss 1.7 · 5.1 steps/s · heap 16 MiB");
        assert_eq!(join_fitting(&fields, 37), "epoch 1/10 · loss 1.7 · 5.1 steps/s");
        assert_eq!(join_fitting(&fields, 0), "epoch 1/10");
        // A bar of 16, a space, the message, a space, the time.
        assert_eq!(message_width(100, "1 min 20 s left"), 100 - 16 - 1 - 1 - 15);
        assert_eq!(message_width(80, "9 s left"), 80 - 1 - 8);
    }

    #[test]
    fn the_loss_does_not_jump_from_kind_to_kind() {
        let mut losses = Vec::new();
        loss::add(&mut losses, "detection", 8.0, 5.0);
        assert_eq!(loss_text(&losses, "detection"), "loss 8.0000");
        loss::add(&mut losses, "triplet", 0.5, 5.0);
        let both = "loss detection 8.0000, triplet 0.5000";
        assert_eq!((loss_text(&losses, "detection"), loss_text(&losses, "triplet")), (both.into(), both.into()));
        loss::add(&mut losses, "other", 1.0, 5.0);
        assert_eq!(loss_text(&losses, "triplet"), "loss triplet 0.5000");
    }

    #[test]
    fn metrics_of_a_validation_are_grouped_by_family() {
        let value = |name: &str, value: f64| (name.to_owned(), Some(value));
        let widths = [value("f1_2_bit", 50.0), value("perplexity_2_bit", 2.5), value("perplexity_full", 2.25)];
        let all: Vec<_> = widths.into_iter().chain([value("perplexity", 2.375), ("f1_full".into(), None)]).collect();
        let fields = metric_fields(&all, qat_language_model::precision::METRICS, None);
        assert_eq!(fields, ["perplexity mean 2.375, full 2.25, 2 bit 2.5", "f1 2 bit 50 %"]);
        let detection = [value("map", 0.25), value("map50", 0.5), value("unknown", 1.0)];
        let fields = metric_fields(&detection, fewshot_detection::prepare::METRICS, Some("map50"));
        assert_eq!(fields, ["map50 0.5000", "map 0.2500", "unknown 1.0000"]);
        let classes = [value("accuracy", 0.5), value("largest_class", 0.25)];
        assert_eq!(news(&classes, &[], image_classification::prepare::METRICS), classes);
        assert_eq!(news(&classes, &classes, image_classification::prepare::METRICS), classes[..1]);
        let fields = metric_fields(&detection, fewshot_detection::prepare::METRICS, Some("map"));
        assert_eq!(fields, ["map 0.2500", "map50 0.5000", "unknown 1.0000"]);
    }
}
