//! Output of `xrun show --brief`: some ten lines on a run, the verdict first.

use super::formatting::number;
use super::summary::{Page, files, progress};
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Text of some ten lines on a run, also a running, killed or damaged one, for a terminal of `width` characters. Ends with a
/// line break.
pub fn text(report: &RunView, width: Option<usize>) -> String {
    let mut page = Page { width, ..Page::default() };
    if let Some(verdict) = report.verdict() {
        page.line("verdict", &format!("{}: {}", verdict.verdict.words(), verdict.message));
    }
    if let Some(explanation) = report.explanation() {
        page.line("explanation", &explanation.message);
    }
    if let Some(training) = report.training() {
        page.line("training", &format!("{}: {}", training.verdict.words(), training.message));
    }
    page.line("outcome", &format!("{}: {}", report.state().label(), report.message()));
    if let Some(result) = report.result_line() {
        page.line("result", &result);
    }
    let losses = report.losses();
    let loss = |loss: &crate::loss::KindLoss| {
        let kind = if losses.len() > 1 { format!("{} ", loss.kind) } else { String::new() };
        format!("{kind}{} -> {}", number(loss.first), number(loss.last))
    };
    if !losses.is_empty() {
        page.line("loss", &losses.iter().map(loss).collect::<Vec<_>>().join(", "));
    }
    let memory = report.memory();
    if memory.samples > 0 {
        let peak = |name: &str, bytes: Option<u64>| bytes.map(|bytes| format!("{name} {}", Bytes(bytes)));
        let peaks = [
            peak(report.heap_label(), Some(memory.heap_peak)),
            peak("RSS", memory.rss_peak),
            peak("device", memory.device_reserved_peak),
        ];
        page.line("peak memory", &peaks.into_iter().flatten().collect::<Vec<_>>().join(", "));
    }
    progress(report, &mut page);
    page.line("run", &report.path.display().to_string());
    files(report, &mut page);
    match report.damage().len() {
        0 => {}
        1 => page.line("damaged", &report.damage()[0]),
        count => page.line("damaged", &format!("{} (and {} more)", report.damage()[0], count - 1)),
    }
    printable::lines(&page.text)
}
