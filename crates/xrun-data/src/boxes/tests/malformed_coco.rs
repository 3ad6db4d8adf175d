//! COCO data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory, &mut Value);

/// A row: what it is, and how it is made.
const CASES: [(&str, Change); 33] = [
    // The text. Each is an error whatever the policy.
    ("an empty file", |f, v| raw(f, v, b"")),
    ("truncated JSON", truncated),
    ("another object", |f, v| raw(f, v, b"{\"a\": 1}")),
    ("deep nesting in an unknown key", |f, v| raw(f, v, deep().as_bytes())),
    ("NaN, as Python writes it", |f, v| boxed(f, v, "[NaN, 1, 2, 2]")),
    ("a box of three numbers", |f, v| boxed(f, v, "[1, 2, 3]")),
    ("an image without a file name", |_, v| v["images"][0] = json!({ "id": 1 })),
    // Boxes.
    ("a box without width", |_, v| first_box(v, [5.0, 5.0, 0.0, 5.0])),
    ("a box outside of the image", |_, v| first_box(v, [40.0, 5.0, 5.0, 5.0])),
    ("a box partly outside", |_, v| first_box(v, [25.0, 5.0, 10.0, 5.0])),
    ("a box whose corner overflows", |_, v| first_box(v, [1e308, 5.0, 1e308, 5.0])),
    ("a box in the tolerance only", |_, v| first_box(v, [32.2, 5.0, 0.5, 5.0])),
    ("boxes of corners, as their areas say", |_, v| {
        for annotation in v["annotations"].as_array_mut().unwrap() {
            (annotation["bbox"], annotation["area"]) = (json!([4, 4, 14, 12]), json!(80));
        }
    }),
    // What refers to what.
    ("an annotation of no image", |_, v| {
        push(v, "annotations", json!({ "id": 99, "image_id": 77, "category_id": 0, "bbox": [1, 1, 2, 2] }))
    }),
    ("an annotation id twice", |_, v| {
        push(v, "annotations", json!({ "id": 2, "image_id": 1, "category_id": 0, "bbox": [1, 1, 2, 2] }))
    }),
    ("one box twice", |_, v| {
        let mut again = v["annotations"][0].clone();
        again["id"] = json!(99);
        push(v, "annotations", again)
    }),
    ("an image id twice", |_, v| v["images"][1]["id"] = json!(1)),
    ("a category id twice", |_, v| v["categories"][1]["id"] = json!(0)),
    ("a category name twice, trained on and held out", |_, v| v["categories"][2]["name"] = json!("cat")),
    ("a category of an empty name", |_, v| v["categories"][0]["name"] = json!("  ")),
    ("a category of a megabyte's name", |_, v| v["categories"][0]["name"] = json!("x".repeat(1_000_000))),
    ("two frames of one index", |_, v| frames(v, 4)),
    ("one image twice under two spellings", |_, v| extra(v, "./images//cat0.jpg")),
    ("a reference of no category", |_, v| {
        v["references"] = references(json!({ "category_id": 9, "file_name": "images/cat0.jpg" }))
    }),
    ("a reference's box outside", |_, v| {
        v["references"] = references(json!({ "category_id": 1, "file_name": "images/cat0.jpg", "bbox": [0, 0, 99, 9] }))
    }),
    // Paths that lead out. Each is an error whatever the policy.
    ("a path with ..", |_, v| extra(v, "../secret.png")),
    ("an absolute path", |f, v| {
        let secret = f.secret.display().to_string();
        extra(v, &secret)
    }),
    ("a path with NUL", |_, v| extra(v, "images/cat0.jpg\0.png")),
    ("an empty path", |_, v| extra(v, "")),
    ("a link that leads out", |f, v| {
        link(&f.secret, f, "images/extra.png");
        extra(v, "images/extra.png")
    }),
    ("annotations that are a link out", |f, v| {
        std::fs::rename(f.root.join("annotations.json"), f.secret.with_extension("json")).unwrap();
        link(&f.secret.with_extension("json"), f, "annotations.json");
        *v = Value::Null
    }),
    // Names that do harm when they are shown.
    ("a name with control characters", |_, v| extra(v, "images/\u{1b}[2J\r\n.png")),
    ("a name of a megabyte", |_, v| {
        let name = "y".repeat(1_000_000);
        extra(v, &name)
    }),
];

