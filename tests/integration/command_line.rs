//! Command line: help, listings and completions.

use std::path::Path;

use crate::workplace::{Workplace, text, without_pipelines};

const SUBCOMMANDS: &[&str] = &[
    "run",
    "check",
    "new",
    "resume",
    "sweep",
    "reproduce",
    "ls",
    "note",
    "rm",
    "compare",
    "show",
    "export",
    "top",
    "verdict",
    "watch",
    "keep",
];

#[test]
fn help_and_manual_name_every_subcommand_and_the_exit_codes() {
    let workplace = Workplace::new();
    let short = workplace.xrun(&["--help"]).out;
    assert!(
        short.lines().count() < 45
            && ["Run:", "Look:", "Continue:", "Other trainers:"].iter().all(|group| short.contains(group))
    );
    assert!(workplace.exits(0, &["help", "agents"]).out.contains("xrun compare A B --json"));
    let help = workplace.xrun(&["--help-all"]);
    let manual = workplace.xrun(&["generate", "man"]);
    for subcommand in SUBCOMMANDS {
        assert!(help.out.contains(&format!("  {subcommand}")), "{subcommand} is not in the help");
        assert!(manual.out.contains(&format!("xrun\\-{subcommand}")), "{subcommand} is not in the manual");
        let own = workplace.exits(0, &[subcommand, "--help"]);
        assert!(own.out.contains(&format!("xrun {subcommand}")), "{own:?}");
        workplace.exits(0, &["generate", "man", subcommand]);
    }
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 70] {
        assert!(help.out.contains(&format!("\n{code:>5}  ")), "{code}: {help:?}");
    }
}

/// Completions of the last of these words, as the script of bash asks for them.
fn offered(workplace: &Workplace, words: &[&str]) -> Vec<String> {
    let mut command = workplace.command(&["--"]);
    let last = (words.len() - 1).to_string();
    let command = command.args(words).env("COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", last);
    crate::workplace::Output::from(command.output().unwrap()).out.lines().map(str::to_owned).collect()
}

