//! Image classification and few-shot detection on every data set of images with boxes: the axis of data sets holds.
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json as object};
use sha2::{Digest, Sha256};

use crate::workplace::{Workplace, is_bounded, json, lines, python, redacted_names, text};

const CLASSIFICATION: &str = "[experiment]\nseed = 5\ndevice = \"cpu\"\n[pipeline.image-classification]\nimage_size = 16\n\
                              crop = 0.8\n[model.resnet]\nchannels = [8, 16]\n[optimizer.adamw]\nlearning_rate = 1e-2\n\
                              [training]\nepochs = 8\nbatch_size = 6\n[validation]\nbatches = 4\n[memory]\nprobe = false\n";
const DETECTION: &str = "[experiment]\ndevice = \"cpu\"\n[pipeline.fewshot-detection]\nn_way = 2\nn_query = 2\naugmentations = 1\n\
                         image_size = 32\nreference_size = 16\ntriplet_ratio = 0.0\n[model.reference-detector]\n\
                         channels = [8, 8, 8, 8]\npyramid_channels = 8\nembedding_size = 4\n[training]\nmax_steps = 2\n\
                         [validation]\nbatches = 1\n[memory]\nprobe = false\n";
/// Left, top, right and bottom of the object in each image of 40 x 30.
const PLACE: [u32; 4] = [8, 6, 28, 26];
const CLASSES: [&str; 4] = ["cat", "dog", "fox", "owl"];

/// Each class has a colour of its own.
fn write_image(path: &Path, class: usize, number: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let [left, top, right, bottom] = PLACE;
    let colour = [[220, 30, 30], [30, 220, 30], [30, 30, 220], [220, 220, 30]][class];
    let image = image::RgbImage::from_fn(40, 30, |x, y| {
        let inside = (left..right).contains(&x) && (top..bottom).contains(&y);
        image::Rgb(if inside { colour } else { [(90 + number * 9) as u8; 3] })
    });
    image.save(path).unwrap();
}

/// Tables that name one set of images as COCO, as VOC, as YOLO and as directories of classes.
fn data(workplace: &Workplace) -> Vec<(&'static str, String)> {
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    let [left, top, right, bottom] = PLACE;
    for (class, name) in CLASSES.iter().enumerate() {
        for number in 0..5_u32 {
            let file = format!("{name}{number}");
            for place in ["coco/images", "voc/images", "yolo/images"] {
                write_image(&workplace.path(&format!("{place}/{file}.png")), class, number);
            }
            write_image(&workplace.path(&format!("image-folder/{name}/{number}.png")), class, number);
            let id = images.len();
            images.push(object!({ "id": id, "file_name": format!("images/{file}.png"), "width": 40, "height": 30 }));
            let bbox = [left, top, right - left, bottom - top];
            annotations.push(object!({ "id": id, "image_id": id, "category_id": class, "bbox": bbox }));
            workplace.put(
                &format!("voc/annotations/{file}.xml"),
                format!(
                    "<annotation><filename>{file}.png</filename><object><name>{name}</name><bndbox><xmin>{}</xmin>\
                     <ymin>{}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object></annotation>",
                    left + 1,
                    top + 1
                ),
            );
            let shares = [
                f64::from(left + right) / 80.0,
                f64::from(top + bottom) / 60.0,
                f64::from(right - left) / 40.0,
                f64::from(bottom - top) / 30.0,
            ];
            let shares = shares.map(|share| share.to_string()).join(" ");
            workplace.put(&format!("yolo/labels/{file}.txt"), format!("{class} {shares}\n"));
        }
    }
    let categories: Vec<Value> =
        CLASSES.iter().enumerate().map(|(id, name)| object!({ "id": id, "name": name })).collect();
    let coco = object!({ "images": images, "annotations": annotations, "categories": categories });
    workplace.put("coco/annotations.json", coco.to_string());
    workplace.put("yolo/data.yaml", format!("names: [{}]\n", CLASSES.join(", ")));
    let table = |kind: &str| format!("[dataset.{kind}]\npath = \"{kind}\"\n");
    ["coco", "voc", "yolo", "image-folder"].map(|kind| (kind, table(kind))).into()
}

