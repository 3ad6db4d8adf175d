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
use crate::resolved;
use crate::view::RunView;
use xrun_core::files::layout;
use xrun_core::printable;

/// Maximum length of the resolved experiment on the page.
const RESOLVED_BYTES_MAX: usize = 256 * 1024;

/// HTML text of the page.
pub fn html(report: &RunView) -> String {
    let title = format!("{} · {}", printable::line(report.experiment_name(), 100), printable::line(&report.run, 100));
    let memory = html! { (memory::over_time(report)) (memory::buffers(report)) };
    let memory_first = is_memory_first(report);
    let content = html! {
        (head::head(report))
        (training::results(report))
        @if memory_first { (memory) }
        (training::curves(report))
        @if !memory_first { (memory) }
        @if let Some(stages) = report.stages() { (stages.html()) }
        (memory::phases(report))
        (images::section(report))
        (limitations(report))
        (experiment(report))
        (how_to_read(report))
    };
    document(&title, "", &content, "the files of the run's directory")
}

/// Returns `true` if memory grew or ended the run: then memory comes first.
fn is_memory_first(report: &RunView) -> bool {
    let tone = report.verdict().map(|verdict| verdict.verdict.word().tone);
    tone == Some(crate::verdict::Tone::Bad) || report.post_mortem().is_some()
}

fn limitations(report: &RunView) -> Markup {
    let lowered = report.manifest().map(|manifest| &manifest.lowered).filter(|lowered| !lowered.is_empty());
    let skipped = report.manifest().map(|manifest| &manifest.data_skipped).filter(|skipped| !skipped.is_empty());
    html! {
        @if let Some(lowered) = lowered {
            h2 { "Settings lowered to fit the data" }
            div.wide { table {
                thead { tr { th { "key" } th.r { "requested" } th.r { "used" } th { "reason" } } }
                tbody {
                    @for one in lowered.iter().take(64) {
                        tr {
                            td { code { (printable::line(&one.key, 120)) } } td.r { (one.asked) } td.r.strong { (one.used) }
                            td { (printable::line(&one.because, 300)) }
                        }
                    }
                }
            } }
        }
        @if let Some(skipped) = skipped {
            h2 { "Left out of the data" }
            div.wide { table {
                thead { tr { th { "reason" } th.r { "items" } } }
                tbody {
                    @for (reason, count) in skipped.iter().take(64) {
                        tr { td { (printable::line(reason, 200)) } td.r { (count) } }
                    }
                }
            } }
        }
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
    if report.watched().is_some() {
        return how_to_read_command();
    }
    html! {
        h2 { "How to read this page" }
        p { "Sizes are in binary units: 1 MiB is 1,048,576 bytes. Memory is sampled between steps, when a step's tensors are \
            dropped and the device is idle, so a curve that climbs from step to step is memory that stays allocated." }
        p { b { "Heap" } " is memory that the program has allocated and not freed. " b { "RSS" } " (resident set size) is \
            the process's memory in RAM: heap, code, files, and pages that allocators keep. "
            b { "Device in use" } " is held by tensors; " b { "reserved" } " is what the memory pool took from the driver. "
            b { "Driver" } " is the driver's own count." }
        p { "A " b { "buffer" } " has a cap that it never exceeds. At the cap, " b { "block" } " waits for free space, " b { "evict" } " drops the \
            least recently used item, " b { "reduce" } " merges items or drops the least valuable one, and " b { "refuse" } " ends the \
            run with an error. " b { "Leak" } " is an injected leak without a cap." }
        (thinning_note())
    }
}

/// Explanations for a watched command, whose processes are observed from outside.
fn how_to_read_command() -> Markup {
    html! {
        h2 { "How to read this page" }
        p { "Sizes are in binary units: 1 MiB is 1,048,576 bytes. Memory is sampled while the command runs, wherever it is in a \
            step, so a curve goes up and down within a step. The verdict compares the minima of windows of many steps." }
        p { b { "Footprint" } " is the private and shared memory of all processes, each page counted once. "
            b { "RSS" } " adds pages of files, which the system can drop. A group is all processes of one role; " b { "private" }
            " pages belong to one process only." }
        (thinning_note())
    }
}

fn thinning_note() -> Markup {
    html! {
        p { "Long series are thinned to 2,000 points; the lowest and highest of neighbouring points are kept, so peaks stay visible." }
    }
}
