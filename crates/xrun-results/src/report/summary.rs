//! Facts on a run, from which `xrun show` and the page are made.

use std::fmt::Write;

use maud::{Markup, html};
use serde_json::{Value, json};

use super::formatting::{epochs, number, percent, signed_percent, utc_time};
use super::result::{MetricResult, intervals_note};
use super::run_report::suggestion_effect;
use super::table::Table;
use super::width::fold;
use crate::format::{Manifest, Summary};
use crate::read::{self, ReadError};
use crate::run_state::RunState;
use crate::verdict::Tone;
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
/// Maximum number of lowered settings, and of reasons why data was left out.
const LOWERED_MAX: usize = 16;
/// Column at which values begin.
const INDENT: usize = 14;
/// Columns of tables that are left out in a narrow terminal, in this order.
const OPTIONAL_COLUMNS: &[&str] = &["cap set by", "policy", "unit", "best", "of cap", "of total", "direction"];

/// Text of about forty lines on a run, also a running, killed or damaged one, for a terminal of `width` characters.
/// Ends with a line break.
pub fn text(report: &RunView, width: Option<usize>) -> String {
    let mut text = labelled(&conclusion(report), width);
    text.push_str(&labelled(&facts(report), width));
    let without_trace = !report.path.join(layout::MEMORY).is_file();
    if without_trace {
        text.push_str(&labelled(&[("trace", format!("no {}", layout::MEMORY))], width));
    }
    for section in [metrics(report), planned(report), buffers(report), phases(report)] {
        if !section.table.rows.is_empty() {
            text.push('\n');
            text.push_str(&section.table.text_within(width, OPTIONAL_COLUMNS));
        }
        let notes: Vec<(&str, String)> = section.notes.into_iter().map(|note| ("", note)).collect();
        text.push_str(&labelled(&notes, width));
    }
    for periods in [&report.trace().epochs, &report.trace().stages].into_iter().filter(|periods| !periods.is_empty()) {
        text.push('\n');
        text.push_str(&periods.text(width));
    }
    text.push('\n');
    text.push_str(&labelled(&files(report), width));
    let damage: Vec<(&str, String)> = report.damage().iter().map(|damage| ("damaged", damage.clone())).collect();
    text.push_str(&labelled(&damage, width));
    printable::lines(&text)
}

