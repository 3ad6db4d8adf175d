//! The table, the comparison and the page of runs with known measurements.

use serde_json::json;

use super::*;
use crate::records::search::{SearchMethod, TpeSearch};
use crate::{page, table_files, text};
use xrun_results::format::VERSION;
use xrun_results::loss::KindLoss;
use xrun_results::verdict::VerdictWord;

fn record(keys: &[&str], trials: Vec<Vec<Value>>, repeats: u64) -> SweepRecord {
    SweepRecord {
        version: VERSION,
        experiment: "sample".into(),
        created: "2026-11-21T07:14:35Z".into(),
        method: "grid".into(),
        repeats,
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        trials,
        ..SweepRecord::default()
    }
}

fn run(trial: u64, repeat: u64, speed: f64, rss: u64) -> Measured {
    const MEBIBYTE: u64 = 1024 * 1024;
    Measured {
        run: RunId { trial, repeat }.to_string(),
        repeat,
        outcome: "finished".into(),
        finished: true,
        exit_code: Some(0),
        steps: Some(100),
        seconds: Some(20.0),
        measurements: Measurements {
            steps_per_second: Some(speed),
            cleanup_seconds: Some(0.5),
            heap_peak: Some(100 * MEBIBYTE),
            heap_floor: Some(40 * MEBIBYTE),
            rss_peak: Some(rss * MEBIBYTE),
            rss_floor: Some((rss - 20) * MEBIBYTE),
            growth: Some(12.0),
            ..Measurements::default()
        },
        verdict: Some(VerdictWord::Bounded),
        metrics: BTreeMap::from([("map50".to_owned(), Some(0.5))]),
        best_by: Some(("map50".into(), Some(Direction::Higher))),
        ..Measured::default()
    }
}

fn killed(run: Measured) -> Measured {
    Measured {
        outcome: "killed".into(),
        finished: false,
        exit_code: None,
        signal: Some(9),
        measurements: Measurements { steps_per_second: None, ..run.measurements },
        message: Some("<script>alert(1)</script>\u{1b}[2J".into()),
        ..run
    }
}

/// Every step costs a fifth of the speed and saves memory, every tenth saves as much for less, every hundredth is lost in the noise.
fn repeated() -> Table {
    let trials = vec![
        vec![run(1, 1, 5.0, 200), run(1, 2, 5.1, 202)],
        vec![run(2, 1, 4.0, 150), run(2, 2, 4.1, 151)],
        vec![run(3, 1, 4.9, 150), run(3, 2, 4.8, 151)],
        vec![run(4, 1, 5.05, 201), run(4, 2, 5.0, 199)],
        vec![killed(run(5, 1, 0.0, 900)), killed(run(5, 2, 0.0, 950))],
    ];
    let values = [0, 1, 10, 100, 1000].map(|value| vec![json!(value)]).to_vec();
    assemble("2026-11-21T07-14-35_aaaaaa", &record(&["cleanup.every_steps"], values, 2), trials.into_iter())
}

#[test]
fn changes_are_compared_with_noise_and_a_killed_trial_is_a_row() {
    insta::assert_snapshot!(text::text(&repeated(), None));
}

#[test]
fn the_memory_of_an_interrupted_run_is_not_compared() {
    let interrupted = |run: Measured| Measured { interrupted: true, ..run };
    // The second process of trial 2 had few steps: less memory, and as fast.
    let trials = vec![
        vec![run(1, 1, 5.0, 200), run(1, 2, 5.0, 202)],
        vec![interrupted(run(2, 1, 5.0, 90)), interrupted(run(2, 2, 5.0, 91))],
        vec![run(3, 1, 5.5, 260), interrupted(run(3, 2, 5.5, 95))],
    ];
    let values = [1, 2, 3].map(|value| vec![json!(value)]).to_vec();
    let table = assemble("one", &record(&["limits.prefetch"], values, 2), trials.into_iter());
    let [first, second, third] = &table.rows[..] else { panic!("{table:?}") };
    assert_eq!(
        (second.measurements.rss_peak.is_none(), second.measurements.growth.is_none(), second.pareto.len()),
        (true, true, 0)
    );
    assert_eq!(third.measurements.rss_peak.unwrap().median, (260u64 << 20) as f64);
    assert!(first.pareto.contains(&"rss") && third.pareto.contains(&"rss"));
    assert!(second.change.contains_key("steps_per_second") && !second.change.contains_key("rss_peak"));
    assert_eq!([first, second, third].map(|row| row.interrupted), [0, 2, 1]);
    insta::assert_snapshot!(text::text(&table, None));
}

