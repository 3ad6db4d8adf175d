//! Valid files to mutate: those of the repository, and small generated ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use xrun::bounded::ledger::Ledger;
use xrun::experiment::pipeline::Opening;
use xrun::experiment::{read, resolved};
use xrun::files::write::replace_json;
use xrun::pipelines::qat_language_model::ranges_file;
use xrun::results::format::LoopState;
use xrun::run::launch::{self, Extent, Launch};
use xrun::run::{fingerprint, manifest, observer};
use xrun::{Program, device, plan, report};
use xrun::{directory, stop};

/// Returns experiment files that need no data, and invalid ones.
pub fn experiments() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directories = [
        "experiments",
        "experiments/sweeps",
        "experiments/leaks",
        "tests/experiments/valid",
        "tests/experiments/invalid",
    ];
    let files = directories.iter().flat_map(|directory| std::fs::read_dir(root.join(directory)).unwrap().flatten());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// COCO annotations.
pub const COCO: &str = r#"{"info": {}, "videos": [{"id": 1, "name": "v"}],
 "categories": [{"id": 1, "name": "cat", "supercategory": "base"}, {"id": 2, "name": "dog", "supercategory": "base"},
  {"id": 7, "name": "owl", "supercategory": "novel"}],
 "images": [{"id": 1, "file_name": "0.jpg", "width": 32, "height": 24, "video_id": 1, "frame_index": 0},
  {"id": 2, "file_name": "1.png", "width": 32, "height": 24, "video_id": 1, "frame_index": 1},
  {"id": 3, "file_name": "2.jpg", "width": 32, "height": 24}],
 "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 3, 10, 12.5], "iscrowd": 0},
  {"id": 2, "image_id": 2, "category_id": 2, "bbox": [0, 0, 32, 24]},
  {"id": 3, "image_id": 3, "category_id": 7, "bbox": [1.5, 2, 8, 8], "iscrowd": 1},
  {"id": 4, "image_id": 3, "category_id": 7, "bbox": [4, 4, 9, 9]}],
 "references": [{"category_id": 1, "file_name": "0.jpg", "bbox": [2, 3, 10, 12]}, {"category_id": 2, "file_name": "1.png"},
  {"category_id": 7, "file_name": "2.jpg", "bbox": [4, 4, 9, 9], "video_id": 1}]}"#;

/// Pascal VOC annotations.
pub const VOC: &str = r#"<?xml version="1.0"?><annotation><folder>images</folder><filename>0.jpg</filename>
<size><width>32</width><height>24</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>12</xmax><ymax>15</ymax></bndbox></object>
<object><name>dog</name><bndbox><xmin>1.5</xmin><ymin>3</ymin><xmax>30</xmax><ymax>24</ymax></bndbox></object></annotation>"#;

/// YOLO labels.
pub const YOLO: &str = "0 0.25 0.375 0.3125 0.5\n1 0.5 0.5 0.9 0.75\n\n";
/// `data.yaml` of a YOLO data set.
pub const YOLO_NAMES: &str = "path: ../x # root\nnames:\n  0: cat\n  1: \"dog\"\nnc: 2\n";

/// SQuAD 1.1 questions.
pub const SQUAD: &str = r#"{"version": "1.1", "data": [{"title": "Żuraw", "paragraphs": [
 {"context": "Ala ma kota. Żuraw też ma kota, a \"pies\" nie.", "qas": [
  {"id": "a", "question": "Who?", "answers": [{"text": "Ala", "answer_start": 0}, {"text": "Żuraw", "answer_start": 13}]},
  {"id": "b", "question": "Also who?", "answers": [{"text": "też", "answer_start": 19}]}]},
 {"context": "2 + 2 = 4\n\tyes", "qas": [{"id": "c", "question": "How many?", "answers": [{"text": "4", "answer_start": 8}]}]}]},
 {"title": "B", "paragraphs": [{"context": "Bob has a dog.", "qas": [
  {"id": "d", "question": "Who has a dog?", "answers": [{"text": "Bob", "answer_start": 0}]}]}]}]}"#;

