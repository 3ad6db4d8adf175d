//! Fuzz targets: readers of external files, and the invariants of what they accept.

use std::path::{Component, Path, PathBuf};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use xrun::data::boxes::few_shot;
use xrun::data::boxes::format::{self, Format};
use xrun::data::boxes::library::Library;
use xrun::data::boxes::raw::Unit;
use xrun::data::coco::{self, Coco};
use xrun::data::question_answers::corpus::Corpus;
use xrun::data::question_answers::example::{self, Cut};
use xrun::data::question_answers::settings as questions;
use xrun::data::question_answers::squad::{self, Paragraph};
use xrun::data::reading::decoding;
use xrun::data::reading::invalid::{InvalidCollector, OnInvalid};
use xrun::data::reading::orientation::ExifOrientation;
use xrun::data::sound_clips::{sound, table};
use xrun::data::tokenizer;
use xrun::data::voc::Voc;
use xrun::data::yolo::Yolo;
use xrun::experiment::{read, read_sweep};
use xrun::export::tensorboard;
use xrun::files::tensors;
use xrun::judge;
use xrun::pipelines::qat_language_model::ranges_file;
use xrun::report::{self, compare, listing, run_report, summary};
use xrun::results::read as read_results;
use xrun::results::view::RunView;
use xrun::run::{checkpoint, reproduce, resume};
use xrun::sweep::records::sweep::SweepRecord;
use xrun::sweep::{plan, slurm};
use xrun::verdict::table::TableOptions;

use super::image_text::{answer_text, image_text, messages};
use super::mutate::{fix_png_checksums, flip_bit, mutate, with_header};
use super::samples::{self, write};

/// Runs one input: `Ok` says whether xrun accepted it, `Err` is a finding.
pub type RunInput = Box<dyn FnMut(&mut ChaCha8Rng) -> Result<bool, String>>;

/// Reader to test.
pub struct Target {
    /// Name for `--only`; part of the seed of each input.
    pub name: &'static str,
    /// Number of inputs, relative to those of other targets.
    pub weight: u64,
    /// Prepares files in a directory, and returns the function that runs one input.
    pub open: fn(&Path) -> RunInput,
}

/// All targets, slow ones first, so that the two workers finish at about the same time.
pub const TARGETS: &[Target] = &[
    Target { name: "result", weight: 10, open: results },
    Target { name: "result-one-bit", weight: 10, open: results_one_bit },
    Target { name: "overrides", weight: 60, open: overrides },
    Target { name: "experiment", weight: 70, open: experiment },
    Target { name: "sweep-file", weight: 50, open: sweep_file },
    Target { name: "checkpoint", weight: 50, open: checkpoints },
    Target { name: "bpe", weight: 30, open: bpe },
    Target { name: "coco-directory", weight: 40, open: coco_directory },
    Target { name: "voc", weight: 30, open: voc_directory },
    Target { name: "yolo", weight: 20, open: yolo_directory },
    Target { name: "images", weight: 70, open: images },
    Target { name: "csv", weight: 70, open: csv },
    Target { name: "squad-corpus", weight: 20, open: squad_corpus },
    Target { name: "squad", weight: 80, open: squad_text },
    Target { name: "sweep-directory", weight: 60, open: sweeps },
    Target { name: "coco", weight: 70, open: coco_text },
    Target { name: "wav", weight: 40, open: wav_file },
    Target { name: "clips", weight: 20, open: clips },
    Target { name: "image-text", weight: 20, open: image_text },
    Target { name: "messages", weight: 30, open: messages },
    Target { name: "answers", weight: 30, open: answer_text },
    Target { name: "weights", weight: 70, open: weights },
    Target { name: "ranges", weight: 50, open: ranges },
];

/// Chooses a sample at random.
pub fn choose<'a>(all: &'a [Vec<u8>], random: &mut ChaCha8Rng) -> &'a [u8] {
    &all[random.random_range(0..all.len())]
}

fn experiment(directory: &Path) -> RunInput {
    let (files, path) = (samples::experiments(), directory.join("a.toml"));
    Box::new(move |random| {
        write(&path, &mutate(choose(&files, random), choose(&files, random), random));
        Ok(read::read(&path, &[], std::iter::empty()).is_ok())
    })
}

fn sweep_file(directory: &Path) -> RunInput {
    let mut files = samples::experiments();
    files.retain(|text| text.windows(6).any(|window| window == b"[sweep"));
    let path = directory.join("a.toml");
    Box::new(move |random| {
        write(&path, &mutate(choose(&files, random), choose(&files, random), random));
        let sweep_file = read_sweep::read(&path, &[], std::iter::empty());
        Ok(sweep_file.is_ok_and(|sweep_file| plan::check(&sweep_file).is_ok()))
    })
}

