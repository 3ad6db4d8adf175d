//! Does `xrun check` find what is wrong with the data, all at once, and say what a small data set makes of an experiment?

use serde_json::{Value, json};

use crate::workplace::{Said, Workplace, cache};

const MINE: &str = "[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.coco]\n\
                    path = \"data\"\n";

/// Four classes, each in two pictures that are there.
fn coco(workplace: &Workplace) -> Value {
    std::fs::create_dir_all(workplace.path("data/images")).unwrap();
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for number in 0..8 {
        let file = format!("images/{number}.png");
        picture(workplace, &format!("data/{file}"), number);
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

fn picture(workplace: &Workplace, path: &str, number: u32) {
    let path = workplace.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_fn(32, 24, |x, y| image::Rgb([x as u8, y as u8, number as u8])).save(path).unwrap();
}

fn write(workplace: &Workplace, name: &str, value: &Value) {
    let path = workplace.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, value.to_string()).unwrap();
}

fn check(workplace: &Workplace, extra: &[&str]) -> Said {
    workplace.xrun(&[&["check", "mine.toml"], extra].concat())
}

#[test]
fn words_that_are_cut_for_the_vocabulary_are_told_of() {
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
             [dataset.question-answers]\nsource = \"file\"\npath = \"long.json\"\nvalidation_share = 0.5\n\
             vocabulary_size = 300\n[memory]\nprobe = false\n",
        )
        .unwrap();
        [&["check", "mine.toml"][..], &["check", "mine.toml", "--json"], &["mine.toml", "--dry-run"]]
            .map(|command| workplace.xrun(command))
    };
    let words = "1 word that is longer than 1.0 KiB";
    let [check, as_json, dry_run] = said_of(200_000);
    assert!(check.code == 0 && check.err.contains(words), "{check:?}");
    let answer: Value = serde_json::from_str(&as_json.out).unwrap();
    assert!(answer[0]["data"]["notes"][0].as_str().unwrap().contains(words), "{answer}");
    assert!(dry_run.err.contains(words), "{dry_run:?}");
    let [check, as_json, _] = said_of(800);
    assert!(check.code == 0 && !check.err.contains("longer than"), "{check:?}");
    let answer: Value = serde_json::from_str(&as_json.out).unwrap();
    assert_eq!(answer[0]["data"]["notes"], json!([]));
}

const HELD_OUT: &str = "dataset.coco.validation_classes=[\"fox\", \"owl\"]";

#[test]
fn all_mistakes_in_the_data_are_told_at_once_with_counts_by_reason() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    let mut data = coco(&workplace);
    for number in 0..30 {
        data["annotations"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "id": 100 + number, "image_id": 0, "category_id": 99, "bbox": [4, 5, 10, 12] }));
    }
    data["images"].as_array_mut().unwrap().push(json!({ "id": 50, "file_name": "images/none.png" }));
    write(&workplace, "data/annotations.json", &data);
    let said = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(said.code, 2, "{said:?}");
    for words in [
        "mine.toml:4",
        "annotation 100 is of category 99, which does not exist",
        "annotation 119 is",
        "… and 11 more",
        "31 problems",
        "missing_picture 1, unknown_category 30; correct them, or leave them out with on_broken = \"skip\"",
    ] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    let said = check(&workplace, &["-s", HELD_OUT, "--json"]);
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(answer[0]["problems"].as_array().unwrap().len(), 20);
    assert_eq!(answer[0]["problems"][0]["line"], 4);
    assert_eq!(answer[0]["data"]["wrong"], json!({ "missing_picture": 1, "unknown_category": 30 }));
    // The run says the same, and nothing is made.
    let said = workplace.xrun(&["mine.toml", "-s", HELD_OUT]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("missing_picture 1, unknown_category 30"), "{}", said.err);
    let said = check(&workplace, &["-s", HELD_OUT, "--no-data"]);
    assert_eq!((said.code, said.err.contains("valid (")), (0, true), "{said:?}");
    // Left out, they are counted and the first are named.
    let said = check(&workplace, &["-s", HELD_OUT, "-s", "dataset.coco.on_broken=skip"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("31 left out: missing_picture 1, unknown_category 30"), "{}", said.err);
    assert!(said.err.contains("annotation 100 is of category 99") && said.err.contains("and 11 more"), "{}", said.err);
}

