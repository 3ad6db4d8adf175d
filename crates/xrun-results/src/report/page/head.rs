//! Head of the page: name, outcome, machine, and commands to repeat the run.

use maud::{Markup, html};

use crate::report::page::document::code;
use crate::report::page::tone::outcome_tone;
use crate::report::summary;
use crate::view::RunView;
use xrun_core::invocation;
use xrun_core::printable;

pub fn head(report: &RunView) -> Markup {
    let outcome = outcome_tone(report.state());
    let description = report.manifest().map_or("", |manifest| manifest.description.as_str());
    html! {
        header {
            div.title {
                h1 { (printable::line(report.experiment_name(), 200)) }
                span.badge.(outcome.class()) { (report.state().label()) }
            }
            @if !description.is_empty() { p { (printable::lines(description)) } }
            p.note { (code(&printable::line(&report.message(), 600))) }
            (verdicts(report))
            @if let Some(result) = report.result_line() { p.result { (printable::line(&result, 300)) } }
        }
        (facts(report))
        (commands(report))
    }
}

/// Badges of the verdicts on training and on memory, each with its sentence.
fn verdicts(report: &RunView) -> Markup {
    let training = report.training().map(|training| (training.verdict.word(), &training.message));
    let memory = report.verdict().map(|verdict| (verdict.verdict.word(), &verdict.message));
    html! {
        @for (word, sentence) in training.into_iter().chain(memory) {
            p.verdict { span.badge.(word.tone.class()) { (word.label) } " " (code(&printable::line(sentence, 400))) }
        }
    }
}

fn facts(report: &RunView) -> Markup {
    html! {
        dl {
            @for (label, value) in summary::facts(report) {
                div { dt { (label) } dd { (code(&printable::line(&value, 400))) } }
            }
        }
    }
}

fn commands(report: &RunView) -> Markup {
    let typed = report.manifest().map(|manifest| {
        let words: Vec<String> = manifest.command.iter().map(|word| printable::shell_word(word)).collect();
        (manifest.working_directory.clone(), words.join(" "))
    });
    html! {
        details {
            summary { "Commands" }
            @if let Some((directory, words)) = typed {
                p.note { "Original command, in " code { (printable::line(&directory, 300)) } ":" }
                pre { (printable::line(&words, 2_000)) }
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