fn run(workplace: &Workplace, name: &str, more: &[&str]) -> std::path::PathBuf {
    let mut arguments = vec!["mine.toml", "--name", name, "-q"];
    more.iter().for_each(|more| arguments.extend(["-s", *more]));
    workplace.exits(0, &arguments);
    workplace.latest(name)
}

#[test]
fn classes_are_learnt_from_coco_voc_yolo_and_directories_of_images() {
    let workplace = Workplace::new();
    let mut learnt = Vec::new();
    for (name, table) in data(&workplace) {
        workplace.put("mine.toml", format!("{CLASSIFICATION}{table}"));
        let run = run(&workplace, name, &[]);
        let summary = json(&run.join("summary.json"));
        let metric = |when: &str, name: &str| summary[when][name].as_f64().unwrap();
        assert!(metric("metrics_last", "accuracy") > 0.9, "{name}: {summary}");
        assert!(
            metric("metrics_last", "cross_entropy") < metric("metrics_first", "cross_entropy"),
            "{name}: {summary}"
        );
        assert_eq!(metric("metrics_last", "largest_class"), 0.25, "{name}");
        assert!(json(&run.join("manifest.json"))["data"][name].is_string(), "{name}");
        let classes = json(&run.join("classes.json"))["classes"].clone();
        let sum = |key: &str| classes.as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).sum::<f64>();
        assert_eq!(sum("correct") / sum("items"), metric("metrics_last", "accuracy"), "{name}: {classes}");
        let evaluated = workplace.exits(0, &["eval", name, "--checkpoint", "last", "--json"]).json();
        assert_eq!(evaluated["classes"], classes, "{name}");
        learnt.push(text(&run.join("metrics.jsonl")));
    }
    // One image is one sample, whatever its format: the same boxes give the same numbers.
    assert!(learnt[0] == learnt[1] && learnt[1] == learnt[2], "COCO, VOC and YOLO differ");
}

#[test]
fn an_untrained_model_shows_the_worst_images_and_the_classes_they_were_taken_for() {
    let workplace = Workplace::new();
    let (name, table) = data(&workplace).pop().unwrap();
    workplace.put("mine.toml", format!("{CLASSIFICATION}{table}"));
    let run =
        run(&workplace, name, &["training.max_steps=1", "optimizer.adamw.learning_rate=1e-9", "validation.images=2"]);
    let images = json(&run.join("images/index.json"))["images"].clone();
    let classes = json(&run.join("classes.json"))["classes"].clone();
    let captions: Vec<&str> = images.as_array().unwrap().iter().map(|one| one["caption"].as_str().unwrap()).collect();
    assert_eq!(captions.len(), 2, "{images}");
    for caption in captions {
        let class = CLASSES.iter().find(|class| caption.starts_with(**class)).unwrap();
        let row = classes.as_array().unwrap().iter().find(|row| row["class"] == *class).unwrap();
        let others = row["taken_for"].as_array().unwrap();
        assert!(others.iter().any(|other| caption.contains(other[0].as_str().unwrap())), "{caption}: {row}");
        assert!(caption.contains(&format!("{class}/")), "{caption} has the path");
    }
}

#[test]
fn images_of_ones_own_are_answered_with_classes_and_probabilities() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).pop().unwrap();
    workplace.put("mine.toml", format!("{CLASSIFICATION}{table}"));
    run(&workplace, "mine", &[]);
    let broken = workplace.file("broken.png", "no picture");
    let mut files: Vec<_> =
        CLASSES.iter().map(|class| workplace.path(&format!("image-folder/{class}/0.png"))).collect();
    files.insert(1, broken);
    let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let out = workplace.path("answers");
    // Two at a time, so that a micro-batch has the broken one.
    let how = ["--progress", "none", "--out", out.to_str().unwrap(), "-s", "limits.batch_size=2"];
    workplace.exits(1, &[&["predict", "mine"], &names[..], &how[..]].concat());
    let lines: Vec<Value> = lines(&out.join("predictions.jsonl"));
    assert_eq!(lines.len(), files.len());
    assert!(lines[1]["error"].is_string() && lines[1]["class"].is_null(), "{}", lines[1]);
    let cats = workplace.path("image-folder/cat");
    std::fs::write(cats.join("notes.txt"), "no image").unwrap();
    let answers = workplace.exits(0, &["predict", "mine", cats.to_str().unwrap(), "--json"]).json();
    assert_eq!(answers["answered"], 5, "all images of a directory, and nothing else");
    for (line, class) in [0, 2, 3, 4].into_iter().map(|at| &lines[at]).zip(CLASSES) {
        assert_eq!(line["class"], class, "{line}");
        let top = line["top"].as_array().unwrap();
        let probabilities: Vec<f64> = top.iter().map(|one| one["probability"].as_f64().unwrap()).collect();
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-6, "all four classes are in it: {line}");
        assert!(probabilities.is_sorted_by(|one, other| one >= other), "{line}");
        assert_eq!((&line["class"], &line["probability"]), (&top[0]["class"], &top[0]["probability"]));
    }
    assert_eq!(json(&out.join("prediction.json"))["about"]["classes"], object!(CLASSES));
}