/// At most [`SHOWN_MAX`] lines of [`text`]: what is wrong, with the lines `wrong` of the caller, what `changed`, then the rest with
/// `notes`.
pub fn brief(
    report: &RunView,
    wrong: Vec<(&'static str, String)>,
    changed: Option<String>,
    notes: Vec<(&'static str, String)>,
    width: Option<usize>,
) -> String {
    let damage = match report.damage() {
        [] => None,
        [only] => Some(("damaged", only.clone())),
        [first, others @ ..] => Some(("damaged", format!("{first} (and {} more)", others.len()))),
    };
    let is_good = |(label, _): &(&str, String)| match *label {
        "verdict" => report.verdict().is_some_and(|verdict| verdict.verdict.word().tone == Tone::Good),
        "training" => report.training().is_some_and(|training| training.verdict.word().tone == Tone::Good),
        "outcome" => matches!(report.state(), RunState::Ended(outcome) if outcome.is_complete()),
        label => label == "result",
    };
    let (good, bad): (Vec<_>, Vec<_>) = conclusion(report).into_iter().partition(is_good);
    let is_brief = |(label, _): &(&str, String)| ["loss", "steps", "time", "memory", "run"].contains(label);
    let mut lines: Vec<(&str, String)> = damage.into_iter().chain(wrong).chain(bad).collect();
    lines.extend(changed.map(|changed| ("changed", changed)));
    lines.extend(good.into_iter().chain(notes).chain(facts(report).into_iter().filter(is_brief)).chain(files(report)));
    if lines.len() > SHOWN_MAX {
        let left = lines.len() + 1 - SHOWN_MAX;
        lines.truncate(SHOWN_MAX - 1);
        lines.push(("", format!("and {left} more lines with -v")));
    }
    printable::lines(&labelled(&lines, width))
}

/// Maximum number of lines of [`brief`].
const SHOWN_MAX: usize = 14;

/// Facts about a run as JSON. Unknown values are `null`.
pub fn json(report: &RunView) -> Result<Value, ReadError> {
    let metrics: serde_json::Map<String, Value> = (report.metrics().into_iter())
        .map(|metric| {
            let MetricResult { planned, before, after, interval, best, .. } = metric;
            let best = best.map(|(value, step)| json!({ "value": value, "step": step }));
            let values = json!({
                "before": before, "after": after, "interval": interval, "best": best,
                "unit": planned.unit, "direction": planned.direction,
            });
            (planned.name, values)
        })
        .collect();
    let phases: Vec<Value> =
        (report.phases().into_iter()).map(|(name, seconds)| json!({ "name": name, "seconds": seconds })).collect();
    let ending = report.final_summary();
    Ok(json!({
        "experiment": report.experiment_name(),
        "run": report.run,
        "path": report.path.display().to_string(),
        "state": report.state().label(),
        "message": report.message(),
        "exit_code": ending.map(|summary| summary.exit_code),
        "started": report.started(),
        "resumed": report.manifest().map(|manifest| &manifest.resumed),
        "parent": report.parent(),
        "watched": report.watched().is_some(),
        "fingerprint": report.manifest().map(|manifest| &manifest.fingerprint),
        "device": report.manifest().map(|manifest| &manifest.device),
        "lowered": report.manifest().map(|manifest| &manifest.lowered),
        "steps": report.steps(),
        "steps_planned": report.steps_planned(),
        "seconds": report.seconds(),
        "steps_per_second": ending.and_then(|summary| summary.steps_per_second),
        "items_per_second": ending.and_then(|summary| summary.items_per_second),
        "losses": report.losses(),
        "metrics": metrics,
        "best": ending.and_then(|summary| summary.best.as_ref()),
        "training": report.training(),
        "verdict": report.verdict().map(|verdict| verdict.verdict),
        "growing_owner": report.verdict().and_then(|verdict| verdict.owner.as_ref()),
        // Without a sample memory is unknown.
        "memory": Some(report.memory()).filter(|memory| memory.samples > 0),
        "plan_and_actual": ending.map(|summary| &summary.plan_and_actual),
        "post_mortem": report.post_mortem(),
        "allocations": read::allocations(&report.path)?,
        "explanation": report.explanation(),
        "buffers": report.buffers(),
        "phases": phases,
        "counters": ending.map(|summary| &summary.counters),
        "checkpoints": report.checkpoints(),
        "resumable": report.resumable(),
        "damage": report.damage(),
        "line_damage": report.line_damage().collect::<Vec<_>>(),
    }))
}

/// Lines of `label  value`.
pub fn labelled(lines: &[(&str, String)], width: Option<usize>) -> String {
    let mut text = String::new();
    for (label, value) in lines {
        let value = printable::line(value, LINE_CHARACTERS_MAX);
        let gap = if label.len() < INDENT { "" } else { "  " };
        let line = format!("{label:<INDENT$}{gap}{value}");
        let _ = writeln!(text, "{}", fold(line.trim_end(), width, INDENT));
    }
    text
}

/// Verdicts, outcome and main result, each with its label; what is wrong comes first.
fn conclusion(report: &RunView) -> Vec<(&'static str, String)> {
    let verdict = report.verdict().map(|verdict| format!("{}: {}", verdict.verdict.words(), verdict.message));
    let training = report.training().map(|training| format!("{}: {}", training.verdict.words(), training.message));
    let lines = [
        ("verdict", verdict),
        ("allocated in", read::allocations(&report.path).ok().flatten().and_then(|record| record.message())),
        ("explanation", report.explanation().map(|explanation| explanation.message.clone())),
        ("training", training),
        ("outcome", Some(format!("{}: {}", report.state().label(), report.message()))),
        ("result", report.result_line()),
    ];
    lines.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
}

/// Facts on a run, each with its label; a fact without a label belongs to the one before.
pub(super) fn facts(report: &RunView) -> Vec<(&'static str, String)> {
    let mut facts: Vec<(&str, String)> = Vec::new();
    facts.extend(report.loss_line().map(|loss| ("loss", loss)));
    progress(report, &mut facts);
    let memory = report.memory();
    if memory.samples > 0 {
        facts.push(("memory", format!("at its peak {}", report.memory_line())));
    }
    let at_work = memory.gpu_utilisation_mean.map(|percent| format!("{percent:.0} % utilisation"));
    let power = memory.gpu_power_mean.map(|watts| format!("{watts:.0} W"));
    let load: Vec<String> = at_work.into_iter().chain(power).collect();
    facts.extend((!load.is_empty()).then(|| ("GPU", format!("{} (means)", load.join(", ")))));
    facts.extend(sampling(report).map(|sampling| ("sampling", sampling)));
    if let Some(watched) = report.watched() {
        facts.push(("steps from", watched.step_source.clone().unwrap_or("none (judged by the clock)".into())));
        let not_measured = watched.not_measured.join("; ");
        facts.extend((!not_measured.is_empty()).then_some(("not measured", not_measured)));
    }
    if let Some(post_mortem) = report.post_mortem() {
        facts.push(("post-mortem", format!("{} at step {}", post_mortem.message, post_mortem.step)));
        facts.extend(post_mortem.growth.iter().map(|growth| ("", growth.message.clone())));
        facts.push(("", format!("outside all buffers: {}", Bytes(post_mortem.unattributed))));
        facts.extend(post_mortem.suggestions.iter().map(|suggestion| {
            let effect = suggestion_effect(post_mortem, suggestion);
            ("", format!("-s {}={} {effect}", suggestion.key, suggestion.value))
        }));
    }
    if let Some(summary) = report.final_summary() {
        demand(summary, &mut facts);
    }
    if let Some(manifest) = report.manifest() {
        origin(manifest, &mut facts);
    }
    facts.push(("run", report.path.display().to_string()));
    facts
}

fn progress(report: &RunView, facts: &mut Vec<(&'static str, String)>) {
    let ending = report.final_summary();
    let planned = report.steps_planned().filter(|planned| *planned > 0);
    let planned = planned.map_or(String::new(), |planned| format!(" of {planned}"));
    // The epochs of a watched command are unknown.
    let length = ending.filter(|_| report.watched().is_none());
    let length = length.map_or(String::new(), |summary| format!(", {}", epochs(summary.epochs)));
    match report.steps() {
        None | Some(0) if report.watched().is_some() => {}
        steps => facts.push(("steps", format!("{}{planned}{length}", steps.unwrap_or(0)))),
    }
    // Without validations and everything else between steps.
    let rates = ending.map(|summary| [("steps", summary.steps_per_second), ("items", summary.items_per_second)]);
    let rates = rates.into_iter().flatten().filter_map(|(what, rate)| Some(format!("{} {what}/s", number(rate?))));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let suffix = report.last_process_suffix();
    let speed = if rates.is_empty() { String::new() } else { format!("; training alone {rates}{suffix}") };
    facts.push(("time", format!("{}{speed}", seconds(report.seconds()))));
}

fn sampling(report: &RunView) -> Option<String> {
    let (suffix, memory) = (report.last_process_suffix(), report.memory());
    // Of a command both are processor time; a trace has the time on the clock, which a busy machine lengthens.
    let ((samples, spent), [clock, of]) = match report.watched().and(memory.trace_share) {
        Some(_) => ((memory.samples, memory.trace_seconds), [" of processor time", "one core"]),
        None => (report.samples(), ["", "training time"]),
    };
    let fraction = memory.trace_share.map_or(String::new(), |part| format!(", {} of {of}{suffix}", percent(part)));
    (samples > 0).then(|| format!("{samples} samples, {}{clock}{fraction}", seconds(spent)))
}

/// Memory that parts of the run need.
fn demand(summary: &Summary, facts: &mut Vec<(&'static str, String)>) {
    let demand = &summary.demand;
    // Of a single kind the table has it as activations and gradients.
    if demand.step_kinds.len() > 1 {
        let kinds =
            demand.step_kinds.iter().map(|(kind, bytes)| format!("{} {}", printable::line(kind, 32), Bytes(*bytes)));
        facts.push(("a step needs", kinds.collect::<Vec<_>>().join(", ")));
    }
    if let Some(left) = demand.validation_left.filter(|_| demand.validation > 0) {
        let sign = if left < 0 { "-" } else { "" };
        let text = format!("{}, and leaves at most {sign}{}", Bytes(demand.validation), Bytes(left.unsigned_abs()));
        facts.push(("a validation needs", text));
    }
    let classes = summary.memory.size_classes.iter().filter(|class| class.allocations > 0);
    let classes = classes.map(|class| {
        let change = i128::from(class.allocations) - i128::from(class.allocations_at_start);
        format!("{} of {} and more ({change:+})", class.allocations, Bytes(class.from_bytes))
    });
    let classes = classes.collect::<Vec<_>>().join(", ");
    facts.extend(
        (!classes.is_empty()).then(|| ("large allocations", format!("{classes}; change since the first step"))),
    );
}

/// Program, machine, settings and data of a run.
fn origin(manifest: &Manifest, facts: &mut Vec<(&'static str, String)>) {
    let device = &manifest.device;
    let because = if device.because.is_empty() { String::new() } else { format!(" ({})", device.because) };
    let size = device.memory.map_or(String::new(), |bytes| format!(", {}", Bytes(bytes)));
    facts.push(("device", format!("{}: {}{size}{because}", device.chosen, device.name)));
    let host = &manifest.host;
    let limit = host.memory_limit.or(host.memory).map_or(String::new(), |bytes| format!(", {}", Bytes(bytes)));
    facts.push(("machine", format!("{}: {}, {} cores{limit}", host.name, host.processor, host.cores)));
    let code = &manifest.code;
    let dirty = if code.built_with_changes == Some(true) { " with changes" } else { "" };
    let commit = code.built_commit.as_ref().map(|commit| format!(", commit {}{dirty}", printable::line(commit, 13)));
    facts.push(("program", format!("xrun {}{}", code.xrun, commit.unwrap_or_default())));
    // A command without an experiment file has no seed.
    if manifest.watched.is_none() || !manifest.origins.is_empty() {
        let fingerprint = printable::line(&manifest.fingerprint, 13);
        facts.push(("seed", format!("{}, fingerprint {fingerprint}", manifest.seed)));
    }
    let resumed = match manifest.resumed.as_slice() {
        [] => String::new(),
        [last] => format!(", resumed {}", utc_time(last)),
        [.., last] => format!(", resumed {} times, last {}", manifest.resumed.len(), utc_time(last)),
    };
    facts.push(("started", format!("{}{resumed}", utc_time(&manifest.started))));
    if let Some(parent) = &manifest.parent {
        let changed = parent.changed.join(", ");
        let changed = if changed.is_empty() { changed } else { format!("; changed: {changed}") };
        facts.push(("fork of", format!("{parent}{changed}")));
    }
    facts.extend(manifest.lowered.iter().take(LOWERED_MAX).map(|lowered| ("lowered", lowered.to_string())));
    let skipped = manifest.data_skipped.iter().take(LOWERED_MAX);
    facts.extend(skipped.map(|(reason, count)| ("left out", format!("{count}: {reason}"))));
}

/// Checkpoints, path of the page, and the command that resumes the run.
fn files(report: &RunView) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let steps = report.checkpoints().iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match report.checkpoints().len() {
        0 if report.watched().is_some() => {}
        0 => lines.push(("checkpoints", "none".into())),
        1 => lines.push(("checkpoints", format!("after step {steps}"))),
        _ => lines.push(("checkpoints", format!("after steps {steps}"))),
    }
    if let count @ 1.. = read::damaged_checkpoints(&report.path) {
        let (checkpoints, name) = (pluralize(count, "damaged checkpoint"), layout::DAMAGED);
        lines.push(("set aside", format!("{checkpoints}, `{}/{name}*`; remove when of no use", layout::CHECKPOINTS)));
    }
    let page = report.path.join(layout::REPORT);
    let written = match page.is_file() {
        true => String::new(),
        false => format!(" (not written yet; `{} export --to report` writes it)", invocation::program()),
    };
    lines.push(("report", format!("{}{written}", page.display())));
    if report.resumable() {
        let begins = if report.checkpoints().is_empty() { " (no checkpoint: starts again)" } else { "" };
        lines.push(("resume", format!("{} resume {}{begins}", invocation::program(), report.name())));
    }
    lines
}

/// Table with a title, and sentences below it.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) table: Table,
    pub(super) notes: Vec<String>,
}

impl Section {
    /// HTML; empty without rows.
    pub(super) fn html(&self) -> Markup {
        html! {
            @if !self.table.rows.is_empty() {
                h2 { (self.title) }
                (self.table.html())
                @for note in &self.notes { p.note { (printable::line(note, LINE_CHARACTERS_MAX)) "." } }
            }
        }
    }
}

/// Metrics before, after and at their best. On a narrow page the first columns are visible.
pub(super) fn metrics(report: &RunView) -> Section {
    let metrics = report.metrics();
    let row = |metric: &MetricResult| {
        let shown = |value: Option<f64>| value.map_or("-".into(), |value| metric.value(value));
        let chosen = if metric.selects_best { ", the best checkpoint" } else { "" };
        let best = metric.best.map(|(value, step)| format!("{} after step {step}{chosen}", metric.value(value)));
        let interval = metric.interval.map(|interval| format!("± {}", number(interval.half_width)));
        vec![
            printable::line(&metric.planned.name, 80),
            best.unwrap_or_default(),
            shown(metric.after),
            interval.unwrap_or_default(),
            shown(metric.before),
            metric.planned.direction.map_or("", Direction::words).to_owned(),
            printable::line(&metric.planned.unit, 16),
        ]
    };
    let header = ["metric", "best", ">after", "95 %", ">before", "direction", "unit"];
    let table = Table::new(&header, metrics.iter().map(row).collect());
    Section { title: "Result", table, notes: intervals_note(&metrics).into_iter().collect() }
}

/// Forecast and measured memory. The error of a component is a fraction of the peak: the error of a small one, even if it is
/// many times its size, does not matter.
pub(super) fn planned(report: &RunView) -> Section {
    let pairs = report.final_summary().map_or(&[][..], |summary| &summary.plan_and_actual);
    let peak = pairs.iter().map(|pair| pair.actual).max().unwrap_or(0);
    let rows = pairs.iter().filter(|pair| pair.planned.max(pair.actual) >= PLANNED_SHOWN_MIN).map(|pair| {
        let difference = pair.planned as f64 - pair.actual as f64;
        let error = if peak > 0 { signed_percent(difference / peak as f64) } else { "-".into() };
        vec![printable::line(&pair.name, 32), Bytes(pair.planned).to_string(), Bytes(pair.actual).to_string(), error]
    });
    let table = Table::new(&["component", ">forecast", ">actual", ">error, of peak"], rows.collect());
    let notes = report.forecast_error_reason().map(str::to_owned).into_iter().collect();
    Section { title: "Forecast and actual memory", table, notes }
}

/// Buffers and their caps; of a watched command its process groups, as the buffers of the watcher are not of interest.
pub(super) fn buffers(report: &RunView) -> Section {
    let bytes = |size: Option<u64>| size.map_or("-".into(), |size| Bytes(size).to_string());
    let watched = report.watched().is_some();
    let mut all = report.buffers();
    all.retain(|buffer| !watched || buffer.policy.is_none());
    let rows = all.iter().take(BUFFERS_SHOWN).map(|buffer| {
        let name = printable::line(&buffer.name, 32);
        if watched {
            return vec![name, bytes(buffer.peak_bytes)];
        }
        let cap = if buffer.is_leak() { "none".into() } else { bytes(buffer.cap_bytes) };
        let fraction = buffer.fraction_of_cap().map_or("-".into(), percent);
        let policy = buffer.policy.map_or("-".into(), |policy| format!("{policy:?}").to_lowercase());
        vec![name, policy, cap, bytes(buffer.peak_bytes), fraction, printable::line(&buffer.because, 120)]
    });
    let header = match watched {
        true => &["processes", ">peak"][..],
        false => &["buffer", "policy", ">cap", ">peak", ">of cap", "cap set by"],
    };
    let table = Table::new(header, rows.collect());
    let more = all.len() - table.rows.len();
    let notes = (more > 0).then(|| format!("and {more} smaller buffers")).into_iter().collect();
    Section { title: if watched { "Processes" } else { "Buffers and their caps" }, table, notes }
}

/// Slowest parts of the loop.
pub(super) fn phases(report: &RunView) -> Section {
    let all = report.phases();
    let total: f64 = all.iter().map(|(_, seconds)| seconds).sum();
    let rows = all.iter().take(PHASES_SHOWN).map(|(name, seconds)| {
        vec![printable::line(name, 32), super::formatting::duration(*seconds), percent(seconds / total)]
    });
    let table = Table::new(&["phase", ">time", ">of total"], rows.collect());
    Section { title: "Where the time went", table, notes: Vec::new() }
}
