//! Tests of claims: expectations, figures by name, leaks, and answers that need a reason.

use super::*;
use xrun_core::files::write;

/// Results of a sweep of three trials and of one leak.
fn results() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let sweep = directory.path().join("reference/remedies");
    std::fs::create_dir_all(&sweep).unwrap();
    let run = |peak: u64, growth: f64| {
        serde_json::json!({ "run": "", "finished": true, "rss_peak": peak, "growth": growth,
            "figures": { "step.triplet": 3 * peak }, "metrics": { "map50": 0.5 } })
    };
    let row = |trial: u64, runs: Vec<serde_json::Value>| serde_json::json!({ "trial": trial, "runs": runs });
    let rows = [
        row(1, vec![run(1000, 64.0), run(1020, 66.0)]),
        row(2, vec![run(500, 0.0), run(510, 0.0)]),
        row(3, vec![run(1000, 60.0), run(1015, 70.0)]),
    ];
    let table = serde_json::json!({ "rows": rows }).to_string();
    write::replace(&sweep.join("table.json"), table.as_bytes()).unwrap();
    let leak = serde_json::json!([{ "name": "frame_cache", "leaky": "growing", "bounded": "bounded", "series": "heap",
        "slope_expected": 1024.0, "slope_measured": 1000.0, "ends": false, "owner_named": "frame_cache", "wrong": [],
        "left_out": null }]);
    write::replace(&directory.path().join("reference/leaks.json"), leak.to_string().as_bytes()).unwrap();
    directory
}

fn answered(claim: &str) -> Result<AnsweredClaim, ClaimsError> {
    let directory = results();
    let claims: Claims = toml::from_str(&format!("[[report]]\ntitle = \"r\"\n[[report.claim]]\n{claim}")).unwrap();
    answer(&claims.report[0].claim[0], &mut Results::new(directory.path()))
}

#[test]
fn an_expectation_is_answered_by_the_interval_of_the_last_figure() {
    let figure = |trial: u64| format!("{{ sweep = 'remedies', trial = {trial}, against = 1, name = 'rss_peak' }}");
    let claim = |trial, expected: &str| format!("says = 's'\nfigures = [{}]\nexpect = {expected}", figure(trial));
    for (trial, expected, answer) in [
        (2, "{ at_most = -20.0 }", Answer::Confirmed),
        (2, "{ at_least = -20.0 }", Answer::Refuted),
        (3, "{ at_most = -0.1 }", Answer::Depends),
        (3, "{ at_least = -10.0, at_most = 10.0 }", Answer::Confirmed),
    ] {
        assert_eq!(answered(&claim(trial, expected)).unwrap().answer, answer, "{trial} {expected}");
    }
    // Half of it: the mean of 500 and 510 against that of 1000 and 1020.
    let half = answered(&claim(2, "{ at_most = -20.0 }")).unwrap();
    assert!(half.figures[0].starts_with("-50.0 %"), "{half:?}");
}

#[test]
fn figures_are_read_by_the_name_of_a_field_a_metric_or_a_further_measurement() {
    let shown = |name: &str| {
        let claim =
            format!("says = 's'\nanswer = 'refuted'\nfigures = [{{ sweep = 'remedies', trial = 2, name = '{name}' }}]");
        answered(&claim).map(|answered| answered.figures[0].clone())
    };
    assert_eq!(shown("growth").unwrap(), "0 B a step");
    assert_eq!(shown("map50").unwrap(), "0.5");
    assert_eq!(shown("step.triplet").unwrap(), "1.5 KiB");
    assert!(shown("unknown").is_err());
}

#[test]
fn a_leak_is_confirmed_by_its_pair_of_runs() {
    let found = answered("says = 's'\nfigures = [{ leak = 'frame_cache' }]").unwrap();
    assert_eq!((found.answer, found.figures.len()), (Answer::Confirmed, 1));
    assert!(answered("says = 's'\nfigures = [{ leak = 'other' }]").is_err());
}

#[test]
fn an_answer_without_measurement_needs_a_reason() {
    assert!(answered("says = 's'").is_err());
    assert!(answered("says = 's'\nanswer = 'cannot_be_shown'").is_err());
    let page = markdown(&[("r", vec![answered("says = 'a|b'\nanswer = 'cannot_be_shown'\nbecause = 'c'").unwrap()])]);
    insta::assert_snapshot!(page);
}