#[test]
fn few_shot_detection_trains_on_coco_voc_and_yolo_alike() {
    let workplace = Workplace::new();
    let mut learnt = Vec::new();
    for (name, table) in data(&workplace).into_iter().take(3) {
        workplace.put("mine.toml", format!("{DETECTION}{table}validation_classes = [\"fox\", \"owl\"]\n"));
        learnt.push(text(&run(&workplace, name, &[]).join("metrics.jsonl")));
    }
    assert!(learnt[0] == learnt[1] && learnt[1] == learnt[2], "COCO, VOC and YOLO differ");
}

/// Ordinary detection of three classes, which are told by their colours; the fourth is not used.
#[test]
fn data_without_held_out_classes_trains_an_ordinary_detector_that_names_all_classes() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).swap_remove(0);
    let file = format!("{DETECTION}{table}train_classes = [\"cat\", \"dog\", \"fox\"]\n");
    workplace.put("mine.toml", LEARNING.iter().fold(file, |file, (from, to)| file.replace(from, to)));
    let checked = workplace.exits(0, &["check", "mine.toml", "--json"]).json();
    assert_eq!(checked[0]["data"]["notes"].as_array().unwrap().len(), 1, "{checked}");
    let run = run(&workplace, "mine", &["validation.at_start=true"]);
    is_bounded(&run);
    let summary = json(&run.join("summary.json"));
    let value = |name: &str| summary["metrics_last"][name].as_f64().unwrap();
    let first = lines(&run.join("metrics.jsonl")).into_iter().find(|line| line["kind"] == "validation").unwrap();
    let before = first["metrics"]["map50"].as_f64().unwrap();
    assert!(
        value("map50") > before + 0.5 && value("map50") > value("map50_permuted") + 0.3,
        "{before}, then {summary}"
    );
    let classes = json(&run.join("classes.json"))["classes"].clone();
    let rows = classes.as_array().unwrap();
    let mean = rows.iter().map(|row| row["ap50"].as_f64().unwrap()).sum::<f64>() / 3.0;
    assert!(rows.len() == 3 && (mean - value("map50")).abs() < 1e-9, "{classes}");
    let evaluated = workplace.exits(0, &["eval", "mine", "--checkpoint", "last", "--json"]).json();
    assert_eq!((&evaluated["classes"], &evaluated["metrics"]), (&classes, &summary["metrics_last"]));
    let images = CLASSES.map(|class| workplace.path(&format!("coco/images/{class}0.png")).display().to_string());
    let arguments = [&["predict", "mine"], &images.each_ref().map(String::as_str)[..3], &["--out", "answers"]].concat();
    workplace.exits(0, &arguments);
    for (line, class) in lines(&workplace.path("answers/predictions.jsonl")).iter().zip(CLASSES) {
        assert_eq!(line["detections"][0]["class"], class, "{line}");
    }
    let plan = json(&run.join("plan.json"));
    let planned = |name: &str| plan["owners"].as_array().unwrap().iter().any(|owner| owner["name"] == name);
    assert!(["reference_crops", "confusion_matrix"].into_iter().all(planned), "{plan}");
}

/// Changes of [`DETECTION`] with which a detector learns to tell colours from any seed.
const LEARNING: [(&str, &str); 5] = [
    ("n_way = 2", "n_way = 3"),
    ("[8, 8, 8, 8]", "[16, 16, 16, 16]"),
    ("pyramid_channels = 8", "pyramid_channels = 16"),
    ("embedding_size = 4", "embedding_size = 16"),
    ("max_steps = 2", "epochs = 80\n[optimizer.adamw]\nlearning_rate = 3e-3"),
];

