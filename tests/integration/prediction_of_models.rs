//! `xrun predict` of each pipeline: answers equal to those of a validation.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::limits::{FEDERATED, FEW_SHOT, LANGUAGE_MODEL, VISION_LANGUAGE};
use crate::workplace::{Output, Workplace, json, lines, redacted, text};

/// A run of a tiny experiment, with a cache of its own, so that each of its files is found in one place.
struct Tiny(Workplace);

impl Tiny {
    fn new(experiment: &str) -> Self {
        let tiny = Self(Workplace::new());
        tiny.0.file("tiny.toml", experiment);
        let output = tiny.xrun(&["tiny.toml", "-q", "--progress", "none"]);
        assert_eq!(output.code, 0, "{output:?}");
        tiny
    }

    fn xrun(&self, arguments: &[&str]) -> Output {
        let mut command = self.0.command(arguments);
        crate::workplace::Output::from(command.env("XRUN_CACHE", self.0.path("cache")).output().unwrap())
    }

    fn run(&self) -> PathBuf {
        self.0.latest("tiny")
    }

    /// The newest values of the metrics, with what `-s` changes of the validation.
    fn metrics(&self, more: &[&str]) -> Value {
        let output =
            self.xrun(&[&["eval", "tiny", "--checkpoint", "last", "--json", "--progress", "none"], more].concat());
        assert_eq!(output.code, 0, "{output:?}");
        let found = output.json();
        found["metrics"].clone()
    }

    /// A file of the generated data whose path ends so.
    fn data(&self, end: &str) -> PathBuf {
        self.find(&|path| path.ends_with(end)).unwrap_or_else(|| panic!("no {end}"))
    }

