//! Exported weights, and what an export does not overwrite.

use serde_json::Value;

use crate::workplace::{Workplace, text};

const EXPERIMENT: &str = "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n";

#[test]
fn weights_are_exported_with_their_configuration() {
    let workplace = Workplace::ran("trial", EXPERIMENT);
    let run = workplace.latest("trial");
    let output = workplace.exits(0, &["export", "trial", "--to", "weights", "--output", "model", "--json"]);
    let step = output.json()["step"].as_u64().unwrap();
    let checkpoint = run.join(format!("checkpoints/step_{step:08}/model.safetensors"));
    assert_eq!(std::fs::read(workplace.path("model/model.safetensors")).unwrap(), std::fs::read(checkpoint).unwrap());
    let config: Value = serde_json::from_str(&text(&workplace.path("model/config.json"))).unwrap();
    let best = crate::workplace::json(&run.join("summary.json"))["best"].clone();
    assert_eq!((&config["step"], &config["metrics"]["score"]), (&best["step"], &best["value"]));
    assert_eq!((&config["pytorch"], &config["pipeline"]["dummy"]["steps_per_epoch"]), (&Value::Null, &100.into()));
    assert!(!workplace.path("model/model.py").exists(), "the dummy has no network");
    workplace.exits(2, &["export", "trial", "--to", "tensorboard", "--checkpoint", "last"]);
    workplace.exits(1, &["export", "trial", "--to", "weights", "--checkpoint", "7"]);
}

#[test]
fn an_export_overwrites_nothing_in_a_directory_of_the_user() {
    let workplace = Workplace::ran("trial", EXPERIMENT);
    let events = "events.out.tfevents.0000000000.xrun";
    for (to, name) in [("weights", "config.json"), ("tensorboard", events)] {
        workplace.file(&format!("taken/{name}"), "mine");
        std::fs::create_dir_all(workplace.path("linked")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", workplace.path("linked").join(name)).unwrap();
        for directory in ["taken", "linked"] {
            let output = workplace.xrun(&["export", "trial", "--to", to, "-o", directory]);
            assert!(output.code == 1 && output.err.contains(&format!("{directory}/{name}")), "{output:?}");
        }
        assert_eq!(text(&workplace.path("taken").join(name)), "mine");
        assert!(!workplace.path("elsewhere").exists());
        // Those in the run are its own.
        for _ in 0..2 {
            workplace.exits(0, &["export", "trial", "--to", to]);
        }
    }
    assert_eq!(std::fs::read_dir(workplace.path("taken")).unwrap().count(), 2, "and not a part of an export");
}