/// Table with memory columns.
pub const CSV: &str = "step,time_ms,rss_mb,heap bytes,\"gpu, [MiB]\"\n1,10,100.5,1048576,512\n2,20,101,1048576,512\n\
                       3,30,101.5,2097152,NaN\n4,40,1e2,2097152,512 MiB\n5,50,,3145728,513\n6,60,103,3145728,513\n";

/// Returns `encoder.json` and `vocab.bpe` with the 256 bytes and a few merges.
pub fn vocabulary() -> (String, String) {
    let mut bytes: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    bytes.sort_unstable();
    let merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("a", "n"), ("i", "n")];
    let merged = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let tokens = bytes.iter().map(char::to_string).chain(merged).chain(["<|endoftext|>".to_owned()]);
    let encoder: BTreeMap<String, usize> = tokens.enumerate().map(|(number, token)| (token, number)).collect();
    let lines: String = merges.iter().map(|(left, right)| format!("{left} {right}\n")).collect();
    (serde_json::to_string(&encoder).unwrap(), format!("#version: 0.2\n{lines}"))
}

/// Returns the safetensors of a GPT-2 with two blocks, written by transformers (`tests/reference/gpt2_tiny.py`).
pub fn weights() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/gpt2_tiny.safetensors")).unwrap()
}

/// Returns a file of quantisation ranges for two precisions and two blocks.
pub fn ranges() -> Vec<u8> {
    let range =
        |at: usize| (!at.is_multiple_of(5)).then(|| (vec![-0.5 - at as f32, 1e-30], vec![at as f32 / 3.0, 7.75]));
    ranges_file::to_json(vec![(0..12).map(range).collect(), (5..17).map(range).collect()])
}

/// Returns images of 32 x 24 pixels: JPEG, and PNG with several colour types.
pub fn images() -> Vec<(&'static str, Vec<u8>)> {
    use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
    let image = RgbImage::from_fn(32, 24, |x, y| Rgb([(x * 8) as u8, (y * 10) as u8, (x * y) as u8]));
    let image = DynamicImage::ImageRgb8(image);
    let encoded = |image: &DynamicImage, format| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    vec![
        ("0.jpg", encoded(&image, ImageFormat::Jpeg)),
        ("1.png", encoded(&image, ImageFormat::Png)),
        ("2.jpg", encoded(&image.fliph(), ImageFormat::Jpeg)),
        ("3.png", encoded(&DynamicImage::ImageRgba16(image.to_rgba16()), ImageFormat::Png)),
        ("4.png", encoded(&DynamicImage::ImageLuma8(image.to_luma8()), ImageFormat::Png)),
    ]
}

/// Metadata table of sound clips in the format of ESC-50.
pub const CLIPS: &str = "filename,fold,target,category,esc10,src_file,take\n1-7-A-0.wav,1,0,dog,True,7,A\n\
                         1-7-B-0.wav,1,0,dog,True,7,B\nx/2-8-A-3.wav,2,3,\"rain, loud\",False,8,A\n";

/// Returns lines of messages in both formats, and an item of a question list.
pub fn messages() -> Vec<Vec<u8>> {
    let lines = [
        r#"{"messages": [{"role": "user", "content": [{"type": "image", "image": "1.png"}, {"type": "text", "text": "What?"}]}, {"role": "assistant", "content": "{\"a\": 1}"}]}"#,
        r#"{"text": "What?", "image": "0.jpg", "response": "red"}"#,
        r#"{"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}, {"role": "assistant", "content": [{"type": "text", "text": "re"}, {"type": "text", "text": "d"}]}]}"#,
        r#"["what color is the shape?", "red", 12]"#,
    ];
    lines.into_iter().map(|line| format!("{line}\n").into_bytes()).collect()
}

/// Returns a line of messages with an embedded image.
pub fn inline(image: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(image);
    format!("{{\"text\": \"What?\", \"image\": \"data:image/png;base64,{text}\", \"response\": \"red\"}}\n")
        .into_bytes()
}

