//! Output of `xrun show`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::formatting::{epochs, number, percent, signed_percent, utc_time};
use super::result::{MetricResult, intervals_note};
use super::run_report::suggestion_effect;
use super::width::{columns_within, fold};
use crate::format::Summary;
use crate::read::{self, ReadError};
use crate::view::RunView;
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::task::metric::Direction;
use xrun_core::units::{Bytes, pluralize, seconds};

/// Maximum number of phases listed.
const PHASES_SHOWN: usize = 8;
/// Maximum number of buffers listed.
const BUFFERS_SHOWN: usize = 16;
/// Minimum size of a component of the forecast to be listed.
const PLANNED_SHOWN_MIN: u64 = 64 * 1024;
/// Maximum length of a value.
const LINE_CHARACTERS_MAX: usize = 400;

/// Text of about forty lines on a run, also a running, killed or damaged one, for a terminal of `width` characters.
/// Ends with a line break.
pub fn text(report: &RunView, width: Option<usize>) -> String {
    printable::lines(&describe(report, width))
}

/// Facts about a run as JSON. Unknown values are `null`.
pub fn json(report: &RunView) -> Result<Value, ReadError> {
    let metrics: serde_json::Map<String, Value> = (report.metrics().into_iter())
        .map(|metric| {
            let MetricResult { name, unit, direction, before, after, interval, best, .. } = metric;
            let best = best.map(|(value, step)| json!({ "value": value, "step": step }));
            let values = json!({
                "before": before, "after": after, "interval": interval, "best": best, "unit": unit, "direction": direction,
            });
            (name, values)
        })
        .collect();
    let losses: Vec<Value> = (report.losses().into_iter())
        .map(|loss| json!({ "kind": loss.kind, "steps": loss.steps, "first": loss.first, "last": loss.last }))
        .collect();
    let ending = report.final_summary();
    Ok(json!({
        "experiment": report.experiment_name(),
        "run": report.run,
        "path": report.path.display().to_string(),
        "state": report.state().label(),
        "message": report.message(),
        "exit_code": ending.map(|summary| summary.exit_code),
        "started": report.manifest().map(|manifest| &manifest.started),
        "resumed": report.manifest().map(|manifest| &manifest.resumed),
        "parent": report.manifest().and_then(|manifest| manifest.parent.as_ref()),
        "device": report.manifest().map(|manifest| &manifest.device),
        "lowered": report.manifest().map(|manifest| &manifest.lowered),
        "steps": report.steps(),
        "steps_planned": report.steps_planned(),
        "seconds": report.seconds(),
        "steps_per_second": ending.and_then(|summary| summary.steps_per_second),
        "items_per_second": ending.and_then(|summary| summary.items_per_second),
        "losses": losses,
        "metrics": metrics,
        "best": ending.and_then(|summary| summary.best.as_ref()),
        "training": report.training(),
        // Without a sample memory is unknown.
        "memory": Some(report.memory()).filter(|memory| memory.samples > 0),
        "plan_and_actual": ending.map(|summary| &summary.plan_and_actual),
        "post_mortem": report.post_mortem(),
        "allocations": read::allocations(&report.path)?,
        "explanation": report.explanation(),
        "buffers": report.buffers(),
        "phases": report.phases(),
        "counters": ending.map(|summary| &summary.counters),
        "checkpoints": report.checkpoints(),
        "resumable": report.resumable(),
        "damage": report.damage(),
        "line_damage": report.line_damage().collect::<Vec<_>>(),
    }))
}

/// Lines of `label  value` to append to [`text`].
pub fn labelled(lines: &[(&str, &str)], width: Option<usize>) -> String {
    let mut page = Page { width, ..Page::default() };
    lines.iter().for_each(|(label, value)| page.line(label, value));
    page.text
}

/// Lines of `label  value`, and tables.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) width: Option<usize>,
}