fn overrides(directory: &Path) -> RunInput {
    let path = directory.join("a.toml");
    write(&path, b"[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.coco]\n");
    let texts = [
        "limits.workers=2",
        "training.epochs=1,2,3",
        "optimizer.adamw.learning_rate=1e-4..1e-2:5:log",
        "dataset.coco.path=/tmp/${HOME:-a}",
        "model.reference-detector.channels=[8,16,24,32]",
        "experiment.name=\"a b\"",
        "limits.frame_cache=48 MiB",
    ]
    .map(|text| text.as_bytes().to_vec());
    Box::new(move |random| {
        let text = mutate(choose(&texts, random), choose(&texts, random), random);
        let text = String::from_utf8_lossy(&text).into_owned();
        let variables = std::iter::once(("XRUN__LIMITS__WORKERS".to_owned(), text.clone()));
        let both = [
            read::read(&path, std::slice::from_ref(&text), std::iter::empty()).is_ok(),
            read::read(&path, &[], variables).is_ok(),
        ];
        let swept = read_sweep::read(&path, &[text], std::iter::empty()).is_ok();
        Ok(swept || both.contains(&true))
    })
}

/// Chooses a policy for invalid samples at random.
pub fn policy(random: &mut ChaCha8Rng) -> OnInvalid {
    if random.random() { OnInvalid::Fail } else { OnInvalid::Skip }
}

fn coco_text(_: &Path) -> RunInput {
    Box::new(|random| {
        let text = mutate(samples::COCO.as_bytes(), samples::COCO.as_bytes(), random);
        let mut invalid = InvalidCollector::new(policy(random));
        let (file, path) = (std::io::Cursor::new(&text), Path::new("annotations.json"));
        Ok(coco::read::read(file, path, Unit::Pixels, &mut invalid, &mut Default::default(), |_| Ok(())).is_ok()
            && invalid.result().is_ok())
    })
}

/// Opens a directory of images with a mutated annotation file.
fn dataset<F: Format>(
    root: PathBuf,
    (name, text): (&'static str, &'static str),
    settings: impl Fn(Option<String>, OnInvalid) -> F + 'static,
) -> RunInput {
    Box::new(move |random| {
        write(&root.join(name), &mutate(text.as_bytes(), text.as_bytes(), random));
        let settings = settings(Some(root.display().to_string()), policy(random));
        format::open(&settings).map_or(Ok(false), |library| check_library(&library))
    })
}

/// Checks that every box lies in its image and each path in the directory; returns `true` if episodes can be drawn.
fn check_library(library: &Library) -> Result<bool, String> {
    for frame in library.videos.iter().flat_map(|video| &video.frames) {
        let inside = |value: f32, size: usize| value >= 0.0 && value <= size as f32;
        let is_valid = frame.objects.iter().all(|object| {
            let rectangle = object.rectangle;
            inside(rectangle.left, frame.width)
                && inside(rectangle.right, frame.width)
                && inside(rectangle.top, frame.height)
                && inside(rectangle.bottom, frame.height)
                && rectangle.left < rectangle.right
                && rectangle.top < rectangle.bottom
        });
        if !is_valid || !library.root.join(&frame.path).canonicalize().is_ok_and(|path| path.starts_with(&library.root))
        {
            return Err(format!("accepts {frame:?}"));
        }
    }
    Ok(few_shot::check(library).is_ok())
}

fn coco_directory(directory: &Path) -> RunInput {
    let root = directory.join("data");
    samples::images().iter().for_each(|(name, bytes)| write(&root.join(name), bytes));
    dataset::<Coco>(root, ("annotations.json", samples::COCO), |path, on_invalid| Coco {
        path,
        on_invalid,
        ..Coco::default()
    })
}

fn voc_directory(directory: &Path) -> RunInput {
    let root = directory.join("data");
    samples::images().iter().for_each(|(name, bytes)| write(&root.join("images").join(name), bytes));
    dataset::<Voc>(root, ("annotations/0.xml", samples::VOC), |path, on_invalid| Voc {
        path,
        on_invalid,
        validation_classes: vec!["dog".into()],
        ..Voc::default()
    })
}

