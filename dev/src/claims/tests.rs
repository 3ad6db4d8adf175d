//! Tests of claims: expectations, figures by name, repeated measurements, leaks, and answers that need a reason.

use super::*;
use xrun_core::files::write;

/// Results of a sweep of three trials and of one leak.
fn results() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let sweep = directory.path().join("reference/remedies");
    std::fs::create_dir_all(&sweep).unwrap();
    let run = |repeat: u32, peak: u64, growth: f64| {
        serde_json::json!({ "run": "", "repeat": repeat, "finished": true, "rss_peak": peak, "growth": growth,
            "verdict": "growing", "metrics": { "map50": 0.5 },
            "figures": { "step.triplet": 3 * peak, "step.by_seed": peak * 10u64.pow(repeat) } })
    };
    let row = |trial: u64, runs: [serde_json::Value; 2]| serde_json::json!({ "trial": trial, "runs": runs });
    let rows = [
        row(1, [run(1, 1000, 64.0), run(2, 1020, 66.0)]),
        row(2, [run(1, 500, 0.0), run(2, 510, 0.0)]),
        row(3, [run(1, 1000, 60.0), run(2, 1015, 70.0)]),
    ];
    let table = serde_json::json!({ "rows": rows }).to_string();
    write::replace(&sweep.join("table.json"), table.as_bytes()).unwrap();
    let leak = serde_json::json!([{ "name": "frame_cache", "leaky": "growing", "bounded": "bounded", "series": "heap",
        "slope_expected": 1024.0, "slope_measured": 1000.0, "ends": false, "owner_named": "frame_cache",
        "owner_expected": "frame_cache", "wrong": [],
        "left_out": null }]);
    write::replace(&directory.path().join("reference/leaks.json"), leak.to_string().as_bytes()).unwrap();
    directory
}

/// Answers a claim whose first answer has these figures.
fn found(figures: &str) -> Result<AnsweredClaim, ClaimsError> {
    answered(results().path(), &format!("found = [{figures}]\nbecause = 'b'"))
}

fn answered(results: &Path, keys: &str) -> Result<AnsweredClaim, ClaimsError> {
    let claims: Claims =
        toml::from_str(&format!("[[report]]\ntitle = 'r'\n[[report.claim]]\nsays = 's'\n{keys}")).unwrap();
    answer(&claims.report[0].claim[0], &mut Results::new(results))
}

fn peak(trial: u64, expected: &str) -> String {
    format!("{{ sweep = 'remedies', trial = {trial}, against = 1, name = 'rss_peak', expect = {expected} }}")
}

#[test]
fn an_expectation_is_answered_by_the_interval_of_its_figure() {
    for (trial, expected, answer) in [
        (2, "{ at_most = -20.0 }", Answer::Confirmed),
        (2, "{ at_least = -20.0 }", Answer::Refuted),
        (3, "{ at_most = -0.1 }", Answer::Depends),
        (3, "{ at_least = -10.0, at_most = 10.0 }", Answer::Confirmed),
    ] {
        assert_eq!(worst(&found(&peak(trial, expected)).unwrap().found), answer, "{trial} {expected}");
    }
    // Half of it: the mean of 500 and 510 against that of 1000 and 1020.
    let half = found(&peak(2, "{ at_most = -20.0 }")).unwrap();
    assert!(half.found[0].0.starts_with("-50.0 %"), "{half:?}");
}

#[test]
fn what_a_seed_does_to_all_trials_is_no_noise() {
    let by_seed = peak(2, "{ at_most = -20.0 }").replace("rss_peak", "step.by_seed");
    assert_eq!(worst(&found(&by_seed).unwrap().found), Answer::Confirmed);
}

#[test]
fn an_answer_is_that_of_its_worst_figure() {
    let confirmed = peak(2, "{ at_most = -20.0 }");
    for (other, answer) in [
        (peak(2, "{ at_least = -20.0 }"), Answer::Refuted),
        (peak(3, "{ at_most = -0.1 }"), Answer::Depends),
        ("{ missing = 'no GPU' }".into(), Answer::NotShown),
        (confirmed.clone(), Answer::Confirmed),
    ] {
        for figures in [format!("{other}, {confirmed}"), format!("{confirmed}, {other}")] {
            assert_eq!(worst(&found(&figures).unwrap().found), answer, "{figures}");
        }
    }
}