#[test]
fn pipelines_keys_runs_and_tags_are_completed() {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\n");
    let has = |words: &[&str], word: &str| {
        let offered = offered(&workplace, words);
        assert!(offered.iter().any(|one| one.starts_with(word)), "{words:?}: {offered:?}");
    };
    has(&["xrun", "sh"], "show");
    has(&["xrun", "tri"], "trial.toml");
    has(&["xrun", "new", ""], "fewshot-detection");
    for command in ["show", "fork", "keep", "blame", "compare", "rm", "verdict", "top"] {
        has(&["xrun", command, "tri"], "trial/2");
    }
    workplace.exits(0, &["note", "trial", "--tag", "first", "--tag", "fine"]);
    assert_eq!(offered(&workplace, &["xrun", "ls", "--tag", "fi"]), ["fine", "first"]);
    assert_eq!(offered(&workplace, &["xrun", "note", "trial", "--tag", "fir"]), ["first"]);
    has(&["xrun", "run", "-s", "limits.wo"], "limits.workers=");
    assert!(!offered(&workplace, &["xrun", "run", "--"]).iter().any(|one| one == "--probe"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(workplace.xrun(&["generate", "completions", shell]).out.contains("xrun"), "{shell}");
    }
    workplace.exits(2, &["generate", "completions", "tcsh"]);
}

#[test]
fn every_command_with_json_fails_in_json() {
    let workplace = Workplace::new();
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands");
    let mut tried = 0;
    for page in std::fs::read_dir(pages).unwrap().map(|page| page.unwrap().path()) {
        if text(&page).contains("| `--json` |") {
            let command = page.file_stem().unwrap().to_str().unwrap();
            for wrong in ["no/such", "--no-such"] {
                let output = workplace.xrun(&[command, "--json", wrong]);
                assert!(output.code > 0 && output.code < 9, "{command}: {output:?}");
                let answer = output.json();
                // `check` answers for each file.
                assert!(answer.is_array() || answer["exit_code"] == output.code, "{command}: {output:?}");
            }
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

#[test]
fn nothing_typed_or_something_unknown_is_a_usage_error() {
    let workplace = Workplace::new();
    workplace.exits(2, &[]);
    workplace.exits(2, &["--no-such-option"]);
    let output = workplace.exits(2, &["no_such_file.toml"]);
    assert!(output.err.contains("no_such_file.toml"), "{output:?}");
}

#[test]
fn every_checked_in_experiment_checks_clean() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
    let workplace = Workplace::new();
    let mut count = 0;
    let directories = [
        directory.to_owned(),
        format!("{directory}/leaks"),
        format!("{directory}/leaks/small"),
        format!("{directory}/sweeps"),
    ];
    for entry in directories.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap().flatten()) {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let output = workplace.xrun(&["check", path.to_str().unwrap()]);
            // Data outside of the repository may be absent on this machine; nothing else may be wrong.
            let absent = output.err.split("error: ").skip(1).all(|problem| problem.contains("XRUN_REAL_DATA"));
            assert!(output.code == 0 || absent, "{}: {output:?}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} experiments");
}

#[test]
fn variables_and_files_with_names_that_are_no_text_do_no_harm() {
    use std::os::unix::ffi::OsStrExt;
    let workplace = Workplace::new();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9.toml");
    std::fs::write(workplace.directory.path().join(odd), "[pipeline.dummy]\n").unwrap();
    let mut command = workplace.command(&["-q"]);
    let status = command.arg(odd).env("ODD", std::ffi::OsStr::from_bytes(b"\xff")).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_subcommand_with_a_typo_is_answered_with_the_one_that_was_meant() {
    let workplace = Workplace::new();
    for line in [&["verdit", "latest"][..], &["verdit"]] {
        insta::assert_snapshot!("subcommand_with_a_typo", workplace.exits(2, line).err);
    }
    // A file is a file, whatever it is called.
    workplace.file("verdit", "[pipeline.dummy]\n");
    workplace.exits(0, &["verdit", "-q"]);
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_reader_that_left_is_not() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let workplace = Workplace::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = workplace.command(&["generate", "schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    insta::assert_snapshot!("an_answer_on_a_full_disk", err);

    let mut child =
        workplace.command(&["generate", "schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than fits into a pipe, so the write fails however slow the reader is to leave.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(13), "SIGPIPE");
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_file_to_start_from_names_its_schema_and_examples_run_as_they_are() {
    let workplace = Workplace::new();
    let listed = workplace.xrun(&["new"]);
    assert!(listed.out.contains("fewshot-detection") && listed.out.contains("xrun new --like EXAMPLE"), "{listed:?}");
    let template = workplace.xrun(&["new", "dummy"]).out;
    let schema = template.lines().next().unwrap().strip_prefix("#:schema ").unwrap().to_owned();
    assert!(template.contains(&format!("xrun generate schema > {schema}")), "{template}");
    for line in listed.out.lines().skip_while(|line| !line.starts_with("examples")).skip(1) {
        let name = line.split_whitespace().next().unwrap();
        let file = format!("{name}.toml");
        workplace.exits(0, &["new", "--like", name, "-o", &file]);
        let output = workplace.xrun(&["check", "--no-data", &file]);
        let text = std::fs::read_to_string(workplace.path(&file)).unwrap();
        assert_eq!(output.code, 0, "{output:?}");
        assert!(!text.contains("extends"), "{name} needs another file");
        assert!(text.starts_with(&format!("#:schema {schema}\n")), "{name}");
    }
    insta::assert_snapshot!("example_with_a_typo", workplace.exits(2, &["new", "--like", "stage3"]).err);
    insta::assert_snapshot!(
        "template_with_a_typo",
        without_pipelines(&workplace.exits(2, &["new", "fewshot-detecton"]).err)
    );
}

#[test]
fn colours_can_be_forced_where_there_is_no_terminal_and_refused_everywhere() {
    let workplace = Workplace::with("wrong.toml", "[pipeline.dummy]\nx = 1\n");
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = workplace.command(&["check", "wrong.toml"]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
        crate::workplace::Output::from(command.output().unwrap()).err.contains('\x1b')
    };
    assert!(!coloured(&[]) && !coloured(&[("CLICOLOR_FORCE", "0")]));
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn backups_can_leave_the_cache_out() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    let own = workplace.path("own");
    let others = workplace.path("others");
    std::fs::create_dir(&others).unwrap();
    for cache in [&own, &others] {
        let output = workplace.command(&["plan", "trial.toml"]).env("XRUN_CACHE", cache).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let tag = std::fs::read_to_string(own.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"), "{tag}");
    assert!(!others.join("CACHEDIR.TAG").exists(), "a directory that was there may hold other things");
}
