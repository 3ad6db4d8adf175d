//! Output of `xrun ls`.

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::formatting::{number, utc_time};
pub use super::width::columns_within;
use crate::index::{RunEntry, RunState};
use crate::judge::recorded_training;
use crate::read;
use crate::read::ReadError;
use crate::verdict::{TrainingVerdict, Verdict};
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Table with one line per run, in the order given, at most 120 characters wide. In a terminal narrower than that,
/// `width`, the least important columns are left out. Ends with a line break.
pub fn text(runs: &[RunEntry], width: Option<usize>) -> String {
    let verdicts: Vec<_> = runs.iter().map(|run| read::verdict(&run.path)).collect();
    let rows: Vec<Vec<String>> = runs.iter().zip(&verdicts).map(|(run, verdict)| row(run, verdict)).collect();
    let header = ["run", "experiment", "state", ">steps", ">loss", "best", ">memory", "verdict", "training"];
    // The name and both verdicts stay as long as they fit.
    let mut text =
        columns_within(&header, &rows, width, &["loss", "steps", "memory", "experiment", "best", "state", "training"]);
    for run in runs.iter().filter(|run| run.parent.is_some()).take(FORKS_MAX) {
        let parent = run.parent.as_ref().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("{}: fork of {}\n", printable::line(&run.run, 28), printable::line(&parent, 100)));
    }
    for (run, verdict) in runs.iter().zip(&verdicts) {
        let unreadable = match &run.state {
            RunState::Unreadable(why) => Some(why.clone()),
            _ => None,
        };
        let damaged = verdict.as_ref().err().map(ToString::to_string);
        for why in unreadable.into_iter().chain(damaged) {
            text.push_str(&format!("{}: {}\n", printable::line(&run.run, 28), printable::line(&why, 400)));
        }
    }
    text
}

/// Maximum number of forks that are described below the table.
const FORKS_MAX: usize = 20;

fn row(run: &RunEntry, verdict: &Result<Option<Verdict>, ReadError>) -> Vec<String> {
    let steps = match (run.last_step, run.steps_planned) {
        (Some(step), Some(planned)) if step != planned => format!("{step}/{planned}"),
        (Some(step), _) => step.to_string(),
        (None, _) => "-".into(),
    };
    vec![
        printable::line(&run.run, 28),
        printable::line(&run.experiment, 20),
        run.state.label().to_owned(),
        steps,
        run.loss.as_ref().map_or("-".into(), |(kind, loss)| {
            format!("{} {}", number(*loss), printable::line(kind, 10)).trim_end().to_owned()
        }),
        run.best
            .as_ref()
            .map_or("-".into(), |best| format!("{} {}", printable::line(&best.metric, 14), number(best.value))),
        run.rss_peak.map_or("-".into(), |bytes| Bytes(bytes).to_string()),
        match verdict {
            Ok(Some(verdict)) => verdict.verdict.words().to_owned(),
            Ok(None) => "-".into(),
            Err(_) => "damaged".into(),
        },
        training(run).map_or("-", |training| training.verdict.words()).to_owned(),
    ]
}

/// Verdict on the training of a run; an older summary is from before a resume while the run is running.
fn training(run: &RunEntry) -> Option<TrainingVerdict> {
    recorded_training(&run.path, run.summary.as_ref().filter(|_| run.state != RunState::Running))
}

/// The runs as JSON. Unknown values are `null`.
pub fn json(runs: &[RunEntry]) -> Value {
    let object = |run: &RunEntry| {
        let verdict = read::verdict(&run.path);
        json!({
            "path": run.path.display().to_string(),
            "experiment": run.experiment,
            "run": run.run,
            "state": run.state.label(),
            "message": match &run.state {
                RunState::Unreadable(why) => Some(why.clone()),
                _ => run.summary.as_ref().map(|summary| summary.message.clone()),
            },
            "started": run.started,
            "started_text": run.started.as_deref().map(utc_time),
            "steps": run.last_step,
            "steps_planned": run.steps_planned,
            "loss": run.loss.as_ref().map(|(_, loss)| loss),
            "loss_kind": run.loss.as_ref().map(|(kind, _)| kind).filter(|kind| !kind.is_empty()),
            "best": run.best,
            "rss_peak": run.rss_peak,
            "parent": run.parent,
            "tags": read::notes(&run.path).unwrap_or_default().tags,
            "damage": verdict.as_ref().err().map(ToString::to_string),
            "verdict": verdict.ok().flatten().map(|verdict| verdict.verdict),
            "training": training(run).map(|training| training.verdict),
        })
    };
    Value::Array(runs.iter().map(object).collect())
}

/// Table with two spaces between columns, measured in terminal cells. A column whose title begins with `>` is
/// right-aligned.
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let title = header[column].trim_start_matches('>').width();
        rows.iter().map(|row| row[column].width()).max().unwrap_or(0).max(title)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: Vec<&str>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let space = " ".repeat(widths[column] - cell.width());
            if header[column].starts_with('>') { format!("{space}{cell}") } else { format!("{cell}{space}") }
        });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    };
    line(header.iter().map(|title| title.trim_start_matches('>')).collect());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
    text
}
