//! What reads bytes from elsewhere, and what must hold of each?

use std::path::{Component, Path, PathBuf};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use xrun::data::boxes::few_shot;
use xrun::data::boxes::format::{Folder, Format};
use xrun::data::boxes::library::Library;
use xrun::data::coco::{self, Coco};
use xrun::data::question_answers::corpus::Corpus;
use xrun::data::question_answers::example::{self, Cut};
use xrun::data::question_answers::settings as questions;
use xrun::data::question_answers::squad::{self, Paragraph};
use xrun::data::reading::broken::{Judge, OnBroken};
use xrun::data::reading::decoding;
use xrun::data::reading::orientation::ExifOrientation;
use xrun::data::sound_clips::{table, wav};
use xrun::data::tokenizer;
use xrun::data::voc::{self, Voc};
use xrun::data::yolo::{self, Yolo};
use xrun::dataset::kind::DatasetKind;
use xrun::experiment::{read, read_sweep};
use xrun::export;
use xrun::files::tensors;
use xrun::judge;
use xrun::pipelines::qat_language_model::ranges_file;
use xrun::report::{self, compare, listing, summary};
use xrun::results::{index, read as read_results};
use xrun::run::{checkpoint, reproduce, resume};
use xrun::sweep::records::sweep::Record;
use xrun::sweep::{plan, slurm};
use xrun::verdict::table::TableOptions;

use super::mutate::{flipped, mutated, with_right_checks, with_right_head};
use super::picture_texts::{answer_text, image_text, messages};
use super::samples::{self, put};

/// Works on one input; says whether it was accepted, or what is wrong with xrun.
pub type Work = Box<dyn FnMut(&mut ChaCha8Rng) -> Result<bool, String>>;

pub struct Target {
    pub name: &'static str,
    /// Of all inputs.
    pub share: u64,
    pub open: fn(&Path) -> Work,
}

/// Slow ones first, so that none is left alone at the end. Shares are of a thousand.
pub const TARGETS: &[Target] = &[
    Target { name: "result", share: 10, open: results },
    Target { name: "result-one-bit", share: 10, open: results_one_bit },
    Target { name: "overrides", share: 60, open: overrides },
    Target { name: "experiment", share: 70, open: experiment },
    Target { name: "sweep-file", share: 50, open: sweep_file },
    Target { name: "checkpoint", share: 50, open: checkpoints },
    Target { name: "bpe", share: 30, open: bpe },
    Target { name: "coco-folder", share: 40, open: coco_folder },
    Target { name: "voc", share: 30, open: voc_folder },
    Target { name: "yolo", share: 20, open: yolo_folder },
    Target { name: "pictures", share: 70, open: pictures },
    Target { name: "csv", share: 70, open: csv },
    Target { name: "squad-corpus", share: 20, open: squad_corpus },
    Target { name: "squad", share: 80, open: squad_text },
    Target { name: "sweep-folder", share: 60, open: sweeps },
    Target { name: "coco", share: 70, open: coco_text },
    Target { name: "wav", share: 40, open: wav_file },
    Target { name: "clips", share: 20, open: clips },
    Target { name: "image-text", share: 20, open: image_text },
    Target { name: "messages", share: 30, open: messages },
    Target { name: "answers", share: 30, open: answer_text },
    Target { name: "weights", share: 70, open: weights },
    Target { name: "ranges", share: 50, open: ranges },
];

pub fn one<'a>(all: &'a [Vec<u8>], random: &mut ChaCha8Rng) -> &'a [u8] {
    &all[random.random_range(0..all.len())]
}

fn experiment(place: &Path) -> Work {
    let (files, path) = (samples::experiments(), place.join("a.toml"));
    Box::new(move |random| {
        put(&path, &mutated(one(&files, random), one(&files, random), random));
        Ok(read::read(&path, &[], std::iter::empty()).is_ok())
    })
}