#[test]
fn a_malformed_annotation_hides_no_other_mistake_and_each_is_told_under_its_key() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", &format!("{MINE}validation_classes = [\"fox\", \"elk\"]\n"));
    let mut data = coco(&workplace);
    data["annotations"][1]["bbox"] = json!([4, 5, 10]);
    data["annotations"][2]["category_id"] = json!("dog");
    data["annotations"][3]["bbox"] = json!([40, 5, 10, 12]);
    data["annotations"][5]["id"] = json!(4);
    let again = data["annotations"][6].clone();
    data["annotations"].as_array_mut().unwrap().push(again);
    data["annotations"][8]["id"] = json!(8);
    write(&workplace, "data/annotations.json", &data);
    let said = check(&workplace, &["--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        answer[0]["data"]["wrong"],
        json!({ "box_outside": 1, "malformed_annotation": 2, "repeated_box": 1, "repeated_id": 1, "unknown_class": 1 })
    );
    let problems = answer[0]["problems"].as_array().unwrap();
    let of = |words: &str| {
        let found = problems.iter().find(|one| one["message"].as_str().is_some_and(|text| text.contains(words)));
        found.unwrap_or_else(|| panic!("{words}: {answer}"))
    };
    let (path, classes) = ("dataset.coco.path", "dataset.coco.validation_classes");
    for (words, key) in [
        ("annotation 1 (line 1) has `bbox` = [4,5,10], expected a list of four numbers", path),
        ("annotation 2 (line 1) has `category_id` = \"dog\"", path),
        ("annotation 3 has the box 40, 5 to 50, 17, outside", path),
        ("the id of annotation 4 occurs twice", path),
        ("annotation 8 has the class and the box of annotation 6", path),
        ("the data has no class \"elk\"", classes),
    ] {
        assert_eq!(of(words)["key"], key, "{words}");
    }
    assert_eq!(of("elk")["line"], 5, "where the classes are named");
    let said = check(&workplace, &[]).err;
    assert!(said.contains("box_outside, malformed_annotation, repeated_box"), "{said}");
    // Left out, only what cannot be is told.
    let said = check(&workplace, &["-s", "dataset.coco.on_broken=skip"]);
    assert!(said.code == 2 && said.err.contains("occurs twice") && said.err.contains("elk"), "{said:?}");
    assert!(!said.err.contains("bbox") && !said.err.contains("on_broken"), "{}", said.err);
}

#[test]
fn where_no_class_is_held_out_the_classes_are_listed() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    write(&workplace, "data/annotations.json", &coco(&workplace));
    let said = check(&workplace, &[]);
    assert_eq!(said.code, 2, "{said:?}");
    for words in [
        "0 classes are held out for validation",
        "`dataset.coco.validation_classes`",
        "the data has the classes \"cat\", \"dog\", \"fox\", \"owl\"",
    ] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
}

#[test]
fn the_whole_experiment_is_printed_though_its_data_is_not_there() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    let said = check(&workplace, &["--resolved"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("there is no directory") && said.err.contains("mine.toml:4:8"), "{said:?}");
    assert!(said.out.contains("[pipeline.fewshot-detection]") && said.out.contains("n_way = 4"), "{said:?}");
    // What was printed is a file that says the same.
    workplace.file("whole.toml", &said.out);
    let again = workplace.xrun(&["check", "whole.toml", "--resolved", "-s", "experiment.name=mine"]);
    assert_eq!((again.code, &again.out), (2, &said.out));
    // Where the data is there and is wrong, the same; where the file itself is wrong, there is nothing to print.
    write(&workplace, "data/annotations.json", &json!([]));
    let said = check(&workplace, &["--resolved"]);
    assert!(said.code == 2 && said.out.contains("n_way = 4"), "{said:?}");
    let said = check(&workplace, &["--resolved", "-s", "limits.workers=no"]);
    assert!(said.code == 2 && said.out.is_empty(), "{said:?}");
}

#[test]
fn a_data_set_that_is_too_small_for_an_episode_says_so_in_check_console_and_plan() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    write(&workplace, "data/annotations.json", &coco(&workplace));
    let said = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.matches("n_way 4 -> 2:").count() == 2 && said.err.contains("mine.toml"), "{}", said.err);
    for (clamped, named) in
        [("n_query 8 -> 1:", "\"cat\""), ("n_query 8 -> 1:", "\"fox\""), ("triplet_batch_size 8 -> 1:", " 4 ")]
    {
        let found = said.err.lines().any(|line| line.contains(clamped) && line.contains(named));
        assert!(found, "{clamped} {named}: {}", said.err);
    }
    let shots = check(&workplace, &["-s", HELD_OUT, "-s", "pipeline.fewshot-detection.n_shot=3"]);
    assert!(shots.err.lines().any(|line| line.contains("n_shot 3 -> 1:") && line.contains("\"cat\"")), "{shots:?}");
    let small = [
        "pipeline.fewshot-detection.n_way=2",
        "pipeline.fewshot-detection.n_query=1",
        "pipeline.fewshot-detection.triplet_batch_size=1",
    ];
    let enough = check(&workplace, &["-s", HELD_OUT, "-s", small[0], "-s", small[1], "-s", small[2]]);
    assert!(!enough.err.contains("->"), "{}", enough.err);
    // Burn is not needed to come as far as this line.
    let said = workplace.xrun(&["mine.toml", "--dry-run", "-s", HELD_OUT, "-s", "memory.probe=false"]);
    assert!(said.err.contains("n_way 4 -> 2:"), "{said:?}");
}

