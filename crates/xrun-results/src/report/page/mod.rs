//! The page of a run, `report.html`.
//!
//! One file that loads nothing from a network. All foreign text is escaped by maud or passes through
//! `printable`.

pub mod document;
mod head;
mod images;
mod memory;
pub mod tone;
mod training;

use maud::{Markup, html};

use self::document::document;
use super::{classes, summary};
use crate::resolved;
use crate::verdict::VerdictWord;
use crate::view::RunView;
use xrun_core::files::layout;
use xrun_core::printable;

/// Maximum length of the resolved experiment on the page.
const RESOLVED_BYTES_MAX: usize = 256 * 1024;

/// HTML text of the page.
pub fn html(report: &RunView) -> String {
    let title = format!("{} · {}", printable::line(report.experiment_name(), 100), printable::line(&report.run, 100));
    let memory =
        html! { (memory::over_time(report)) (summary::buffers(report).html()) (summary::planned(report).html()) };
    let is_memory_first = report.verdict().is_some_and(|verdict| verdict.verdict != VerdictWord::Bounded);
    let content = html! {
        (head::head(report))
        @if is_memory_first { (memory) }
        (training::results(report))
        @if !is_memory_first { (memory) }
        (training::curves(report))
        (report.trace().epochs.html())
        (report.trace().stages.html())
        (summary::phases(report).html())
        (classes::section(report).html())
        (images::section(report))
        (unreadable(report))
        (experiment(report))
        (how_to_read(report))
    };
    document(&title, "", &content, "the files of the run's directory")
}

fn unreadable(report: &RunView) -> Markup {
    html! {
        @if super::damage(report).next().is_some() {
            h2 { "Unreadable" }
            div.damage { @for damage in super::damage(report) { p { (printable::line(damage, 400)) } } }
        }
    }
}

fn experiment(report: &RunView) -> Markup {
    // Errors are listed under "Unreadable".
    let text = resolved::masked_text(&report.path);
    let shown = printable::lines(&text[..text.floor_char_boundary(RESOLVED_BYTES_MAX)]);
    html! {
        @if !text.is_empty() {
            h2 { "The experiment" }
            details {
                summary { "Every value (" code { (layout::RESOLVED) } ")" }
                pre { (shown.trim_end()) }
                @if text.len() > RESOLVED_BYTES_MAX { p.note { "Cut off here; the file is longer." } }
            }
        }
    }
}

fn how_to_read(report: &RunView) -> Markup {
    html! {
        h2 { "How to read this page" }
        p { "1 MiB is 1,048,576 bytes. Long series are thinned to 2,000 points; peaks stay." }
        @if report.watched().is_some() {
            p { "Memory is sampled wherever a step is; the verdict compares the minima of windows of many steps. " b { "Footprint" }
                " is the private and shared memory of all processes without file cache, each page counted once; " b { "RSS" }
                " adds pages of files." }
        } @else {
            p { "Memory is sampled between steps, so a curve that climbs is memory that stays allocated. " b { "Heap" }
                " is what the program has allocated and not freed, " b { "RSS" } " its memory in RAM. " b { "Device in use" }
                " is held by tensors, " b { "reserved" } " by the memory pool, " b { "driver" } " is the driver's count." }
        }
    }
}
