//! Head of the page: name, outcome, machine, and commands to repeat the run.

use maud::{Markup, html};

use crate::report::axes::AxisUnit;
use crate::report::formatting::{epochs, number, utc_time};
use crate::report::page::document::code;
use crate::report::page::tone::outcome_tone;
use crate::report::plots::sparkline;
use crate::verdict::Tone;
use crate::view::RunView;
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::units::{Bytes, seconds};

pub fn head(report: &RunView) -> Markup {
    let outcome = outcome_tone(report.state());
    let description = report.manifest().map_or("", |manifest| manifest.description.as_str());
    html! {
        header {
            div.lead {
                div {
                    div.title {
                        h1 { (printable::line(report.experiment_name(), 200)) }
                        span.badge.(outcome.class()) { (report.state().label()) }
                    }
                    @if !description.is_empty() { p { (printable::lines(description)) } }
                    p.note { (code(&printable::line(&report.message(), 600))) }
                    (verdict_badges(training_verdict(report), report))
                    @if let Some(result) = report.result_line() { p.result { (printable::line(&result, 300)) } }
                }
                (sparklines(report))
            }
        }
        (facts(report))
        (commands(report))
    }
}

/// Verdict on training: a word, a sentence and a tone.
fn training_verdict(report: &RunView) -> Option<(String, String, Tone)> {
    let training = report.training()?;
    Some((training.verdict.words().to_owned(), training.message.clone(), training.verdict.word().tone))
}

/// Badges of the verdicts on training and on memory, each with its sentence.
fn verdict_badges(training: Option<(String, String, Tone)>, report: &RunView) -> Markup {
    let memory = report.verdict().map(|verdict| {
        let word = verdict.verdict.word();
        (word.label.to_owned(), verdict.message.clone(), word.tone)
    });
    let both = training.into_iter().chain(memory);
    html! {
        @for (word, sentence, tone) in both {
            p.verdict { span.badge.(tone.class()) { (printable::line(&word, 60)) } " " (code(&printable::line(&sentence, 400))) }
        }
    }
}

/// Small curves of the loss of the most frequent kind of steps and of memory.
fn sparklines(report: &RunView) -> Markup {
    let frequent = report.curves().losses.iter().max_by_key(|loss| loss.raw.count);
    let loss = frequent.and_then(|loss| {
        let name = if report.curves().losses.len() > 1 { format!("loss, {}", loss.kind) } else { "loss".into() };
        sparkline(&name, AxisUnit::Number, &loss.smooth)
    });
    let memory = sparkline(report.heap_label(), AxisUnit::Bytes, &report.trace().heap);
    html! {
        @if loss.is_some() || memory.is_some() {
            div.sparks { @for curve in loss.iter().chain(&memory) { (curve) } }
        }
    }
}

fn fact(name: &str, value: &str, detail: Option<String>) -> Markup {
    html! {
        div {
            dt { (name) }
            dd { (printable::line(value, 300)) @if let Some(detail) = detail { small { (code(&printable::line(&detail, 300))) } } }
        }
    }
}

fn facts(report: &RunView) -> Markup {
    let ending = report.final_summary();
    let rate = |what: &str, rate: Option<f64>| rate.map(|rate| format!("{} {what}/s", number(rate)));
    let speed: Vec<String> = ending
        .map(|summary| [rate("steps", summary.steps_per_second), rate("items", summary.items_per_second)])
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let planned = report.steps_planned().map_or(String::new(), |planned| format!(" of {planned}"));
    // The epochs of a watched command are unknown.
    let epochs = ending.filter(|_| report.watched().is_none()).map(|summary| epochs(summary.epochs));
    html! {
        dl {
            (fact("Run", &report.run, None))
            (fact("Steps", &format!("{}{planned}", report.steps().unwrap_or(0)), epochs))
            @let suffix = report.last_process_suffix();
            @let speed = Some(speed.join(", ")).filter(|speed| !speed.is_empty()).map(|speed| format!("training alone {speed}{suffix}"));
            (fact("Training time", &seconds(report.seconds()), speed))
            (memory(report))
            @if let Some(manifest) = report.manifest() {
                @let resumed = manifest.resumed.last().map(|last| match manifest.resumed.len() {
                    1 => format!("resumed {}", utc_time(last)),
                    times => format!("resumed {times} times, last {}", utc_time(last)),
                });
                (fact("Started", &utc_time(&manifest.started), resumed))
                @let device = &manifest.device;
                @let size = device.memory.map(|bytes| format!(", {}", Bytes(bytes))).unwrap_or_default();
                (fact("Device", &format!("{}: {}{size}", device.chosen, device.name),
                    Some(device.because.clone()).filter(|because| !because.is_empty())))
                @let host = &manifest.host;
                @let limit = host.memory_limit.or(host.memory).map(|bytes| format!(", {}", Bytes(bytes))).unwrap_or_default();
                (fact("Machine", &host.name, Some(format!("{}, {} cores{limit}", host.processor, host.cores))))
                // A command without an experiment file has no seed.
                @if report.watched().is_none() || !manifest.origins.is_empty() {
                    @let fingerprint = format!("fingerprint {}", printable::line(&manifest.fingerprint, 13));
                    (fact("Seed", &manifest.seed.to_string(), Some(fingerprint)))
                }
                @let code = &manifest.code;
                @let commit = code.built_commit.as_ref().map(|commit| {
                    let dirty = if code.built_with_changes == Some(true) { " with changes" } else { "" };
                    format!("commit {}{dirty}", printable::line(commit, 13))
                });
                (fact("Program", &format!("xrun {}", code.xrun), commit))
            }
            @if let Some(plan) = report.plan() {
                (fact("Parameters", &thousands(plan.parameters), None))
            }
        }
    }
}

/// Peaks of memory.
fn memory(report: &RunView) -> Markup {
    let memory = report.memory();
    let size = |size: u64, of: &str| format!("{} {of}", Bytes(size));
    let device = memory.device_in_use_peak.map(|in_use| {
        let reserved = memory.device_reserved_peak.map_or(String::new(), |size| format!(", {} reserved", Bytes(size)));
        format!("{}{reserved}", size(in_use, "in use on the device"))
    });
    let host = memory.rss_peak.map(|peak| size(peak, "RSS"));
    let host = host.or_else(|| (memory.samples > 0).then(|| size(memory.heap_peak, "heap")));
    html! {
        @if let Some(host) = host { (fact("Memory, peak", &host, device)) }
    }
}

/// Formats a count with separators: `1,234,567`.
fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn commands(report: &RunView) -> Markup {
    let again = report.path.join(layout::RESOLVED).display().to_string();
    let typed = report.manifest().map(|manifest| {
        let words: Vec<String> = manifest.command.iter().map(|word| printable::shell_word(word)).collect();
        (manifest.working_directory.clone(), words.join(" "))
    });
    html! {
        details {
            summary { "Commands: run again" @if report.resumable() { ", resume" } }
            @if let Some((directory, words)) = typed {
                p.note { "Original command, in " code { (printable::line(&directory, 300)) } ":" }
                pre { (printable::line(&words, 2_000)) }
            }
            @if report.watched().is_none() {
                p.note { "Run again with the same values, even if the experiment files have changed:" }
                pre { (invocation::program()) " " (printable::line(&printable::shell_word(&again), 1_000)) }
            }
            @if report.resumable() {
                p.note {
                    @if report.checkpoints().is_empty() { "Start again (there is no checkpoint):" }
                    @else { "Resume from the last checkpoint:" }
                }
                pre { (invocation::program()) " resume " (printable::line(&printable::shell_word(&report.name()), 400)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counts_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
