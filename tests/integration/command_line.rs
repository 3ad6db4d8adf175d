//! Command line: help, listings and completions.

use std::path::Path;

use crate::workplace::{Workplace, redacted, text};

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
    "gc",
    "compare",
    "show",
    "report",
    "export",
    "top",
    "verdict",
    "watch",
    "leaks",
    "devices",
    "schema",
    "completions",
    "man",
];

#[test]
fn help_and_manual_name_every_subcommand_and_the_exit_codes() {
    let workplace = Workplace::new();
    let help = workplace.xrun(&["--help"]);
    let manual = workplace.xrun(&["man"]);
    for subcommand in SUBCOMMANDS {
        assert!(help.out.contains(&format!("  {subcommand}")), "{subcommand} is not in the help");
        assert!(manual.out.contains(&format!("xrun\\-{subcommand}")), "{subcommand} is not in the manual");
        let own = workplace.xrun(&[subcommand, "--help"]);
        assert_eq!(own.code, 0);
        assert!(own.out.contains(&format!("xrun {subcommand}")), "{own:?}");
        assert_eq!(workplace.xrun(&["man", subcommand]).code, 0);
    }
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 70] {
        assert!(help.out.contains(&format!("\n{code:>5}  ")), "{code}: {help:?}");
    }
    for word in [".SH ENVIRONMENT", "XRUN_CACHE", "CUDA_VISIBLE_DEVICES", ".SH FILES", "summary.json"] {
        assert!(manual.out.contains(word), "{word} is not in the manual");
    }
}

/// Completions of bash for these words.
#[cfg(unix)]
fn offered(workplace: &Workplace, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "compopt() {{ :; }}\nxrun() {{ '{}' \"$@\"; }}\nsource <(xrun completions bash)\nCOMP_WORDS=({})\nCOMP_CWORD={}\n\
         _xrun_and_runs xrun '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_xrun"),
        quoted.join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let output =
        std::process::Command::new("bash").arg("-c").arg(script).current_dir(workplace.directory.path()).output();
    crate::workplace::said(output.unwrap()).out.lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn bash_completes_pipelines_records_keys_and_runs() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let has = |words: &[&str], word: &str| {
        let offered = offered(&workplace, words);
        assert!(offered.iter().any(|one| one.starts_with(word)), "{words:?}: {offered:?}");
    };
    has(&["xrun", "new", ""], "fewshot-detection");
    has(&["xrun", "schema", "pl"], "plan");
    for command in ["show", "fork", "keep", "blame", "compare", "rm", "verdict", "top"] {
        has(&["xrun", command, "tri"], "trial/2");
    }
    assert_eq!(workplace.xrun(&["note", "trial", "--tag", "first", "--tag", "fine"]).code, 0);
    assert_eq!(offered(&workplace, &["xrun", "ls", "--tag", "fi"]), ["fine", "first"]);
    assert_eq!(offered(&workplace, &["xrun", "note", "trial", "--tag", "fir"]), ["first"]);
    has(&["xrun", "run", "-s", "limits.wo"], "limits.workers=");
    assert!(!offered(&workplace, &["xrun", "run", "--"]).iter().any(|one| one == "--probe"));
}

/// Output of another shell that runs a script with the completions loaded; `None` where it is not installed.
#[cfg(unix)]
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn said_by(workplace: &Workplace, shell: &str, script: &str) -> Option<String> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_xrun"));
    let found = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{found}", program.parent().unwrap().display());
    let mut command = std::process::Command::new(shell);
    let command = command.args(["-c", script]).env("PATH", path).env("HOME", workplace.path("home"));
    match command.current_dir(workplace.directory.path()).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            eprintln!("SKIPPED: {shell}: {error}");
            None
        }
    }
}

