//! `xrun check` on data sets: all problems at once, and settings lowered to small data.

use serde_json::{Value, json};

use crate::workplace::{Output, Workplace, lines_with, redacted, redacted_names};

const MINE: &str = "[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.coco]\n\
                    path = \"data\"\n";

/// Four classes, each in two images that are there.
fn coco(workplace: &Workplace) -> Value {
    std::fs::create_dir_all(workplace.path("data/images")).unwrap();
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for number in 0..8 {
        let file = format!("images/{number}.png");
        write_image(workplace, &format!("data/{file}"), number);
        images.push(json!({ "id": number, "file_name": file, "width": 32, "height": 24 }));
        annotations
            .push(json!({ "id": number, "image_id": number, "category_id": number / 2, "bbox": [4, 5, 10, 12] }));
    }
    let categories: Vec<Value> = ["cat", "dog", "fox", "owl"]
        .iter()
        .enumerate()
        .map(|(id, name)| json!({ "id": id, "name": name, "supercategory": "animal" }))
        .collect();
    json!({ "images": images, "annotations": annotations, "categories": categories })
}

fn write_image(workplace: &Workplace, path: &str, number: u32) {
    let path = workplace.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_fn(32, 24, |x, y| image::Rgb([x as u8, y as u8, number as u8])).save(path).unwrap();
}

fn write(workplace: &Workplace, name: &str, value: &Value) {
    let path = workplace.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, value.to_string()).unwrap();
}

fn check(workplace: &Workplace, extra: &[&str]) -> Output {
    workplace.xrun(&[&["check", "mine.toml"], extra].concat())
}

#[test]
fn words_cut_for_the_vocabulary_are_reported() {
    let workplace = Workplace::new();
    let said_of = |letters: usize| {
        let context = format!("{} End", "ACGTTGCA".repeat(letters / 8));
        let answer = json!({ "text": "End", "answer_start": letters + 1 });
        let article = |number: usize| {
            let asked = json!({ "id": number.to_string(), "question": "Who?", "answers": [answer] });
            json!({ "title": "t", "paragraphs": [{ "context": context, "qas": [asked] }] })
        };
        write(&workplace, "long.json", &json!({ "data": [article(0), article(1)] }));
        std::fs::write(
            workplace.path("mine.toml"),
            "[pipeline.qat-language-model]\npretraining_steps = 0\n[model.gpt2]\npreset = \"tiny\"\n\
             [dataset.question-answers]\nsource = \"file\"\npath = \"long.json\"\nvalidation_fraction = 0.5\n\
             vocabulary_size = 300\n[memory]\nprobe = false\n",
        )
        .unwrap();
        [&["check", "mine.toml"][..], &["check", "mine.toml", "--json"], &["mine.toml", "--dry-run"]]
            .map(|command| workplace.xrun(command))
    };
    let [check, as_json, dry_run] = said_of(200_000);
    let answer = as_json.json();
    let note = answer[0]["data"]["notes"][0].as_str().unwrap();
    insta::assert_snapshot!(note);
    assert!(check.code == 0 && check.err.contains(note), "{check:?}");
    assert!(dry_run.err.contains(note), "{dry_run:?}");
    let [check, as_json, _] = said_of(800);
    assert!(check.code == 0 && !check.err.contains(note), "{check:?}");
    assert_eq!(as_json.json()[0]["data"]["notes"], json!([]));
}

const HELD_OUT: &str = "dataset.coco.validation_classes=[\"fox\", \"owl\"]";

