//! Committed results: complete, small and reproducible.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::workplace::{Workplace, json, lines_with, text, unsealed};

/// Those that take seconds on two cores. The others are reproduced by hand: `xrun reproduce reference/stage2`.
const SHORT: &[&str] = &["dummy"];
/// Those of the experiments that need Burn.
const SHORT_WITH_BURN: &[&str] = &["qat_soak", "soak"];
/// By which the mean of a number may be off elsewhere: other processors round sums otherwise. The dummy adds up nothing.
const TOLERANCE: &str = "1e-3";

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results/reference").join(name)
}

fn references() -> Vec<PathBuf> {
    let directories = std::fs::read_dir(reference("")).unwrap().flatten().map(|entry| entry.path());
    // Those with a table alone are sweeps (docs/claims.md).
    directories.filter(|path| path.is_dir() && !path.join("table.json").exists()).collect()
}

#[test]
fn committed_results_are_whole_small_and_name_no_place_of_their_machine() {
    let references = references();
    assert!(!references.is_empty());
    for reference in references {
        let shown = reference.display();
        let mut size = 0;
        for entry in std::fs::read_dir(&reference).unwrap().flatten() {
            assert!(entry.path().is_file(), "{shown}: no directories, so no checkpoints");
            size += entry.metadata().unwrap().len();
        }
        assert!(size < 2 << 20, "{shown} has {size} bytes");
        assert_eq!(json(&reference.join("summary.json"))["outcome"], "finished", "{shown}");
        let name = reference.file_name().unwrap().to_str().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("experiments/{name}.toml"));
        assert_eq!(text(&reference.join("experiment.toml")), text(&file), "{shown} is of another file: make it again");
        assert!(text(&reference.join("report.html")).contains("<svg"), "{shown}");
        let manifest = json(&reference.join("manifest.json"));
        // The second of each is of an earlier `xrun keep`.
        assert!(["<host>", "a machine"].iter().any(|name| manifest["host"]["name"] == *name), "{shown}");
        assert!(["<project>", "/project"].iter().any(|path| manifest["working_directory"] == *path), "{shown}");
        let readme = include_str!("../../results/reference/README.md");
        assert!(readme.contains(&format!("({name}/report.html)")), "{name} is not in the README");
    }
}

/// `.ci/gpu` keeps the figures of a GPU below `results/reference`, and those of the stand-in nowhere.
#[test]
fn figures_of_a_gpu_are_kept_to_be_committed() {
    let workplace = Workplace::new();
    let script = workplace.file(".ci/gpu", include_str!("../../.ci/gpu"));
    let record = |rehearsal: bool| {
        let parts = serde_json::json!([
            { "part": "stage2_eager", "code": 0, "seconds": 38.5, "metrics_last": { "map50": 0.5 } },
            { "part": "flat", "code": null, "why": "no time left" },
        ]);
        let record = serde_json::json!({ "rehearsal": rehearsal, "devices": [{ "name": "H100" }], "parts": parts });
        workplace.put("out/gpu.json", record.to_string());
    };
    workplace.file("results/reference/stage2/summary.json", r#"{"metrics_last": {"map50": 0.6}}"#);
    let kept = workplace.path("results/reference/gpu.json");
    let table = || {
        let mut command = std::process::Command::new("python3");
        command.arg(&script).args(["table", "out"]).current_dir(workplace.path("")).output().unwrap()
    };
    record(true);
    assert!(table().status.success() && !kept.exists());
    record(false);
    assert!(table().status.success());
    let record = json(&kept);
    assert_eq!((&record["devices"][0]["name"], &record["parts"][0]["seconds"]), (&"H100".into(), &38.5.into()));
    assert_eq!(record["stage2_metrics"]["map50"], serde_json::json!({ "cpu": 0.6, "gpu": 0.5 }));
}

/// Steps over which a sum that is rounded otherwise has not yet become another training.
const ALIKE_STEPS: usize = 20;
/// By which a loss may be off until then.
const ALIKE: f64 = 1e-3;

/// Whether the first losses of two runs are alike: on a processor of other instructions the last bits of products differ, and
/// a long training makes other numbers of them.
fn begin_alike(one: &Path, other: &Path) -> bool {
    let losses = |run: &Path| -> Vec<f64> {
        let lines = text(&run.join("metrics.jsonl"));
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(&unsealed(line)).unwrap());
        lines.filter_map(|line| line["loss"].as_f64()).take(ALIKE_STEPS).collect()
    };
    let (one, other) = (losses(one), losses(other));
    let alike = |(one, other): (&f64, &f64)| (one - other).abs() <= ALIKE * one.abs();
    one.len() == ALIKE_STEPS && other.len() == ALIKE_STEPS && one.iter().zip(&other).all(alike)
}