#[cfg(unix)]
#[test]
fn fish_completes_values_and_runs() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let cases = [("new ", "fewshot-detection"), ("schema pl", "plan"), ("man sw", "sweep"), ("show tri", "trial/2")];
    for (typed, word) in cases.into_iter().chain([("run -s limits.wo", "limits.workers=")]) {
        let script = format!("xrun completions fish | source; complete -C 'xrun {typed}'");
        let Some(offered) = said_by(&workplace, "fish", &script) else { return };
        assert!(offered.lines().any(|line| line.starts_with(word)), "{typed}: {offered}");
        if typed == "new " {
            assert!(!offered.contains("trial.toml"), "no files: {offered}");
        }
    }
}

#[cfg(unix)]
#[test]
fn zsh_completes_runs() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let offered = |words: &str, at: usize| {
        // Outside of its line editor, what is added is printed, and the rest is clap's.
        let script = format!(
            "compdef() {{ print -r -- compdef $@ }}\nsource <(xrun completions zsh)\n_xrun() {{ words=(changed); return 1 }}\n\
             compadd() {{ print -rl -- $@ }}\n_files() {{ print files }}\nwords=({words})\nCURRENT={at}\n_xrun_and_runs"
        );
        said_by(&workplace, "zsh", &script)
    };
    let Some(of_show) = offered("xrun show tri", 3) else { return };
    assert!(of_show.starts_with("compdef _xrun_and_runs xrun\n"), "{of_show}");
    assert!(of_show.lines().any(|line| line.starts_with("trial/2")) && of_show.contains("latest"), "{of_show}");
    for (words, at) in [("xrun new tri", 3), ("xrun show --js", 3), ("xrun show", 2)] {
        assert!(!offered(words, at).unwrap().contains("latest"), "{words}");
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    let workplace = Workplace::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(workplace.xrun(&["completions", shell]).out.contains("xrun"), "{shell}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = workplace.xrun(&["completions", shell]).out;
        for offered in ["limits.workers=", "fewshot-detection", "loop_state"] {
            assert!(script.contains(offered), "{shell}: {offered}");
        }
        for hidden in ["--probe", "--directory", "-l probe", "-l directory"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
    let zsh = workplace.xrun(&["completions", "zsh"]).out;
    assert!(
        zsh.contains("_files -/") && zsh.lines().any(|line| line.contains("':file -- ") && line.contains(":_files'")),
        "{zsh}"
    );
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
                let said = workplace.xrun(&[command, "--json", wrong]);
                assert!(said.code > 0 && said.code < 9, "{command}: {said:?}");
                let answer = said.json();
                // `check` answers for each file.
                assert!(answer.is_array() || answer["exit_code"] == said.code, "{command}: {said:?}");
            }
            tried += 1;
        }
    }
    assert!(tried > 15, "{tried}");
}

