//! Do limits only limit? Each key of `[limits]` is given another value, and what is learnt stays what it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::workplace::{Workplace, lines_with, metrics};

pub const FEW_SHOT: &str = concat!(
    include_str!("../experiments/tiny/few-shot.toml"),
    "[training]\nmax_steps = 8\nepochs = 4\n[limits]\nmicro_batch_size = 2\n[validation]\nbatches = 2\nevery_steps = 4\n\
     [memory]\nprobe = false\n"
);

pub const LANGUAGE_MODEL: &str = include_str!("../experiments/tiny/language-model.toml");

/// Small, and with an encoder that is trained first.
pub const FEDERATED: &str = include_str!("../experiments/tiny/federated.toml");

pub const VISION_LANGUAGE: &str = include_str!("../experiments/tiny/vision-language.toml");

/// Keys that bound a buffer which a pipeline may not have, and the pipelines that have it: the others refuse them.
const OF_ITS_OWN: &[(&str, &[&str])] = &[
    ("frame_cache", &["few-shot"]),
    ("decode_memory", &["few-shot", "federated", "vision-language"]),
    ("micro_batch_size", &["few-shot", "federated", "vision-language"]),
    // Without a ladder there is nothing to climb.
    ("recover", &[]),
];

/// Another value of each key than its default. A new key needs one here.
const OTHERS: &[(&str, &str)] = &[
    ("batch_size", "4"),
    ("micro_batch_size", "4"),
    ("threads", "1"),
    ("threads", "3"),
    ("workers", "2"),
    ("prefetch", "5"),
    ("frame_cache", "\"100 KiB\""),
    ("decode_memory", "\"64 MiB\""),
    ("gradient_norm_window", "3"),
    ("metrics_queue", "1"),
    ("log_queue", "1"),
    ("host_memory", "\"64 GiB\""),
    ("device_memory", "\"64 GiB\""),
    ("on_pressure", "[\"caches\", \"prefetch\", \"workers\", \"park\"]"),
    ("recover", "true"),
];

/// Lines of metrics, without what a limit is there to change: over how many steps a median is taken.
fn learnt(run: &Path) -> Vec<Value> {
    metrics(run)
        .into_iter()
        .map(|mut line| {
            let fields = line.as_object_mut().unwrap();
            fields.remove("gradient_norm_median");
            // A check over the bytes of the line.
            fields.retain(|name, _| name != "crc32" && name != "check");
            line
        })
        .collect()
}

/// Every number, in order.
fn numbers(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(list) => list.iter().for_each(|part| numbers(part, into)),
        Value::Object(fields) => fields.values().for_each(|part| numbers(part, into)),
        _ => {}
    }
}

#[test]
fn no_limit_changes_what_is_learnt() {
    let schema = Workplace::new().xrun(&["generate", "schema"]).json();
    let keys: Vec<&String> = schema["properties"]["limits"]["properties"].as_object().unwrap().keys().collect();
    assert!(keys.iter().all(|key| OTHERS.iter().any(|(other, _)| other == key)), "{keys:?} and {OTHERS:?}");
    let pipelines = [
        ("few-shot", FEW_SHOT),
        ("language-model", LANGUAGE_MODEL),
        ("federated", FEDERATED),
        ("vision-language", VISION_LANGUAGE),
    ];
    let mut refusals = BTreeSet::new();
    for (pipeline, experiment) in pipelines {
        let workplace = Workplace::with("tiny.toml", experiment);
        let expected = learnt(&workplace.trained(&format!("{pipeline}-as-it-is"), &[]));
        for (key, value) in OTHERS {
            let name = format!("{pipeline}-{}-{}", key.replace('_', "-"), value.replace(['"', ' ', '[', ']', ','], ""));
            if OF_ITS_OWN.iter().any(|(own, pipelines)| own == key && !pipelines.contains(&pipeline)) {
                let output = workplace.attempt(&name, &[&format!("limits.{key}={value}")]);
                assert_eq!(output.code, 2, "{output:?}");
                refusals.insert(lines_with(&output.err, &format!("`limits.{key}`")));
                continue;
            }
            let found = learnt(&workplace.trained(&name, &[&format!("limits.{key}={value}")]));
            if !["batch_size", "micro_batch_size"].contains(key) {
                assert!(found == expected, "{pipeline}: `limits.{key}` = {value} changes what is learnt");
                continue;
            }
            // The same step up to rounding: of the first lines, before weights drift apart.
            let (mut of_found, mut of_expected) = (Vec::new(), Vec::new());
            found.iter().take(3).for_each(|line| numbers(line, &mut of_found));
            expected.iter().take(3).for_each(|line| numbers(line, &mut of_expected));
            assert_eq!((found.len(), of_found.len()), (expected.len(), of_expected.len()));
            for (found, expected) in of_found.iter().zip(&of_expected) {
                let apart = (found - expected).abs();
                assert!(apart <= 1e-3 * expected.abs().max(0.1), "{pipeline}: {found}, expected {expected}");
            }
        }
    }
    insta::assert_snapshot!(refusals.into_iter().collect::<Vec<String>>().join("\n"));
}