#[test]
fn a_second_look_reads_nothing_again_and_a_change_is_seen() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    let mut data = coco(&workplace);
    write(&workplace, "data/annotations.json", &data);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let age = |name: &str| {
        let file = std::fs::OpenOptions::new().write(true).open(workplace.path(name)).unwrap();
        file.set_modified(old).unwrap();
    };
    age("data/annotations.json");
    // The times of change are of now: only after two seconds is a look remembered.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(check(&workplace, &["-s", HELD_OUT]).code, 0);
    let looks = || std::fs::read_dir(cache().join("looks")).into_iter().flatten().count();
    let before = looks();
    assert!(before > 0);
    assert_eq!(check(&workplace, &["-s", HELD_OUT, "-s", "optimizer.adamw.learning_rate=0.1"]).code, 0);
    assert_eq!(looks(), before, "another learning rate is no other data");
    data["annotations"][0]["category_id"] = json!(99);
    write(&workplace, "data/annotations.json", &data);
    assert_eq!(check(&workplace, &["-s", HELD_OUT]).code, 2);
}

#[test]
fn a_json_list_is_called_a_list() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    write(&workplace, "data/annotations.json", &json!([{ "image": "1.jpg" }]));
    let said = check(&workplace, &[]);
    let words = "begins with `[`, a list; expected an object with `images`, `annotations` and `categories`";
    assert!(said.err.contains(words), "{}", said.err);
    workplace.file(
        "asked.toml",
        "[pipeline.qat-language-model]\n[model.gpt2]\n[dataset.question-answers]\nsource = \"file\"\npath = \"qa.json\"\n",
    );
    write(&workplace, "qa.json", &json!([{ "context": "A.", "question": "B?", "answer": "A" }]));
    let said = workplace.xrun(&["check", "asked.toml"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("begins with `[`, a list; expected an object with `data`"), "{}", said.err);
}

#[test]
fn all_mistakes_of_both_question_files_are_told_at_once() {
    let workplace = Workplace::new();
    workplace.file(
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
    let said = workplace.xrun(&["check", "asked.toml"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("empty_question 2, misplaced_answer 1"), "{}", said.err);
    assert!(said.err.contains("a.json") && said.err.contains("b.json"), "{}", said.err);
}

/// As cocodataset.org gives it: two files, and pictures named without their folder.
fn as_coco_has_it(workplace: &Workplace) {
    for (part, first) in [("train2017", 0), ("val2017", 8)] {
        let mut data = coco(workplace);
        for number in 0..8 {
            let name = format!("{:012}.png", first + number);
            picture(workplace, &format!("data/{part}/{name}"), first + number);
            data["images"][number as usize]["file_name"] = json!(name);
        }
        write(workplace, &format!("data/annotations/instances_{part}.json"), &data);
        write(workplace, &format!("data/annotations/captions_{part}.json"), &json!({}));
    }
}

#[test]
fn cocos_usual_two_files_are_taken_as_they_are_and_can_be_named() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    as_coco_has_it(&workplace);
    let said = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(said.code, 0, "{said:?}");
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
    let said = check(&workplace, &["-s", HELD_OUT]);
    assert_eq!(said.code, 2);
    for words in ["name one with `annotations`", "`validation_annotations`", "annotations/person_train2017.json"] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    let outside = check(&workplace, &["-s", "dataset.coco.annotations=../x.json", "-s", HELD_OUT]);
    assert!(outside.err.contains("leads out of the data set's directory"), "{}", outside.err);
}

#[test]
fn a_picture_that_is_not_there_is_told_with_its_whole_path() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", MINE);
    let mut data = coco(&workplace);
    data["images"][0]["file_name"] = json!("001.jpg");
    write(&workplace, "data/annotations.json", &data);
    let said = check(&workplace, &["-s", HELD_OUT]);
    assert!(said.err.contains("data/001.jpg: the image is missing"), "{}", said.err);
}
