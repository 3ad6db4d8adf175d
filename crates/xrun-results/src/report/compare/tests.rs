//! Tests of comparisons: differences, terminal widths, and hostile names.

use std::path::Path;

use super::*;
use crate::report::sample::{HOSTILE, PLAIN, finished, killed};
use crate::report::tests::{texts_of, well_formed};
use xrun_core::files::{layout, write};

/// A finished run and a killed one, whose experiments differ in the seed.
fn two() -> (tempfile::TempDir, RunComparison) {
    let results = tempfile::tempdir().unwrap();
    let runs = [finished(results.path(), PLAIN), killed(results.path())];
    let path = runs[1].join(layout::RESOLVED);
    let other = std::fs::read_to_string(&path).unwrap().replace("seed = 7", "seed = 8");
    write::replace(&path, other.as_bytes()).unwrap();
    let compared = gather(&runs).unwrap();
    (results, compared)
}

#[test]
fn only_differing_keys_are_listed() {
    let (_results, compared) = two();
    let keys: Vec<&str> = compared.differences.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["experiment.seed"]);
    assert_eq!(compared.differences[0].values, [Some(7.into()), Some(8.into())]);
    assert!(compared.environment.is_empty(), "the same program on the same machine");
    assert_eq!(compared.json().unwrap()["runs"][1]["state"], "killed");
    assert_eq!(compared.runs[1].view.steps_text(), "56/200");
    let all = [BTreeMap::from([("a".to_owned(), Value::from(1))]), BTreeMap::new()];
    assert_eq!(differences(&all)[0].values, [Some(1.into()), None], "a missing key");
}

#[test]
fn side_by_side_as_text() {
    let (_results, compared) = two();
    insta::assert_snapshot!(text(&compared, &View::default(), 100));
}

/// Finished runs with these values of `training.epochs` and `experiment.seed`, and this last value of the metric.
fn with_values(results: &Path, values: &[(u64, u64, f64)]) -> Vec<PathBuf> {
    let one = |(at, (epochs, seed, map)): (usize, &(u64, u64, f64))| {
        let run = finished(&results.join(at.to_string()), PLAIN);
        let path = run.join(layout::RESOLVED);
        let text = std::fs::read_to_string(&path).unwrap();
        let text =
            text.replace("epochs = 4", &format!("epochs = {epochs}")).replace("seed = 7", &format!("seed = {seed}"));
        write::replace(&path, text.as_bytes()).unwrap();
        let mut summary = crate::read::summary(&run).unwrap().unwrap();
        summary.metrics_last.insert("map_50".into(), Some(*map));
        summary.best = Some(crate::format::Best { metric: "map_50".into(), value: *map, step: 200 });
        write::replace_json(&run.join(layout::SUMMARY), &summary).unwrap();
        // A run that differs has other metrics.
        let path = run.join(layout::METRICS);
        let text = std::fs::read_to_string(&path).unwrap().replacen("2.85", &format!("2.8{epochs}{seed}"), 1);
        write::replace(&path, text.as_bytes()).unwrap();
        run
    };
    values.iter().enumerate().map(one).collect()
}

#[test]
fn a_setting_is_kept_or_discarded_only_beyond_the_noise_of_repeats() {
    let decided = |values: &[(u64, u64, f64)]| {
        let results = tempfile::tempdir().unwrap();
        let compared = gather(&with_values(results.path(), values)).unwrap();
        compared.decision().map(|found| (found["decision"].as_str().unwrap().to_owned(), found["more_runs"].as_u64()))
    };
    let first = [(4, 1, 0.50), (4, 2, 0.51), (4, 3, 0.49)];
    let against = |second: [f64; 3]| {
        let second = [1, 2, 3].into_iter().zip(second).map(|(seed, value)| (5, seed, value));
        decided(&first.into_iter().chain(second).collect::<Vec<_>>())
    };
    assert_eq!(against([0.60, 0.61, 0.59]), Some(("keep".into(), None)));
    assert_eq!(against([0.40, 0.41, 0.39]), Some(("discard".into(), None)));
    // sd 0.02, difference 0.02: 2.05 * 0.02 * sqrt(2 / n) < 0.0198 from n = 9 or 10 on.
    let (word, more) = against([0.51, 0.52, 0.50]).unwrap();
    assert!(word == "undecided" && more.is_some_and(|more| (4..9).contains(&more)), "{more:?}");
    assert_eq!(decided(&[(4, 1, 0.5), (5, 1, 0.6)]), Some(("undecided".into(), Some(2))));
    assert_eq!(decided(&[(4, 1, 0.5), (4, 2, 0.6)]), None, "there is one setting");
}

#[test]
fn many_runs_are_wrapped_to_the_width() {
    let results = tempfile::tempdir().unwrap();
    let values: Vec<(u64, u64, f64)> = (1..=RUNS_MAX as u64).map(|at| (at, 7, 0.4 + 0.001 * at as f64)).collect();
    let compared = gather(&with_values(results.path(), &values)).unwrap();
    for width in [40, 60, 100, 200] {
        let text = text(&compared, &View::default(), width);
        let (_, rest) = text.split_once("\n\n").unwrap();
        let longest = rest.lines().map(|line| line.chars().count()).max().unwrap();
        // One column may be wider than a narrow terminal.
        assert!(longest <= width.max(60), "{longest} at {width}: {text}");
        let heads: Vec<u64> = rest
            .lines()
            .filter(|line| line.trim_start().starts_with("epochs ") && !line.starts_with("  epochs"))
            .flat_map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()))
            .collect();
        assert_eq!(heads, (1..=RUNS_MAX as u64).collect::<Vec<_>>(), "at {width}: {text}");
    }
}