/// Labels of an image, or names of the classes.
fn yolo_directory(directory: &Path) -> RunInput {
    let (root, texts) = (directory.join("data"), [("labels/0.txt", samples::YOLO), ("data.yaml", samples::YOLO_NAMES)]);
    samples::images().iter().for_each(|(name, bytes)| write(&root.join("images").join(name), bytes));
    Box::new(move |random| {
        texts.iter().for_each(|(name, text)| write(&root.join(name), text.as_bytes()));
        let (name, text) = texts[random.random_range(0..texts.len())];
        write(&root.join(name), &mutate(text.as_bytes(), text.as_bytes(), random));
        let path = Some(root.display().to_string());
        let settings = Yolo { path, on_invalid: policy(random), ..Yolo::default() };
        format::open(&settings).map_or(Ok(false), |library| check_library(&library).map(|_| true))
    })
}

fn images(directory: &Path) -> RunInput {
    let (all, path) = (samples::images(), directory.join("image"));
    Box::new(move |random| {
        let at = random.random_range(0..all.len());
        let mut bytes = mutate(&all[at].1, &all[(at + 1) % all.len()].1, random);
        if random.random() {
            fix_png_checksums(&mut bytes);
        }
        write(&path, &bytes);
        match decoding::decode(&path, Path::new("image"), ExifOrientation::Apply, 1 << 30) {
            Ok(image) if image.rgb.len() != image.width * image.height * 3 => {
                Err("the number of pixels differs from the size".into())
            }
            decoded => Ok(decoded.is_ok()),
        }
    })
}

fn squad_text(_: &Path) -> RunInput {
    let tokenizer = tokenizer::Tokenizer::learn(&tokenizer::Words::default(), 257).unwrap();
    Box::new(move |random| {
        let text = mutate(samples::SQUAD.as_bytes(), samples::SQUAD.as_bytes(), random);
        let mut invalid = InvalidCollector::new(policy(random));
        let Ok(index) = squad::index(std::io::Cursor::new(&text), Path::new("train.json"), &mut invalid) else {
            return Ok(false);
        };
        for span in &index.places {
            let part = &text[span.offset as usize..][..span.length as usize];
            let paragraph: Paragraph =
                Paragraph::read(part).map_err(|error| format!("a paragraph of the index is not JSON: {error}"))?;
            let cut = Cut::Sliding { stride: 4, most: 8 };
            example::example(&paragraph, span.question as usize, 16, cut, &tokenizer)
                .map_err(|error| error.to_string())?;
        }
        Ok(!index.places.is_empty())
    })
}

fn squad_corpus(directory: &Path) -> RunInput {
    let path = directory.join("train.json");
    Box::new(move |random| {
        write(&path, &mutate(samples::SQUAD.as_bytes(), samples::SQUAD.as_bytes(), random));
        let settings = questions::QuestionAnswers {
            source: questions::Source::File,
            path: Some(path.display().to_string()),
            on_invalid: policy(random),
            vocabulary_size: 280,
            ..questions::QuestionAnswers::default()
        };
        Ok(Corpus::open(&settings).is_ok())
    })
}

fn bpe(directory: &Path) -> RunInput {
    let (encoder, merges) = samples::vocabulary();
    let paths = [directory.join("encoder.json"), directory.join("vocab.bpe")];
    Box::new(move |random| {
        let both = [encoder.as_bytes(), merges.as_bytes()];
        let damaged = random.random_range(0..2);
        write(&paths[damaged], &mutate(both[damaged], both[1 - damaged], random));
        write(&paths[1 - damaged], both[1 - damaged]);
        let Ok(tokenizer) = tokenizer::Tokenizer::read(&paths[0], &paths[1]) else { return Ok(false) };
        let text = "the żuraw, in\n 42 an\u{0}";
        let tokens = tokenizer.encode(text).map_err(|error| error.to_string())?;
        let is_valid = tokens.iter().all(|token| (*token as usize) < tokenizer.size());
        if is_valid { Ok(true) } else { Err("a token is not below the size of the vocabulary".into()) }
    })
}

/// Reads all non-empty files of a run except its lock.
fn files(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![run.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
            match entry.is_dir() {
                true => directories.push(entry),
                false => found.push((entry.clone(), std::fs::read(entry).unwrap())),
            }
        }
    }
    found.retain(|(path, bytes)| !path.ends_with("run.lock") && !bytes.is_empty());
    found.sort();
    found
}

