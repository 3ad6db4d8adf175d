//! Other people's checkouts: what git would run there is not run, what could be waited for is not, and the patch is right.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::workplace::{Output, Workplace, json};

const SHORT: &str = "[pipeline.dummy]\nsteps_per_epoch = 5\n";
const LONG: Duration = Duration::from_secs(60);

fn git(directory: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A checkout with a commit of `a.txt`, changed since, and an experiment.
fn checkout() -> Workplace {
    let workplace = Workplace::new();
    let directory = workplace.directory.path();
    git(directory, &["init", "-q", "-b", "main"]);
    workplace.put("a.txt", "before\n");
    git(directory, &["add", "."]);
    git(directory, &["commit", "-q", "-m", "a"]);
    workplace.put("a.txt", "behind\n");
    workplace.put("trial.toml", SHORT);
    workplace
}

fn code_of(workplace: &Workplace, experiment: &str) -> serde_json::Value {
    json(&workplace.latest(experiment).join("manifest.json"))["code"].clone()
}

fn head(directory: &Path) -> String {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(directory).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Every command that a configuration can name for what xrun asks.
fn traps(mark: &str) -> String {
    let command = |name: &str| format!("\"touch {mark}-{name}; cat\"");
    format!(
        "[core]\n\tfsmonitor = {}\n\thooksPath = {mark}\n\talternateRefsCommand = {}\n\tsshCommand = {}\n\taskPass = {}\n\
         [diff]\n\texternal = {}\n\tsubmodule = diff\n[diff \"own\"]\n\ttextconv = {}\n\tcommand = {}\n\
         [filter \"own\"]\n\tclean = {}\n\tprocess = {}\n\tsmudge = {}\n\trequired = true\n[credential]\n\thelper = {}\n",
        command("fsmonitor"),
        command("alternates"),
        command("ssh"),
        command("askpass"),
        command("external"),
        command("textconv"),
        command("command"),
        command("clean"),
        command("process"),
        command("smudge"),
        command("credential"),
    )
}

#[test]
fn no_scope_of_configuration_has_a_command_executed() {
    for scope in ["system", "global", "local", "worktree", "include", "gitdir", "onbranch", "environment", "submodule"]
    {
        let workplace = checkout();
        let directory = workplace.directory.path();
        let mark = workplace.path(&format!("ran-{scope}"));
        let own = workplace.put("traps", &traps(mark.to_str().unwrap()));
        let own = own.to_str().unwrap();
        if scope == "submodule" {
            // It is where the commit of the outer one says, but for a changed file, and then is moved.
            git(directory, &["init", "-q", "inner"]);
            let inner = directory.join("inner");
            workplace.put("inner/b.txt", "1\n");
            workplace.put("inner/.gitattributes", "* filter=own diff=own\n");
            git(&inner, &["add", "."]);
            git(&inner, &["commit", "-q", "-m", "1"]);
            git(&inner, &["commit", "-q", "--allow-empty", "-m", "2"]);
            git(directory, &["add", "inner"]);
            git(directory, &["commit", "-q", "-m", "b"]);
            git(&inner, &["checkout", "-q", "HEAD~1"]);
            workplace.put("inner/b.txt", "2\n");
            git(&inner, &["config", "include.path", own]);
            git(directory, &["config", "diff.submodule", "diff"]);
        }
        // Untracked: what was committed has no attributes, so the change of a.txt is in the patch.
        workplace.put(".gitattributes", "* filter=own diff=own\n");
        let mut command = workplace.command(&["trial.toml", "-q"]);
        match scope {
            "system" => {
                command.env("GIT_CONFIG_SYSTEM", own);
            }
            "global" => {
                command.env("GIT_CONFIG_GLOBAL", own);
            }
            "local" | "include" => git(directory, &["config", "include.path", own]),
            "worktree" => {
                git(directory, &["config", "extensions.worktreeConfig", "true"]);
                std::fs::rename(own, directory.join(".git/config.worktree")).unwrap();
            }
            "gitdir" => git(directory, &["config", "includeIf.gitdir:/**.path", own]),
            "onbranch" => git(directory, &["config", "includeIf.onbranch:main.path", own]),
            "environment" => {
                command.envs([
                    ("GIT_CONFIG_COUNT", "1"),
                    ("GIT_CONFIG_KEY_0", "include.path"),
                    ("GIT_CONFIG_VALUE_0", own),
                ]);
                command.env("GIT_EXTERNAL_DIFF", format!("touch {}-environment", mark.display()));
            }
            _ => {}
        }
        let ended = Output::from(command.output().unwrap());
        assert_eq!(ended.code, 0, "{scope}: {ended:?}");
        let names: Vec<_> = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("ran-")), "{scope}: {names:?}");
        let code = code_of(&workplace, "trial");
        assert_eq!(code["git_commit"], head(directory), "{scope}");
        let patch = code["git_patch"].as_str().unwrap_or_default();
        let left_out = code["git_left_out"].as_str().unwrap_or_default();
        match scope {
            "system" | "global" | "environment" | "submodule" => {
                assert!(patch.contains("+behind") && !patch.contains("Subproject"), "{scope}: {code}");
            }
            _ => assert!(patch.is_empty() && left_out.contains("the checkout sets `"), "{scope}: {code}"),
        }
    }
}