fn sweep_file(place: &Path) -> Work {
    let mut files = samples::experiments();
    files.retain(|text| text.windows(6).any(|window| window == b"[sweep"));
    let path = place.join("a.toml");
    Box::new(move |random| {
        put(&path, &mutated(one(&files, random), one(&files, random), random));
        let family = read_sweep::read(&path, &[], std::iter::empty());
        Ok(family.is_ok_and(|family| plan::check(&family).is_ok()))
    })
}

fn overrides(place: &Path) -> Work {
    let path = place.join("a.toml");
    put(&path, b"[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.coco]\n");
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
        let text = mutated(one(&texts, random), one(&texts, random), random);
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

pub fn policy(random: &mut ChaCha8Rng) -> OnBroken {
    if random.random() { OnBroken::Fail } else { OnBroken::Skip }
}

fn coco_text(_: &Path) -> Work {
    Box::new(|random| {
        let text = mutated(samples::COCO.as_bytes(), samples::COCO.as_bytes(), random);
        let mut judge = Judge::new(policy(random));
        Ok(coco::read::read(&text, Path::new("annotations.json"), &mut judge).is_ok() && !judge.has_fatal())
    })
}

/// A directory of images below `root`, opened with an annotation file.
fn folder<F: Format>(
    root: PathBuf,
    (name, text): (&'static str, &'static str),
    settings: impl Fn(Option<String>, OnBroken) -> F::Settings + 'static,
) -> Work {
    Box::new(move |random| {
        put(&root.join(name), &mutated(text.as_bytes(), text.as_bytes(), random));
        let settings = settings(Some(root.display().to_string()), policy(random));
        Folder::<F>::open(&settings).map_or(Ok(false), |library| sound(&library))
    })
}

/// Every box lies in its picture, and each path in the folder. Whether it serves episodes is found out as well.
fn sound(library: &Library) -> Result<bool, String> {
    for frame in library.videos.iter().flat_map(|video| &video.frames) {
        let inside = |value: f32, most: usize| value >= 0.0 && value <= most as f32;
        let sound = frame.objects.iter().all(|object| {
            let place = object.rectangle;
            inside(place.left, frame.width)
                && inside(place.right, frame.width)
                && inside(place.top, frame.height)
                && inside(place.bottom, frame.height)
                && place.left < place.right
                && place.top < place.bottom
        });
        if !sound || !library.root.join(&frame.path).canonicalize().is_ok_and(|path| path.starts_with(&library.root)) {
            return Err(format!("takes {frame:?}"));
        }
    }
    Ok(few_shot::check(library).is_ok())
}

fn coco_folder(place: &Path) -> Work {
    let root = place.join("data");
    samples::pictures().iter().for_each(|(name, bytes)| put(&root.join(name), bytes));
    folder::<Coco>(root, ("annotations.json", samples::COCO), |path, on_broken| coco::Settings {
        path,
        on_broken,
        ..coco::Settings::default()
    })
}

fn voc_folder(place: &Path) -> Work {
    let root = place.join("data");
    samples::pictures().iter().for_each(|(name, bytes)| put(&root.join("images").join(name), bytes));
    folder::<Voc>(root, ("annotations/0.xml", samples::VOC), |path, on_broken| voc::Settings {
        path,
        on_broken,
        validation_classes: vec!["dog".into()],
        ..voc::Settings::default()
    })
}

/// The labels of a picture, or the names of the classes.
fn yolo_folder(place: &Path) -> Work {
    let (root, texts) = (place.join("data"), [("labels/0.txt", samples::YOLO), ("data.yaml", samples::YOLO_NAMES)]);
    samples::pictures().iter().for_each(|(name, bytes)| put(&root.join("images").join(name), bytes));
    Box::new(move |random| {
        texts.iter().for_each(|(name, text)| put(&root.join(name), text.as_bytes()));
        let (name, text) = texts[random.random_range(0..texts.len())];
        put(&root.join(name), &mutated(text.as_bytes(), text.as_bytes(), random));
        let path = Some(root.display().to_string());
        let settings = yolo::Settings { path, on_broken: policy(random), ..yolo::Settings::default() };
        Folder::<Yolo>::open(&settings).map_or(Ok(false), |library| sound(&library).map(|_| true))
    })
}

fn pictures(place: &Path) -> Work {
    let (all, path) = (samples::pictures(), place.join("picture"));
    Box::new(move |random| {
        let at = random.random_range(0..all.len());
        let mut bytes = mutated(&all[at].1, &all[(at + 1) % all.len()].1, random);
        if random.random() {
            with_right_checks(&mut bytes);
        }
        put(&path, &bytes);
        match decoding::decode(&path, Path::new("picture"), ExifOrientation::Apply) {
            Ok(picture) if picture.rgb.len() != picture.width * picture.height * 3 => Err("has other pixels".into()),
            decoded => Ok(decoded.is_ok()),
        }
    })
}

fn squad_text(_: &Path) -> Work {
    let tokenizer = tokenizer::Tokenizer::learn(&tokenizer::Words::default(), 257).unwrap();
    Box::new(move |random| {
        let text = mutated(samples::SQUAD.as_bytes(), samples::SQUAD.as_bytes(), random);
        let mut judge = Judge::new(policy(random));
        let Ok(index) = squad::index(&text, Path::new("train.json"), &mut judge) else { return Ok(false) };
        for place in &index.places {
            let part = &text[place.offset as usize..][..place.length as usize];
            let paragraph: Paragraph =
                serde_json::from_slice(part).map_err(|error| format!("a place leads to {error}"))?;
            let cut = Cut::Sliding { stride: 4, most: 8 };
            example::example(&paragraph, place.question as usize, 16, cut, &tokenizer)
                .map_err(|error| error.to_string())?;
        }
        Ok(!index.places.is_empty())
    })
}

fn squad_corpus(place: &Path) -> Work {
    let path = place.join("train.json");
    Box::new(move |random| {
        put(&path, &mutated(samples::SQUAD.as_bytes(), samples::SQUAD.as_bytes(), random));
        let settings = questions::Settings {
            source: questions::Source::File,
            path: Some(path.display().to_string()),
            on_broken: policy(random),
            vocabulary_size: 280,
            ..questions::Settings::default()
        };
        Ok(Corpus::open(&settings).is_ok())
    })
}

fn bpe(place: &Path) -> Work {
    let (encoder, merges) = samples::vocabulary();
    let paths = [place.join("encoder.json"), place.join("vocab.bpe")];
    Box::new(move |random| {
        let both = [encoder.as_bytes(), merges.as_bytes()];
        let broken = random.random_range(0..2);
        put(&paths[broken], &mutated(both[broken], both[1 - broken], random));
        put(&paths[1 - broken], both[1 - broken]);
        let Ok(tokenizer) = tokenizer::Tokenizer::read(&paths[0], &paths[1]) else { return Ok(false) };
        let text = "the żuraw, in\n 42 an\u{0}";
        let tokens = tokenizer.encode(text).map_err(|error| error.to_string())?;
        let sound = tokens.iter().all(|token| (*token as usize) < tokenizer.size());
        if sound { Ok(true) } else { Err("has tokens beyond its vocabulary".into()) }
    })
}

/// The files of a run but its lock.
fn files(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![run.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false => found.push((entry.clone(), std::fs::read(entry).unwrap())),
            }
        }
    }
    found.retain(|(path, bytes)| !path.ends_with("run.lock") && !bytes.is_empty());
    found.sort();
    found
}

