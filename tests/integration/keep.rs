//! Results that are kept for version control.

use crate::workplace::{Workplace, json, text};

#[test]
fn a_kept_result_is_reproduced_and_names_no_place() {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\nsteps_per_epoch = 20\n");
    workplace.exits(0, &["keep"]);
    let kept = workplace.path("results/reference/trial");
    let directory = std::fs::canonicalize(workplace.path(".")).unwrap();
    for entry in std::fs::read_dir(&kept).unwrap().flatten() {
        let (name, text) = (entry.file_name(), text(&entry.path()));
        assert!(!text.contains(directory.to_str().unwrap()), "{name:?} names {}", directory.display());
    }
    assert_eq!(json(&kept.join("manifest.json"))["working_directory"], "<project>");
    // The experiment as it was is run again.
    std::fs::write(workplace.path("trial.toml"), "[pipeline.dummy]\nsteps_per_epoch = 21\n").unwrap();
    workplace.exits(0, &["reproduce", "reference/trial"]);
    // Damage would be noticed: the checksums are those of the replaced texts.
    assert_eq!(workplace.xrun(&["show", "reference/trial", "--json"]).json()["damage"], serde_json::json!([]));
}

#[test]
fn a_kept_result_is_replaced_only_on_request_and_has_a_plain_name() {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\n");
    for (arguments, code) in [
        (vec!["keep", "trial"], 0),
        (vec!["keep", "trial"], 2),
        (vec!["keep", "trial", "--replace"], 0),
        (vec!["keep", "trial", "--name", "other"], 0),
        (vec!["keep", "trial", "--name", "../other"], 2),
        (vec!["keep", "reference/trial", "--name", "again"], 2),
    ] {
        workplace.exits(code, &arguments);
    }
}

#[test]
fn only_what_is_proven_to_be_a_kept_result_is_replaced_and_rests_of_kills_are_collected() {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\n");
    let reference = workplace.path("results/reference");
    let place = |name: &str| {
        let path = reference.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "{}").unwrap();
    };
    place("foreign/manifest.json");
    place("foreign/thesis/chapter1.tex");
    place(".writing-killed/.xrun-scratch");
    place(".writing-killed/trial/metrics.jsonl");
    place(".writing-foreign/own");
    std::os::unix::fs::symlink("foreign", reference.join("link")).unwrap();
    workplace.exits(0, &["keep", "trial"]);
    assert!(!reference.join(".writing-killed").exists() && reference.join(".writing-foreign/own").exists());
    place("trial/README.md");
    for (name, named) in [("foreign", "summary.json is missing"), ("link", "symlink"), ("trial", "README.md")] {
        let output = workplace.xrun(&["keep", "trial", "--name", name, "--replace"]);
        assert!(output.code == 2 && output.err.contains(named), "{name}: {output:?}");
    }
    for left in ["foreign/manifest.json", "foreign/thesis/chapter1.tex", "link", "trial/README.md"] {
        assert!(reference.join(left).exists(), "{left}");
    }
}
