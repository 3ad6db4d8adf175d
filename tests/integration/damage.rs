//! Results with one flipped bit: no command gives another number silently.

use std::path::{Path, PathBuf};

use xrun::export::tensorboard;
use xrun::judge;
use xrun::report::{self, compare, listing, run_report, summary};
use xrun::results::index;
use xrun::results::selection::{RunFilter, SortKey};
use xrun::results::view::RunView;
use xrun::run::reproduce::Original;
use xrun::verdict::table::TableOptions;

use crate::workplace::{Output, Workplace, end, json, lines_with, text, unsealed, wait_until};

const EXPERIMENT: &str = include_str!("../experiments/tiny/damaged.toml");

/// A run that finished, and the same that was killed after some checkpoints.
fn workplace() -> Workplace {
    let workplace = Workplace::with("whole.toml", EXPERIMENT);
    workplace.file("cut.toml", EXPERIMENT);
    workplace.exits(0, &["whole.toml", "-q"]);
    workplace.exits(0, &["export", "whole", "--to", "tensorboard"]);
    let child = workplace.spawn(&["cut.toml"]);
    let checkpoint = workplace.path("results/cut/latest/checkpoints/step_00000030/state.json");
    wait_until("there are checkpoints", || checkpoint.exists());
    end(child);
    workplace
}