#[test]
fn a_class_in_too_few_images_is_named_and_so_is_what_an_ordinary_detector_needs() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).swap_remove(0);
    let coco = json(&workplace.path("coco/annotations.json"));
    let mut messages = String::new();
    for (images, settings) in [(2, ""), (5, "train_classes = [\"owl\"]\n")] {
        let mut coco = coco.clone();
        // The last class is in the last five images.
        coco["images"].as_array_mut().unwrap().truncate(15 + images);
        coco["annotations"].as_array_mut().unwrap().truncate(15 + images);
        workplace.put("coco/annotations.json", coco.to_string());
        let file = DETECTION.replace("triplet_ratio = 0.0\n", "");
        workplace.put("mine.toml", format!("{file}{table}{settings}"));
        messages += &workplace.exits(2, &["check", "mine.toml"]).err;
    }
    insta::assert_snapshot!(messages, @r#"
    error: `dataset.coco.train_classes`: the class "owl" is in 2 images and has 2 reference images; it needs three images: two to train on, one to validate on: name classes that have them
      --> mine.toml:19:10
       |
    19 | [dataset.coco]
       |          ^^^^

    1 problem
    error: `dataset.coco.path`: at least 2 classes are needed to train on for triplets (`triplet_ratio = 0` needs one), found 1; a class needs a reference image (or an object to crop one from) and another image that shows it. `train_classes` and `validation_classes` select the classes
      --> mine.toml:20:8
       |
    20 | path = "coco"
       |        ^^^^^^

    1 problem
    "#);
}

#[test]
fn few_shot_detection_trains_on_a_backbone_in_place_of_its_stages() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).swap_remove(0);
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    for (kind, file) in [("efficientnet-lite", "efficientnet_lite_tiny.pth"), ("resnet", "resnet_tiny.safetensors")] {
        for frozen in [true, false] {
            let model = DETECTION.replace("channels = [8, 8, 8, 8]\n", "");
            let backbone = format!("[backbone.{kind}]\nweights = \"{place}/{file}\"\nfrozen = {frozen}\n");
            let classes = "validation_classes = [\"fox\", \"owl\"]\n";
            workplace.put("mine.toml", format!("{model}{backbone}{table}{classes}"));
            let run = run(&workplace, kind, &["checkpoint.every_steps=1", "checkpoint.keep_last=2"]);
            let (one, two) = (weights(&run, 1), weights(&run, 2));
            assert!(!one.keys().any(|name| name.starts_with("stages.")), "{file}");
            let equal = |beginning: &str| {
                one.iter().filter(|(name, _)| name.starts_with(beginning)).all(|(name, bytes)| two[name] == *bytes)
            };
            assert_eq!((equal("backbone."), equal("lateral_fine.")), (frozen, false), "{file}");
        }
    }
}

#[test]
fn a_classification_gives_the_same_bytes_for_any_number_of_workers_and_stays_below_its_caps() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).pop().unwrap();
    workplace.put("mine.toml", format!("{CLASSIFICATION}{table}[limits]\nframe_cache = \"16 KiB\"\n"));
    let one = run(&workplace, "one", &["limits.workers=1"]);
    let expected = text(&one.join("metrics.jsonl"));
    for (name, workers) in [("none", "limits.workers=0"), ("three", "limits.workers=3")] {
        let other = run(&workplace, name, &[workers, "limits.prefetch=3"]);
        assert!(text(&other.join("metrics.jsonl")) == expected, "{name}: the metrics differ");
    }
    is_bounded(&one);
}

#[test]
fn data_of_another_type_of_sample_is_refused_with_the_data_sets_that_serve() {
    let workplace = Workplace::new();
    let mut messages = String::new();
    for kind in ["sound-clips", "image-text", "yollo"] {
        workplace.put("mine.toml", format!("[pipeline.image-classification]\n[model.resnet]\n[dataset.{kind}]\n"));
        messages += &workplace.exits(2, &["check", "mine.toml"]).err;
    }
    insta::assert_snapshot!(messages);
}

/// Prints the largest difference between the probabilities of the exported network and those of `predictions.jsonl`, 1 for another
/// class. The images are as large as the network's input, so that both see the same pixels.
const COMPARE: &str = include_str!("../scripts/exported_classifier.py");

