//! Experiments with every kind that xrun brings: templates, the schema, and what is said of keys.

use std::path::Path;

use serde_json::Value;
use xrun::bounded::leak_growth::LeakGrowth;
use xrun::bounded::ledger::Ledger;
use xrun::bounded::planned::MemoryKind;
use xrun::experiment::pipeline::Pipeline;
use xrun::experiment::template::template;
use xrun::experiment::{Experiment, pattern, read, resolved};
use xrun::files::write;
use xrun::plan::{self, shorten};

use crate::schemas::known;
use crate::workplace::toml_files;

/// The template with every default written out, and not as a comment.
fn uncommented(text: &str) -> String {
    let keys = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => rest,
        _ => line,
    });
    keys.collect::<Vec<_>>().join("\n")
}

fn check(text: &str) -> Experiment {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    // The script of a command has to exist.
    let script = directory.path().join("train.py");
    write::replace(&script, b"").unwrap();
    let text = text.replace("\"train.py\"", &format!("{script:?}"));
    write::replace(&path, text.as_bytes()).unwrap();
    read::read(&path, &[], std::iter::empty()).unwrap_or_else(|problems| panic!("{problems}\n{text}")).experiment
}

#[test]
fn every_template_checks_clean_as_it_is() {
    known();
    for kind in Pipeline::names() {
        assert_eq!(check(&template(kind).unwrap()).pipeline.name(), kind);
    }
    assert_eq!(template("no-such-pipeline"), None);
}

#[test]
fn the_values_shown_are_the_defaults() {
    known();
    for kind in Pipeline::names() {
        let text = template(kind).unwrap();
        let bare = resolved::to_toml(&check(&text), None);
        // A key without a default shows an example, so only those of the resolved file are compared.
        let shown = uncommented(&text);
        let is_value =
            |line: &&str| line.contains(" = ") && !["name = ", "program = "].iter().any(|key| line.starts_with(key));
        for line in bare.lines().filter(is_value) {
            assert!(shown.lines().any(|other| other == line), "{kind}: {line} is not in the template");
        }
    }
}

#[test]
fn choices_are_shown_and_no_placeholder_is_a_trap() {
    known();
    let text = template("qat-language-model").unwrap() + &template("fewshot-detection").unwrap();
    for shown in [
        "#   \"generated\": ",
        "#   \"file\": ",
        "#   \"skip\": ",
        "# [training.schedule.cosine]\n#   warmup_steps = 0\n#   final_lr_fraction = 0.0\n",
        "# [optimizer.sgd]\n#   learning_rate = 0.01\n",
    ] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    let unset = ["# layers, ", "# weights, ", "# max_steps, "];
    let lines: Vec<&str> = text.lines().filter(|line| unset.iter().any(|key| line.starts_with(key))).collect();
    insta::assert_snapshot!(lines.join("\n"));
    for trap in ["\"text\"", "layers = 100", "max_steps = 100"] {
        assert!(!text.contains(trap), "{trap}");
    }
}

#[test]
fn every_key_has_a_meaning() {
    fn look(schema: &Value, path: &str) {
        for (key, part) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            assert!(part["description"].as_str().is_some_and(|text| text.len() > 4), "{path} has no description");
            look(part, &path);
        }
    }
    look(&known(), "");
}

#[test]
fn every_pattern_in_the_schema_is_put_into_words() {
    fn look(value: &Value) {
        match value {
            Value::Object(object) => {
                if let Some(expression) = object.get("pattern").and_then(Value::as_str)
                    && object.get("format").is_none()
                {
                    assert!(pattern::find(expression).is_some(), "{expression} is not in PATTERNS");
                }
                object.values().for_each(look);
            }
            Value::Array(list) => list.iter().for_each(look),
            _ => {}
        }
    }
    look(&known());
}

#[test]
fn every_committed_experiment_is_correct_when_it_is_shortened() {
    known();
    let mut found = Vec::new();
    toml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments"), &mut found);
    let mut count = 0;
    for path in found {
        // Some name data that has to be fetched first; what is wrong then is no matter of steps.
        let Ok(checked) = read::read(&path, &[], std::iter::empty()) else { continue };
        let experiment = &checked.experiment;
        let all = experiment.training.max_steps.unwrap_or(experiment.training.epochs * 50);
        for steps in [1, 2, 12, shorten::SMOKE_STEPS] {
            let of_command = shorten::command_overrides(experiment, steps).map(Result::unwrap);
            let plain =
                || [shorten::overrides(experiment, all, steps), vec![shorten::small_validations(experiment)]].concat();
            let mut set = of_command.unwrap_or_else(plain);
            set.push(shorten::name_override(experiment));
            let short = read::read(&path, &set, std::iter::empty());
            let short = short.unwrap_or_else(|problems| panic!("{}: {problems}\n{set:?}", path.display()));
            assert_eq!(short.experiment.training.max_steps.filter(|_| steps < all).unwrap_or(steps), steps);
            assert!(short.experiment.experiment.name.ends_with("-short"));
        }
        count += 1;
    }
    assert!(count > 30, "{count} experiments were shortened");
}

#[test]
fn what_leaks_tensors_is_where_the_device_is() {
    known();
    let dummy: Experiment = toml::from_str("[pipeline.dummy]\n").unwrap();
    let (facts, _) = dummy.prepare(&Ledger::default()).unwrap();
    let mut plan = plan::resolve(dummy, facts);
    plan.experiment =
        toml::from_str("[pipeline.fewshot-detection]\n[leaks]\ngradients = true\nlog_history = true\n").unwrap();
    let all = plan.experiment.pipeline.facts().leaks;
    plan.owners.extend(plan.experiment.leaks.planned_buffers(all, |_| LeakGrowth::Total(0)));
    let on_device = |plan: &plan::Plan| {
        let owners = plan.owners.iter().filter(|owner| owner.place == MemoryKind::Device);
        owners.map(|owner| owner.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(on_device(&plan), [""; 0]);
    assert_eq!(on_device(&plan.with_pool()), ["leak_gradients"]);
}