/// Returns WAV files with 8, 16 and 24-bit integers and with 32-bit floats.
pub fn wav_files() -> Vec<Vec<u8>> {
    let formats = [(8, 1), (16, 2), (24, 1), (32, 2)];
    let file = |(bits, channels): (u16, u16)| {
        let (rate, block) = (16_000_u32, channels * bits / 8);
        let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".to_vec();
        bytes.extend(if bits == 32 { 3_u16 } else { 1 }.to_le_bytes());
        bytes.extend(channels.to_le_bytes());
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * u32::from(block)).to_le_bytes());
        bytes.extend(block.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(b"data");
        bytes.extend((u32::from(block) * 20).to_le_bytes());
        bytes.resize(bytes.len() + usize::from(block) * 20, 0x3d);
        bytes
    };
    formats.into_iter().map(file).collect()
}

/// Writes a file and its directories, not atomically, as only this process reads it.
pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Runs the dummy pipeline for 30 steps with checkpoints; if `killed`, for 20 steps and without the summary.
pub fn run(directory: &Path, killed: bool) -> PathBuf {
    Program::new().built_in().register();
    let file = directory.join("sample.toml");
    write(&file, b"[pipeline.dummy]\nsteps_per_epoch = 10\n[training]\nepochs = 3\n[validation]\nevery_steps = 5\n[checkpoint]\nevery_steps = 10\n[experiment]\npatch = false\n");
    let checked = read::read(&file, &[], std::iter::empty()).unwrap();
    let ledger = Ledger::default();
    let (facts, prepared) = checked.experiment.prepare(&ledger).unwrap();
    let plan = plan::resolve(checked.experiment.clone(), facts);
    let chosen = device::select("cpu").unwrap();
    let fingerprint = fingerprint::fingerprint(&plan);
    let path = directory.join("results/sample").join(if killed { "killed" } else { "whole" });
    let directory = directory::create_at(&path).unwrap();
    let manifest = manifest::manifest(&plan, &directory.id, &fingerprint, &chosen, &[], &checked.origins);
    let resolved = resolved::to_toml(&plan.experiment, None);
    launch::write_inputs(&path, &checked.text, &resolved, &manifest, &plan, 1).unwrap();
    let task = prepared
        .open(Opening { experiment: &plan.experiment, device: chosen.kind, ledger: &ledger, first_step: 1 })
        .unwrap();
    let state = LoopState { run: manifest.run_id(), fingerprint, ..LoopState::default() };
    let launch = Launch {
        manifest: &manifest,
        plan: &plan,
        ledger: &ledger,
        directory: &directory,
        state,
        segment: 0,
        gpu: None,
        started: Instant::now(),
        extent: Extent::until(killed.then_some(20)),
    };
    launch.train(task, &stop::StopSignal::listen().unwrap(), &mut observer::Silent);
    match killed {
        true => ["summary.json", "verdict.json"].iter().for_each(|name| std::fs::remove_file(path.join(name)).unwrap()),
        false => drop(report::write(&path).unwrap()),
    }
    path
}

/// Creates the directory of a sweep of three trials, without their runs.
pub fn sweep(directory: &Path) -> PathBuf {
    let directory = directory.join("results/sample/sweeps/one");
    let base = "[pipeline.dummy]\nsteps_per_epoch = 10\n";
    let record = "version = 1\nexperiment = \"sample\"\ncreated = \"2026-01-01T00:00:00Z\"\nxrun = \"0.1.0\"\n\
                  command = [\"xrun\"]\nworking_directory = \"/\"\nmode = \"grid\"\nseed = 0\nrepeats = 1\n\
                  experiment_seed = 0\nkeys = [\"limits.workers\"]\npoints = [\n    [0],\n    [1],\n    [2],\n]\n\
                  order = [\n    [2, 1],\n    [1, 1],\n    [3, 1],\n]\n";
    let slurm = "partition = \"gpu\"\ntime = \"1 h\"\nmemory = \"2 GiB\"\nextra_lines = [\"module load cuda\"]\n";
    for (name, text) in [("base.toml", base), ("sweep.toml", record), ("slurm.toml", slurm)] {
        write(&directory.join(name), text.as_bytes());
    }
    std::fs::create_dir_all(directory.join("trials")).unwrap();
    replace_json(&directory.join("table.json"), &BTreeMap::from([("version", 1)])).unwrap();
    directory
}