#[test]
fn a_pipe_in_a_checkout_holds_nothing_up() {
    for place in ["included", "of a submodule", "attributes", "attributes within", "head", "index", "config"] {
        let workplace = checkout();
        let directory = workplace.directory.path();
        workplace.exits(0, &["trial.toml", "-q"]);
        let path = match place {
            "of a submodule" => {
                git(directory, &["init", "-q", "inner"]);
                git(&directory.join("inner"), &["commit", "-q", "--allow-empty", "-m", "1"]);
                git(directory, &["add", "inner"]);
                git(&directory.join("inner"), &["config", "include.path", "../pipe"]);
                directory.join("inner/pipe")
            }
            "included" => {
                git(directory, &["config", "include.path", "../pipe"]);
                directory.join("pipe")
            }
            "attributes" => directory.join(".gitattributes"),
            "attributes within" => directory.join(".git/info/attributes"),
            "head" => directory.join(".git/HEAD"),
            "index" => directory.join(".git/index"),
            _ => directory.join(".git/config"),
        };
        let _ = std::fs::remove_file(&path);
        pipe(&path);
        let begun = Instant::now();
        workplace.exits(0, &["trial.toml", "-q"]);
        let code = code_of(&workplace, "trial");
        let known = matches!(place, "of a submodule" | "attributes" | "attributes within");
        assert_eq!(code["git_commit"].is_string(), known, "{place}: {code}");
        let removed = workplace.xrun(&["rm", "trial", "--yes"]);
        assert_eq!(removed.code == 0, known, "{place}: {removed:?}");
        assert!(begun.elapsed() < LONG, "{place}: {:?}", begun.elapsed());
        // git reads the configuration of a submodule even to ignore it.
        assert!(place != "attributes" || code["git_left_out"].is_null(), "{place}: {code}");
    }
}

#[test]
fn another_repository_in_the_environment_changes_nothing() {
    let workplace = checkout();
    let directory = workplace.directory.path();
    workplace.exits(0, &["trial.toml", "-q"]);
    git(directory, &["add", "-f", "results"]);
    let other = tempfile::tempdir().unwrap();
    git(other.path(), &["init", "-q"]);
    let mut command = workplace.command(&["rm", "trial", "--yes"]);
    command.env("GIT_DIR", other.path().join(".git")).env("GIT_WORK_TREE", other.path());
    let removed = Output::from(command.output().unwrap());
    assert!(removed.code != 0 && workplace.latest("trial").join("manifest.json").exists(), "{removed:?}");
}

#[test]
fn worktrees_and_other_formats_are_read_or_unknown() {
    let workplace = checkout();
    let directory = workplace.directory.path();
    git(directory, &["worktree", "add", "-q", "beside", "-b", "other"]);
    workplace.put("beside/a.txt", "beside\n");
    let mut command = workplace.command(&[directory.join("trial.toml").to_str().unwrap(), "-q"]);
    assert_eq!(Output::from(command.current_dir(directory.join("beside")).output().unwrap()).code, 0);
    let latest = std::fs::canonicalize(directory.join("beside/results/trial/latest")).unwrap();
    let code = json(&latest.join("manifest.json"))["code"].clone();
    assert!(code["git_patch"].as_str().unwrap().contains("+beside"), "{code}");
    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let workplace = Workplace::new();
        let directory = workplace.directory.path();
        let made = Command::new("git").args(["init", "-q", format]).current_dir(directory).output().unwrap();
        if !made.status.success() {
            crate::workplace::skipped(&format!("this git knows no {format}"));
            continue;
        }
        workplace.put("a.txt", "before\n");
        git(directory, &["add", "."]);
        git(directory, &["commit", "-q", "-m", "a"]);
        workplace.put("a.txt", "behind\n");
        workplace.put("trial.toml", SHORT);
        workplace.exits(0, &["trial.toml", "-q"]);
        let code = code_of(&workplace, "trial");
        assert_eq!(code["git_commit"], head(directory), "{format}");
        assert!(code["git_patch"].as_str().unwrap().contains("+behind"), "{format}: {code}");
    }
}