/// File of `tests/reference`.
fn reference(file: &str) -> String {
    format!("{}/tests/reference/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Tables of a linear classifier on a backbone of `tests/reference/backbones.py`, in place of the small network.
fn on_backbone(kind: &str, file: &str, keys: &str) -> String {
    let weights = reference(file);
    let backbone = format!("[model.linear-classifier]\n[backbone.{kind}]\nweights = \"{weights}\"\n{keys}\n");
    CLASSIFICATION.replace("[model.resnet]\nchannels = [8, 16]\n", &backbone)
}

/// Tensors of the first and the last checkpoint of a run by name.
fn weights(run: &Path, step: u64) -> std::collections::BTreeMap<String, Vec<u8>> {
    let bytes = std::fs::read(run.join(format!("checkpoints/step_{step:08}/model.safetensors"))).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    file.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect()
}

#[test]
fn a_frozen_backbone_keeps_its_weights_and_a_trained_one_learns_with_its_own_rate() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).pop().unwrap();
    for (kind, file, own) in [
        ("efficientnet-lite", "efficientnet_lite_tiny.pth", ""),
        ("resnet", "resnet_tiny.pth", ""),
        ("resnet", "resnet_tiny.safetensors", ""),
        ("vit", "vit_tiny.safetensors", "heads = 2\n"),
        ("vit", "dinov2_tiny.bin", "heads = 2\n"),
    ] {
        let run = |name: &str, keys: &str| {
            workplace.put("mine.toml", format!("{}{table}", on_backbone(kind, file, &format!("{own}{keys}"))));
            workplace.exits(0, &["check", "mine.toml"]);
            let run =
                run(&workplace, name, &["checkpoint.every_steps=1", "training.max_steps=2", "checkpoint.keep_last=4"]);
            is_bounded(&run);
            let digest = Sha256::digest(std::fs::read(reference(file)).unwrap());
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(json(&run.join("manifest.json"))["data"]["backbone"], digest, "{file}");
            (weights(&run, 1), weights(&run, 2))
        };
        let change = |(before, after): &(std::collections::BTreeMap<String, Vec<u8>>, _), beginning: &str| {
            let numbers = |bytes: &[u8]| -> Vec<f32> {
                bytes.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
            };
            let after: &std::collections::BTreeMap<String, Vec<u8>> = after;
            let pairs = before.iter().filter(|(name, _)| name.starts_with(beginning));
            let changes = pairs.flat_map(|(name, bytes)| {
                let pairs = numbers(bytes).into_iter().zip(numbers(&after[name])).collect::<Vec<_>>();
                pairs.into_iter().map(|(one, other)| (one - other).abs())
            });
            changes.fold(0.0, f32::max)
        };
        let frozen = run("frozen", "");
        assert_eq!(change(&frozen, "backbone."), 0.0, "{file}");
        assert!(change(&frozen, "output.") > 0.0, "{file}");
        let (slow, fast) = (run("slow", "frozen = false"), run("fast", "frozen = false\nlearning_rate_factor = 1.0"));
        let (slow, fast) = (change(&slow, "backbone."), change(&fast, "backbone."));
        assert!(slow > 0.0 && fast > 4.0 * slow, "{file}: {slow} {fast}");
    }
}

#[test]
fn training_on_a_backbone_continues_bit_identically_from_a_checkpoint() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).pop().unwrap();
    let tables = on_backbone("resnet", "resnet_tiny.pth", "frozen = false");
    workplace.put("mine.toml", format!("{tables}{table}"));
    let checkpoints = ["training.max_steps=6", "checkpoint.every_steps=3", "checkpoint.keep_last=2"];
    let whole = run(&workplace, "whole", &checkpoints);
    workplace.exits(0, &["fork", "whole", "--checkpoint", "3", "--name", "again"]);
    assert!(weights(&workplace.latest("again"), 6) == weights(&whole, 6));
}

