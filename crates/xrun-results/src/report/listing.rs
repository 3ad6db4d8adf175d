//! Output of `xrun ls`.

use serde_json::{Value, json};

use super::formatting::{number, utc_time};
pub use super::width::columns_within;
use crate::run_state::RunState;
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Table with one line per run, in the order given, at most 120 characters wide. In a terminal narrower than that,
/// `width`, names of runs have no year and seconds, and the least important columns are left out. Ends with a line break.
pub fn text(runs: impl Iterator<Item = RunView>, width: Option<usize>) -> String {
    let (mut rows, mut forks, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        let name = printable::line(&run.run, 28);
        forks.extend(
            (run.parent().filter(|_| forks.len() < FORKS_MAX))
                .map(|parent| format!("{name}: fork of {}\n", printable::line(&parent.to_string(), 100))),
        );
        let unreadable = match run.state() {
            RunState::Unreadable(why) => Some(why.clone()),
            _ => None,
        };
        let damaged = run.verdict_error().map(ToString::to_string);
        let all = unreadable.into_iter().chain(damaged);
        damage.extend(all.map(|why| format!("{name}: {}\n", printable::line(&why, 400))));
        rows.push(row(&run));
    }
    let header = ["run", "experiment", "state", ">steps", ">loss", "best", ">memory", "verdict", "training"];
    if width.is_some_and(|width| width < WHOLE_NAMES_WIDTH_MIN) {
        rows.iter_mut().for_each(|row| row[0] = short_name(&row[0]));
    }
    let optional = ["loss", "steps", "memory", "state", "training", "best", "experiment"];
    let table = columns_within(&header, &rows, width, &optional);
    [table].into_iter().chain(forks).chain(damage).collect()
}

/// Width of a terminal from which on the names of runs are whole.
const WHOLE_NAMES_WIDTH_MIN: usize = 110;

/// `11-21 07:14 a3f20b` for `2026-11-21T07-14-35_a3f20b`; a run is found by the six characters at its end.
fn short_name(run: &str) -> String {
    let parts = || Some((run.get(5..10)?, run.get(11..13)?, run.get(14..16)?, run.get(19..)?.strip_prefix('_')?));
    let is_dated = run.as_bytes().get(10) == Some(&b'T');
    match parts().filter(|_| is_dated) {
        Some((day, hour, minute, end)) => format!("{day} {hour}:{minute} {end}"),
        None => run.to_owned(),
    }
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

/// A run as JSON. Unknown values are `null`.
pub fn json(run: &RunView) -> Value {
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
}
