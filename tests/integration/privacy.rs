//! Secrets masked in results, and public copies without names of machines and people.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use xrun::results::secrets::mask_experiment;

use crate::workplace::{Output, Workplace, json, text};

/// All files below a directory that have one of these texts in them.
fn with_any(directory: &Path, texts: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(with_any(&path, texts)),
            kind if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap();
                let content = String::from_utf8_lossy(&bytes);
                let these = texts.iter().filter(|text| content.contains(**text));
                found.extend(these.map(|text| (path.clone(), (*text).to_owned())));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn secrets_on_the_command_line_of_a_watched_command_are_not_recorded() {
    let workplace = Workplace::new();
    let script = "true --api-key hunter2 https://me:hunter3@host/x; true";
    let secrets = ["--hf-token", "hunter4", "--key-frames=3", "hf_abcdefghijklmnopqrstuvwx1"];
    let words = [&["watch", "--name", "w", "--", "sh", "-c", script], &secrets[..]].concat();
    workplace.exits(0, &words);
    let run = workplace.latest("w");
    let found = with_any(&run, &["hunter2", "hunter3", "hunter4", "hf_abc"]);
    assert!(found.is_empty(), "{found:?}");
    let manifest = json(&run.join("manifest.json"));
    let command = manifest["watched"]["command"].as_array().unwrap();
    assert_eq!((&command[4], &command[5]), (&"***".into(), &"--key-frames=3".into()), "{manifest}");
    assert!(
        text(&run.join("log.txt")).contains("--hf-token '***'")
            || text(&run.join("log.txt")).contains("--hf-token ***")
    );
}

const WITH_SECRETS: &str = "[pipeline.command]\nprogram = [\"sh\", \"-c\", \"test $0 = hunter2 && test $WANDB_API_KEY = hunter3\", \"{values.api_key}\"]\n\
    resume = [\"true\"]\n[pipeline.command.values]\napi_key = \"hunter2\"\nrate = 0.5\n\
    [pipeline.command.environment]\nWANDB_API_KEY = \"hunter3\"\n";

#[test]
fn secret_values_of_an_experiment_reach_its_command_and_only_files_of_their_owner() {
    let workplace = Workplace::with("trial.toml", WITH_SECRETS);
    workplace.exits(0, &["trial.toml", "-q", "-s", "pipeline.command.values.api_key=hunter2"]);
    let run = workplace.latest("trial");
    for (path, _) in with_any(&run, &["hunter2", "hunter3"]) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(["experiment.toml", "resolved.toml"].contains(&name.as_str()), "{name}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert!(text(&run.join("resolved.toml")).contains("hunter2"), "a resume needs it");
}

#[test]
fn a_public_copy_is_a_result_without_host_user_directories_and_words() {
    let workplace =
        Workplace::with("trial.toml", &format!("{WITH_SECRETS}note = \"private-value\"\n").replace("note", "NOTE"));
    workplace.file("dummy.toml", "[pipeline.dummy]\nsteps_per_epoch = 30\n[checkpoint]\nevery_steps = 10\n");
    let home = workplace.path("home/ada");
    std::fs::create_dir_all(&home).unwrap();
    let xrun = |words: &[&str]| {
        let mut command = workplace.command(words);
        let ended = Output::from(command.env("HOME", &home).env("USER", "ada").output().unwrap());
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended
    };
    let script = workplace.file("secret_script.sh", "true\n");
    xrun(&["trial.toml", "-q"]);
    xrun(&["dummy.toml", "-q", "-s", "training.epochs=2"]);
    xrun(&["watch", "--name", "w", "--", "sh", script.to_str().unwrap(), "--data", home.to_str().unwrap()]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let here = workplace.directory.path().to_str().unwrap().to_owned();
    for name in ["trial", "dummy", "w"] {
        xrun(&["keep", name, "-o", "public", "--with-trace"]);
    }
    let words = [here.as_str(), "home/ada", "hunter2", "hunter3", "private-value", "secret_script"];
    let found = with_any(&workplace.path("public"), &words);
    assert!(found.is_empty(), "{found:?}");
    for name in ["trial", "dummy", "w"] {
        let run = workplace.path("public").join(name);
        let manifest = json(&run.join("manifest.json"));
        assert_ne!(manifest["host"]["name"], host.as_str(), "{manifest}");
        assert!(manifest["code"]["git_patch"].is_null());
        let run = run.to_str().unwrap();
        for command in
            [&["show", run][..], &["verdict", run], &["export", run, "--to", "report"], &["compare", run, run]]
        {
            xrun(command);
        }
        assert!(!Path::new(run).join("checkpoints").exists());
        assert_eq!(Path::new(run).join("log.txt").exists(), name == "dummy", "{name}: of other programs");
    }
    workplace.exits(2, &["keep", "dummy", "-o", "public"]);
    for _ in 0..2 {
        xrun(&["keep", "dummy", "--replace", "-o", "other"]);
    }
}

#[test]
fn a_public_copy_has_no_paths_in_words_and_no_digest_of_them() {
    let workplace = Workplace::new();
    let places = ["-padalovpw", "-I/mnt/hiddenplace", "--data", "/tmp/odd dir/privateplace"];
    let words = [&["watch", "--name", "w", "--", "sh", "-c", ":"], &places[..]].concat();
    workplace.exits(0, &words);
    workplace.exits(0, &["keep", "w", "-o", "public"]);
    let original = json(&workplace.latest("w").join("manifest.json"));
    let fingerprint = original["fingerprint"].as_str().unwrap();
    let found =
        with_any(&workplace.path("public"), &["adalovpw", "hiddenplace", "privateplace", "odd dir", &fingerprint[..6]]);
    assert!(found.is_empty(), "{found:?}");
    let command = json(&workplace.path("public/w/manifest.json"))["watched"]["command"].clone();
    assert_eq!(command, serde_json::json!(["sh", "-c", "***", "***", "***", "--data", "***"]));
}

#[test]
fn a_copy_of_a_damaged_run_leaves_nothing() {
    let workplace = Workplace::ran("dummy", "[pipeline.dummy]\nsteps_per_epoch = 5\n");
    let path = workplace.latest("dummy").join("summary.json");
    std::fs::write(&path, text(&path).replacen("steps", "stops", 1)).unwrap();
    assert_ne!(workplace.xrun(&["keep", "dummy", "-o", "public"]).code, 0);
    assert!(!workplace.path("public/dummy").exists());
}

#[test]
fn a_sweep_over_a_secret_shows_and_writes_it_for_its_owner_alone() {
    let workplace = Workplace::new();
    let command = "[pipeline.command]\nprogram = [\"sh\", \"-c\", \"test $0 != x\", \"{values.api_key}\"]\n\
                   [pipeline.command.values]\napi_key = \"hunter0\"\n";
    let values = "[sweep.values]\n\"pipeline.command.values.api_key\" = [\"hunter2\", \"hunter3\"]\n";
    workplace.file("trial.toml", &format!("{command}{values}"));
    for words in [
        &["sweep", "trial.toml"][..],
        &["sweep", "trial.toml", "--dry-run"],
        &["sweep", "trial.toml", "--dry-run", "--json"],
    ] {
        let ended = workplace.exits(0, words);
        assert!(!format!("{ended:?}").contains("hunter"), "{ended:?}");
    }
    for (path, _) in with_any(&workplace.path("results"), &["hunter2", "hunter3"]) {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    let sweep = workplace.latest_sweep("trial");
    for name in ["table.csv", "table.json", "report.html"] {
        let content = text(&sweep.join(name));
        assert!(!content.contains("hunter") && content.contains("***"), "{name}");
    }
}

#[test]
fn no_value_of_a_committed_experiment_is_taken_for_a_secret() {
    let mut found = Vec::new();
    crate::workplace::toml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments"), &mut found);
    for path in &found {
        let content = text(path);
        assert_eq!(mask_experiment(&content), content, "{}", path.display());
    }
    assert!(found.len() > 50, "{}", found.len());
}
