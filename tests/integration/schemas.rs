//! Committed schemas and manual against the code, and files against the schemas.
//!
//! `XRUN_BLESS=1 cargo test --no-default-features --test integration -- schemas` writes them anew.

use std::path::{Path, PathBuf};

use serde_json::Value;
use xrun::experiment::{reference, schema};
use xrun::schemas;

use crate::watch;
use crate::workplace::{Workplace, json, text};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Committed or generated texts, by path.
fn generated() -> Vec<(PathBuf, String)> {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap() + "\n";
    let mut files = vec![
        (root().join("schemas/experiment.schema.json"), pretty(&known())),
        (root().join("docs/reference.md"), reference::reference()),
    ];
    for (name, record) in schemas::record_schemas() {
        files.push((root().join(format!("schemas/{name}.schema.json")), pretty(&record)));
    }
    files
}

/// The schema of experiments with the kinds that xrun brings.
pub fn known() -> serde_json::Value {
    xrun::Program::new().built_in().register();
    schema::schema()
}

#[test]
fn schemas_and_manual_are_those_of_the_code() {
    let bless = std::env::var_os("XRUN_BLESS").is_some();
    for (path, expected) in generated() {
        if bless {
            xrun::files::write::replace(&path, expected.as_bytes()).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let name = path.strip_prefix(root()).unwrap().display();
        let how = "XRUN_BLESS=1 cargo test --no-default-features --test integration -- schemas";
        assert!(committed == expected, "{name} is stale; write it anew with: {how}");
    }
}

fn as_json(path: &Path) -> Option<Value> {
    let table: toml::Table = text(path).parse().ok()?;
    serde_json::to_value(table).ok()
}

fn toml_files(directory: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "toml")).collect()
}

/// An editor that knows only the schema must not mark what `xrun check` takes.
#[test]
fn an_independent_validator_takes_every_file_that_checks_clean() {
    let validator = jsonschema::validator_for(&known()).unwrap();
    let mut count = 0;
    for path in toml_files("experiments").iter().chain(&toml_files("tests/experiments/valid")) {
        let errors: Vec<String> = validator.iter_errors(&as_json(path).unwrap()).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        count += 1;
    }
    assert!(count >= 4);
}

/// And it marks what is wrong key by key; contradictions between keys are ours alone.
#[test]
fn an_independent_validator_refuses_wrong_keys_types_and_ranges() {
    let validator = jsonschema::validator_for(&known()).unwrap();
    for name in [
        "unknown_section",
        "unknown_key",
        "unknown_kind",
        "kind_as_text",
        "no_kind",
        "two_kinds",
        "no_pipeline",
        "empty",
        "wrong_type_text",
        "wrong_type_boolean",
        "wrong_type_table",
        "number_with_fraction",
        "negative",
        "out_of_range",
        "huge_seed",
        "wrong_unit_of_bytes",
        "negative_bytes",
        "time_without_unit",
        "name_with_slash",
        "unknown_device",
        "misspelled_word",
        "channels_too_few",
        "extends_of_wrong_type",
        "everything_at_once",
    ] {
        let path = root().join(format!("tests/experiments/invalid/{name}.toml"));
        assert!(!validator.is_valid(&as_json(&path).unwrap()), "{name}");
    }
}

/// Files of a run that a limit ended.
fn limited() -> Value {
    let workplace = Workplace::new();
    workplace.file(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 40\nleak_per_step = \"1 MiB\"\n[limits]\nhost_memory = \"16 MiB\"\n",
    );
    assert_eq!(workplace.xrun(&["trial.toml", "-q", "--force"]).code, 5);
    json(&workplace.latest("trial").join("post_mortem.json"))
}