#[test]
fn one_repeat_says_that_noise_was_not_measured() {
    let trials = vec![vec![run(1, 1, 5.0, 200)], vec![run(2, 1, 4.0, 150)]];
    let values = vec![vec![json!(2), json!("16 MiB")], vec![json!(4), json!("64 MiB")]];
    let record = record(&["limits.prefetch", "limits.frame_cache"], values, 1);
    insta::assert_snapshot!(text::text(&assemble("one", &record, trials.into_iter()), None));
}

#[test]
fn messages_of_runs_cannot_change_the_page() {
    let page = page::html(&repeated());
    assert!(page.contains("&lt;script&gt;alert") && !page.contains('\u{1b}'));
    assert_eq!(page.matches("<script").count(), 1, "that of xrun");
    assert!(page.matches("<svg").count() >= 3, "fronts and curves are drawn");
    assert!(page.contains("each trial with its cleanup.every_steps"), "trials are named in the plot");
}

#[test]
fn a_table_for_spreadsheets_has_a_cell_for_each_column() {
    let csv = table_files::csv(&repeated());
    let mut rows = csv.lines();
    let header: Vec<&str> = rows.next().unwrap().split(',').collect();
    let at = |name: &str| header.iter().position(|title| *title == name).unwrap();
    let cells: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    assert!(cells.iter().all(|row| row.len() == header.len()), "{csv}");
    assert_eq!(cells[1][at("steps_per_second")], "4.05");
    assert_eq!(cells[0][at("steps_per_second_against_reference")], "the reference");
    assert_eq!(cells[0][at("device_reserved_peak_against_reference")], "", "there is none");
    assert!(cells[3][at("steps_per_second_against_reference")].starts_with("within noise"));
    assert_eq!((cells[4][at("exit_code")], cells[0][at("rss_floor")]), ("137", "189792256"));
    assert_eq!(cells[4][at("steps_per_second_change")], "");
}

#[test]
fn the_page_plots_the_metric_by_value_and_names_the_best_trial() {
    let losses = |last: f64| {
        let of = |kind: &str, steps: u64, last: f64| KindLoss { kind: kind.into(), steps, last, ..KindLoss::default() };
        vec![of("triplet", 10, 0.0), of("detection", 90, last)]
    };
    let scored = |trial: u64, score: f64| Measured {
        metrics: BTreeMap::from([("map50".to_owned(), Some(score)), ("aardvark".to_owned(), Some(9.0))]),
        losses: losses(1.0 / score),
        ..run(trial, 1, 5.0, 200)
    };
    // The last one was stopped: the validation before training says nothing.
    let stopped = Measured { metrics: BTreeMap::new(), finished: false, ..scored(4, 0.9) };
    let trials = vec![vec![scored(1, 0.25)], vec![scored(2, 0.5)], vec![scored(3, 0.4)], vec![stopped]];
    let values = [1e-4, 1e-3, 1e-2, 1.0].map(|value| vec![json!(value)]).to_vec();
    let table = assemble("one", &record(&["optimizer.adamw.learning_rate"], values, 1), trials.into_iter());
    assert_eq!((table.metric.as_deref(), table.best), (Some("map50"), Some(2)), "and not the first by name");
    assert_eq!(table.rows[3].metric, None);
    assert_eq!(table.rows[1].loss.unwrap().median, 2.0, "of the kind that most steps were of");
    let shown = text::text(&table, None);
    assert!(shown.contains("best: trial 2 (optimizer.adamw.learning_rate = 0.001), map50 0.5"), "{shown}");
    assert!(shown.lines().any(|line| line.contains("map50 ↑") && line.contains("loss, detection ↓")), "{shown}");
    let page = page::html(&table);
    assert!(page.contains("<h3>map50 by optimizer.adamw.learning_rate</h3>") && page.contains("higher is better"));
    assert!(page.contains(">0.001<") && page.contains(">0.01<"), "a logarithmic axis has these ticks");
    assert!(page.contains("Best: trial 2") && page.contains("best 0.5"));
    assert!(!page.contains("noise not measured"), "said once above the table");
    // The lower is better: another one is best.
    let mut table = table;
    assert_eq!(super::best(&table.rows, Direction::Lower, false), Some(1));
    table.rows.truncate(1);
    assert_eq!(super::best(&table.rows, Direction::Lower, false), None, "of one trial none is best");
}