/// Maximum number of lowered settings listed.
const LOWERED_MAX: usize = 16;
/// Column at which values begin.
const INDENT: usize = 14;

/// Columns of tables that are left out in a narrow terminal, in this order.
const OPTIONAL_COLUMNS: &[&str] = &["longest", "policy", "unit", "best", "of cap", "of total", "direction"];

impl Page {
    pub(super) fn line(&mut self, label: &str, value: &str) {
        let value = printable::line(value, LINE_CHARACTERS_MAX);
        let gap = if label.len() < INDENT { "" } else { "  " };
        let line = format!("{label:<INDENT$}{gap}{value}");
        let _ = writeln!(self.text, "{}", fold(line.trim_end(), self.width, INDENT));
    }

    /// Adds a table. A column whose title begins with `>` is aligned to the right.
    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.text.push('\n');
        self.text.push_str(&columns_within(header, rows, self.width, OPTIONAL_COLUMNS));
    }
}

fn describe(report: &RunView, width: Option<usize>) -> String {
    let mut page = Page { width, ..Page::default() };
    page.line("experiment", report.experiment_name());
    if let Some(manifest) = report.manifest()
        && !manifest.description.is_empty()
    {
        page.line("", manifest.description.lines().next().unwrap_or(""));
    }
    page.line("run", &report.path.display().to_string());
    page.line("outcome", &format!("{}: {}", report.state().label(), report.message()));
    if let Some(verdict) = report.verdict() {
        page.line("verdict", &format!("{}: {}", verdict.verdict.words(), verdict.message));
    }
    if let Some(message) = read::allocations(&report.path).ok().flatten().and_then(|record| record.message()) {
        page.line("allocated in", &message);
    }
    if let Some(explanation) = report.explanation() {
        page.line("explanation", &explanation.message);
    }
    if let Some(training) = report.training() {
        page.line("training", &format!("{}: {}", training.verdict.words(), training.message));
    }
    if let Some(result) = report.result_line() {
        page.line("result", &result);
    }
    if let Some(manifest) = report.manifest() {
        let device = &manifest.device;
        let because = if device.because.is_empty() { String::new() } else { format!(" ({})", device.because) };
        page.line("device", &format!("{}: {}{because}", device.chosen, device.name));
        let resumed = match manifest.resumed.len() {
            0 => String::new(),
            1 => format!(", resumed {}", utc_time(&manifest.resumed[0])),
            times => format!(", resumed {times} times"),
        };
        page.line("started", &format!("{}{resumed}", utc_time(&manifest.started)));
        if let Some(parent) = &manifest.parent {
            let changed = if parent.changed.is_empty() {
                String::new()
            } else {
                format!("; changed: {}", parent.changed.join(", "))
            };
            page.line("fork of", &format!("{parent}{changed}"));
        }
        manifest.lowered.iter().take(LOWERED_MAX).for_each(|lowered| page.line("lowered", &lowered.to_string()));
    }
    progress(report, &mut page);
    results(report, &mut page);
    memory(report, &mut page);
    if let Some(watched) = report.watched() {
        page.line("steps from", watched.step_source.as_deref().unwrap_or("none (judged by the clock)"));
        if !watched.not_measured.is_empty() {
            page.line("not measured", &watched.not_measured.join("; "));
        }
    }
    if let Some(post_mortem) = report.post_mortem() {
        page.line("post-mortem", &post_mortem.message);
        if let Some(growth) = &post_mortem.growth {
            page.line("", &growth.message);
        }
        page.line("", &format!("outside all buffers: {}", Bytes(post_mortem.unattributed)));
        for suggestion in &post_mortem.suggestions {
            page.line(
                "",
                &format!("-s {}={} {}", suggestion.key, suggestion.value, suggestion_effect(post_mortem, suggestion)),
            );
        }
    }
    memory_by_epoch(report, &mut page);
    memory_by_stage(report, &mut page);
    planned(report, &mut page);
    buffers(report, &mut page);
    phases(report, &mut page);
    page.text.push('\n');
    files(report, &mut page);
    for damage in report.damage() {
        page.line("damaged", damage);
    }
    page.text
}