    fn find(&self, is_it: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
        let mut directories = vec![self.0.path("cache")];
        while let Some(directory) = directories.pop() {
            for path in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
                match path.is_dir() {
                    true => directories.push(path),
                    false if is_it(&path) => return Some(path),
                    false => {}
                }
            }
        }
        None
    }

    /// Predicts for these files with the last checkpoint: the exit code, what was said, and the lines.
    fn predict(&self, files: &[PathBuf], more: &[&str]) -> (Output, Vec<Value>) {
        let out = self.0.path(&format!("answers_{}", std::fs::read_dir(self.0.directory.path()).unwrap().count()));
        let files: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
        let how = ["--checkpoint", "last", "--progress", "none", "--out", out.to_str().unwrap()];
        let output = self.xrun(&[&["predict", "tiny"], &files[..], &how[..], more].concat());
        let answers = std::fs::read_to_string(out.join("predictions.jsonl")).unwrap_or_default();
        (output, answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

fn close(one: &Value, other: &Value) -> bool {
    (one.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-3
}

#[test]
fn a_frame_of_the_validation_has_the_detections_that_the_validation_found() {
    // All detections are kept, whatever their score.
    let tiny = Tiny::new(&FEW_SHOT.replace("n_way = 2", "n_way = 2\nscore_threshold = 0.0\ndetections_per_frame = 5"));
    let truth = json(&tiny.run().join("ground_truth.json"));
    let found: Value = serde_json::from_str(&text(&tiny.run().join("detections.json"))).unwrap();
    let images: Vec<&Value> =
        truth["images"].as_array().unwrap().iter().filter(|image| image["episode"] == 0).collect();
    let mut files: Vec<PathBuf> = images.iter().map(|image| tiny.data(image["file_name"].as_str().unwrap())).collect();
    assert!(files.len() > 1);
    let broken = tiny.0.file("broken.png", "no picture");
    files.insert(1, broken);
    // Two at a time, so that a part begins behind the broken one.
    let (output, lines) = tiny.predict(&files, &["-s", "limits.batch_size=2"]);
    assert_eq!(output.code, 1, "{output:?}");
    let error = lines[1]["error"].as_str().unwrap();
    assert!(output.err.contains("broken.png") && output.err.contains(error), "{output:?}");
    insta::assert_snapshot!(redacted(error));
    let answered: Vec<&Value> = lines.iter().filter(|line| line["error"].is_null()).collect();
    assert_eq!(answered.len(), images.len(), "{output:?}");
    for (image, answer) in images.iter().zip(answered) {
        let of_image = |one: &&Value| one["image_id"] == image["id"];
        let expected: Vec<&Value> = found.as_array().unwrap().iter().filter(of_image).collect();
        let detections = answer["detections"].as_array().unwrap();
        assert!(!expected.is_empty() && expected.len() == detections.len(), "{answer}");
        for (one, other) in detections.iter().zip(expected) {
            assert!(close(&one["score"], &other["score"]), "{one} {other}");
            // Of equal scores the order may be another.
            let sides = |of: &Value| of["bbox"].as_array().unwrap().clone();
            let same = |other: &Value| {
                one["category_id"] == other["category_id"]
                    && sides(one).iter().zip(&sides(other)).all(|(one, other)| close(one, other))
            };
            assert!(same(other), "{one} {other}");
        }
        assert_eq!((&answer["width"], &answer["height"]), (&image["width"], &image["height"]));
    }
    // The image that was drawn is as large as the one that was given, and COCO's file has the same detections.
    let out = std::fs::read_dir(tiny.0.directory.path()).unwrap().flatten().map(|entry| entry.path());
    let out = out.into_iter().find(|path| path.join("detections.json").exists()).unwrap();
    let coco: Value = serde_json::from_str(&text(&out.join("detections.json"))).unwrap();
    let ours: usize = lines.iter().filter_map(|line| Some(line["detections"].as_array()?.len())).sum();
    assert_eq!(coco.as_array().unwrap().len(), ours);
    let drawn = image::open(out.join(lines[0]["overlay"].as_str().unwrap())).unwrap();
    assert_eq!((drawn.width(), drawn.height()), (32, 32));
    let categories = &json(&out.join("prediction.json"))["about"]["categories"];
    assert_eq!(categories.as_array().map(Vec::len), Some(2), "{categories}");
}

#[test]
fn boxes_are_in_pixels_of_the_image_as_it_was_given() {
    let tiny = Tiny::new(&FEW_SHOT.replace("n_way = 2", "n_way = 2\nscore_threshold = 0.0\ndetections_per_frame = 3"));
    let frame = json(&tiny.run().join("ground_truth.json"))["images"][0]["file_name"].as_str().unwrap().to_owned();
    let small = tiny.data(&frame);
    let image = image::open(&small).unwrap().into_rgb8();
    // Four times as large without smoothing: scaled down, it is the same square.
    let large = image::RgbImage::from_fn(128, 128, |x, y| *image.get_pixel(x / 4, y / 4));
    let path = tiny.0.path("large.png");
    large.save(&path).unwrap();
    let (output, lines) = tiny.predict(&[small, path], &[]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!((&lines[1]["width"], &lines[1]["height"]), (&128.into(), &128.into()));
    let right = |line: &Value, from: usize| {
        let all = line["detections"].as_array().unwrap();
        let edge = |one: &Value| one["bbox"][from].as_f64().unwrap() + one["bbox"][from + 2].as_f64().unwrap();
        all.iter().map(edge).fold(0.0, f64::max)
    };
    for from in [0, 1] {
        assert!(right(&lines[0], from) <= 32.001 && right(&lines[1], from) > 33.0, "{lines:?}");
    }
}

#[test]
fn answers_to_held_out_questions_are_those_of_the_validation() {
    let tiny = Tiny::new(LANGUAGE_MODEL);
    let metrics = tiny.metrics(&["-s", "validation.batches=1000"]);
    let has_questions = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"paragraphs\""));
    let data: Value = json(&tiny.find(&has_questions).unwrap());
    let articles = data["data"].as_array().unwrap();
    let share = 0.1_f64;
    let held_out = ((articles.len() as f64 * share).round() as usize).max(1);
    let mut questions = String::new();
    let mut truths = Vec::new();
    for paragraph in
        articles[articles.len() - held_out..].iter().flat_map(|article| article["paragraphs"].as_array().unwrap())
    {
        for asked in paragraph["qas"].as_array().unwrap() {
            let line = serde_json::json!({ "context": paragraph["context"], "question": asked["question"], "id": asked["id"] });
            questions += &format!("{line}\n");
            truths.push(asked["answers"][0]["text"].as_str().unwrap().to_owned());
        }
    }
    questions += "{\"question\": \"Who?\"}\n";
    let file = tiny.0.file("mine.jsonl", &questions);
    let (output, lines) = tiny.predict(&[file], &["-s", "limits.batch_size=4"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains(&format!("mine.jsonl:{}: ", truths.len() + 1)), "{output:?}");
    insta::assert_snapshot!(lines[truths.len()]["error"].as_str().unwrap());
    assert_eq!(lines.len(), truths.len() + 1);
    for (at, precision) in ["8_bit", "4_bit"].into_iter().enumerate() {
        let exact = lines.iter().zip(&truths).filter(|(line, truth)| {
            let of = &line["precisions"][at];
            assert_eq!(of["precision"], precision);
            assert!(of["mean_log_probability"].as_f64() < Some(0.0), "{line}");
            of["answer"].as_str().unwrap().eq_ignore_ascii_case(truth)
        });
        let exact = 100.0 * exact.count() as f64 / truths.len() as f64;
        let expected = metrics[&format!("exact_match_{precision}")].as_f64().unwrap();
        assert!((exact - expected).abs() < 1e-6, "{precision}: {exact} {expected}");
    }
    assert_eq!(lines[0]["answer"], lines[0]["precisions"][0]["answer"]);
    // Text that the model never saw is answered, too.
    assert!(lines[0]["question"].is_string());
}

/// A caption of the report has the question, what was said, and the truth.
fn captions(run: &Path) -> Vec<String> {
    let index = json(&run.join("images/index.json"));
    let all = index["images"].as_array().unwrap().iter();
    all.map(|image| image["caption"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn held_out_images_are_answered_as_in_the_validation() {
    let experiment = VISION_LANGUAGE.replace("generated_answers = 4", "generated_answers = 64");
    let tiny = Tiny::new(&experiment.replace("[validation]", "[validation]\nimages = 8"));
    let captions = captions(&tiny.run());
    let list = tiny.data("held-out.jsonl");
    let examples: Vec<Value> = lines(&list);
    assert_eq!((examples.len(), captions.len()), (8, 8));
    let of = |example: &Value| {
        let [user, assistant] = [&example["messages"][0]["content"], &example["messages"][1]["content"]];
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        (list.parent().unwrap().join(word(&user[0]["image"])), word(&user[1]["text"]), word(assistant))
    };
    let (_, question, _) = of(&examples[0]);
    let same = examples.iter().map(of).filter(|(_, asked, _)| *asked == question);
    let (files, truths): (Vec<PathBuf>, Vec<String>) = same.map(|(file, _, truth)| (file, truth)).unzip();
    let (output, lines) = tiny.predict(&files, &["--question", &question, "-s", "limits.batch_size=2"]);
    assert_eq!((output.code, lines.len()), (0, files.len()), "{output:?}");
    for (line, truth) in lines.iter().zip(&truths) {
        let answer = xrun::printable::line(line["answer"].as_str().unwrap(), 300);
        let begins = format!("{question} → {answer} ");
        let ends = format!("True: {truth}");
        assert!(captions.iter().any(|one| one.starts_with(&begins) && one.contains(&ends)), "{line} {captions:?}");
        assert!(line["fields"].is_null() || line["fields"].is_object());
    }
    // The data asks several questions, so one must be chosen, and one that has a place.
    let asked: std::collections::BTreeSet<String> = examples.iter().map(|example| of(example).1).collect();
    assert!(asked.len() > 1, "{asked:?}");
    let (output, _) = tiny.predict(&files, &[]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("a_question_that_is_not_chosen", redacted(&output.err));
    let (output, _) = tiny.predict(&files, &["--question", &"colour ".repeat(100)]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("a_question_that_is_too_long", redacted(&output.err));
}

#[test]
fn held_out_sounds_are_nearest_to_the_classes_that_the_validation_found() {
    let tiny = Tiny::new(FEDERATED);
    let expected = tiny.metrics(&[])["retrieval"].as_f64().unwrap();
    let table = tiny.data("meta/esc50.csv");
    let (rows, directory) = (text(&table), table.parent().and_then(Path::parent).unwrap());
    let mut rows = rows.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let [file, fold, target, category] = ["filename", "fold", "target", "category"].map(at);
    // Of the classes that are learnt, of the fold that is held out.
    let held_out = rows.filter(|row| row[fold] == "5" && row[target].parse::<u32>().unwrap() < 2);
    let held_out: Vec<(PathBuf, String)> =
        held_out.map(|row| (directory.join("audio").join(row[file]), row[category].to_owned())).collect();
    let mut files: Vec<PathBuf> = held_out.iter().map(|(file, _)| file.clone()).collect();
    files.insert(1, tiny.0.file("broken.wav", "RIFF and no sound"));
    let (output, lines) = tiny.predict(&files, &["-s", "limits.batch_size=2"]);
    assert!(output.code == 1 && output.err.contains("broken.wav: "), "{output:?}");
    let answered: Vec<&Value> = lines.iter().filter(|line| line["error"].is_null()).collect();
    assert_eq!((answered.len(), lines.len()), (held_out.len(), held_out.len() + 1));
    let right =
        answered.iter().zip(&held_out).filter(|(line, (_, category))| line["nearest"][0]["class"] == **category);
    let right = 100.0 * right.count() as f64 / held_out.len() as f64;
    assert!((right - expected).abs() < 1e-6, "{right} {expected}");
    for line in answered {
        assert_eq!(line["embedding"].as_array().map(Vec::len), Some(8), "{line}");
        let cosines: Vec<f64> =
            line["nearest"].as_array().unwrap().iter().map(|near| near["cosine"].as_f64().unwrap()).collect();
        assert!(cosines.len() == 2 && cosines[0] >= cosines[1] && cosines.iter().all(|cosine| cosine.abs() <= 1.001));
    }
}