/// `allocations.json` of a run that leaks.
fn leaking(workplace: &Workplace) -> Value {
    let experiment = "[pipeline.dummy]\nsteps_per_epoch = 400\nleak_per_step = \"1 MiB\"\n[memory]\nprobe = false\n";
    workplace.file("leaking.toml", experiment);
    assert_eq!(workplace.xrun(&["leaking.toml", "-q", "--force"]).code, 0);
    let record = json(&workplace.latest("leaking").join("allocations.json"));
    let site = &record["sites"][0];
    // Without optimisation, the functions of the allocator are frames of their own.
    assert!(cfg!(debug_assertions) || site["function"].as_str().unwrap().contains("dummy"), "{record}");
    let bytes = site["bytes_per_step"].as_f64().unwrap();
    assert!((bytes / f64::from(1 << 20) - 1.0).abs() < 0.05, "each is sampled: {record}");
    record
}

/// A sweep in which one trial finishes and one fails: its directory.
fn swept(workplace: &Workplace) -> PathBuf {
    workplace.file("swept.toml", "[pipeline.dummy]\nsteps_per_epoch = 6\n");
    let fails = "pipeline.dummy.fail_at_step=3,99";
    let limits = "limits.frame_cache=\"1 MiB\",\"2 MiB\"";
    let said = workplace.xrun(&[
        "sweep",
        "swept.toml",
        "--method",
        "zip",
        "--repeats",
        "2",
        "-s",
        fails,
        "-s",
        limits,
        "--jobs",
        "auto",
    ]);
    assert_eq!(said.code, 1, "{said:?}");
    workplace.latest_sweep("swept")
}

#[test]
fn every_record_of_a_run_and_of_a_sweep_follows_its_schema() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n[checkpoint]\nevery_steps = 4\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let hook =
        ["trial.toml", "-q", "--name", "notified", "-s", "hooks.on_end=[\"sh\", \"-c\", \"cat > notified.json\"]"];
    assert_eq!(workplace.xrun(&hook).code, 0);
    let run = workplace.latest("trial");
    assert_eq!(workplace.xrun(&["reproduce", "trial", "-q"]).code, 0);
    let reproduction = workplace.reproduction("trial");
    let sweep = swept(&workplace);
    let lines =
        |path: PathBuf| -> Vec<Value> { text(&path).lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let checkpoints = std::fs::read_dir(run.join("checkpoints")).unwrap().flatten();
    let states: Vec<Value> = checkpoints.map(|entry| json(&entry.path().join("state.json"))).collect();
    for (name, record) in schemas::record_schemas() {
        let validator = jsonschema::validator_for(&record).unwrap();
        let values = match name {
            "metrics" => lines(run.join("metrics.jsonl")),
            "memory" => lines(run.join("memory.jsonl")),
            "loop_state" => states.clone(),
            "allocations" => vec![leaking(&workplace)],
            "post_mortem" => vec![limited()],
            "notes" => {
                assert_eq!(workplace.xrun(&["note", "trial", "a note", "--tag", "tag"]).code, 0);
                vec![json(&run.join("notes.json"))]
            }
            "evaluation" => {
                let said = workplace.xrun(&["eval", "trial", "--json", "-q"]);
                vec![said.json()]
            }
            "prediction" => {
                let said = workplace.xrun(&["predict", "trial", "trial.toml", "nowhere", "--json", "-q"]);
                vec![said.json()]
            }
            "explanation" if !watch::has_python() => continue,
            "explanation" => {
                vec![json(&watch::explained(&workplace, "loss_history.py", &[]).1.join("explanation.json"))]
            }
            "hook" => vec![json(&workplace.path("notified.json"))],
            "comparison" => {
                vec![workplace.xrun(&["compare", "trial", "trial/reproductions/latest", "--json"]).json()]
            }
            "sweep" => vec![as_json(&sweep.join("sweep.toml")).unwrap()],
            "sweep_memory" => vec![as_json(&sweep.join("memory.toml")).unwrap()],
            "processes" => lines(sweep.join("processes.jsonl")),
            "table" => vec![json(&sweep.join("table.json"))],
            "reproduction" => vec![json(&reproduction.join("reproduction.json"))],
            other => vec![json(&run.join(format!("{other}.json")))],
        };
        assert!(!values.is_empty(), "{name}");
        for value in values {
            let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{name}: {errors:?}\n{value}");
        }
    }
}
