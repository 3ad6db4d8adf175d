//! The page of a run, `report.html`.
//!
//! One file without scripts that loads nothing from a network. All foreign text is escaped by maud or passes through
//! `printable`.

pub mod document;
mod head;
mod memory;
mod pictures;
mod training;

use maud::{Markup, html};

use self::document::document;
use super::material::Material;
use crate::resolved;
use xrun_core::files::layout;
use xrun_core::printable;

/// Maximum length of the resolved experiment on the page.
const RESOLVED_BYTES_MAX: usize = 256 * 1024;

/// HTML text of the page.
pub fn html(material: &Material) -> String {
    let title = format!("{} · {}", printable::line(&material.experiment, 100), printable::line(&material.id, 100));
    let memory = html! { (memory::over_time(material)) (memory::buffers(material)) };
    let is_news = memory_is_news(material);
    let content = html! {
        (head::head(material))
        (training::results(material))
        @if is_news { (memory) }
        (training::curves(material))
        @if !is_news { (memory) }
        @if let Some(stages) = material.stages() { (stages.html()) }
        (memory::phases(material))
        (pictures::section(material))
        (left_out(material))
        (experiment(material))
        (how_to_read(material))
    };
    document(&title, "", &content, "the files of the run's directory")
}

/// Returns `true` if memory grew or ended the run: then memory comes first.
fn memory_is_news(material: &Material) -> bool {
    use crate::verdict::Judgement;
    let verdict = material.verdict.as_ref().map(|verdict| verdict.verdict);
    let grew = [Judgement::Growing, Judgement::Exceeded, Judgement::Retained, Judgement::Slowing];
    verdict.is_some_and(|verdict| grew.contains(&verdict)) || material.post_mortem.is_some()
}

fn left_out(material: &Material) -> Markup {
    let smaller = material.manifest.as_ref().map(|manifest| &manifest.smaller).filter(|smaller| !smaller.is_empty());
    let skipped =
        material.manifest.as_ref().map(|manifest| &manifest.data_skipped).filter(|skipped| !skipped.is_empty());
    html! {
        @if let Some(smaller) = smaller {
            h2 { "Smaller than the experiment asks" }
            div.wide { table {
                thead { tr { th { "key" } th.r { "asked" } th.r { "used" } th { "because" } } }
                tbody {
                    @for one in smaller.iter().take(64) {
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
        @if !material.damage.is_empty() {
            h2 { "Not read" }
            div.damage { @for damage in &material.damage { p { (printable::line(damage, 400)) } } }
        }
    }
}

fn experiment(material: &Material) -> Markup {
    // Errors are listed under "Not read".
    let text = resolved::shown(&material.run);
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

fn how_to_read(material: &Material) -> Markup {
    if material.watched().is_some() {
        return how_to_read_a_command();
    }
    html! {
        h2 { "How to read this page" }
        p { "Sizes are in binary units: 1 MiB is 1,048,576 bytes. Memory is sampled at rest: a step's tensors are \
            dropped and the device is done, so a curve that climbs from step to step is memory that stays." }
        p { b { "Heap" } " is what the program asked for and has not given back. " b { "Resident" } " is what the \
            system has in memory for the process: heap, code, files, and what allocators keep for later. "
            b { "Device in use" } " is held by tensors; " b { "reserved" } " is what the pool took from the driver. "
            b { "Driver" } " is the driver's own count." }
        p { "A " b { "buffer" } " has a cap, set in the experiment, that it never passes. When it is full: " b { "block" }
            " waits until there is room, " b { "evict" } " drops what was used longest ago, " b { "reduce" } " folds items into \
            a summary or drops the least valuable one, " b { "refuse" } " ends the run with an error; " b { "leak" } " has no cap and is there to \
            show what a leak looks like." }
        (thinned())
    }
}

/// Explanations for a watched command, whose processes are observed from outside.
fn how_to_read_a_command() -> Markup {
    html! {
        h2 { "How to read this page" }
        p { "Sizes are in binary units: 1 MiB is 1,048,576 bytes. Memory is sampled while the command runs, wherever it is in a \
            step, so a curve goes up and down within a step. The verdict looks at the lowest values of windows of many steps." }
        p { b { "Held, without files" } " is the sum of private and shared memory of all processes, each page counted once. "
            b { "Resident" } " adds pages of files, which the system can drop. A group is all processes that play one role; " b { "private" }
            " pages are those that no other process has." }
        (thinned())
    }
}

fn thinned() -> Markup {
    html! {
        p { "Long series are thinned to 2,000 points that keep the lowest and the highest of their neighbours: peaks stay." }
    }
}