#[test]
fn all_mistakes_in_the_data_are_told_at_once_with_counts_by_reason() {
    let workplace = Workplace::with("mine.toml", MINE);
    let mut data = coco(&workplace);
    for number in 0..30 {
        data["annotations"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "id": 100 + number, "image_id": 0, "category_id": 99, "bbox": [4, 5, 10, 12] }));
    }
    data["images"].as_array_mut().unwrap().push(json!({ "id": 50, "file_name": "images/none.png" }));
    write(&workplace, "data/annotations.json", &data);
    let output = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(output.code, 2, "{output:?}");
    let mut messages = output.err;
    let answer = check(&workplace, &["-s", HELD_OUT, "--json"]).json();
    assert_eq!(answer[0]["problems"].as_array().unwrap().len(), 20);
    assert_eq!(answer[0]["problems"][0]["line"], 4);
    assert_eq!(answer[0]["data"]["wrong"], json!({ "missing_image": 1, "unknown_category": 30 }));
    // The run says the same, and nothing is made.
    let output = workplace.exits(1, &["mine.toml", "-s", HELD_OUT]);
    messages += &(lines_with(&output.err, "missing_image 1, unknown_category 30") + "\n");
    let output = check(&workplace, &["-s", HELD_OUT, "--no-data"]);
    assert!(output.code == 0 && !output.err.contains("unknown_category"), "{output:?}");
    // Left out, they are counted and the first are named.
    let skip = ["-s", HELD_OUT, "-s", "dataset.coco.on_invalid=skip"];
    let output = check(&workplace, &skip);
    assert_eq!(output.code, 0, "{output:?}");
    messages += &output.err;
    insta::assert_snapshot!(redacted_names(&messages));
    let answer = check(&workplace, &[&skip[..], &["--json"]].concat()).json();
    assert_eq!(answer[0]["data"]["skipped"], json!({ "missing_image": 1, "unknown_category": 30 }));
}

#[test]
fn a_malformed_annotation_hides_no_other_mistake_and_each_is_told_under_its_key() {
    let workplace = Workplace::with("mine.toml", &format!("{MINE}validation_classes = [\"fox\", \"elk\"]\n"));
    let mut data = coco(&workplace);
    data["annotations"][1]["bbox"] = json!([4, 5, 10]);
    data["annotations"][2]["category_id"] = json!("dog");
    data["annotations"][3]["bbox"] = json!([40, 5, 10, 12]);
    data["annotations"][5]["id"] = json!(4);
    let repeated = data["annotations"][6].clone();
    data["annotations"].as_array_mut().unwrap().push(repeated);
    data["annotations"][8]["id"] = json!(8);
    write(&workplace, "data/annotations.json", &data);
    let output = check(&workplace, &["--json"]);
    assert_eq!(output.code, 2, "{output:?}");
    let answer = output.json();
    assert_eq!(
        answer[0]["data"]["wrong"],
        json!({ "box_outside": 1, "malformed_annotation": 2, "repeated_box": 1, "repeated_id": 1, "unknown_class": 1 })
    );
    let problems = answer[0]["problems"].as_array().unwrap();
    let count = |key: &str| problems.iter().filter(|problem| problem["key"] == key).count();
    assert_eq!((count("dataset.coco.path"), count("dataset.coco.validation_classes")), (5, 1), "{answer}");
    let classes = problems.iter().find(|problem| problem["key"] == "dataset.coco.validation_classes").unwrap();
    assert_eq!(classes["line"], 5, "where the classes are named");
    let message = |problem: &Value| format!("{}: {}\n", problem["key"], problem["message"].as_str().unwrap());
    let messages = problems.iter().map(message).collect::<String>();
    let advice = lines_with(&check(&workplace, &[]).err, "box_outside, malformed_annotation, repeated_box");
    insta::assert_snapshot!(redacted_names(&(messages + &advice)));
    // Left out, only what cannot be skipped is reported.
    let output = check(&workplace, &["-s", "dataset.coco.on_invalid=skip", "--json"]);
    let answer = output.json();
    assert_eq!(output.code, 2, "{output:?}");
    assert_eq!(answer[0]["data"]["wrong"], json!({ "repeated_id": 1, "unknown_class": 1 }));
}

