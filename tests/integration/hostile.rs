//! Untrusted files, vanishing directories and foreign checkouts.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::workplace::{
    Output, Workplace, as_another, json, lines_with, redacted, redacted_names, text, unsealed, wait_until,
};

const SHORT: &str = "[pipeline.dummy]\nsteps_per_epoch = 5\n";

/// Longer than any of these should take, on a busy machine and without optimisation.
const LONG: Duration = Duration::from_secs(60);

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The commands that read a run.
const READERS: [&[&str]; 8] = [
    &["ls"],
    &["show", "trial"],
    &["export", "trial", "--to", "report"],
    &["compare", "trial", "other"],
    &["verdict", "trial"],
    &["export", "trial", "--to", "tensorboard"],
    &["reproduce", "trial", "-q"],
    &["resume", "trial", "-q"],
];

#[test]
fn a_device_or_a_pipe_in_the_place_of_a_file_holds_nothing_up() {
    let workplace = Workplace::new();
    for name in ["trial", "other"] {
        workplace.file(&format!("{name}.toml"), SHORT);
        workplace.exits(0, &[&format!("{name}.toml"), "-q"]);
    }
    let run = workplace.latest("trial");
    for (at, name) in [
        "manifest.json",
        "summary.json",
        "plan.json",
        "verdict.json",
        "resolved.toml",
        "metrics.jsonl",
        "memory.jsonl",
        "run.lock",
    ]
    .iter()
    .enumerate()
    {
        let path = run.join(name);
        let kept = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if at % 2 == 0 {
            symlink("/dev/zero", &path).unwrap()
        } else {
            pipe(&path)
        }
        for command in READERS {
            let begun = Instant::now();
            let mut child = workplace.spawn(command);
            wait_until(&format!("{command:?} with {name}"), || child.try_wait().unwrap().is_some());
            let output = Output::from(child.wait_with_output().unwrap());
            assert!(begun.elapsed() < LONG && (0..=2).contains(&output.code), "{name}: {command:?}: {output:?}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, kept).unwrap();
    }
    pipe(&workplace.path("pipe.csv"));
    insta::assert_snapshot!(workplace.exits(1, &["verdict", "pipe.csv"]).err);
}

#[test]
fn a_run_whose_directory_is_removed_ends_with_an_error_and_makes_nothing_in_its_place() {
    let workplace = Workplace::with(
        "gone.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 400\nstep_microseconds = 3000\n[checkpoint]\nevery_steps = 10\n[limits]\nmetrics_queue = 4\n",
    );
    let child = workplace.spawn(&["gone.toml"]);
    let latest = workplace.path("results/gone/latest");
    wait_until("there is a checkpoint", || latest.join("checkpoints/step_00000010/state.json").exists());
    let run = workplace.latest("gone");
    // At once: the run makes new files in it all the time.
    let aside = workplace.path("aside");
    std::fs::rename(&run, &aside).unwrap();
    std::fs::remove_dir_all(&aside).unwrap();
    let output = Output::from(child.wait_with_output().unwrap());
    assert_eq!(output.code, 1, "{output:?}");
    // Which of its files is missed first is a matter of time.
    let error = lines_with(&output.err, "error: ");
    assert!(
        error.contains("results/gone/") && error.contains("removed") | error.contains("No such file"),
        "{output:?}"
    );
    assert!(!run.join("checkpoints").exists(), "nothing that looks like a run");
}

/// Replaces a file by a copy, as `mv`, `rsync` and `sed -i` do.
fn replace(path: &Path) {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    std::fs::rename(&copy, path).unwrap();
}

#[test]
fn a_file_that_is_changed_under_a_run_ends_it_with_a_checkpoint_and_is_named() {
    let workplace = Workplace::with(
        "changed.toml",
        "[experiment]\ntensorboard = true\n[pipeline.dummy]\nsteps_per_epoch = 300\nstep_microseconds = 3000\n\
         [checkpoint]\nevery_steps = 10\n[limits]\nmetrics_queue = 4\n",
    );
    let cut = |path: &Path| std::fs::write(path, "").unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Change<'_>, i32); 5] = [
        ("metrics.jsonl", &replace, 1),
        ("metrics.jsonl", &cut, 1),
        ("memory.jsonl", &replace, 0),
        ("log.txt", &replace, 0),
        ("tensorboard", &replace, 0),
    ];
    for (number, (name, change, resumed)) in cases.into_iter().enumerate() {
        let results = number.to_string();
        let child = workplace.spawn(&["changed.toml", "--results", &results]);
        let latest = workplace.path(&results).join("changed/latest");
        wait_until("there is a checkpoint", || latest.join("checkpoints/step_00000010/state.json").exists());
        let run = std::fs::canonicalize(latest).unwrap();
        let place = run.join(name);
        let inside = place.read_dir().ok().and_then(|mut entries| entries.next());
        change(&inside.map_or(place, |entry| entry.unwrap().path()));
        let output = Output::from(child.wait_with_output().unwrap());
        let summary = json(&run.join("summary.json"));
        assert_eq!((output.code, &summary["exit_code"]), (1, &1.into()), "{name}: {output:?}");
        let error = lines_with(&output.err, "error: ");
        assert!(error.contains(name) && error.contains("another program"), "{error}");
        let step = summary["steps"].as_u64().unwrap();
        assert!(step < 300 && run.join(format!("checkpoints/step_{step:08}/state.json")).exists(), "{name}: {step}");
        let again = workplace.xrun(&["resume", run.to_str().unwrap()]);
        assert_eq!(again.code, resumed, "{name}: {again:?}");
        assert!(resumed == 0 || again.err.contains("metrics.jsonl") && again.err.contains("missing"), "{again:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_is_replaced_under_a_watch_fails_it() {
    let workplace = Workplace::new();
    for name in ["memory.jsonl", "metrics.jsonl", "log.txt"] {
        workplace.file("go", "");
        let script = "i=0; while [ -e go ]; do i=$((i + 1)); echo step $i loss 0.5; sleep 0.02; done";
        let child = workplace.spawn(&["watch", "--every", "10ms", "--name", name, "--", "sh", "-c", script]);
        let path = workplace.path("results").join(name).join("latest").join(name);
        wait_until("something is written", || path.metadata().is_ok_and(|found| found.len() > 0));
        replace(&path);
        std::fs::remove_file(workplace.path("go")).unwrap();
        let output = Output::from(child.wait_with_output().unwrap());
        assert_eq!(output.code, 1, "{name}: {output:?}");
        assert!(lines_with(&output.err, "another program replaced the file").contains(name), "{output:?}");
        assert_eq!(json(&workplace.latest(name).join("summary.json"))["outcome"], "failed");
    }
}

#[test]
fn files_with_very_many_keys_are_refused_at_once() {
    let workplace = Workplace::new();
    let long = format!("[pipeline.dummy]\n[sweep]\n\"{}b\" = [1]\n", "a.".repeat(40_000));
    let many: String = (0..40_000).map(|at| format!("\"training.x{at}\" = [1]\n")).collect();
    let dotted: String = (0..40_000).map(|at| format!("training.x{at} = [1]\n")).collect();
    let unknown: String = (0..50_000).map(|at| format!("x{at} = 1\n")).collect();
    let mut messages = String::new();
    for (name, content) in [
        ("long.toml", long),
        ("many.toml", format!("[pipeline.dummy]\n[sweep.values]\n{many}")),
        ("dotted.toml", format!("[pipeline.dummy]\n[sweep.values]\n{dotted}")),
        ("unknown.toml", format!("[pipeline.dummy]\n[training]\n{unknown}")),
    ] {
        workplace.file(name, &content);
        let begun = Instant::now();
        let output = workplace.exits(2, &["check", name]);
        assert!(begun.elapsed() < LONG, "{name}: {:?}", begun.elapsed());
        messages += &format!("{:.300}\n", output.err.lines().next().unwrap());
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn the_record_of_a_sweep_is_not_believed_when_it_does_not_add_up() {
    let workplace = Workplace::with("swept.toml", SHORT);
    workplace.exits(0, &["sweep", "swept.toml", "-s", "experiment.seed=1,2", "-q"]);
    let sweep = workplace.latest_sweep("swept");
    let path = sweep.join("sweep.toml");
    let sealed = text(&path);
    let record = unsealed(&sealed);
    let collect = |record: &str| {
        std::fs::write(&path, record).unwrap();
        workplace.xrun(&["sweep", "--collect", sweep.to_str().unwrap()])
    };
    assert_eq!(collect(&record).code, 0, "without a check");
    let output = collect(&record.replace("repeats = 1", "repeats = 4294967295"));
    assert_eq!(output.code, 1, "{output:?}");
    let mut messages = output.err;
    for wrong in [record.replace("[2, 1]", "[1, 1]"), sealed.replacen("seed", "sead", 1)] {
        let output = collect(&wrong);
        assert_eq!(output.code, 1, "{output:?}");
        messages += &output.err;
    }
    insta::assert_snapshot!(redacted_names(&messages));
    // A run of it of which a sample is another: no number of it counts, and the table says so.
    let memory = sweep.join("trials/0001-1/memory.jsonl");
    std::fs::write(&memory, text(&memory).replacen("\"heap\":", "\"heap\":1", 1)).unwrap();
    let output = collect(&sealed);
    assert_eq!(output.code, 1, "not all of them finished: {output:?}");
    let row = &json(&sweep.join("table.json"))["rows"][0];
    assert_eq!((&row["outcome"], &row["finished"]), (&"damaged".into(), &0.into()), "{row}");
}

const SOUNDS: &str = "[pipeline.federated-adapters]\nnodes = 2\n[model.audio-adapters]\nencoder = \"statistics\"\n\
                      [dataset.sound-clips]\n[dataset.sound-clips.generated]\nclips_per_class = 5\n\
                      other_clips_per_class = 5\n[limits]\nworkers = 0\n[memory]\nprobe = false\n";
const QUESTIONS: &str = "[pipeline.qat-language-model]\n[model.gpt2]\npreset = \"tiny\"\n[dataset.question-answers]\n\
                         vocabulary_size = 300\n[dataset.question-answers.generated]\narticles = 4\n[memory]\n\
                         probe = false\n";

/// Returns whether the data were generated and the program did not panic. A build without Burn fails after that, and so does
/// one with Burn that gets no threads.
fn prepared(output: &Output, cache: &Path, prefix: &str) -> bool {
    let mut entries = std::fs::read_dir(cache).unwrap().flatten();
    (0..=1).contains(&output.code) && entries.any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
}

#[test]
fn data_are_generated_where_the_system_gives_no_threads() {
    let workplace = Workplace::new();
    for (name, experiment) in [("sounds", SOUNDS), ("questions", QUESTIONS)] {
        let file = format!("{name}.toml");
        workplace.file(&file, experiment);
        let mut command = workplace.command(&[&file, "--dry-run"]);
        let Some(mut limited) =
            as_another(command.env("XRUN_CACHE", workplace.path("limited")), "ulimit -u 1 2> /dev/null || ulimit -p 1")
        else {
            return;
        };
        let limited = Output::from(limited.output().unwrap());
        let prefix = format!("{name}-");
        assert!(prepared(&limited, &workplace.path("limited"), &prefix), "{limited:?}");
        let own = Output::from(command.env("XRUN_CACHE", workplace.path("own")).output().unwrap());
        assert!(prepared(&own, &workplace.path("own"), &prefix), "{own:?}");
    }
    let names = |cache: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(workplace.path(cache)).unwrap().map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("limited"), names("own"));
    for name in names("own").iter().filter(|name| name.to_string_lossy().starts_with("sounds-")) {
        let list = |cache: &str| text(&workplace.path(cache).join(name).join("SHA256SUMS"));
        assert_eq!(list("limited"), list("own"), "the same bits on one thread");
    }
}

/// A cache that several share, and one of them lets nobody else read what is made there.
#[test]
fn what_another_user_keeps_to_himself_in_a_shared_cache_is_not_called_damaged() {
    let workplace = Workplace::new();
    let (cache, mut messages) = (workplace.path("cache"), String::new());
    for (name, experiment, close) in [("sounds", SOUNDS, "sounds-"), ("questions", QUESTIONS, "questions-")] {
        let file = format!("{name}.toml");
        workplace.file(&file, experiment);
        let mut command = workplace.command(&[&file, "--dry-run"]);
        command.env("XRUN_CACHE", &cache);
        let Some(mut other) = as_another(&command, "true") else { return };
        assert!(prepared(&Output::from(command.output().unwrap()), &cache, close));
        for entry in std::fs::read_dir(&cache).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(close) {
                // As under a umask of 077.
                let mode = entry.metadata().unwrap().permissions().mode() & 0o700;
                std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let output = Output::from(other.output().unwrap());
        assert_eq!(output.code, 1, "{output:?}");
        messages += &output.err;
    }
    insta::assert_snapshot!(redacted_names(&messages));
}

#[test]
fn the_users_umask_holds_for_all_files_and_nothing_is_written_through_links() {
    let workplace = Workplace::with("trial.toml", SHORT);
    workplace.file("cut.toml", &format!("{SHORT}fail_at_step = 3\n[checkpoint]\nevery_steps = 1\n"));
    let program = env!("CARGO_BIN_EXE_xrun");
    let xrun = |arguments: &str| {
        let script = format!("umask 077; exec '{program}' {arguments}");
        Output::from(workplace.in_place("sh", &["-c", &script]).output().unwrap())
    };
    assert_eq!(xrun("trial.toml -q").code, 0);
    assert_eq!(xrun("cut.toml -q").code, 1);
    assert_eq!(xrun("compare trial cut --html page.html").code, 0);
    let run = workplace.latest("trial");
    for name in ["manifest.json", "metrics.jsonl", "report.html", "summary.json"] {
        assert_eq!(std::fs::metadata(run.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(workplace.path("page.html")).unwrap().permissions().mode() & 0o777, 0o600);
    // A result from elsewhere, with links to what is its reader's.
    let own = workplace.path("own");
    std::fs::create_dir(&own).unwrap();
    symlink(&own, run.join("export")).unwrap();
    let exported = workplace.exits(1, &["export", "trial", "--to", "tensorboard"]);
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    let cut = workplace.latest("cut");
    std::fs::rename(cut.join("checkpoints"), own.join("step")).unwrap();
    symlink(own.join("step"), cut.join("checkpoints")).unwrap();
    let kept = std::fs::read_dir(own.join("step")).unwrap().count();
    let resumed = workplace.exits(1, &["resume", "cut"]);
    assert_eq!(std::fs::read_dir(own.join("step")).unwrap().count(), kept);
    std::fs::remove_file(cut.join("run.lock")).unwrap();
    symlink(own.join("made"), cut.join("run.lock")).unwrap();
    let output = workplace.xrun(&["resume", "cut"]);
    assert!(output.code == 1 && !own.join("made").exists(), "{output:?}");
    insta::assert_snapshot!(redacted(&(exported.err + &resumed.err + &output.err)));
}