#[test]
fn a_patch_has_no_secrets_and_can_be_left_out() {
    let workplace = checkout();
    let directory = workplace.directory.path();
    for name in [".env", "cert.pem", "my_secrets.txt"] {
        workplace.put(name, "1\n");
    }
    git(directory, &["add", "-f", "."]);
    git(directory, &["commit", "-q", "-m", "b"]);
    for name in [".env", "cert.pem", "my_secrets.txt"] {
        workplace.put(name, "hunter2\n");
    }
    workplace.put("a.txt", "PASSWORD=hunter2\nkept = 1\n");
    workplace.exits(0, &["trial.toml", "-q"]);
    let code = code_of(&workplace, "trial");
    let patch = code["git_patch"].as_str().unwrap();
    assert!(patch.contains("+kept = 1") && !patch.contains("hunter2"), "{code}");
    let left_out = code["git_left_out"].as_str().unwrap();
    insta::assert_snapshot!(left_out);
    workplace.exits(0, &["trial.toml", "-q", "-s", "experiment.patch=false"]);
    let code = code_of(&workplace, "trial");
    assert!(code["git_patch"].is_null() && code["git_commit"].is_string(), "{code}");
    let watch = |options: &[&str], variable: Option<&str>| {
        let words = [&["watch", "--name", "w"][..], options, &["--", "true"]].concat();
        let mut command = workplace.command(&words);
        if let Some(value) = variable {
            command.env("XRUN__EXPERIMENT__PATCH", value);
        }
        assert_eq!(Output::from(command.output().unwrap()).code, 0);
        code_of(&workplace, "w")
    };
    assert!(watch(&[], None)["git_patch"].is_string());
    assert!(watch(&["--no-patch"], None)["git_patch"].is_null());
    assert!(watch(&[], Some("false"))["git_patch"].is_null());
}

#[test]
fn a_checkout_with_its_files_elsewhere_is_unknown() {
    let workplace = checkout();
    let directory = workplace.directory.path();
    workplace.exits(0, &["trial.toml", "-q"]);
    git(directory, &["add", "-f", "results"]);
    git(directory, &["commit", "-q", "-m", "results"]);
    let elsewhere = tempfile::tempdir().unwrap();
    git(directory, &["config", "core.worktree", elsewhere.path().to_str().unwrap()]);
    let removed = workplace.xrun(&["rm", "trial", "--yes"]);
    assert!(removed.code != 0 && workplace.latest("trial").join("manifest.json").exists(), "{removed:?}");
    workplace.exits(0, &["trial.toml", "-q"]);
    let code = code_of(&workplace, "trial");
    assert!(code["git_commit"].is_null() && code["git_patch"].is_null(), "{code}");
    assert!(code["git_left_out"].as_str().unwrap().contains("core.worktree"), "{code}");
    // A submodule names its own directory.
    git(directory, &["config", "core.worktree", directory.to_str().unwrap()]);
    workplace.exits(0, &["trial.toml", "-q"]);
    let code = code_of(&workplace, "trial");
    assert!(code["git_commit"].is_string() && code["git_patch"].as_str().unwrap().contains("+behind"), "{code}");
}

#[test]
fn every_word_of_git_for_false_is_carried_over() {
    for word in ["no", "0", "off", "false"] {
        let workplace = checkout();
        let directory = workplace.directory.path();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.join("a.txt"), mode).unwrap();
        git(directory, &["config", "core.filemode", word]);
        workplace.exits(0, &["trial.toml", "-q"]);
        let code = code_of(&workplace, "trial");
        let patch = code["git_patch"].as_str().unwrap();
        assert!(patch.contains("+behind") && !patch.contains("new mode"), "{word}: {code}");
    }
}

#[test]
fn without_a_temporary_directory_the_cache_is_taken() {
    let workplace = checkout();
    let run = |cache: &str| {
        let mut command = workplace.command(&["trial.toml", "-q"]);
        command.env("TMPDIR", workplace.path("missing")).env("XRUN_CACHE", workplace.path(cache));
        assert_eq!(Output::from(command.output().unwrap()).code, 0);
        code_of(&workplace, "trial")
    };
    let code = run("cache");
    assert!(code["git_commit"].is_string() && code["git_patch"].is_string(), "{code}");
    workplace.put("file", "");
    let code = run("file/cache");
    assert!(code["git_commit"].is_null() && code["git_left_out"].as_str().unwrap().contains("TMPDIR"), "{code}");
}