/// Trials with these scores of each run.
fn scored_table(method: &str, scores: &[&[f64]]) -> Table {
    let trial = |(trial, scores): (u64, &&[f64])| {
        let run = |(repeat, score): (u64, &f64)| Measured {
            metrics: BTreeMap::from([("map50".to_owned(), Some(*score))]),
            ..run(trial, repeat, 5.0, 200)
        };
        (1..).zip(scores.iter()).map(run).collect::<Vec<_>>()
    };
    let trials: Vec<Vec<Measured>> = (1..).zip(scores).map(trial).collect();
    let values = (1..=scores.len()).map(|at| vec![json!(at as f64 * 1e-4 / 3.0)]).collect();
    let mut record = record(&["optimizer.adamw.learning_rate"], values, scores[0].len() as u64);
    record.method = method.into();
    if method == "tpe" {
        let method = SearchMethod::Tpe(TpeSearch { startup: 1, gamma: 0.2, candidates: 4, space: Vec::new() });
        record.search = Some(Search { metric: "map50".into(), direction: Direction::Higher, trials: 3, method });
    }
    Table { directory: "results/sample/sweeps/one".into(), ..assemble("one", &record, trials.into_iter()) }
}

#[test]
fn the_conclusion_names_a_best_trial_only_beyond_noise() {
    use crate::conclusion::conclusion;
    let near = scored_table("grid", &[&[0.50, 0.60], &[0.55, 0.65], &[0.52, 0.58]]);
    assert_eq!(near.change_words(2), "within noise");
    let far = scored_table("grid", &[&[0.50, 0.51], &[0.60, 0.61], &[0.605, 0.612], &[0.40, 0.41]]);
    assert_eq!((far.best, far.change_words(3)), (Some(3), "+20.5 %".into()));
    let once = scored_table("grid", &[&[0.5], &[0.6]]);
    let equal = scored_table("grid", &[&[0.5, 0.5], &[0.5, 0.5]]);
    let seeds = scored_table("grid", &[&[0.1, 0.4, 0.8], &[0.11, 0.45, 0.9]]);
    let tied = scored_table("grid", &[&[0.5], &[0.6], &[0.6]]);
    let below = Measured { training: Some(TrainingVerdictWord::NoBetterThanChance), ..run(1, 1, 5.0, 200) };
    let below = (1..3).map(|trial| vec![Measured { run: RunId { trial, repeat: 1 }.to_string(), ..below.clone() }]);
    let values = vec![vec![json!(2)], vec![json!(4)]];
    let mut below = assemble("one", &record(&["limits.prefetch"], values, 1), below);
    assert_eq!(below.best, None);
    below.rows[1].metric = Spread::of([0.4].into_iter());
    let all = [near, far, once, equal, seeds, tied, below].map(|table| conclusion(&table).join("\n"));
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_sweep_of_cleanups_ends_with_a_recommendation() {
    // Seeds differ by more than a cleanup saves; 1 and 5 save alike, 20 saves nothing.
    let trials = |saved: [u64; 4], repeats: u64| {
        let trial = move |(trial, saved): (u64, u64)| {
            let rss = |repeat: u64| 200 * repeat - saved * repeat + (trial + repeat) % 2;
            (1..=repeats).map(|repeat| run(trial, repeat, 5.0, rss(repeat))).collect::<Vec<_>>()
        };
        (1..).zip(saved).map(trial).collect::<Vec<_>>().into_iter()
    };
    let table = |keys: &[&str], values: Vec<Vec<Value>>, saved, repeats| {
        assemble("one", &record(keys, values, repeats), trials(saved, repeats))
    };
    let last = |table: &Table| crate::conclusion::conclusion(table).pop().unwrap();
    let values = || [0, 1, 5, 20].map(|every| vec![json!(every)]).to_vec();
    let pays = table(&[CLEANUP], values(), [0, 20, 20, 0], 3);
    let none = table(&[CLEANUP], values(), [0; 4], 3);
    let once = table(&[CLEANUP], values(), [0, 20, 20, 0], 1);
    // Another key makes pairs, too.
    let both = [(1, 0), (1, 5), (2, 0), (2, 5)].map(|(workers, every)| vec![json!(workers), json!(every)]).to_vec();
    let both = table(&["limits.workers", CLEANUP], both, [0, 20, 0, 20], 2);
    insta::assert_snapshot!([pays, none, once, both].map(|table| last(&table)).join("\n"));
}

#[test]
fn growth_is_shown_neither_of_short_runs_nor_of_a_filling_buffer() {
    let judged = |trial: u64, verdict| vec![Measured { verdict: Some(verdict), ..run(trial, 1, 5.0, 200) }];
    let words = [VerdictWord::Inconclusive, VerdictWord::Filling, VerdictWord::Bounded, VerdictWord::Growing];
    let values = [1, 2, 3, 4].map(|value| vec![json!(value)]).to_vec();
    let trials = (1..).zip(words).map(|(trial, verdict)| judged(trial, verdict));
    let table = assemble("one", &record(&["limits.prefetch"], values, 1), trials);
    assert_eq!(
        table.rows.iter().map(|row| row.measurements.growth.is_some()).collect::<Vec<_>>(),
        [false, false, true, true]
    );
}

impl Table {
    /// Change of the metric of a trial.
    fn change_words(&self, trial: usize) -> String {
        self.rows[trial - 1].change["metric"].short_words().0
    }
}

#[test]
fn a_search_is_sorted_by_the_metric_and_names_the_next_command() {
    let table = scored_table("tpe", &[&[0.2], &[0.7], &[0.4]]);
    let order: Vec<u64> = table.shown_rows().iter().map(|row| row.trial).collect();
    assert_eq!((order, table.best), (vec![2, 3, 1], Some(2)));
    let (titles, _) = text::rows(&table);
    for title in ["Pareto front", ">cleanup", ">heap floor", ">growth per step"] {
        assert!(!titles.iter().any(|one| one == title), "{title}: {titles:?}");
    }
    let commands = crate::conclusion::next_commands(&table);
    assert!(commands.len() == 1 && commands[0].1.contains("results/sample/sweeps/one/trials/0002-1/resolved.toml"));
    let mut table = table;
    table.rows[1].runs[0].at_rung = true;
    let commands = crate::conclusion::next_commands(&table);
    assert!(commands[0].1.contains("resume results/sample/sweeps/one/trials/0002-1"), "{commands:?}");
    assert!(page::html(&table).contains("6.667e-5"), "learning rates have four digits");
}