#[test]
fn the_whole_experiment_is_printed_though_its_data_is_not_there() {
    let workplace = Workplace::with("mine.toml", MINE);
    let output = check(&workplace, &["--resolved"]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!(redacted_names(&output.err));
    assert!(output.out.contains("[pipeline.fewshot-detection]") && output.out.contains("n_way = 4"), "{output:?}");
    // What was printed is a file that says the same.
    workplace.file("whole.toml", &output.out);
    let again = workplace.xrun(&["check", "whole.toml", "--resolved", "-s", "experiment.name=mine"]);
    assert_eq!((again.code, &again.out), (2, &output.out));
    // Where the data is there and is wrong, the same; where the file itself is wrong, there is nothing to print.
    write(&workplace, "data/annotations.json", &json!([]));
    let output = check(&workplace, &["--resolved"]);
    assert!(output.code == 2 && output.out.contains("n_way = 4"), "{output:?}");
    let output = check(&workplace, &["--resolved", "-s", "limits.workers=no"]);
    assert!(output.code == 2 && output.out.is_empty(), "{output:?}");
}

#[test]
fn a_data_set_that_is_too_small_for_an_episode_says_so_in_check_console_and_plan() {
    let workplace = Workplace::with("mine.toml", MINE);
    write(&workplace, "data/annotations.json", &coco(&workplace));
    let output = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(output.code, 0, "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
    let lowered = |extra: &[&str]| {
        let answer = check(&workplace, &[&["-s", HELD_OUT, "--json"], extra].concat()).json();
        let all = answer[0]["data"]["lowered"].as_array().unwrap().clone();
        let key = |one: &Value| one["key"].as_str().unwrap().rsplit_once('.').unwrap().1.to_owned();
        all.iter().map(|one| (key(one), one["asked"].clone(), one["used"].clone())).collect::<Vec<_>>()
    };
    let expected =
        [("n_way", 4, 2), ("n_query", 8, 1), ("n_way", 4, 2), ("n_query", 8, 1), ("triplet_batch_size", 8, 1)];
    assert_eq!(lowered(&[]), expected.map(|(key, asked, used)| (key.to_owned(), asked.into(), used.into())));
    let shots = lowered(&["-s", "pipeline.fewshot-detection.n_shot=3"]);
    assert!(shots.contains(&("n_shot".to_owned(), 3.into(), 1.into())), "{shots:?}");
    let small = [
        "pipeline.fewshot-detection.n_way=2",
        "pipeline.fewshot-detection.n_query=1",
        "pipeline.fewshot-detection.triplet_batch_size=1",
    ];
    let enough = check(&workplace, &["-s", HELD_OUT, "-s", small[0], "-s", small[1], "-s", small[2]]);
    assert!(!enough.err.contains("->"), "{}", enough.err);
    // Burn is not needed to come as far as this line.
    let output = workplace.xrun(&["mine.toml", "--dry-run", "-s", HELD_OUT, "-s", "memory.probe=false"]);
    assert!(output.err.contains("n_way 4 -> 2"), "{output:?}");
}

#[test]
fn all_mistakes_of_both_question_files_are_told_at_once() {
    let workplace = Workplace::with(
        "asked.toml",
        "[pipeline.qat-language-model]\n[model.gpt2]\n[dataset.question-answers]\nsource = \"file\"\npath = \"a.json\"\n\
         validation_path = \"b.json\"\n",
    );
    let article = |start: usize| {
        json!({ "data": [{ "title": "T", "paragraphs": [{ "context": "Ala has a cat.", "qas": [
            { "id": "1", "question": "Who?", "answers": [{ "text": "Ala", "answer_start": start }] },
            { "id": "2", "question": "", "answers": [{ "text": "cat", "answer_start": 10 }] },
        ] }] }] })
    };
    write(&workplace, "a.json", &article(3));
    write(&workplace, "b.json", &article(0));
    let output = workplace.exits(2, &["check", "asked.toml"]);
    let answer = workplace.xrun(&["check", "asked.toml", "--json"]).json();
    assert_eq!(answer[0]["data"]["wrong"], json!({ "empty_question": 2, "misplaced_answer": 1 }));
    assert!(output.err.contains("a.json") && output.err.contains("b.json"), "{}", output.err);
}

/// As cocodataset.org gives it: two files, and images named without their directory.
fn as_coco_has_it(workplace: &Workplace) {
    for (part, first) in [("train2017", 0), ("val2017", 8)] {
        let mut data = coco(workplace);
        for number in 0..8 {
            let name = format!("{:012}.png", first + number);
            write_image(workplace, &format!("data/{part}/{name}"), first + number);
            data["images"][number as usize]["file_name"] = json!(name);
        }
        write(workplace, &format!("data/annotations/instances_{part}.json"), &data);
        write(workplace, &format!("data/annotations/captions_{part}.json"), &json!({}));
    }
}

#[test]
fn cocos_usual_two_files_are_taken_as_they_are_and_can_be_named() {
    let workplace = Workplace::with("mine.toml", MINE);
    as_coco_has_it(&workplace);
    let output = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(output.code, 0, "{output:?}");
    let named = [
        "-s",
        HELD_OUT,
        "-s",
        "dataset.coco.annotations=annotations/instances_val2017.json",
        "-s",
        "dataset.coco.validation_annotations=annotations/instances_train2017.json",
    ];
    assert_eq!(check(&workplace, &named).code, 0);
    std::fs::rename(
        workplace.path("data/annotations/instances_train2017.json"),
        workplace.path("data/annotations/person_train2017.json"),
    )
    .unwrap();
    let output = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(output.code, 2);
    let outside = check(&workplace, &["-s", "dataset.coco.annotations=../x.json", "-s", HELD_OUT, "--json"]);
    let answer = outside.json();
    assert_eq!((outside.code, &answer[0]["problems"][0]["key"]), (2, &"dataset.coco.annotations".into()));
    insta::assert_snapshot!(redacted_names(&(output.err + answer[0]["problems"][0]["message"].as_str().unwrap())));
}

const CLASSIFICATION: &str = "[pipeline.image-classification]\nimage_size = 32\n[model.resnet]\n";

#[test]
fn a_check_tells_what_a_run_would_lower() {
    let workplace = Workplace::new();
    for name in ["cat/1.png", "cat/2.png", "dog/3.png", "dog/4.png"] {
        write_image(&workplace, &format!("mydata/{name}"), 7);
    }
    let data = "[dataset.image-folder]\npath = \"mydata\"\n[training]\nbatch_size = 16\n";
    workplace.file("mine.toml", &format!("{CLASSIFICATION}{data}"));
    let output = workplace.exits(0, &["check", "mine.toml", "--json"]);
    assert_eq!(output.json()[0]["data"]["lowered"][0]["used"], 2, "{output:?}");
}

#[test]
fn a_check_describes_the_data_and_warns_of_what_is_probably_not_meant() {
    let workplace = Workplace::new();
    for name in ["Queen/1.png", "queen/2.png", "queen/3.png", "ace/4.png", "ace/5.png"] {
        write_image(&workplace, &format!("mydata/{name}"), 7);
    }
    let data = "train_classes = [\"queen\", \"ace\"]\n[limits]\nframe_cache = 64\n";
    workplace.file("mine.toml", &format!("{CLASSIFICATION}[dataset.image-folder]\npath = \"mydata\"\n"));
    workplace.file("bare.toml", &format!("{CLASSIFICATION}[dataset.image-folder]\npath = \"mydata\"\n{data}"));
    let answer = workplace.xrun(&["check", "mine.toml", "--json"]).json();
    let lines = |answer: &serde_json::Value, key: &str| serde_json::to_string_pretty(&answer[0]["data"][key]).unwrap();
    insta::assert_snapshot!(lines(&answer, "summary") + "\n" + &lines(&answer, "warnings"));
    let bare = workplace.xrun(&["check", "bare.toml", "--json"]).json();
    let warnings = bare[0]["data"]["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains("bare.toml:8:15"), "{bare}");
    // An entry of a list is underlined, not the list.
    workplace.file(
        "typo.toml",
        &format!("{CLASSIFICATION}[dataset.image-folder]\npath = \"mydata\"\ntrain_classes = [\"ace\", \"quen\"]\n"),
    );
    let problem = &workplace.xrun(&["check", "typo.toml", "--json"]).json()[0]["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&json!(6), &json!(25)), "{problem}");
}
