//! Table of verdicts on training: recorded runs, good and bad, whose expected verdicts were written before the first threshold
//! was chosen. The rows of one half were used to choose thresholds; the other half says how often verdicts are wrong.

#![expect(clippy::unwrap_used, reason = "tests stop at what is wrong")]

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use xrun_verdict::Tone;
use xrun_verdict::training::{
    JudgedMetric, LossScale, MetricValue, TrainingContext, TrainingEnd, TrainingJudge, TrainingVerdict,
};

/// Number of losses from the first on that are all recorded; then only some are.
const FIRST_KEPT: u64 = 16;

/// Row of `runs.tsv`.
struct Row<'a> {
    half: &'a str,
    run: &'a str,
    expected: Vec<&'a str>,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    let lines = include_str!("runs.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        Row { half: cells[0], run: cells[1], expected: cells[3].split('|').collect() }
    })
}

fn scale(metric: &Value) -> Option<LossScale> {
    match metric["loss"].as_str()? {
        "perplexity" => Some(LossScale::Perplexity),
        _ => Some(LossScale::Mean),
    }
}

/// Verdict on a recorded run.
fn judged(series: &Value) -> TrainingVerdict {
    let planned = series["plan"].as_array().unwrap();
    let best_by = planned.iter().find(|metric| metric["name"] == series["best_by"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let context = TrainingContext {
        steps: series["planned"].as_u64().filter(|steps| *steps > 0),
        metric: best_by.map(|metric| JudgedMetric {
            name: text(&metric["name"]),
            lower_is_better: metric["direction"] == "lower",
            unit: text(&metric["unit"]),
            chance: metric["chance"].as_f64(),
            baseline: metric["baseline"].as_str().map(str::to_owned),
            loss: scale(metric),
        }),
        held_out_loss: planned.iter().find_map(|metric| Some((text(&metric["name"]), scale(metric)?))),
    };
    let mut watch = TrainingJudge::new(context);
    let mut validations = series["validations"].as_array().unwrap().iter().peekable();
    let mut validate_until = |watch: &mut TrainingJudge, step: u64| {
        while let Some(validation) = validations.next_if(|one| one["step"].as_u64().unwrap() <= step) {
            let metrics = validation["metrics"].as_object().unwrap().iter().map(|(name, value)| MetricValue {
                name,
                value: value.as_f64(),
                half_width: validation["half_widths"][name].as_f64(),
                examples: None,
            });
            watch.add_validation(validation["step"].as_u64().unwrap(), metrics);
        }
    };
    let kinds = series["kinds"].as_array().unwrap();
    let sequence = series["sequence"].as_str().unwrap().as_bytes();
    let every = series["every"].as_u64().unwrap();
    let steps = (0..).filter(|step| *step < FIRST_KEPT || step % every == 0);
    for ((at, loss), before) in series["losses"].as_array().unwrap().iter().enumerate().zip(steps) {
        validate_until(&mut watch, before);
        let kind = sequence.get(at).map_or(0, |digit| usize::from(digit - b'0'));
        let rate = series["rates"][usize::from(at > 0)].as_f64();
        watch.add_step(before + 1, kinds[kind].as_str().unwrap(), loss.as_f64().unwrap_or(f64::NAN), rate);
    }
    validate_until(&mut watch, u64::MAX);
    let end = match series["outcome"].as_str().unwrap() {
        "diverged" => TrainingEnd::NotFinite,
        "stopped_early" => TrainingEnd::StoppedEarly,
        "finished" | "memory_grew" => TrainingEnd::Complete,
        _ => TrainingEnd::Interrupted,
    };
    watch.verdict(Some(end))
}

#[test]
fn verdicts_on_recorded_runs_are_as_expected() {
    let all: Vec<Value> =
        include_str!("series.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut text, mut wrong, mut praised) = (String::new(), BTreeMap::new(), BTreeMap::new());
    for row in rows() {
        let series = all.iter().find(|series| series["run"] == row.run).unwrap();
        let found = judged(series);
        let word = found.verdict.words().replace(' ', "_");
        let is_right = row.expected.contains(&word.as_str());
        let is_good = |word: &&str| matches!(*word, "improved" | "still_improving");
        *wrong.entry(row.half).or_insert([0, 0]) = {
            let [wrong, of] = wrong.get(row.half).copied().unwrap_or_default();
            [wrong + usize::from(!is_right), of + 1]
        };
        *praised.entry(row.half).or_insert(0) +=
            usize::from(found.verdict.word().tone == Tone::Good && !row.expected.iter().any(is_good));
        let mark = if is_right { " " } else { "!" };
        let _ = writeln!(text, "{mark} {:<7}{:<18}{word:<22}{}", row.half, row.run, found.message);
    }
    for (half, [wrong, of]) in &wrong {
        let _ = writeln!(text, "{half}: {wrong} of {of} wrong, {} good where nothing was learnt", praised[half]);
    }
    assert!(wrong["tuned"][0] == 0 && wrong["judged"][0] * 10 <= wrong["judged"][1], "{text}");
    assert_eq!(praised.values().sum::<usize>(), 0, "{text}");
    insta::assert_snapshot!(text);
}