/// Checkpoints, path of the page, and the command that resumes the run.
pub(super) fn files(report: &RunView, page: &mut Page) {
    let steps = report.checkpoints().iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let checkpoints = match report.checkpoints().len() {
        0 if report.watched().is_some() => String::new(),
        0 => "none".into(),
        1 => format!("after step {steps}"),
        _ => format!("after steps {steps}"),
    };
    if !checkpoints.is_empty() {
        page.line("checkpoints", &checkpoints);
    }
    if let count @ 1.. = read::damaged_checkpoints(&report.path) {
        let (checkpoints, name) = (pluralize(count, "damaged checkpoint"), layout::DAMAGED);
        page.line("set aside", &format!("{checkpoints}, `{}/{name}*`; remove when of no use", layout::CHECKPOINTS));
    }
    let page_path = report.path.join(layout::REPORT);
    let written = if page_path.is_file() {
        String::new()
    } else {
        format!(" (not written yet; `{} export --to report` writes it)", invocation::program())
    };
    page.line("report", &format!("{}{written}", page_path.display()));
    if report.resumable() {
        let begins = if report.checkpoints().is_empty() { " (no checkpoint: starts again)" } else { "" };
        page.line("resume", &format!("{} resume {}{begins}", invocation::program(), report.name()));
    }
}

/// Memory by epoch or, without a trace, the path of `memory_epochs.csv`.
fn memory_by_epoch(report: &RunView, page: &mut Page) {
    let path = report.path.join(layout::MEMORY_EPOCHS);
    if !report.path.join(layout::MEMORY).is_file() {
        let instead = match path.is_file() {
            true => format!("; memory by epoch: {}", path.display()),
            false => String::new(),
        };
        page.line("trace", &format!("no {}{instead}", layout::MEMORY));
        return;
    }
    let table = super::epochs::table(report, page.width);
    if !table.is_empty() {
        page.text.push('\n');
        page.text.push_str(&table);
    }
}

/// Memory by stage of the training, if the pipeline has stages.
fn memory_by_stage(report: &RunView, page: &mut Page) {
    let stages = report.stages().map(|stages| stages.text()).unwrap_or_default();
    if !stages.is_empty() {
        page.text.push('\n');
        page.text.push_str(&stages);
    }
}

pub(super) fn progress(report: &RunView, page: &mut Page) {
    let ending = report.final_summary();
    let planned = report.steps_planned().filter(|planned| *planned > 0);
    let planned = planned.map_or(String::new(), |planned| format!(" of {planned}"));
    // The epochs of a watched command are unknown.
    let length = ending.filter(|_| report.watched().is_none());
    let length = length.map_or(String::new(), |summary| format!(", {}", epochs(summary.epochs)));
    match report.steps() {
        None | Some(0) if report.watched().is_some() => {}
        steps => page.line("steps", &format!("{}{planned}{length}", steps.unwrap_or(0))),
    }
    // Without validations and everything else between steps.
    let rate = |what: &str, rate: Option<f64>| rate.map(|rate| format!("{} {what}/s", number(rate)));
    let rates = |summary: &Summary| [rate("steps", summary.steps_per_second), rate("items", summary.items_per_second)];
    let rates: Vec<String> = ending.map(rates).into_iter().flatten().flatten().collect();
    let speed = if rates.is_empty() { String::new() } else { format!("; training alone {}", rates.join(", ")) };
    let suffix = if speed.is_empty() { "" } else { report.last_process_suffix() };
    page.line("time", &format!("{}{speed}{suffix}", seconds(report.seconds())));
}

