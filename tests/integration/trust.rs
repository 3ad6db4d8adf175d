//! Does going on with a directory from elsewhere start the programs that it names? Only where this user says so.

use std::path::Path;

use crate::workplace::{Output, Workplace, json, lines_with, redacted, skipped, text, unsealed};

/// Two trials whose command leaves a trace of itself.
const SWEPT: &str = "[pipeline.command]\nprogram = [\"sh\", \"-c\", \"echo step 1 loss 1\"]\n\
                     steps = 'step (?<step>\\d+) loss (?<loss>\\S+)'\n[sweep]\n\"experiment.seed\" = [1, 2]\n";
/// A command that fails, and goes on by leaving a trace.
const FAILS: &str = "[pipeline.command]\nprogram = [\"false\"]\nresume = [\"touch\", \"started\"]\nsteps = \"none\"\n";
const ALLOW: &str = "--allow-command";

/// As the user of another home, who created nothing here.
fn as_another(workplace: &Workplace, arguments: &[&str]) -> Output {
    use std::os::unix::fs::PermissionsExt;
    let key = workplace.path("another/xrun/key");
    if !key.exists() {
        workplace.file("another/xrun/key", &"k".repeat(32));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    Output::from(workplace.command(arguments).env("XDG_STATE_HOME", workplace.path("another")).output().unwrap())
}

fn copied(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

fn changed(path: &Path, from: &str, to: &str) {
    let kept = unsealed(&text(path));
    let other = kept.replace(from, to);
    assert_ne!(kept, other, "{from}");
    std::fs::write(path, other).unwrap();
}

/// Refused as a mistake on the command line, with the cure, the program and one of the reasons; nothing was started.
fn refuses(workplace: &Workplace, output: &Output, program: &str, why: &str) {
    assert_eq!(output.code, 2, "{output:?}");
    for part in [ALLOW, program, why] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    assert!(!workplace.path("started").exists(), "{output:?}");
}

#[test]
fn a_sweep_from_elsewhere_starts_its_command_only_where_that_is_allowed() {
    let workplace = Workplace::with("us.toml", SWEPT);
    workplace.exits(0, &["sweep", "us.toml", "-q"]);
    let sweep = workplace.latest_sweep("us");
    let gone = |sweep: &Path| std::fs::remove_dir_all(sweep.join("trials/0002-1")).unwrap();
    let moved = workplace.path("moved");
    copied(&sweep, &moved);
    gone(&moved);
    let resume = ["sweep", "--resume", "moved", "-q"];
    workplace.exits(0, &resume); // one's own may be moved
    assert!(moved.join("trials/0002-1/summary.json").exists());

    gone(&moved);
    let other = as_another(&workplace, &resume);
    refuses(&workplace, &other, "sh -c 'echo step 1 loss 1'", "base.toml");
    insta::assert_snapshot!("a_sweep_of_another_user", lines_with(&other.err, "creator.hmac"));
    changed(&moved.join("base.toml"), "echo step 1 loss 1", "touch started; echo step 1 loss 1");
    let read = workplace.xrun(&["sweep", "--collect", "moved", "-q"]);
    assert!(read.code != 2 && !workplace.path("started").exists(), "it only reads: {read:?}");
    refuses(&workplace, &workplace.xrun(&resume), "touch started", "base.toml");
    refuses(&workplace, &workplace.xrun(&[&resume[..], &["--task", "0"]].concat()), "touch started", "base.toml");
    std::fs::remove_file(moved.join("creator.hmac")).unwrap();
    let unsigned = workplace.xrun(&resume);
    refuses(&workplace, &unsigned, "touch started", "creator.hmac");
    insta::assert_snapshot!("a_sweep_without_a_record", lines_with(&unsigned.err, "creator.hmac"));
    assert!(!moved.join("trials/0002-1").exists());
    workplace.exits(0, &[&resume[..], &[ALLOW]].concat());
    assert!(workplace.path("started").exists());
}

#[test]
fn runs_of_ones_own_sweep_go_on_and_so_do_those_of_another_where_that_is_allowed() {
    let workplace = Workplace::with("fails.toml", &format!("{FAILS}[sweep]\n\"experiment.seed\" = [1, 2]\n"));
    workplace.exits(1, &["sweep", "fails.toml", "-q"]);
    let resume = ["sweep", "--resume", "results/fails/sweeps/latest", "-q", "--retry-failed"];
    refuses(&workplace, &as_another(&workplace, &resume), "`false`", "base.toml");
    assert_eq!(as_another(&workplace, &[&resume[..], &[ALLOW]].concat()).code, 0);
    assert!(workplace.path("started").exists());

    std::fs::remove_file(workplace.path("started")).unwrap();
    std::fs::remove_dir_all(workplace.path("results")).unwrap();
    workplace.exits(1, &["sweep", "fails.toml", "-q"]);
    // Each run has a record of its own: the sweep's says nothing of a run that was put there.
    let run = workplace.path("results/fails/sweeps/latest/trials/0001-1");
    changed(&run.join("resolved.toml"), "started", "elsewhere");
    workplace.exits(1, &resume);
    assert!(workplace.path("started").exists() && !workplace.path("elsewhere").exists());
    let table = json(&workplace.path("results/fails/sweeps/latest/table.json"));
    let processes = text(&workplace.path("results/fails/sweeps/latest/processes.jsonl"));
    assert!(processes.contains("touch elsewhere") && processes.contains(ALLOW), "{table} {processes}");
}

/// A key in quotes is the same key to `-s`, and no key that xrun writes.
#[test]
fn a_sweep_whose_keys_are_written_in_another_way_is_refused() {
    let workplace =
        Workplace::with("plain.toml", "[pipeline.dummy]\nsteps_per_epoch = 5\n[sweep]\n\"experiment.seed\" = [1, 2]\n");
    workplace.exits(0, &["sweep", "plain.toml", "-q"]);
    let sweep = workplace.latest_sweep("plain");
    std::fs::remove_dir_all(sweep.join("trials/0002-1")).unwrap();
    changed(&sweep.join("sweep.toml"), "experiment.seed", "\\\"pipeline\\\".command.program");
    let output = as_another(&workplace, &["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    assert_ne!(output.code, 0, "{output:?}");
    assert!(!sweep.join("trials/0002-1").exists(), "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
}

#[test]
fn a_sweep_writes_through_no_link_and_removes_no_directory_that_it_does_not_know() {
    let workplace =
        Workplace::with("plain.toml", "[pipeline.dummy]\nsteps_per_epoch = 5\n[sweep]\n\"experiment.seed\" = [1, 2]\n");
    workplace.exits(0, &["sweep", "plain.toml", "-q"]);
    let sweep = workplace.latest_sweep("plain");
    let resume = || workplace.xrun(&["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    let trial = sweep.join("trials/0002-1");
    let said_to = trial.with_extension("txt");
    workplace.file("precious", "mine\n");
    let _ = std::fs::remove_file(&said_to);
    std::os::unix::fs::symlink(workplace.path("precious"), &said_to).unwrap();
    std::fs::remove_dir_all(&trial).unwrap();
    assert_ne!(resume().code, 0);
    assert_eq!(text(&workplace.path("precious")), "mine\n");
    std::fs::remove_file(&said_to).unwrap();
    assert_eq!(resume().code, 0);

    for file in ["manifest.json", "summary.json"] {
        std::fs::remove_file(trial.join(file)).unwrap();
    }
    let output = resume();
    assert_ne!(output.code, 0, "{output:?}");
    insta::assert_snapshot!("a_run_without_records", redacted(&output.err));
    assert!(trial.join("metrics.jsonl").exists());
    std::fs::rename(&trial, workplace.path("aside")).unwrap();
    assert_eq!(resume().code, 0);
    std::fs::rename(sweep.join("trials"), workplace.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(workplace.path("elsewhere"), sweep.join("trials")).unwrap();
    let output = resume();
    assert_ne!(output.code, 0, "{output:?}");
    insta::assert_snapshot!("trials_behind_a_symlink", redacted(&output.err));
}

#[test]
fn a_run_from_elsewhere_starts_its_command_only_where_that_is_allowed() {
    let workplace = Workplace::with("fails.toml", &FAILS.replace("\"started\"", "\"started\", \"\\u001b[2J\""));
    workplace.exits(1, &["fails.toml", "-q"]);
    let run = workplace.latest("fails");
    let moved = workplace.path("moved");
    copied(&run, &moved);
    let other = as_another(&workplace, &["resume", "moved"]);
    refuses(&workplace, &other, "touch started '\\u{1b}[2J'", "resolved.toml");
    insta::assert_snapshot!("a_run_of_another_user", lines_with(&other.err, "creator.hmac"));
    // Whoever changes what it does in the directory says so with `-s`, and it stays one's own.
    let set = ["-s", "limits.host_memory=900GiB"];
    workplace.exits(0, &[&["resume", "moved", "-q"][..], &set].concat()); // one's own, moved
    assert!(workplace.path("started").exists() && text(&moved.join("resolved.toml")).contains("900 GiB"));
    std::fs::remove_file(workplace.path("started")).unwrap();
    std::fs::remove_file(moved.join("summary.json")).unwrap();
    workplace.exits(0, &["resume", "moved", "-q"]); // one's own, changed by xrun
    std::fs::remove_file(workplace.path("started")).unwrap();

    std::fs::remove_file(moved.join("summary.json")).unwrap();
    let manifest = text(&moved.join("manifest.json"));
    let elsewhere =
        crate::workplace::unsealed(&manifest).replace("\"working_directory\": \"", "\"working_directory\": \"/.");
    std::fs::write(moved.join("manifest.json"), elsewhere).unwrap();
    refuses(&workplace, &workplace.xrun(&["resume", "moved"]), "touch started", "resolved.toml");
    std::fs::write(moved.join("manifest.json"), manifest).unwrap();
    changed(&moved.join("resolved.toml"), "\"touch\"", "\"touch\", \"--\"");
    refuses(&workplace, &workplace.xrun(&["resume", "moved"]), "touch -- started", "resolved.toml");
    workplace.exits(0, &["resume", "moved", "-q", ALLOW]);
    assert!(workplace.path("started").exists());
    std::fs::remove_file(workplace.path("started")).unwrap();
    std::fs::remove_file(moved.join("summary.json")).unwrap();
    refuses(&workplace, &workplace.xrun(&["resume", "moved"]), "touch -- started", "resolved.toml");
}

#[test]
fn a_command_of_a_directory_from_elsewhere_is_not_reproduced_unasked() {
    let workplace = Workplace::ran("us", &SWEPT.replace("echo", "touch started; echo"));
    std::fs::remove_file(workplace.path("started")).unwrap();
    refuses(&workplace, &as_another(&workplace, &["reproduce", "us"]), "touch started", "resolved.toml");
    for only_reads in [
        vec!["show", "us"],
        vec!["export", "us", "--to", "report"],
        vec!["export", "us", "--to", "tensorboard"],
        vec!["verdict", "us"],
    ] {
        assert_eq!(as_another(&workplace, &only_reads).code, 0, "{only_reads:?}");
    }
    assert!(!workplace.path("started").exists());
    assert_eq!(as_another(&workplace, &["reproduce", "us", ALLOW]).code, 0);
    std::fs::remove_file(workplace.path("started")).unwrap();
    let made = std::fs::canonicalize(workplace.path("results/us/reproductions/latest")).unwrap();
    let again = as_another(&workplace, &["reproduce", made.to_str().unwrap()]);
    refuses(&workplace, &again, "touch started", "creator.hmac");
}

#[test]
fn without_a_state_directory_a_run_goes_on_and_a_later_resume_asks() {
    let workplace = Workplace::with("fails.toml", FAILS);
    let homeless = |arguments: &[&str]| {
        let mut command = workplace.command(arguments);
        Output::from(command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap())
    };
    assert_eq!(homeless(&["fails.toml", "-q"]).code, 1);
    let run = workplace.latest("fails");
    assert!(!run.join("creator.hmac").exists());
    assert_eq!(text(&run.join("log.txt")).matches(ALLOW).count(), 1);
    refuses(&workplace, &homeless(&["resume", "fails"]), "touch started", "creator.hmac");
    refuses(&workplace, &workplace.xrun(&["resume", "fails"]), "touch started", "creator.hmac");
    assert_eq!(homeless(&["resume", "fails", "-q", ALLOW]).code, 0);
    // A run that names no program says nothing of it.
    workplace.file("plain.toml", "[pipeline.dummy]\nfail_at_step = 9\n");
    assert_eq!(homeless(&["plain.toml", "-q"]).code, 1);
    assert!(!text(&workplace.latest("plain").join("log.txt")).contains(ALLOW));
    assert_eq!(homeless(&["resume", "plain", "-q"]).code, 1, "it fails there again");
}

#[cfg(unix)]
#[test]
fn a_directory_of_another_owner_is_not_ones_own() {
    // SAFETY: a question to the system that cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("only root can give a file to another user");
    }
    let workplace = Workplace::with("fails.toml", FAILS);
    workplace.exits(1, &["fails.toml", "-q"]);
    let run = workplace.latest("fails");
    std::os::unix::fs::chown(run.join("resolved.toml"), Some(12345), None).unwrap();
    refuses(&workplace, &workplace.xrun(&["resume", "fails"]), "touch started", "12345");
    workplace.exits(0, &["resume", "fails", "-q", ALLOW]);
}