/// Killed run with one mutated file. Invariant: `resume` refuses it, or resumes from an intact checkpoint.
fn checkpoints(directory: &Path) -> RunInput {
    let run = samples::run(directory, true);
    let all = files(&run);
    Box::new(move |random| {
        let (path, bytes) = &all[random.random_range(0..all.len())];
        let damaged = if random.random() { flip_bit(bytes, random) } else { mutate(bytes, bytes, random) };
        write(path, &damaged);
        let found = resume::find_resume_point(&run, false);
        let state = found.as_ref().ok().map(|found| found.checkpoint.is_some());
        if let Ok(found) = &found
            && let Some(checkpoint) = &found.checkpoint
        {
            let step = found.state.step;
            checkpoint::verify(checkpoint, step, &found.manifest)
                .map_err(|damage| format!("resumes from a damaged checkpoint: {damage}"))?;
            let weights = checkpoint.join("model.safetensors");
            let original = &all
                .iter()
                .find(|(path, _)| *path == weights)
                .ok_or("resumes from weights that the run did not have")?
                .1;
            if std::fs::read(&weights).unwrap() != *original {
                return Err(format!("resumes from changed weights in {}", weights.display()));
            }
        }
        write(path, bytes);
        Ok(state.is_some())
    })
}

/// Returns the output of everything that reads a run, errors included.
fn command_outputs(run: &Path, other: &Path, output: &Path) -> Vec<String> {
    let entry = RunView::open(run);
    let text = |result: Result<String, String>| result.unwrap_or_else(|error| format!("damaged: {error}"));
    let both = [run.to_path_buf(), other.to_path_buf()];
    let mut all = vec![
        listing::json(&entry).to_string(),
        listing::text(std::iter::once(entry), Some(100)),
        text(run_report::open(run).map(|run| summary::text(&run, Some(80))).map_err(|error| error.to_string())),
        text(
            compare::gather(&both)
                .map(|both| compare::text(&both, &compare::View::default(), 100))
                .map_err(|error| error.to_string()),
        ),
        text(
            judge::judge_path(run, &TableOptions::default())
                .map(|found| format!("{:?}", found.verdict))
                .map_err(|error| error.to_string()),
        ),
        text(reproduce::Original::read(run).map(|found| format!("{:?}", found.last_step)).map_err(|e| e.to_string())),
        text(report::write(run).map(|damage| damage.join(" ")).map_err(|error| error.to_string())),
    ];
    let exported = tensorboard::export(run, output, 0.0);
    let damaged =
        exported.as_ref().is_ok_and(|(_, events)| events.skipped.lines > 0 || events.skipped.damage.is_some());
    let bytes = exported.map(|(path, _)| {
        let bytes = std::fs::read(&path).unwrap_or_default();
        std::fs::remove_file(&path).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    all.push(text(bytes.map_err(|error| error.to_string())) + if damaged { "damaged" } else { "" });
    all
}

/// Result with one mutated file. Invariant for a single flipped bit: outputs are unchanged or report damage.
fn run_result(directory: &Path, one_bit: bool) -> RunInput {
    let runs = [samples::run(directory, false), samples::run(directory, true)];
    let output = directory.join("output");
    std::fs::create_dir_all(&output).unwrap();
    // The first call writes missing reports.
    let outputs_of = |at: usize| command_outputs(&runs[at], &runs[1 - at], &output);
    drop([0, 1].map(outputs_of));
    let all = runs.clone().map(|run| files(&run));
    let before = [0, 1].map(outputs_of);
    Box::new(move |random| {
        let at = random.random_range(0..2);
        let (path, bytes) = &all[at][random.random_range(0..all[at].len())];
        write(path, &if one_bit { flip_bit(bytes, random) } else { mutate(bytes, bytes, random) });
        let now = command_outputs(&runs[at], &runs[1 - at], &output);
        // Restores all files, as reading a run rewrites its report.
        all[at].iter().for_each(|(path, bytes)| write(path, bytes));
        let reports_damage = |text: &str| ["damaged", "checksum", "unreadable"].iter().any(|word| text.contains(word));
        let silent_change = now.iter().zip(&before[at]).find(|(now, before)| now != before && !reports_damage(now));
        match silent_change {
            Some((now, before)) if one_bit => {
                let line = now.lines().zip(before.lines()).find(|(now, before)| now != before);
                Err(format!("a flipped bit in {} changes output silently: {line:?}", path.display()))
            }
            _ => Ok(now == before[at]),
        }
    })
}

fn results(directory: &Path) -> RunInput {
    run_result(directory, false)
}

fn results_one_bit(directory: &Path) -> RunInput {
    run_result(directory, true)
}

fn sweeps(directory: &Path) -> RunInput {
    let directory = samples::sweep(directory);
    let all = files(&directory);
    Box::new(move |random| {
        let (path, bytes) = &all[random.random_range(0..all.len())];
        write(path, &mutate(bytes, bytes, random));
        let record = SweepRecord::read(&directory);
        let slurm = slurm::read_settings(&directory);
        if let Ok(Some(settings)) = &slurm
            && settings.extra_lines.iter().chain(&settings.partition).any(|line| line.contains(['\n', '\r', '\0']))
        {
            return Err(format!("passes control characters to Slurm: {settings:?}"));
        }
        let accepted = record.is_ok() && slurm.is_ok();
        if let Ok(record) = record {
            record.runs().for_each(|run| drop(record.overrides(run)));
        }
        write(path, bytes);
        Ok(accepted)
    })
}

fn csv(directory: &Path) -> RunInput {
    let run = samples::run(directory, false);
    let memory = std::fs::read(run.join("memory.jsonl")).unwrap();
    let paths = [directory.join("a.csv"), directory.join("a.jsonl")];
    Box::new(move |random| {
        let is_csv = random.random_bool(0.8);
        let text = if is_csv { samples::CSV.as_bytes() } else { &memory };
        let path = &paths[usize::from(!is_csv)];
        write(path, &mutate(text, samples::CSV.as_bytes(), random));
        if !is_csv {
            read_results::memory_file(path).map_err(|error| error.to_string())?.for_each(drop);
        }
        Ok(judge::judge_path(path, &TableOptions::default()).is_ok())
    })
}

/// WAV file. Invariant: there are samples, and all are finite.
fn wav_file(_: &Path) -> RunInput {
    Box::new(|random| {
        let valid = choose(&samples::wav_files(), random).to_vec();
        let Ok(clip) = sound::read(&mutate(&valid, &valid, random), u64::MAX) else { return Ok(false) };
        match clip.samples.iter().all(|sample| sample.is_finite()) && !clip.samples.is_empty() {
            true => Ok(true),
            false => Err("samples are missing or not finite".into()),
        }
    })
}

/// Metadata table of sound clips. Invariant: every file lies in the directory, and every target has a category.
fn clips(_: &Path) -> RunInput {
    Box::new(|random| {
        let text = mutate(samples::CLIPS.as_bytes(), samples::CLIPS.as_bytes(), random);
        let mut invalid = InvalidCollector::new(policy(random));
        let Ok(table) = table::read(&text, Path::new("meta.csv"), &mut invalid) else { return Ok(false) };
        let is_inside = |file: &str| Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        match table.rows.iter().all(|row| is_inside(&row.file) && table.categories.contains_key(&row.target)) {
            true => Ok(!table.rows.is_empty()),
            false => Err("a file is outside of the directory, or a target has no category".into()),
        }
    })
}

/// Weights of GPT-2 or of a checkpoint. Invariant: the crate behind Burn's reader accepts what xrun accepts, with the same tensors.
fn weights(directory: &Path) -> RunInput {
    let (valid, path) = (samples::weights(), directory.join("model.safetensors"));
    Box::new(move |random| {
        let mut bytes = mutate(&valid, &valid, random);
        // Four fifths of the file are tensor values, of which all are valid; so most mutations concern the header.
        if random.random_bool(0.6) {
            bytes = with_header(&valid, |header| mutate(header, header, random));
        }
        write(&path, &bytes);
        let header = tensors::read_header(&path);
        let reference = safetensors::SafeTensors::deserialize(&bytes);
        match (&header, reference) {
            (Ok(ours), Ok(reference)) => {
                let same = reference.iter().all(|(name, tensor)| {
                    ours.get(name).is_some_and(|ours| ours.shape == tensor.shape() && ours.kind == tensor.dtype())
                });
                if same && ours.len() == reference.len() {
                    Ok(true)
                } else {
                    Err(format!("reads other tensors: {ours:?}"))
                }
            }
            (Ok(ours), Err(error)) => Err(format!("accepts what Burn refuses ({error}): {ours:?}")),
            (Err(_), _) => Ok(false),
        }
    })
}

fn ranges(directory: &Path) -> RunInput {
    let (valid, path) = (samples::ranges(), directory.join(ranges_file::FILE));
    Box::new(move |random| {
        write(&path, &mutate(&valid, &valid, random));
        let Ok(read) = ranges_file::read(&path, 2, 12) else { return Ok(false) };
        let is_valid = read.iter().flatten().flatten().all(|(low, high)| {
            !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(|(low, high)| high - low >= 0.0)
        });
        if is_valid { Ok(true) } else { Err(format!("accepts {read:?}")) }
    })
}