fn results(report: &RunView, page: &mut Page) {
    let losses = report.losses();
    for (at, loss) in losses.iter().enumerate() {
        let kind = if losses.len() > 1 { format!("{}: ", loss.kind) } else { String::new() };
        let steps = if losses.len() > 1 { format!(" in {} steps", loss.steps) } else { String::new() };
        let text = format!("{kind}{} -> {}{steps}", number(loss.first), number(loss.last));
        page.line(if at == 0 { "loss" } else { "" }, &text);
    }
    if !losses.is_empty() {
        let over = number(report.curves().averaging_window);
        page.line("", &format!("first step -> moving average over {over} steps of the kind"));
    }
    let metrics = report.metrics();
    let rows: Vec<Vec<String>> = (metrics.iter())
        .map(|metric| {
            let shown = |value: Option<f64>| value.map_or("-".into(), |value| metric.value(value));
            let chosen = if metric.selects_best { ", the best checkpoint" } else { "" };
            let best = metric
                .best
                .map_or(String::new(), |(value, step)| format!("{} after step {step}{chosen}", metric.value(value)));
            let interval =
                metric.interval.map_or(String::new(), |interval| format!("± {}", number(interval.half_width)));
            let direction = metric.direction.map_or("", Direction::words).to_owned();
            vec![
                metric.name.clone(),
                printable::line(&metric.unit, 16),
                direction,
                shown(metric.before),
                shown(metric.after),
                interval,
                best,
            ]
        })
        .collect();
    let header = ["metric", "unit", "direction", ">before", ">after", "95 %", "best"];
    // Columns that are empty for all metrics are left out.
    let nonempty: Vec<usize> =
        (0..header.len()).filter(|&at| rows.iter().any(|row| !row[at].is_empty()) || header[at] == "best").collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| nonempty.iter().map(|&at| row[at].clone()).collect()).collect();
    page.table(&nonempty.iter().map(|&at| header[at]).collect::<Vec<_>>(), &rows);
    if let Some(about) = intervals_note(&metrics) {
        page.line("", &about);
    }
}

fn memory(report: &RunView, page: &mut Page) {
    let memory = report.memory();
    let mut rows = Vec::new();
    let mut row = |what: &str, peak: Option<u64>, end: Option<u64>| {
        if let Some(peak) = peak {
            rows.push(vec![
                what.to_owned(),
                Bytes(peak).to_string(),
                end.map_or(String::new(), |end| Bytes(end).to_string()),
            ]);
        }
    };
    if memory.samples > 0 {
        row(report.heap_label(), Some(memory.heap_peak), Some(memory.heap_at_end));
    }
    row("RSS", memory.rss_peak, None);
    row("device in use", memory.device_in_use_peak, None);
    row("device reserved", memory.device_reserved_peak, None);
    page.table(&["memory", ">peak", ">at the end"], &rows);
    let at_work = memory.gpu_utilisation_mean.map(|percent| format!("{percent:.0} % utilisation"));
    let power = memory.gpu_power_mean.map(|watts| format!("{watts:.0} W"));
    let load: Vec<String> = at_work.into_iter().chain(power).collect();
    if !load.is_empty() {
        page.line("GPU", &format!("{} (means)", load.join(", ")));
    }
    let (samples, spent) = report.samples();
    if samples > 0 {
        let suffix = report.last_process_suffix();
        let fraction = memory
            .trace_share
            .map_or(String::new(), |fraction| format!(", {} of training time{suffix}", percent(fraction)));
        let advice = report.sampling_advice().map_or(String::new(), |advice| format!("; {advice}"));
        page.line("sampling", &format!("{samples} samples, {}{fraction}{advice}", seconds(spent)));
    }
}

