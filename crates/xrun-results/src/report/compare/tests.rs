//! Tests of comparisons: differences, terminal widths, and hostile names.

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
    let keys: Vec<&str> = compared.record.differences.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["experiment.seed"]);
    assert_eq!(compared.record.differences[0].values, [Some(7.into()), Some(8.into())]);
    assert!(compared.record.environment.is_empty(), "the same program on the same machine");
    assert_eq!(compared.record.runs[1].state, "killed");
    assert_eq!(compared.record.runs[1].steps_per_second, None);
}

#[test]
fn a_missing_key_is_a_difference() {
    let all = [BTreeMap::from([("a".to_owned(), Value::from(1))]), BTreeMap::new()];
    assert_eq!(differences(&all)[0].values, [Some(1.into()), None]);
    assert!(differences(&[all[0].clone(), all[0].clone()]).is_empty());
}

#[test]
fn side_by_side_as_text() {
    let (_results, compared) = two();
    insta::assert_snapshot!(text(&compared, 100));
}

#[test]
fn many_runs_are_wrapped_to_the_width() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let compared = gather(&vec![run; RUNS_MAX]).unwrap();
    for width in [40, 80, 200] {
        let text = text(&compared, width);
        let (legend, rest) = text.split_once("\n\n").unwrap();
        assert_eq!(legend.lines().count(), RUNS_MAX + 1);
        let longest = rest.lines().map(|line| line.chars().count()).max().unwrap();
        // One column may be wider than a narrow terminal.
        assert!(longest <= width.max(60), "{longest} at {width}");
        let heads: Vec<u64> = rest
            .lines()
            .filter(|line| line.split_whitespace().all(|word| word.parse::<u64>().is_ok()))
            .flat_map(|line| line.split_whitespace().map(|word| word.parse().unwrap()))
            .collect();
        assert_eq!(heads, (1..=RUNS_MAX as u64).collect::<Vec<_>>(), "at {width}");
    }
}

#[test]
fn the_page_overlays_the_curves_of_all_runs() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let page = html(&gather(&vec![run; 9]).unwrap());
    well_formed(&page);
    insta::assert_snapshot!(texts_of(&page, &["h1", "h2", "h3"]));
    for class in ["c1", "c7", "c8", "c9"] {
        assert!(page.contains(&format!("<polyline class=\"line {class}\"")), "no curve is {class}");
        assert!(page.contains(&format!(".{class} {{ --c: ")), "the style has no {class}");
    }
    let tenth = html(&gather(&vec![finished(results.path(), PLAIN); 10]).unwrap());
    assert!(tenth.contains("<polyline class=\"line c10\"") && tenth.contains(".c10 { --c: "));
}

#[test]
fn hostile_names_are_escaped_in_comparisons() {
    let results = tempfile::tempdir().unwrap();
    let hostile = finished(results.path(), HOSTILE);
    let compared = gather(&[hostile.clone(), hostile]).unwrap();
    let page = html(&compared);
    well_formed(&page);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(!text(&compared, 100).contains('\u{1b}'));
}