/// A killed run of which one file is another: it is refused, or goes on from a checkpoint that is what was written.
fn checkpoints(place: &Path) -> Work {
    let run = samples::run(place, true);
    let all = files(&run);
    Box::new(move |random| {
        let (path, bytes) = &all[random.random_range(0..all.len())];
        let broken = if random.random() { flipped(bytes, random) } else { mutated(bytes, bytes, random) };
        put(path, &broken);
        let found = resume::find_resume_point(&run, false);
        let state = found.as_ref().ok().map(|found| found.checkpoint.is_some());
        if let Ok(found) = &found
            && let Some(checkpoint) = &found.checkpoint
        {
            let step = found.state.step;
            checkpoint::verify(checkpoint, step, &found.manifest).map_err(|damage| format!("goes on from {damage}"))?;
            let weights = checkpoint.join("model.safetensors");
            let own = &all.iter().find(|(path, _)| *path == weights).ok_or("goes on from what was not there")?.1;
            if std::fs::read(&weights).unwrap() != *own {
                return Err(format!("goes on from other weights in {}", weights.display()));
            }
        }
        put(path, bytes);
        Ok(state.is_some())
    })
}

/// All that reads a run; everything is told in the answers.
fn answers(run: &Path, other: &Path, output: &Path) -> Vec<String> {
    let entry = index::entry(run);
    let text = |result: Result<String, String>| result.unwrap_or_else(|error| format!("damaged: {error}"));
    let both = [run.to_path_buf(), other.to_path_buf()];
    let mut all = vec![
        listing::text(std::slice::from_ref(&entry), Some(100)),
        listing::json(std::slice::from_ref(&entry)).to_string(),
        text(summary::text(run, Some(80)).map_err(|error| error.to_string())),
        text(compare::gather(&both).map(|both| compare::text(&both, 100)).map_err(|error| error.to_string())),
        text(
            judge::path(run, &TableOptions::default())
                .map(|found| format!("{:?}", found.verdict))
                .map_err(|error| error.to_string()),
        ),
        text(reproduce::Original::read(run).map(|found| format!("{:?}", found.last_step)).map_err(|e| e.to_string())),
        text(report::write(run).map(|damage| damage.join(" ")).map_err(|error| error.to_string())),
    ];
    for table in export::RunTable::ALL {
        let exported = export::export(run, table, export::TableFormat::Csv, output);
        let damaged = exported.as_ref().is_ok_and(|one| one.as_ref().is_some_and(|one| one.lines_left_out > 0));
        let lines = std::fs::read_to_string(output.join(format!("{}.csv", table.name()))).unwrap_or_default();
        all.push(
            text(exported.map(|_| lines).map_err(|error| error.to_string())) + if damaged { "damaged" } else { "" },
        );
    }
    all
}