/// Table of forecast and measured memory. The error of a component is a fraction of the peak: the error of a small one, even
/// if it is many times its size, does not matter.
fn planned(report: &RunView, page: &mut Page) {
    let pairs = report.final_summary().map_or(&[][..], |summary| &summary.plan_and_actual);
    let peak = pairs.iter().map(|pair| pair.actual).max().unwrap_or(0);
    let rows: Vec<Vec<String>> = (pairs.iter())
        .filter(|pair| pair.planned.max(pair.actual) >= PLANNED_SHOWN_MIN)
        .map(|pair| {
            let difference = pair.planned as f64 - pair.actual as f64;
            let error = if peak > 0 { signed_percent(difference / peak as f64) } else { "-".into() };
            let name = printable::line(&pair.name, 32);
            vec![name, Bytes(pair.planned).to_string(), Bytes(pair.actual).to_string(), error]
        })
        .collect();
    page.table(&["component", ">forecast", ">actual", ">error, of peak"], &rows);
    if let Some(why) = report.forecast_error_reason() {
        page.line("", why);
    }
    let Some(summary) = report.final_summary() else { return };
    let demand = &summary.demand;
    // Of a single kind the table has it as activations and gradients.
    if demand.step_kinds.len() > 1 {
        let kinds =
            demand.step_kinds.iter().map(|(kind, bytes)| format!("{} {}", printable::line(kind, 32), Bytes(*bytes)));
        page.line("a step needs", &kinds.collect::<Vec<_>>().join(", "));
    }
    if let Some(left) = demand.validation_left.filter(|_| demand.validation > 0) {
        let sign = if left < 0 { "-" } else { "" };
        let text = format!("{}, and leaves at most {sign}{}", Bytes(demand.validation), Bytes(left.unsigned_abs()));
        page.line("a validation needs", &text);
    }
    let classes = summary.memory.size_classes.iter().filter(|class| class.allocations > 0);
    let classes = classes.map(|class| {
        let change = i128::from(class.allocations) - i128::from(class.allocations_at_start);
        format!("{} of {} and more ({change:+})", class.allocations, Bytes(class.from_bytes))
    });
    let classes: Vec<String> = classes.collect();
    if !classes.is_empty() {
        page.line("large allocations", &format!("{}; change since the first step", classes.join(", ")));
    }
}

fn buffers(report: &RunView, page: &mut Page) {
    let bytes = |size: Option<u64>| size.map_or("-".into(), |size| Bytes(size).to_string());
    // A watched command has process groups; the buffers of the watcher are not of interest.
    let watched = report.watched().is_some();
    let mut all = report.buffers();
    all.retain(|buffer| !watched || buffer.policy.is_none());
    let rows: Vec<Vec<String>> = (all.iter().take(BUFFERS_SHOWN))
        .map(|buffer| {
            let fraction = buffer.fraction_of_cap().map_or("-".into(), percent);
            let policy = buffer.policy.map_or("-".into(), |policy| format!("{policy:?}").to_lowercase());
            let cap = if buffer.is_leak() { "none".into() } else { bytes(buffer.cap_bytes) };
            vec![printable::line(&buffer.name, 32), policy, cap, bytes(buffer.peak_bytes), fraction]
        })
        .collect();
    if watched {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| vec![row[0].clone(), row[3].clone()]).collect();
        return page.table(&["processes", ">peak"], &rows);
    }
    page.table(&["buffer", "policy", ">cap", ">peak", ">of cap"], &rows);
    if all.len() > rows.len() {
        page.line("", &format!("and {} smaller buffers", all.len() - rows.len()));
    }
}

fn phases(report: &RunView, page: &mut Page) {
    let all = report.phases();
    let total: f64 = all.iter().map(|phase| phase.seconds).sum();
    let rows: Vec<Vec<String>> = (all.iter().take(PHASES_SHOWN))
        .map(|phase| {
            let fraction = percent(phase.seconds / total);
            let longest = phase.longest.map_or("-".into(), super::formatting::duration);
            vec![printable::line(&phase.name, 32), super::formatting::duration(phase.seconds), fraction, longest]
        })
        .collect();
    page.table(&["phase", ">time", ">of total", ">longest"], &rows);
}