#[test]
fn backbones_that_do_not_fit_are_refused_by_name() {
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).pop().unwrap();
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");
    for name in ["resnet_tiny.pth", "efficientnet_lite_tiny.pth", "gpt2_tiny.safetensors", "dinov2_tiny.bin"] {
        std::fs::copy(format!("{place}/{name}"), workplace.path(name)).unwrap();
    }
    workplace.put("text.pth", "no weights");
    let mut messages = String::new();
    for model in [
        "[model.linear-classifier]",
        "[model.resnet]\n[backbone.resnet]\nweights = \"resnet_tiny.pth\"",
        "[model.linear-classifier]\n[backbone.resnet]",
        "[model.linear-classifier]\n[backbone.resnett]\nweights = \"resnet_tiny.pth\"",
        "[model.linear-classifier]\n[backbone.resnet]\nweights = \"resnet_tony.pth\"",
        "[model.linear-classifier]\n[backbone.resnet]\nweights = \"efficientnet_lite_tiny.pth\"",
        "[model.linear-classifier]\n[backbone.resnet]\nweights = \"gpt2_tiny.safetensors\"",
        "[model.linear-classifier]\n[backbone.resnet]\nweights = \"text.pth\"",
        "[model.linear-classifier]\n[backbone.resnet]\nweights = \"resnet_tiny.pth\"\nstride = 12",
        "[model.linear-classifier]\n[backbone.vit]",
        "[model.linear-classifier]\n[backbone.vit]\nweights = \"dinov2_tiny.bin\"",
        "image_size = 50\n[model.linear-classifier]\n[backbone.vit]\nweights = \"dinov2_tiny.bin\"\nheads = 2",
    ] {
        workplace.put("mine.toml", format!("[pipeline.image-classification]\n{model}\n{table}"));
        messages += &workplace.exits(2, &["check", "mine.toml"]).err;
    }
    let model = DETECTION.replace("channels = [8, 8, 8, 8]\n", "");
    for backbone in
        ["vit]\nweights = \"dinov2_tiny.bin\"\nheads = 2", "resnet]\nweights = \"resnet_tiny.pth\"\nstride = 8"]
    {
        workplace.put("mine.toml", format!("{model}[backbone.{backbone}\n{}", data(&workplace).swap_remove(0).1));
        messages += &workplace.exits(2, &["check", "mine.toml"]).err;
    }
    insta::assert_snapshot!(redacted_names(&messages));
}

#[test]
fn the_exported_network_gives_the_probabilities_of_a_prediction_in_pytorch() {
    equals_pytorch(CLASSIFICATION);
    equals_pytorch(&on_backbone("efficientnet-lite", "efficientnet_lite_tiny.pth", "frozen = false"));
    equals_pytorch(&on_backbone("resnet", "resnet_tiny.safetensors", ""));
    equals_pytorch(&on_backbone("resnet", "resnet_tiny.safetensors", "stride = 8"));
    equals_pytorch(&on_backbone("vit", "vit_tiny.safetensors", "heads = 2"));
    equals_pytorch(&on_backbone("vit", "dinov2_tiny.bin", "heads = 2\nfrozen = false"));
}

fn equals_pytorch(experiment: &str) {
    let Some(python) = python("XRUN_TORCH_PYTHON", "torch, safetensors, PIL") else { return };
    let workplace = Workplace::new();
    let (_, table) = data(&workplace).into_iter().find(|(kind, _)| *kind == "image-folder").unwrap();
    workplace.finished("trial", &format!("{experiment}{table}"));
    workplace.exits(0, &["export", "trial", "--to", "weights", "--output", "model"]);
    let names: Vec<String> = (0..4).map(|number| format!("{number}.png")).collect();
    for (number, name) in names.iter().enumerate() {
        let image =
            image::RgbImage::from_fn(16, 16, |x, y| image::Rgb([(x * 16) as u8, (y * 16) as u8, (number * 60) as u8]));
        image.save(workplace.path(name)).unwrap();
    }
    let arguments: Vec<&str> = ["predict", "trial"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let output = workplace.exits(0, &[&arguments[..], &["--json"]].concat());
    let lines = format!("{}/predictions.jsonl", output.json()["directory"].as_str().unwrap());
    let compared =
        Command::new(&python).args(["-c", COMPARE, &lines]).current_dir(workplace.path(".")).output().unwrap();
    let difference: f64 =
        String::from_utf8_lossy(&compared.stdout).trim().parse().unwrap_or_else(|_| panic!("{compared:?}"));
    assert!(difference < 1e-5, "{difference}");
}