/// Writes the bytes in place of the annotations.
fn raw(directory: &Directory, value: &mut Value, bytes: &[u8]) {
    write(&directory.root.join("annotations.json"), bytes);
    *value = Value::Null;
}

fn truncated(directory: &Directory, value: &mut Value) {
    let text = serde_json::to_vec(value).unwrap();
    raw(directory, value, &text[..text.len() / 2]);
}

fn deep() -> String {
    format!("{{\"images\": [], \"info\": {}", "{\"a\":".repeat(500_000))
}

fn boxed(directory: &Directory, value: &mut Value, written: &str) {
    value["annotations"][0]["bbox"] = json!("HERE");
    let text = serde_json::to_string(value).unwrap().replace("\"HERE\"", written);
    raw(directory, value, text.as_bytes());
}

/// A further box in the first image.
fn first_box(value: &mut Value, bbox: [f64; 4]) {
    push(value, "annotations", json!({ "id": 99, "image_id": 1, "category_id": 0, "bbox": bbox }));
}

fn push(value: &mut Value, list: &str, item: Value) {
    value[list].as_array_mut().unwrap().push(item);
}

/// A further image.
fn extra(value: &mut Value, file: &str) {
    push(value, "images", json!({ "id": 99, "file_name": file }));
}

fn frames(value: &mut Value, index: i64) {
    value["images"][0]["video_id"] = json!(5);
    value["images"][0]["frame_index"] = json!(index);
    push(value, "images", json!({ "id": 99, "file_name": "images/extra.png", "video_id": 5, "frame_index": index }));
}

/// One sound reference of each class, and a further one.
fn references(further: Value) -> Value {
    let sound = CLASSES.iter().enumerate();
    let mut all: Vec<Value> = sound
        .map(|(class, (name, _))| json!({ "category_id": class, "file_name": format!("images/{name}0.jpg") }))
        .collect();
    all.push(further);
    Value::Array(all)
}

fn link(to: &Path, directory: &Directory, name: &str) {
    let _ = std::fs::remove_file(directory.root.join(name));
    std::os::unix::fs::symlink(to, directory.root.join(name)).unwrap();
}

#[test]
fn malformed_coco_data_sets_are_refused_or_skipped_with_a_reason() {
    let cases = CASES.iter().map(|(case, change)| {
        let (directory, mut text) = Directory::coco();
        painted().save(directory.root.join("images/extra.png")).unwrap();
        directory.annotate(&text);
        change(&directory, &mut text);
        if !text.is_null() {
            directory.annotate(&text);
        }
        (*case, outcome(&directory, Format::Coco, &|_| {}))
    });
    insta::assert_snapshot!(outcomes(cases));
}

#[test]
fn unusable_directories_and_class_selections_are_refused() {
    type Case = (&'static str, fn(&Directory), fn(&mut Settings));
    let cases: [Case; 5] = [
        ("trained on, but not there", |_| {}, |s| s["train_classes"] = json!(["zebra"])),
        ("too few to train on", |_| {}, |s| s["validation_classes"] = json!(["cat", "fox", "owl"])),
        (
            "nothing held out",
            |f| f.annotate(&serde_json::from_str(&Directory::coco().1.to_string().replace("novel", "x")).unwrap()),
            |_| {},
        ),
        (
            "a class that nothing shows",
            |f| {
                let mut text = Directory::coco().1;
                push(&mut text, "categories", json!({ "id": 9, "name": "yak" }));
                f.annotate(&text);
            },
            |s| s["train_classes"] = json!(["cat", "dog", "yak"]),
        ),
        ("no annotations", |f| std::fs::remove_file(f.root.join("annotations.json")).unwrap(), |_| {}),
    ];
    let cases = cases.iter().map(|(case, change, settings)| {
        let (directory, text) = Directory::coco();
        directory.annotate(&text);
        change(&directory);
        (*case, outcome(&directory, Format::Coco, settings))
    });
    insta::assert_snapshot!(outcomes(cases));
}