/// Row of docs/experiments.md for a baseline.
fn row(experiment: &str, metric: &str, xrun: &str, baselines: &str, by: &str) -> String {
    format!("| [{experiment}](../experiments/{experiment}.toml) | {metric} | {xrun} | {baselines} | {by} |")
}

#[test]
fn baselines_in_the_documents_are_those_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rows = Vec::new();
    for name in ["stage2", "cards"] {
        let lines = text(&reference(name).join("metrics.jsonl"));
        let newest = lines.lines().rfind(|line| line.contains("\"validation\"")).unwrap();
        let line: serde_json::Value = serde_json::from_str(&unsealed(newest)).unwrap();
        let value = |metric: &str| line["metrics"][metric].as_f64().unwrap();
        let (chance, half) =
            (value("map50_permuted"), line["intervals"]["map50_permuted"]["half_width"].as_f64().unwrap());
        let range = format!("permuted classes {chance:.3} ({:.3} to {:.3})", chance - half, chance + half);
        rows.push(row(name, "`map50`", &format!("{:.3}", value("map50")), &range, "each run: `map50_permuted`"));
    }
    for name in ["federated", "esc10", "easy_vqa", "squad"] {
        let measured = json(&root.join(format!("benches/baselines/{name}.json")));
        let baselines = measured["baselines"].as_object().unwrap().iter();
        let baselines: Vec<String> = baselines.map(|(name, value)| format!("{name} {value}")).collect();
        let output = |key: &str| measured[key].as_str().unwrap();
        let by = format!("[{name}.py](../benches/baselines/{name}.py): {}", output("note"));
        let xrun = measured["xrun"].as_f64().map_or_else(|| "-".to_owned(), |value| value.to_string());
        rows.push(row(output("experiment"), output("metric"), &xrun, &baselines.join(", "), &by));
    }
    let table = format!("|---|---|---|---|---|\n{}\n\n", rows.join("\n"));
    assert!(text(&root.join("docs/experiments.md")).contains(&table), "docs/experiments.md needs\n{table}");
}

#[test]
fn short_committed_results_come_out_again() {
    let workplace = Workplace::new();
    let with_burn = if cfg!(feature = "train") { SHORT_WITH_BURN } else { &[] };
    for name in SHORT.iter().chain(with_burn) {
        let path = reference(name);
        let output = workplace.xrun(&["reproduce", path.to_str().unwrap(), "--tolerance", TOLERANCE, "-q"]);
        let again = workplace.reproduction(name);
        let sets = |run: &Path| json(&run.join("manifest.json"))["host"]["instruction_sets"].clone();
        if output.code == 1 && sets(&path) != sets(&again) {
            let changes = json(&again.join("reproduction.json"))["changes"].to_string();
            assert!(changes.contains("instruction sets"), "{name}: the reason is in the record: {changes}");
            assert!(begin_alike(&path, &again), "{name}: {output:?}");
            continue;
        }
        assert_eq!(output.code, 0, "{name}: {output:?}");
    }
}

/// The files of a directory with what is in them.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    files.map(|file| (file.file_name().to_string_lossy().into_owned(), text(&file.path()))).collect()
}

#[test]
fn a_result_that_is_kept_without_its_trace_loses_nothing_to_a_command() {
    let workplace = Workplace::new();
    let kept = workplace.path("kept");
    std::fs::create_dir(&kept).unwrap();
    for (name, text) in files(&reference("stage2")) {
        workplace.file(&format!("kept/{name}"), &text);
    }
    let before = files(&kept);
    let output = workplace.exits(1, &["export", "kept", "--to", "report"]);
    let mut messages = lines_with(&output.err, "memory.jsonl") + "\n";
    let output = workplace.exits(0, &["show", "kept", "-v"]);
    messages += &(lines_with(&output.out, "memory.jsonl") + "\n");
    insta::assert_snapshot!(messages);
    assert_eq!(files(&kept), before);
}
