//! Text of a plan and its forecast, for `--dry-run` and `xrun plan`.

use std::fmt::Write;

use super::Plan;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{MemoryKind, PlannedBuffer};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::command::Placeholders;
use xrun_core::printable;
use xrun_core::settings::command::Command;
use xrun_core::units::{Bytes, pluralize};
use xrun_results::format::{Basis, Forecast, ForecastRow, PlannedRung};
use xrun_results::report::width::{fold, table};

/// Width of a label and the gap after it, in characters.
const LABEL: usize = 12;
/// Cap in items from which that of a cache is not shown: its bytes are the effective cap.
const ITEMS_SHOWN_MAX: u64 = 1_000_000;

/// Describes the plan, with a table of the buffers and their caps, for a terminal of `width` characters. Ends with a line
/// break.
pub fn describe(plan: &Plan, parameters: u64, device: &str, width: Option<usize>) -> String {
    let experiment = &plan.experiment;
    let mut text = String::new();
    let mut line = |content: String| {
        text.push_str(&fold(&content, width, LABEL));
        text.push('\n');
    };
    line(format!("experiment  {}", experiment.experiment.name));
    line(format!("pipeline    {}", experiment.pipeline.name()));
    match experiment.command() {
        Some(command) => command_lines(experiment, command).into_iter().for_each(&mut line),
        None => {
            line(format!("device      {device}"));
            let trained = plan.facts.trained_parameters.map(|trained| format!(", {trained} trained at a time"));
            line(format!("parameters  {parameters}{}", trained.unwrap_or_default()));
        }
    }
    line(format!("steps       {}", plan.steps_text()));
    for lowered in &plan.facts.lowered {
        line(format!("lowered     {lowered}"));
    }
    if plan.owners.is_empty() {
        return text;
    }
    let row = |owner: &PlannedBuffer| {
        let (items, bytes) = match owner.policy {
            Policy::Leak => ("no cap".into(), "no cap".into()),
            Policy::Evict if owner.items >= ITEMS_SHOWN_MAX => ("-".into(), Bytes(owner.bytes).to_string()),
            _ => (owner.items.to_string(), Bytes(owner.bytes).to_string()),
        };
        let policy = format!("{:?}", owner.policy).to_lowercase();
        vec![owner.name.clone(), place_name(owner.place).to_owned(), policy, items, bytes, owner.because.clone()]
    };
    let header = ["buffer", "place", "policy", ">items", ">bytes", "because"];
    let rows: Vec<Vec<String>> = plan.owners.iter().map(row).collect();
    let _ = write!(text, "\n{}", table(&header, &rows, width));
    let (leaks, capped): (Vec<_>, Vec<_>) = plan.owners.iter().partition(|owner| owner.policy == Policy::Leak);
    let total = Bytes(capped.iter().fold(0, |sum: u64, owner| sum.saturating_add(owner.bytes)));
    let leaks = if leaks.is_empty() { "" } else { " and leaks" };
    let total = format!("all buffers together: at most {total}, excluding weights, activations{leaks}");
    let _ = writeln!(text, "\n{}", fold(&total, width, 2));
    text + &ladder(plan, width)
}

/// Table of the rungs of `limits.on_pressure`; empty where there is none.
fn ladder(plan: &Plan, width: Option<usize>) -> String {
    let rungs = plan.experiment.limits.on_pressure.iter().map(|rung| plan.planned_rung(*rung));
    let row = |rung: PlannedRung| {
        let gives = rung.gives.map_or_else(|| "-".into(), |bytes| format!("at most {}", Bytes(bytes)));
        let step = rung.duration.map_or_else(|| "-".into(), |duration| format!("{:+.0} %", (duration - 1.0) * 100.0));
        vec![rung.rung.name().to_owned(), gives, rung.bits.words().to_owned(), step]
    };
    let rows: Vec<Vec<String>> = rungs.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(&["short of memory", ">gives", "numbers", ">step"], &rows, width)),
    }
}

/// Lines about a command: how it is run, and its limits.
fn command_lines(experiment: &Experiment, command: &Command) -> Vec<String> {
    let placeholders = Placeholders::new(experiment, command, None);
    let quoted = |words: &[String]| {
        let words = placeholders.fill_all(words).unwrap_or_default();
        words.iter().map(|word| printable::shell_word(word)).collect::<Vec<String>>().join(" ")
    };
    let mut lines = vec![format!("command     {}", quoted(&command.program))];
    lines.extend(command.resume.as_ref().map(|words| format!("resume      {}", quoted(words))));
    lines.extend(command.working_directory.as_ref().map(|path| format!("directory   {path}")));
    let limit = experiment.limits.host_memory.map(|limit| format!("memory      at most {limit}"));
    let time = experiment.training.time_limit.map(|limit| format!("time        at most {limit}"));
    lines.into_iter().chain(limit).chain(time).collect()
}

/// Describes the forecast part by part, for a terminal of `width` characters. Ends with a line break.
pub fn forecast(forecast: &Forecast, width: Option<usize>) -> String {
    let row = |row: &ForecastRow| {
        let basis = match row.basis {
            Basis::Sizes => "sizes",
            Basis::Cap => "cap",
            Basis::Probe => "measured",
            Basis::Growth => "growth",
        };
        let (place, bytes) = (place_name(row.place).to_owned(), Bytes(row.bytes).to_string());
        vec![row.name.clone(), place, bytes, basis.to_owned(), row.about.clone()]
    };
    let rows: Vec<Vec<String>> = forecast.rows.iter().map(row).collect();
    let mut text = format!("\n{}", table(&["part", "place", ">bytes", "basis", "description"], &rows, width));
    text.push('\n');
    let totals = [
        ("peak of heap in use", Some(forecast.heap_peak)),
        ("peak of RSS", forecast.rss_peak),
        ("device memory in use between steps", forecast.device_in_use_peak),
        ("peak of the device's pool", forecast.device_reserved_peak),
        ("peak of the process on the device", forecast.device_peak),
    ];
    for (name, bytes) in totals {
        if let Some(bytes) = bytes {
            let _ = writeln!(text, "expected {name:<34} {:>12}", Bytes(bytes).to_string());
        }
    }
    let _ = writeln!(text, "measured by a probe of {}", pluralize(forecast.probe_steps, "step"));
    text
}

fn place_name(place: MemoryKind) -> &'static str {
    match place {
        MemoryKind::Host => "host",
        MemoryKind::Device => "device",
    }
}