#[test]
fn measurements_that_differ_answer_depends() {
    let directory = results();
    let figures = format!("found = [{}]\nbecause = 'b'", peak(2, "{ at_most = -20.0 }"));
    let first = answered(directory.path(), &figures).unwrap();
    assert!(first.found[0].0.ends_with("1 of 3 runs"), "{first:?}");
    for (run, other) in [(2, "500"), (3, "2000")] {
        let table = read(&directory.path().join("reference/remedies/table.json")).unwrap();
        let copy = directory.path().join(format!("reference/remedies.{run}"));
        std::fs::create_dir(&copy).unwrap();
        let table = table.replace("\"rss_peak\":500", &format!("\"rss_peak\":{other}"));
        write::replace(
            &copy.join("table.json"),
            table.replace("\"rss_peak\":510", &format!("\"rss_peak\":{other}")).as_bytes(),
        )
        .unwrap();
    }
    let all = answered(directory.path(), &figures).unwrap();
    assert_eq!(worst(&all.found), Answer::Depends, "{all:?}");
    assert!(!all.found[0].0.contains("of 3 runs"), "{all:?}");
}

#[test]
fn figures_are_read_by_the_name_of_a_field_a_metric_or_a_further_measurement() {
    let shown = |name: &str, expected: &str| {
        let figure = format!("{{ sweep = 'remedies', trial = 2, name = '{name}', expect = {{ {expected} }} }}");
        found(&figure).map(|answered| (answered.found[0].0.clone(), worst(&answered.found)))
    };
    let begins = |name: &str, text: &str| assert!(shown(name, "at_most = 2000").unwrap().0.starts_with(text), "{name}");
    begins("growth", "0 B a step, expected at most 2 KiB a step");
    begins("map50", "0.5, expected");
    begins("step.triplet", "1.5 KiB");
    assert_eq!(shown("verdict", "is = 'growing'").unwrap().1, Answer::Confirmed);
    assert_eq!(shown("verdict", "is = 'bounded'").unwrap().1, Answer::Refuted);
    assert!(shown("unknown", "at_most = 1").is_err());
    assert!(shown("growth", "").is_err(), "no expectation");
    let file = |field: &str| {
        found(&format!("{{ file = 'reference/leaks.json', field = '{field}', expect = {{ at_least = 1024 }} }}"))
    };
    assert_eq!(worst(&file("/0/slope_expected").unwrap().found), Answer::Confirmed);
    assert!(file("/1/slope_expected").is_err());
}

#[test]
fn a_leak_is_found_with_its_owner_and_is_no_cause() {
    let leak = "{ leak = 'frame_cache' }";
    assert_eq!(worst(&found(leak).unwrap().found), Answer::Confirmed);
    assert!(found("{ leak = 'other' }").is_err());
    let directory = results();
    assert!(answered(directory.path(), &format!("cause = [{leak}]\nbecause = 'b'")).is_err());
    let path = directory.path().join("reference/leaks.json");
    let unnamed = read(&path).unwrap().replace("\"owner_named\":\"frame_cache\"", "\"owner_named\":null");
    write::replace(&path, unnamed.as_bytes()).unwrap();
    let found = answered(directory.path(), &format!("found = [{leak}]\nbecause = 'b'")).unwrap();
    assert_eq!(worst(&found.found), Answer::Refuted, "the owner is not named");
}

#[test]
fn an_answer_without_measurement_needs_a_reason() {
    let directory = results();
    assert!(answered(directory.path(), "").is_err());
    assert!(answered(directory.path(), "cause = [{ missing = 'c' }]").is_err());
    let keys = format!(
        "because = 'a|b'\nfound = [{}, {}]\ncause = [{{ missing = 'no GPU' }}]",
        peak(2, "{ at_most = -20.0 }"),
        peak(3, "{ at_most = -20.0 }, changed = 'why'")
    );
    let page = markdown(&[("r", vec![answered(directory.path(), &keys).unwrap()])]);
    insta::assert_snapshot!(page);
}