/// All files of a run, the lock left out, in which nothing stands.
fn files(run: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![run.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => directories.push(path),
                path if path.metadata().unwrap().len() > 0 => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Seed of the damage: equal numbers in every test run, a bit of each file in turn.
struct Bits(u64);

impl Bits {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Answers of commands about a run, by command, including read errors.
fn answers(results: &Path, run: &Path, other: &Path, output: &Path) -> Vec<(&'static str, String)> {
    // In this process, whose kinds are fixed by the first who reads an experiment.
    xrun::Program::new().built_in().register();
    let shown = |result: Result<String, String>| result.unwrap_or_else(|error| format!("damaged: {error}"));
    let entries: Vec<RunView> = index::newest_first(results, None).collect();
    let by_key = RunFilter { values: vec![("limits.workers".into(), "1".into())], ..RunFilter::default() };
    let order = SortKey::parse("training.epochs").unwrap();
    let listed = |entry: &&RunView| by_key.accepts(entry);
    let doubts: Vec<String> = entries.iter().filter_map(|entry| by_key.unreadable_reason(entry, &order)).collect();
    let doubts = if doubts.is_empty() { String::new() } else { format!("damaged: {doubts:?}") };
    let exported = || {
        let (path, written) = tensorboard::export(run, output, 0.0).map_err(|error| error.to_string())?;
        let events = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let damaged = written.skipped.lines > 0 || written.skipped.damage.is_some();
        let damage = if damaged { "damaged" } else { "" };
        Ok(damage.to_owned() + &String::from_utf8_lossy(&events))
    };
    let page = || {
        let damage = report::write(run).map_err(|error| error.to_string())?;
        Ok(format!("{} {}", damage.join(" "), text(&run.join("report.html"))))
    };
    let original = || {
        let original = Original::read(run).map_err(|error| error.to_string())?;
        Ok(format!("{:?} {:?}", original.last_step, original.summary.map(|summary| summary.loss_last)))
    };
    // First: where there is no page, the others say how to get one.
    let page = shown(page());
    let opened = || run_report::open(run).map_err(|error| error.to_string());
    let compared = compare::gather(&[run.to_path_buf(), other.to_path_buf()]);
    vec![
        ("report", page),
        ("ls", listing::text(index::newest_first(results, None), None)),
        ("ls --json", serde_json::Value::from_iter(entries.iter().map(listing::json)).to_string()),
        ("ls -s", doubts + &entries.iter().filter(listed).count().to_string()),
        ("show", shown(opened().map(|run| summary::text(&run, None)))),
        (
            "show --json",
            shown(
                opened().and_then(|run| {
                    summary::json(&run).map(|json| json.to_string()).map_err(|error| error.to_string())
                }),
            ),
        ),
        (
            "compare",
            shown(
                compared
                    .map(|both| compare::text(&both, &compare::View::default(), 120))
                    .map_err(|error| error.to_string()),
            ),
        ),
        (
            "verdict",
            shown(
                judge::judge_path(run, &TableOptions::default())
                    .map(|found| format!("{:?}", found.verdict))
                    .map_err(|e| e.to_string()),
            ),
        ),
        ("reproduce, what it compares with", shown(original())),
        ("export", shown(exported())),
    ]
}

/// An answer that says that something was not as it was written.
fn tells(answer: &str) -> bool {
    ["damaged", "Unreadable", "checksum", "unreadable", "is invalid"].iter().any(|word| answer.contains(word))
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in files(from) {
        let place = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(path, place).unwrap();
    }
}

/// Step of the first sample after a resume.
fn resumed_at(run: &Path) -> u64 {
    let samples = unsealed(&text(&run.join("memory.jsonl")));
    let sample = samples.lines().find(|line| line.contains("\"segment\":1")).unwrap();
    serde_json::from_str::<serde_json::Value>(sample).unwrap()["step"].as_u64().unwrap()
}

/// Writes a file anew with one bit changed.
fn flip(path: &Path, bits: &mut Bits) -> usize {
    let mut bytes = std::fs::read(path).unwrap();
    let bit = bits.next(bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(path, bytes).unwrap();
    bit
}

#[test]
fn no_flipped_bit_changes_what_a_command_answers_without_a_word() {
    let workplace = workplace();
    let other = workplace.latest("whole");
    let mut bits = Bits(7);
    for name in ["whole", "cut"] {
        let original = workplace.latest(name);
        let results = workplace.path(&format!("flipped-{name}"));
        let run = results.join(name).join(original.file_name().unwrap());
        let output = workplace.path(&format!("output-{name}"));
        std::fs::create_dir_all(&output).unwrap();
        copy(&original, &run);
        let expected = answers(&results, &run, &other, &output);
        assert!(expected.iter().all(|(_, answer)| !tells(answer)), "{expected:?}");
        // With its page and what is known of it.
        let kept = workplace.path(&format!("kept-{name}"));
        copy(&run, &kept);
        for file in files(&kept) {
            let inside = file.strip_prefix(&kept).unwrap().to_path_buf();
            for _ in 0..4 {
                let bit = flip(&run.join(&inside), &mut bits);
                let place = format!("{name}: bit {bit} of {}", inside.display());
                let now = answers(&results, &run, &other, &output);
                // Other programs read these, so somebody has to look.
                let reported = now.iter().any(|(_, answer)| tells(answer));
                assert!(reported || !(inside.starts_with("export") || inside.ends_with("SHA256SUMS")), "{place}");
                for ((command, before), (_, now)) in expected.iter().zip(now) {
                    assert!(now == *before || tells(&now), "{place}: `{command}` answered\n{before}\nand now\n{now}");
                }
                copy(&kept, &run);
            }
        }
    }
}

#[test]
fn a_killed_run_with_a_flipped_bit_goes_on_to_the_same_numbers_or_says_which_file_it_is() {
    let workplace = workplace();
    let expected = text(&workplace.latest("whole").join("metrics.jsonl"));
    let original = workplace.latest("cut");
    let mut bits = Bits(11);
    let (mut refused, mut passed_over) = (0, 0);
    for (number, file) in files(&original).into_iter().enumerate() {
        let inside = file.strip_prefix(&original).unwrap();
        let run = workplace.path("resumed").join(number.to_string()).join("run");
        copy(&original, &run);
        let bit = flip(&run.join(inside), &mut bits);
        let output = workplace.xrun(&["resume", run.to_str().unwrap()]);
        let place = format!("bit {bit} of {}: {output:?}", inside.display());
        let named = output.err.contains(inside.file_name().unwrap().to_str().unwrap());
        match output.code {
            0 => assert_eq!(text(&run.join("metrics.jsonl")), expected, "{place}"),
            1 => assert!(named, "{place}"),
            _ => panic!("{place}"),
        }
        refused += usize::from(output.code == 1);
        passed_over += usize::from(output.code == 0 && named);
    }
    // The manifest, the resolved experiment, metrics before the checkpoint; the newest checkpoint's two files.
    assert!(refused >= 3 && passed_over >= 2, "{refused} {passed_over}");
}

#[test]
fn a_checkpoint_of_another_place_or_run_is_told_by_name_and_the_one_before_is_taken() {
    let workplace = workplace();
    let expected = text(&workplace.latest("whole").join("metrics.jsonl"));
    let original = workplace.latest("cut");
    let newest = |run: &Path| {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(run.join("checkpoints")).unwrap().flatten().map(|e| e.path()).collect();
        all.retain(|path| path.join("state.json").is_file());
        all.sort();
        all.pop().unwrap()
    };
    let resume = |name: &str, change: &dyn Fn(&Path)| {
        let run = workplace.path("broken").join(name).join("run");
        copy(&original, &run);
        change(&run);
        (workplace.xrun(&["resume", run.to_str().unwrap(), "--from-start"]), run)
    };
    // The end of all steps, written into the state by hand: no number is invented.
    let (output, run) = resume("edited", &|run| {
        let path = newest(run).join("state.json");
        let edited = text(&path).replacen("\"step\": ", "\"step\": 8", 1);
        std::fs::write(&path, edited).unwrap();
    });
    assert!(output.code == 0 && output.err.contains("state.json"), "{output:?}");
    assert_eq!(text(&run.join("metrics.jsonl")), expected);
    // When it was killed, and so which checkpoints it has, is a matter of time.
    let step = regex_lite::Regex::new(r"step_\d+").unwrap();
    let about = |output: &Output| {
        let lines = step.replace_all(&lines_with(&output.err, "checkpoint"), "STEP").into_owned();
        let mut lines: Vec<String> =
            lines.lines().filter(|line| !line.starts_with("score ")).map(str::to_owned).collect();
        lines.dedup();
        lines.join("\n") + "\n"
    };
    let mut messages = about(&output);
    // The last checkpoint of the other run, which has the same experiment but for its name.
    let newest_step = json(&newest(&original).join("state.json"))["step"].as_u64().unwrap();
    let (output, run) = resume("foreign", &|run| {
        let (to, from) = (newest(run), newest(&workplace.latest("whole")));
        std::fs::remove_dir_all(&to).unwrap();
        copy(&from, &run.join("checkpoints").join(from.file_name().unwrap()));
    });
    assert_eq!(output.code, 0, "{output:?}");
    assert!(resumed_at(&run) < newest_step, "the other run's checkpoint is not used: {output:?}");
    messages += &about(&output);
    assert_eq!(text(&run.join("metrics.jsonl")), expected);
    // Metrics that end before the checkpoint.
    for (name, lines) in [("emptied", 0), ("shortened", 5)] {
        let (output, _) = resume(name, &|run| {
            let path = run.join("metrics.jsonl");
            let kept: String = text(&path).split_inclusive('\n').take(lines).collect();
            std::fs::write(&path, kept).unwrap();
        });
        assert!(
            output.code == 1 && output.err.contains("metrics.jsonl") && output.err.contains("checkpoint"),
            "{output:?}"
        );
    }
    // All checkpoints are damaged: it begins again, and says so.
    let (output, run) = resume("all", &|run| {
        for entry in std::fs::read_dir(run.join("checkpoints")).unwrap().flatten() {
            std::fs::write(entry.path().join("model.safetensors"), b"12345678").unwrap();
        }
    });
    assert!(output.code == 0 && resumed_at(&run) <= 1, "{output:?}");
    messages += &about(&output);
    insta::assert_snapshot!(messages);
    assert_eq!(text(&run.join("metrics.jsonl")), expected);
}

/// Name of a change, the change, and the numbers of missing, doubled and swapped lines after it.
type Change = (&'static str, fn(&mut Vec<&str>), [u64; 3]);

/// Changes of `count` whole lines.
fn changes(count: u64) -> Vec<Change> {
    vec![
        ("last", |lines| lines.truncate(lines.len() - 1), [1, 0, 0]),
        ("end", |lines| lines.truncate(59), [count - 59, 0, 0]),
        ("middle", |lines| drop(lines.drain(19..70)), [51, 0, 0]),
        ("swapped", |lines| lines.swap(29, 30), [0, 0, 1]),
        ("doubled", |lines| lines.insert(40, lines[39]), [0, 1, 0]),
        ("empty", |lines| lines.clear(), [count, 0, 0]),
    ]
}

#[test]
fn missing_doubled_and_swapped_lines_are_counted_by_every_reader() {
    let workplace = workplace();
    let original = workplace.latest("whole");
    let recorded = json(&original.join("verdict.json"));
    for file in ["metrics.jsonl", "memory.jsonl"] {
        let whole = text(&original.join(file));
        let count = whole.lines().count() as u64;
        for (name, change, [missing, doubled, out_of_order]) in changes(count) {
            let run = workplace.path("changed").join(format!("{name}-{file}")).join("run");
            copy(&original, &run);
            let mut lines: Vec<&str> = whole.split_inclusive('\n').collect();
            change(&mut lines);
            std::fs::write(run.join(file), lines.concat()).unwrap();
            let damage = serde_json::json!([{
                "file": file, "written": count, "missing": missing, "damaged": 0, "doubled": doubled, "out_of_order": out_of_order,
            }]);
            let path = run.to_str().unwrap();
            assert_eq!(summary::json(&RunView::open(&run)).unwrap()["line_damage"], damage, "{path}");
            let verdict = workplace.xrun(&["verdict", path, "--json"]).json();
            assert_eq!((&verdict["line_damage"], &verdict["verdict"]), (&damage, &recorded["verdict"]), "{path}");
            let compared = compare::gather(&[original.clone(), run.clone()]).unwrap();
            let compared = compared.json().unwrap();
            let of_run = |at: usize| &compared["runs"][at]["line_damage"];
            assert_eq!((of_run(0), of_run(1)), (&serde_json::json!([]), &damage));
            let (_, exported) = tensorboard::export(&run, &run, 0.0).unwrap();
            assert_eq!(serde_json::json!([exported.skipped.damage]), damage, "{path}");
            for answer in [report::write(&run).unwrap().concat(), summary::text(&RunView::open(&run), None)] {
                assert!(answer.contains(&format!("of {count}, ")), "{answer}");
            }
            let refused = Original::read(&run).map(|original| original.last_step);
            assert_eq!(refused.is_err(), file == "metrics.jsonl", "{path}");
        }
    }
}

#[test]
fn a_killed_run_without_some_lines_before_its_checkpoint_never_goes_on_silently() {
    let workplace = workplace();
    let original = workplace.latest("cut");
    let resume = |file: &str| {
        let run = workplace.path("cut").join(file).join("run");
        copy(&original, &run);
        let path = run.join(file);
        let whole = text(&path);
        let mut lines: Vec<&str> = whole.split_inclusive('\n').collect();
        lines.drain(3..6);
        std::fs::write(&path, lines.concat()).unwrap();
        let before = summary::json(&RunView::open(&run)).unwrap()["line_damage"][0]["file"].clone();
        assert_eq!(before, file);
        (workplace.xrun(&["resume", run.to_str().unwrap()]), run)
    };
    let (output, run) = resume("metrics.jsonl");
    assert!(
        output.code == 1 && output.err.contains("metrics.jsonl") && output.err.contains("checkpoint"),
        "{output:?}"
    );
    assert!(!run.join("summary.json").exists());
    // Samples are not needed to go on, but the result says for ever that some are missing.
    let (output, run) = resume("memory.jsonl");
    assert!(output.code == 0 && output.err.contains("memory.jsonl"), "{output:?}");
    assert_eq!(text(&run.join("metrics.jsonl")), text(&workplace.latest("whole").join("metrics.jsonl")));
    let damage = summary::json(&RunView::open(&run)).unwrap()["line_damage"].clone();
    assert_eq!((damage.as_array().unwrap().len(), &damage[0]["file"]), (1, &"memory.jsonl".into()), "{damage}");
    // Nothing is missing: the sums go on from those of the checkpoint.
    workplace.exits(0, &["resume", original.to_str().unwrap()]);
    assert_eq!(summary::json(&RunView::open(&original)).unwrap()["line_damage"], serde_json::json!([]));
}

/// Generated data of each kind, small. A build without Burn prepares it and then refuses to train.
const GENERATED: [&str; 4] = [
    "[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.synthetic-video]\n\
     videos_per_class = 1\nframes_per_video = 4\nframe_size = 32\n",
    "[pipeline.qat-language-model]\n[model.gpt2]\npreset = \"tiny\"\n[dataset.question-answers]\nvocabulary_size = 300\n\
     [dataset.question-answers.generated]\narticles = 4\n",
    "[pipeline.federated-adapters]\nnodes = 2\n[model.audio-adapters]\nencoder = \"statistics\"\n[dataset.sound-clips]\n\
     [dataset.sound-clips.generated]\nclips_per_class = 5\nother_clips_per_class = 5\n",
    "[pipeline.vision-language]\n[model.vision-language]\npreset = \"tiny\"\n[dataset.image-text]\nimage_size = 32\n\
     [dataset.image-text.generated]\nexamples = 20\nheld_out_examples = 8\nunseen_examples = 8\n",
];

#[test]
fn no_flipped_bit_in_the_cache_is_trained_on() {
    let workplace = Workplace::new();
    let (mut bits, mut messages) = (Bits(19), String::new());
    for (number, experiment) in GENERATED.iter().enumerate() {
        let (file, cache) = (format!("{number}.toml"), workplace.path(&format!("cache-{number}")));
        workplace.file(&file, &format!("{experiment}[memory]\nprobe = false\n"));
        let dry_run = || {
            let mut command = workplace.command(&[&file, "--dry-run"]);
            Output::from(command.env("XRUN_CACHE", &cache).output().unwrap())
        };
        let expected = dry_run();
        let refused = |output: &Output| {
            let named = |line: &str| line.starts_with("error: ") && line.contains(cache.to_str().unwrap());
            output.code == 1 && output.err.lines().any(named)
        };
        assert!((0..=1).contains(&expected.code) && !refused(&expected), "{expected:?}");
        let kept = workplace.path(&format!("kept-{number}"));
        copy(&cache, &kept);
        // What is remembered of the data has its own check, and is hashed again.
        let made = |path: &PathBuf| !path.starts_with(kept.join("digests")) && !path.ends_with("CACHEDIR.TAG");
        let made: Vec<PathBuf> = files(&kept).into_iter().filter(made).collect();
        let (step, mut reported) = (made.len().div_ceil(6), 0);
        // The lists and texts are few, the images and sounds are many.
        let few =
            |path: &PathBuf| !["png", "jpg", "wav"].iter().any(|word| path.extension().is_some_and(|it| it == *word));
        for (at, file) in made.iter().enumerate().filter(|(at, file)| at % step == 0 || few(file)) {
            let inside = file.strip_prefix(&kept).unwrap();
            let bit = flip(&cache.join(inside), &mut bits);
            let output = dry_run();
            let place = format!("{at}: bit {bit} of {}: {output:?}", inside.display());
            assert!(refused(&output), "{place}");
            reported += 1;
            std::fs::copy(file, cache.join(inside)).unwrap();
            if reported == 1 {
                // Without the file, which depends on the bits.
                messages += &format!("{}\n", lines_with(&output.err, "error: ").split(" (").next().unwrap());
                let again = dry_run();
                assert_eq!((again.code, refused(&again)), (expected.code, false), "{again:?}");
            }
        }
        assert!(reported >= 2, "{number}: {made:?}");
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn no_flipped_bit_in_a_sweep_changes_its_table_or_a_run_of_it_without_a_word() {
    let workplace =
        Workplace::with("swept.toml", "[pipeline.dummy]\nsteps_per_epoch = 10\n[checkpoint]\nevery_steps = 5\n");
    workplace.exits(0, &["sweep", "swept.toml", "-s", "experiment.seed=1,2", "-q"]);
    let original = workplace.latest_sweep("swept");
    let sweep = workplace.path("copied").join(original.file_name().unwrap());
    copy(&original, &sweep);
    let collect = || workplace.xrun(&["sweep", "--collect", sweep.to_str().unwrap(), "--json"]);
    let expected = collect();
    assert_eq!(expected.code, 0, "{expected:?}");
    let mut bits = Bits(17);
    for file in files(&original) {
        let inside = file.strip_prefix(&original).unwrap();
        let bit = flip(&sweep.join(inside), &mut bits);
        let output = collect();
        let reported = output.code == 1 && (tells(&output.err) || tells(&output.out));
        let place = format!("bit {bit} of {}: {output:?}", inside.display());
        assert!(reported || (output.code == 0 && output.out == expected.out), "{place}");
        std::fs::copy(&file, sweep.join(inside)).unwrap();
    }
    // A run that is missing is made from what the sweep says of it.
    std::fs::remove_dir_all(sweep.join("trials/0002-1")).unwrap();
    for name in ["sweep.toml", "base.toml"] {
        flip(&sweep.join(name), &mut bits);
        let output = workplace.xrun(&["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
        assert!(output.code != 0 && output.err.contains(name), "{name}: {output:?}");
        assert!(!sweep.join("trials/0002-1").exists(), "nothing was run");
        std::fs::copy(original.join(name), sweep.join(name)).unwrap();
    }
    workplace.exits(0, &["sweep", "--resume", sweep.to_str().unwrap(), "-q"]);
    let metrics = |sweep: &Path| text(&sweep.join("trials/0002-1/metrics.jsonl"));
    assert_eq!(metrics(&sweep), metrics(&original));
}