#[test]
fn nothing_typed_or_something_unknown_is_a_usage_error() {
    let workplace = Workplace::new();
    assert_eq!(workplace.xrun(&[]).code, 2);
    assert_eq!(workplace.xrun(&["--no-such-option"]).code, 2);
    let said = workplace.xrun(&["no_such_file.toml"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("no_such_file.toml"), "{said:?}");
}

#[test]
fn a_template_checks_clean() {
    let workplace = Workplace::new();
    for kind in ["fewshot-detection", "dummy"] {
        let template = workplace.xrun(&["new", kind]);
        assert_eq!(template.code, 0, "{template:?}");
        workplace.file(&format!("{kind}.toml"), &template.out);
        let checked = workplace.xrun(&["check", &format!("{kind}.toml")]);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
    let said = workplace.xrun(&["new", "fewshot-detecton"]);
    assert_eq!(said.code, 2);
    insta::assert_snapshot!("template_with_a_typo", said.err);
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
            let said = workplace.xrun(&["check", path.to_str().unwrap()]);
            // Data outside of the repository may be absent on this machine; nothing else may be wrong.
            let absent = said.err.split("error: ").skip(1).all(|problem| problem.contains("XRUN_REAL_DATA"));
            assert!(said.code == 0 || absent, "{}: {said:?}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} experiments");
}

#[test]
fn runs_are_listed_and_shown() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    assert_eq!(workplace.xrun(&["trial.toml", "-q", "--name", "other"]).code, 0);
    let listed = workplace.xrun(&["ls"]);
    assert!(listed.out.contains("trial") && listed.out.contains("other"), "{listed:?}");
    assert!(!workplace.xrun(&["ls", "trial"]).out.contains("other"));
    let shown = workplace.xrun(&["show", "trial/latest", "--json"]).json();
    assert_eq!(shown["state"], "finished", "{shown}");
    let report = workplace.xrun(&["report", "latest"]);
    assert!(report.out.trim().ends_with("report.html"), "{report:?}");
    let devices = workplace.xrun(&["devices"]);
    assert!(devices.out.contains("cpu") && devices.out.contains("cuda"), "{devices:?}");
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
fn leaks_that_do_not_exist_are_answered_with_those_that_do() {
    let workplace = Workplace::new();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/leaks");
    let said = workplace.xrun(&["leaks", "gradient", "--dir", directory]);
    assert_eq!(said.code, 2);
    let (message, known) = said.err.split_once(" (known: ").unwrap();
    assert!(known.contains("gradients, log_history"), "{known}");
    insta::assert_snapshot!(message);
    assert_eq!(workplace.xrun(&["leaks"]).code, 2, "no such directory here");
    workplace.file("own/a.leaky.toml", "[pipeline.dummy]\n");
    let said = workplace.xrun(&["leaks", "--dir", "own"]);
    assert!(said.code == 2 && said.err.contains("[leaks.expected]"), "{said:?}");
}

#[test]
fn a_leak_of_device_pools_is_left_out_where_there_is_no_pool_and_is_not_wrong() {
    let workplace = Workplace::new();
    let expected = "[leaks.expected]\ngrows = \"per_thread_pools\"\nowner = \"leak_it\"\n";
    workplace.file("own/it.leaky.toml", &format!("[pipeline.dummy]\n{expected}"));
    let said = workplace.xrun(&["leaks", "--dir", "own", "--device", "cpu"]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = workplace.xrun(&["leaks", "--dir", "own", "--device", "cpu", "--json"]);
    let rows = said.json();
    assert_eq!(rows[0]["wrong"], serde_json::json!([]), "{rows}");
    let reason = rows[0]["left_out"].as_str().unwrap();
    let shown = workplace.xrun(&["leaks", "--dir", "own", "--device", "cpu"]);
    assert!(shown.out.contains(reason), "{shown:?}");
    insta::assert_snapshot!(reason);
}

#[test]
fn a_subcommand_with_a_typo_is_answered_with_the_one_that_was_meant() {
    let workplace = Workplace::new();
    for line in [&["verdit", "latest"][..], &["verdit"]] {
        let said = workplace.xrun(line);
        assert_eq!(said.code, 2, "{said:?}");
        insta::assert_snapshot!("subcommand_with_a_typo", said.err);
    }
    // A file is a file, whatever it is called.
    workplace.file("verdit", "[pipeline.dummy]\n");
    assert_eq!(workplace.xrun(&["verdit", "-q"]).code, 0);
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_cannot_be_written_is_a_failure_and_a_reader_that_left_is_not() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let workplace = Workplace::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = workplace.command(&["schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    insta::assert_snapshot!("an_answer_on_a_full_disk", err);

    let mut child = workplace.command(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than fits into a pipe, so the write fails however slow the reader is to leave.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(13), "SIGPIPE");
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_file_to_start_from_names_its_schema_and_examples_run_as_they_are() {
    let workplace = Workplace::new();
    let listed = workplace.xrun(&["new", "--list"]);
    assert!(listed.out.contains("fewshot-detection") && listed.out.contains("xrun new --like EXAMPLE"), "{listed:?}");
    let template = workplace.xrun(&["new", "dummy"]).out;
    let schema = template.lines().next().unwrap().strip_prefix("#:schema ").unwrap().to_owned();
    assert!(template.contains(&format!("xrun schema > {schema}")), "{template}");
    for line in listed.out.lines().skip_while(|line| !line.starts_with("examples")).skip(1) {
        let name = line.split_whitespace().next().unwrap();
        let file = format!("{name}.toml");
        assert_eq!(workplace.xrun(&["new", "--like", name, "-o", &file]).code, 0);
        let said = workplace.xrun(&["check", "--no-data", &file]);
        let text = std::fs::read_to_string(workplace.path(&file)).unwrap();
        // Public data is somewhere else on each machine.
        let needs_data = text.contains("${XRUN_REAL_DATA}");
        assert_eq!(said.code, if needs_data { 2 } else { 0 }, "{said:?}");
        assert_eq!(said.err.contains("XRUN_REAL_DATA"), needs_data, "{said:?}");
        assert!(!text.contains("extends"), "{name} needs another file");
        assert!(text.starts_with(&format!("#:schema {schema}\n")), "{name}");
    }
    let said = workplace.xrun(&["new", "--like", "stage3"]);
    assert_eq!(said.code, 2, "{said:?}");
    insta::assert_snapshot!("example_with_a_typo", said.err);
}

#[test]
fn problems_are_printed_as_annotations_of_github() {
    let workplace = Workplace::new();
    workplace.file("wrong.toml", "[pipeline.dummy]\n[limits]\nworkrs = 2\n");
    workplace.file("right.toml", "[pipeline.dummy]\n");
    let said = workplace.xrun(&["check", "right.toml", "wrong.toml", "--format", "github"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.out.starts_with("::error file=wrong.toml,line=3,col=1,title=limits.workrs::"), "{said:?}");
    insta::assert_snapshot!(said.out);
    assert_eq!(workplace.xrun(&["check", "right.toml", "--format", "github"]).out, "");
}

#[test]
fn colours_can_be_forced_where_there_is_no_terminal_and_refused_everywhere() {
    let workplace = Workplace::new();
    workplace.file("wrong.toml", "[pipeline.dummy]\nx = 1\n");
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = workplace.command(&["check", "wrong.toml"]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
        crate::workplace::said(command.output().unwrap()).err.contains('\x1b')
    };
    assert!(!coloured(&[]) && !coloured(&[("CLICOLOR_FORCE", "0")]));
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn backups_can_leave_the_cache_out() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\n");
    let own = workplace.path("own");
    let others = workplace.path("others");
    std::fs::create_dir(&others).unwrap();
    for cache in [&own, &others] {
        let said = workplace.command(&["plan", "trial.toml"]).env("XRUN_CACHE", cache).output().unwrap();
        assert!(said.status.success(), "{said:?}");
    }
    let tag = std::fs::read_to_string(own.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"), "{tag}");
    assert!(!others.join("CACHEDIR.TAG").exists(), "a directory that was there may hold other things");
}

#[test]
fn what_leaks_finds_is_written_for_ci_servers() {
    let workplace = Workplace::new();
    let dummy = "[pipeline.dummy]\nsteps_per_epoch = 300\n";
    let leak = "leak_per_step = \"256 KiB\"\nleak_in_ledger = true\n";
    let expected = |owner: &str| format!("[leaks.expected]\nbytes_per_step = 262144\nowner = \"{owner}\"\n");
    for (name, owner) in [("kept", "dummy_leak"), ("blamed", "somebody_else")] {
        workplace.file(&format!("leaks/{name}.leaky.toml"), &format!("{dummy}{leak}{}", expected(owner)));
        workplace.file(&format!("leaks/{name}.bounded.toml"), dummy);
    }
    let said = workplace.xrun(&["leaks", "--dir", "leaks", "--device", "cpu", "--junit", "found.xml"]);
    assert_eq!(said.code, 1, "{said:?}");
    let xml = std::fs::read_to_string(workplace.path("found.xml")).unwrap();
    assert!(xml.contains("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{xml}");
    let of =
        |name: &str| xml.split("<testcase").find(|case| case.contains(&format!("name=\"{name}\""))).unwrap().to_owned();
    let message = |name: &str| Some(of(name).split_once("<failure message=\"")?.1.split('"').next()?.to_owned());
    assert_eq!(message("kept"), None, "{xml}");
    insta::assert_snapshot!("failure_of_a_leak", redacted(&message("blamed").unwrap()));
}
