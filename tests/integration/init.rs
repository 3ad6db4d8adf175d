//! `xrun new --project`.

use crate::workplace::Workplace;

const FILES: [&str; 5] =
    ["dummy.toml", "experiment.schema.json", ".gitignore", ".github/workflows/experiments.yml", "README.md"];

#[test]
fn what_is_made_passes_its_own_check_and_runs() {
    let workplace = Workplace::new();
    let output = workplace.xrun(&["new", "--project", "my project"]);
    assert!(output.code == 0 && output.err.contains("cd 'my project'; xrun dummy.toml"), "{output:?}");
    let place = workplace.path("my project");
    FILES.iter().for_each(|name| assert!(place.join(name).is_file(), "{name}"));
    let inside = |arguments: &[&str]| {
        crate::workplace::Output::from(workplace.command(arguments).current_dir(&place).output().unwrap())
    };
    let workflow = std::fs::read_to_string(place.join(FILES[3])).unwrap();
    let checked = workflow.lines().find_map(|line| line.trim().strip_prefix("run: xrun check ")).unwrap();
    assert_eq!(checked, "--format github *.toml");
    let output = inside(&["check", "--format", "github", "dummy.toml"]);
    assert_eq!((output.code, output.out.as_str()), (0, ""), "{output:?}");
    let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(place.join(FILES[1])).unwrap()).unwrap();
    let first = std::fs::read_to_string(place.join(FILES[0])).unwrap();
    assert!(first.starts_with("#:schema experiment.schema.json\n") && schema["properties"]["pipeline"].is_object());
    assert_eq!(inside(&["dummy.toml", "-q"]).code, 0);
    // The steps of the workflow that need a contract.
    assert_eq!(inside(&["plan", "dummy.toml", "--lock"]).code, 0);
    assert!(workflow.contains("*.memory.lock") && place.join("dummy.memory.lock").is_file());
    assert_eq!(inside(&["check", "--locked", "--format", "github", "dummy.toml"]).code, 0);
}

#[test]
fn nothing_is_overwritten_and_other_beginnings_can_be_chosen() {
    let workplace = Workplace::with("taken/README.md", "mine");
    let mut messages = workplace.exits(2, &["new", "--project", "taken"]).err;
    assert_eq!(std::fs::read_dir(workplace.path("taken")).unwrap().count(), 1, "nothing was written");
    workplace.exits(0, &["new", "--project", "like", "--like", "soak"]);
    workplace.exits(0, &["check", "--no-data", "like/soak.toml"]);
    workplace.exits(0, &["new", "dummy", "--project", "of"]);
    let whole = std::fs::read_to_string(workplace.path("of/dummy.toml")).unwrap();
    assert!(whole.contains("[limits]") && workplace.xrun(&["check", "of/dummy.toml"]).code == 0, "{whole}");
    let output = workplace.exits(2, &["new", "--project", "none", "--like", "stag2"]);
    assert!(!workplace.path("none").exists());
    messages += &output.err;
    insta::assert_snapshot!(messages);
}