#[test]
fn a_change_is_in_percent_and_the_best_run_is_marked() {
    let results = tempfile::tempdir().unwrap();
    let compared = gather(&with_values(results.path(), &[(4, 7, 0.4), (3, 7, 0.5), (2, 7, 0.3)])).unwrap();
    let tables = rows::tables(&compared, &View::default());
    let labels: Vec<&str> = tables.columns.iter().map(|column| column.label.as_str()).collect();
    assert_eq!(labels, ["epochs 4", "epochs 3", "epochs 2"]);
    let section = tables.sections.iter().find(|section| section.title == "result").unwrap();
    let row = section.rows.iter().find(|row| row.label == "map_50 ↑, last").unwrap();
    let changes: Vec<&str> = row.cells.iter().map(|cell| cell.change.as_str()).collect();
    assert_eq!(changes, ["", "+25.0 %", "-25.0 %"]);
    assert_eq!(row.cells.iter().map(|cell| cell.best).collect::<Vec<_>>(), [false, true, false]);
    assert!(tables.same.iter().any(|(label, value)| label == "steps" && value == "200"));
    assert!(tables.notes.is_empty(), "{:?}", tables.notes);
    let shown = text(&compared, &View { metrics: vec!["map_50".into()], only_changed: true, ..View::default() }, 100);
    assert!(shown.contains("map_50") && !shown.contains("recall") && !shown.contains("loss"), "{shown}");
    assert!(!shown.contains("200"), "what is the same: {shown}");
}

#[test]
fn repeats_share_a_column_and_their_noise_decides() {
    let results = tempfile::tempdir().unwrap();
    let near = [(4, 1, 0.40), (4, 2, 0.46), (3, 1, 0.42), (3, 2, 0.47)];
    let compared = gather(&with_values(results.path(), &near)).unwrap();
    assert_eq!(compared.runs.iter().map(|run| run.setting).collect::<Vec<_>>(), [1, 1, 2, 2]);
    let row = |compared: &RunComparison| {
        let tables = rows::tables(compared, &View::default());
        let section = tables.sections.into_iter().find(|section| section.title == "result").unwrap();
        (tables.columns, section.rows.into_iter().find(|row| row.label == "map_50 ↑, last").unwrap())
    };
    let (columns, cells) = row(&compared);
    assert_eq!(columns.iter().map(|column| column.runs.clone()).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
    assert_eq!((cells.cells[0].text.as_str(), cells.cells[0].deviation.as_str()), ("0.43", "0.0424"));
    assert!(cells.cells[1].change == "within noise" && cells.cells.iter().all(|cell| !cell.best), "{cells:?}");
    let far = [(4, 1, 0.40), (4, 2, 0.41), (3, 1, 0.60), (3, 2, 0.61)];
    let (_, cells) = row(&gather(&with_values(&results.path().join("far"), &far)).unwrap());
    // exp(mean(ln 0.60, ln 0.61) - mean(ln 0.40, ln 0.41)) - 1
    assert!(cells.cells[1].change == "+49.4 %" && cells.cells[1].best, "{cells:?}");
    insta::assert_snapshot!(text(&compared, &View::default(), 100));
}

#[test]
fn identical_runs_are_called_so_and_have_no_table() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let compared = gather(&[run.clone(), run]).unwrap();
    assert_eq!(compared.runs[0].metrics_digest, compared.runs[1].metrics_digest);
    let tables = rows::tables(&compared, &View::default());
    assert!(tables.sections.is_empty() && tables.notes.len() == 1, "{tables:?}");
    insta::assert_snapshot!(text(&compared, &View { only_changed: true, ..View::default() }, 100));
}

#[test]
fn the_page_overlays_the_curves_of_all_runs_and_escapes_hostile_names() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let page = html(&gather(&vec![run; 9]).unwrap(), &View::default());
    well_formed(&page);
    insta::assert_snapshot!(texts_of(&page, &["h1", "h2", "h3"]));
    for class in ["c1", "c7", "c8", "c9"] {
        assert!(page.contains(&format!("<polyline class=\"line {class}\"")), "no curve is {class}");
        assert!(page.contains(&format!(".{class} {{ --c: ")), "the style has no {class}");
    }
    let hostile = gather(&vec![finished(results.path(), HOSTILE); 10]).unwrap();
    let page = html(&hostile, &View::default());
    well_formed(&page);
    assert!(page.contains("<polyline class=\"line c10\"") && page.contains(".c10 { --c: "));
    assert_eq!(page.matches("<script").count(), 1, "that of xrun");
    assert!(!page.contains("<img") && !text(&hostile, &View::default(), 100).contains('\u{1b}'));
}