fn result(place: &Path, one_bit: bool) -> Work {
    let runs = [samples::run(place, false), samples::run(place, true)];
    let output = place.join("output");
    std::fs::create_dir_all(&output).unwrap();
    // Once before, as it writes a report where there is none.
    let answers_of = |at: usize| answers(&runs[at], &runs[1 - at], &output);
    drop([0, 1].map(answers_of));
    let all = runs.clone().map(|run| files(&run));
    let before = [0, 1].map(answers_of);
    Box::new(move |random| {
        let at = random.random_range(0..2);
        let (path, bytes) = &all[at][random.random_range(0..all[at].len())];
        put(path, &if one_bit { flipped(bytes, random) } else { mutated(bytes, bytes, random) });
        let now = answers(&runs[at], &runs[1 - at], &output);
        // Also what was made anew.
        all[at].iter().for_each(|(path, bytes)| put(path, bytes));
        let tells = |text: &str| ["damaged", "checksum", "unreadable"].iter().any(|word| text.contains(word));
        let silent = now.iter().zip(&before[at]).find(|(now, before)| now != before && !tells(now));
        match silent {
            Some((now, before)) if one_bit => {
                let line = now.lines().zip(before.lines()).find(|(now, before)| now != before);
                Err(format!("{} with another bit: {line:?}", path.display()))
            }
            _ => Ok(now == before[at]),
        }
    })
}

fn results(place: &Path) -> Work {
    result(place, false)
}

fn results_one_bit(place: &Path) -> Work {
    result(place, true)
}

fn sweeps(place: &Path) -> Work {
    let folder = samples::sweep(place);
    let all = files(&folder);
    Box::new(move |random| {
        let (path, bytes) = &all[random.random_range(0..all.len())];
        put(path, &mutated(bytes, bytes, random));
        let record = Record::read(&folder);
        let slurm = slurm::read_settings(&folder);
        if let Ok(Some(settings)) = &slurm
            && settings.extra_lines.iter().chain(&settings.partition).any(|line| line.contains(['\n', '\r', '\0']))
        {
            return Err(format!("asks Slurm for {settings:?}"));
        }
        let accepted = record.is_ok() && slurm.is_ok();
        if let Ok(record) = record {
            record.runs().for_each(|run| drop(record.overrides(run)));
        }
        put(path, bytes);
        Ok(accepted)
    })
}

