//! Evaluation as text.

use super::formatting::number;
use super::table::Table;
use crate::evaluation::Evaluation;
use xrun_core::printable;
use xrun_core::task::metric::PlannedMetric;
use xrun_core::units::seconds;

/// A line with checkpoint and data, and a table of the metrics next to those of the run itself.
pub fn text(evaluation: &Evaluation, width: Option<usize>) -> String {
    let name = |text: &str| printable::line(text, 64);
    let planned = |metric: &str| evaluation.planned.iter().find(|planned| planned.name == metric);
    let shown = |metric: &str, value: Option<f64>| {
        let percent = planned(metric).map_or("", |planned| PlannedMetric::percent(&planned.unit));
        value.map_or("-".into(), |value| format!("{}{percent}", number(value)))
    };
    // In the order of the pipeline, the most important first.
    let mut names: Vec<&String> = evaluation.metrics.keys().collect();
    let index = |metric: &str| evaluation.planned.iter().position(|planned| planned.name == metric);
    names.sort_by_key(|name| index(name).unwrap_or(usize::MAX));
    let rows: Vec<Vec<String>> = (names.into_iter())
        .map(|metric| {
            let direction =
                planned(metric).and_then(|planned| planned.direction).map_or("", |direction| direction.words());
            let interval = evaluation.intervals.get(metric);
            let interval = interval.map_or(String::new(), |interval| format!("± {}", number(interval.half_width)));
            let before = evaluation.in_training.get(metric).map_or(String::new(), |value| shown(metric, *value));
            vec![name(metric), direction.to_owned(), shown(metric, evaluation.metrics[metric]), interval, before]
        })
        .collect();
    let header = ["metric", "direction", ">value", "95 %", ">in training"];
    let used = &evaluation.used;
    let data = if used.same_data { "the data of the run" } else { "other data than the run's" };
    let run = format!("{}/{}", name(&used.experiment), name(&used.run));
    let after = xrun_core::units::pluralize(used.step, "step");
    let metrics = Table::new(&header, rows).text(width);
    let (classes, notes) = super::classes::list(&evaluation.classes);
    let classes = if classes.rows.is_empty() { String::new() } else { format!("\n{}", classes.text(width)) };
    let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
    format!("{run} after {after}, on {data}, {}: {}\n{metrics}{classes}{notes}", used.device, seconds(used.seconds))
}
