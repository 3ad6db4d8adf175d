//! Output of `xrun ls`.

use serde_json::{Value, json};

use super::formatting::{number, utc_time};
pub use super::width::columns_within;
use crate::run_state::RunState;
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Table with one line per run, in the order given, at most 120 characters wide. In a terminal narrower than that,
/// `width`, the least important columns are left out. Ends with a line break.
pub fn text(runs: &[RunView], width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let header = ["run", "experiment", "state", ">steps", ">loss", "best", ">memory", "verdict", "training"];
    // The name and both verdicts stay as long as they fit.
    let mut text =
        columns_within(&header, &rows, width, &["loss", "steps", "memory", "experiment", "best", "state", "training"]);
    let forks = runs.iter().filter_map(|run| Some((&run.run, run.parent()?)));
    for (run, parent) in forks.take(FORKS_MAX) {
        let parent = printable::line(&parent.to_string(), 100);
        text.push_str(&format!("{}: fork of {parent}\n", printable::line(run, 28)));
    }
    for run in runs {
        let unreadable = match run.state() {
            RunState::Unreadable(why) => Some(why.clone()),
            _ => None,
        };
        let damaged = run.verdict_error().map(ToString::to_string);
        for why in unreadable.into_iter().chain(damaged) {
            text.push_str(&format!("{}: {}\n", printable::line(&run.run, 28), printable::line(&why, 400)));
        }
    }
    text
}

/// Maximum number of forks that are described below the table.
const FORKS_MAX: usize = 20;

fn row(run: &RunView) -> Vec<String> {
    vec![
        printable::line(&run.run, 28),
        printable::line(&run.experiment, 20),
        run.state().label().to_owned(),
        run.steps_text(),
        run.loss().map_or("-".into(), |(kind, loss)| {
            format!("{} {}", number(loss), printable::line(kind, 10)).trim_end().to_owned()
        }),
        run.best().map_or("-".into(), |best| format!("{} {}", printable::line(&best.metric, 14), number(best.value))),
        run.rss_peak().map_or("-".into(), |bytes| Bytes(bytes).to_string()),
        match run.verdict() {
            Some(verdict) => verdict.verdict.words().to_owned(),
            None if run.verdict_error().is_none() => "-".into(),
            None => "damaged".into(),
        },
        run.listed_training().map_or("-", |training| training.verdict.words()).to_owned(),
    ]
}

/// The runs as JSON. Unknown values are `null`.
pub fn json(runs: &[RunView]) -> Value {
    let object = |run: &RunView| {
        json!({
            "path": run.path.display().to_string(),
            "experiment": run.experiment,
            "run": run.run,
            "state": run.state().label(),
            "message": match run.state() {
                RunState::Unreadable(why) => Some(why.clone()),
                _ => run.final_summary().map(|summary| summary.message.clone()),
            },
            "started": run.started(),
            "started_text": run.started().map(utc_time),
            "steps": run.steps(),
            "steps_planned": run.steps_planned(),
            "loss": run.loss().map(|(_, loss)| loss),
            "loss_kind": run.loss().map(|(kind, _)| kind).filter(|kind| !kind.is_empty()),
            "best": run.best(),
            "rss_peak": run.rss_peak(),
            "parent": run.parent(),
            "tags": run.tags(),
            "damage": run.verdict_error().map(ToString::to_string),
            "verdict": run.verdict().map(|verdict| verdict.verdict),
            "training": run.listed_training().map(|training| training.verdict),
        })
    };
    Value::Array(runs.iter().map(object).collect())
}