fn csv(place: &Path) -> Work {
    let run = samples::run(place, false);
    let memory = std::fs::read(run.join("memory.jsonl")).unwrap();
    let paths = [place.join("a.csv"), place.join("a.jsonl")];
    Box::new(move |random| {
        let is_table = random.random_bool(0.8);
        let text = if is_table { samples::CSV.as_bytes() } else { &memory };
        let path = &paths[usize::from(!is_table)];
        put(path, &mutated(text, samples::CSV.as_bytes(), random));
        if !is_table {
            read_results::memory_file(path).map_err(|error| error.to_string())?.for_each(drop);
        }
        Ok(judge::path(path, &TableOptions::default()).is_ok())
    })
}

/// Samples are numbers, and no more of them are held than the file has bytes.
fn wav_file(_: &Path) -> Work {
    Box::new(|random| {
        let good = one(&samples::wav_files(), random).to_vec();
        let Ok(sound) = wav::read(&mutated(&good, &good, random)) else { return Ok(false) };
        match sound.samples.iter().all(|sample| sample.is_finite()) && !sound.samples.is_empty() {
            true => Ok(true),
            false => Err("samples that are no numbers, or none".into()),
        }
    })
}

/// The table of a set of sound clips: every file lies in the folder, every target has a category.
fn clips(_: &Path) -> Work {
    Box::new(|random| {
        let text = mutated(samples::CLIPS.as_bytes(), samples::CLIPS.as_bytes(), random);
        let mut judge = Judge::new(policy(random));
        let Ok(table) = table::read(&text, Path::new("meta.csv"), &mut judge) else { return Ok(false) };
        let plain = |file: &str| Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        match table.rows.iter().all(|row| plain(&row.file) && table.categories.contains_key(&row.target)) {
            true => Ok(!table.rows.is_empty()),
            false => Err("a file outside of the folder, or a target without a category".into()),
        }
    })
}

/// GPT-2's weights or those of a checkpoint, before Burn reads them: what is taken, the crate behind Burn's reader takes too.
fn weights(place: &Path) -> Work {
    let (good, path) = (samples::weights(), place.join("model.safetensors"));
    Box::new(move |random| {
        let mut bytes = mutated(&good, &good, random);
        // The numbers behind the head are four fifths of the file, and any are good.
        if random.random_bool(0.6) {
            bytes = with_right_head(&good, |head| mutated(head, head, random));
        }
        put(&path, &bytes);
        let taken = tensors::read_header(&path);
        let theirs = safetensors::SafeTensors::deserialize(&bytes);
        match (&taken, theirs) {
            (Ok(ours), Ok(theirs)) => {
                let same = theirs.iter().all(|(name, tensor)| {
                    ours.get(name).is_some_and(|own| own.shape == tensor.shape() && own.kind == tensor.dtype())
                });
                if same && ours.len() == theirs.len() {
                    Ok(true)
                } else {
                    Err(format!("reads other tensors: {ours:?}"))
                }
            }
            (Ok(ours), Err(error)) => Err(format!("takes what Burn refuses ({error}): {ours:?}")),
            (Err(_), _) => Ok(false),
        }
    })
}

fn ranges(place: &Path) -> Work {
    let (good, path) = (samples::ranges(), place.join(ranges_file::FILE));
    Box::new(move |random| {
        put(&path, &mutated(&good, &good, random));
        let Ok(read) = ranges_file::read(&path, 2, 12) else { return Ok(false) };
        let sound = read.iter().flatten().flatten().all(|(low, high)| {
            !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(|(low, high)| high - low >= 0.0)
        });
        if sound { Ok(true) } else { Err(format!("takes {read:?}")) }
    })
}
