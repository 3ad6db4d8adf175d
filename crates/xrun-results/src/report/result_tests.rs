//! Tests of the results of a run.

use std::path::Path;

use super::*;
use crate::format::{Best, Outcome, Summary};
use crate::read;
use crate::report::run_report::open;
use crate::report::sample::{PLAIN, finished, killed};
use xrun_core::files::write;

fn change(run: &Path, with: impl FnOnce(&mut Summary)) {
    let mut summary = read::summary(run).unwrap().unwrap();
    with(&mut summary);
    write::replace_json(&run.join(layout::SUMMARY), &summary).unwrap();
}

#[test]
fn losses_by_kind_need_no_summary() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let losses = open(&run).unwrap().losses();
    let kinds: Vec<(&str, u64)> = losses.iter().map(|loss| (loss.kind.as_str(), loss.steps)).collect();
    assert_eq!(kinds, [("detection", 134), ("triplet", 66)]);
    // Equal to the table under the chart.
    let view = open(&run).unwrap();
    for loss in &losses {
        let curve = view.curves().losses.iter().find(|curve| curve.kind == loss.kind).unwrap();
        assert_eq!((curve.smooth.first.unwrap().y, curve.smooth.last.unwrap().y), (loss.first, loss.last));
    }
    std::fs::remove_file(run.join(layout::SUMMARY)).unwrap();
    assert_eq!(open(&run).unwrap().losses(), losses, "read from metrics.jsonl");
    assert_eq!(open(&killed(results.path())).unwrap().losses()[0].kind, "detection");
}

#[test]
fn after_is_never_the_validation_from_before_training() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let untrained = |summary: &mut Summary| {
        (summary.outcome, summary.best) = (Outcome::Interrupted, None);
        summary.metrics_last = BTreeMap::new();
    };
    change(&run, untrained);
    let metrics = open(&run).unwrap().metrics();
    assert!(metrics.iter().any(|metric| metric.before.is_some()));
    assert!(metrics.iter().all(|metric| metric.after.is_none()), "{metrics:?}");
    insta::assert_snapshot!(open(&run).unwrap().result_line().unwrap());
}

#[test]
fn the_result_line_names_an_existing_best_checkpoint() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    change(&run, |summary| summary.best = Some(Best { metric: "map_50".into(), value: 0.5111, step: 150 }));
    let lines = || {
        let view = open(&run).unwrap();
        [view.result_line().unwrap(), view.loss_line().unwrap()].join("\n")
    };
    let without_checkpoint = lines();
    std::fs::create_dir_all(layout::checkpoint(&run, 150)).unwrap();
    insta::assert_snapshot!([without_checkpoint, lines()].join("\n"));
}

#[test]
fn the_family_of_the_selecting_metric_comes_first() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let mut plan = read::plan(&run).unwrap();
    plan.best_by = Some("embedding_margin".into());
    write::replace_json(&run.join(layout::PLAN), &plan).unwrap();
    let metrics = open(&run).unwrap().metrics();
    let names: Vec<&str> = metrics.iter().map(|metric| metric.planned.name.as_str()).collect();
    // The last two are not in the plan.
    assert_eq!(names, ["embedding_margin", "map_50", "map", "recall", "episode_map", "st_iou"]);
    assert!(metrics[0].selects_best && !metrics[1].selects_best);
    assert_eq!(metrics[1].best, Some((0.432, 200)), "of each metric the best of all validations");
}

#[test]
fn a_metric_without_a_direction_has_no_best() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let mut plan = read::plan(&run).unwrap();
    plan.metrics.iter_mut().filter(|metric| metric.name == "recall").for_each(|metric| metric.direction = None);
    write::replace_json(&run.join(layout::PLAN), &plan).unwrap();
    let report = open(&run).unwrap();
    let metrics = report.metrics();
    let metric = |name: &str| metrics.iter().find(|metric| metric.planned.name == name).unwrap();
    assert!(metric("recall").after.is_some() && metric("map").best.is_some(), "both were measured");
    assert_eq!((metric("recall").planned.direction, metric("recall").best), (None, None));
}
