//! COCO data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory, &mut Value);

/// A row: what it is, and how it is made.
const CASES: [(&str, Change); 60] = [
    // The text. Each is an error whatever the policy.
    ("an empty file", |f, v| raw(f, v, b"")),
    ("a binary file", |f, v| raw(f, v, &[0x89, b'P', b'N', b'G', 0, 255])),
    ("plain text", |f, v| raw(f, v, b"cat 1 2 3 4")),
    ("truncated JSON", truncated),
    ("a list", |f, v| raw(f, v, b"[1, 2]")),
    ("another object", |f, v| raw(f, v, b"{\"a\": 1}")),
    ("nothing but deep lists", |f, v| raw(f, v, &[b'['; 1_000_000])),
    ("deep nesting in an unknown key", |f, v| raw(f, v, deep().as_bytes())),
    ("a byte that is not UTF-8", |f, v| raw(f, v, b"{\"images\": \"\xff\"}")),
    ("a number too large for any type", |f, v| boxed(f, v, "[1e999, 1, 2, 2]")),
    ("NaN, as Python writes it", |f, v| boxed(f, v, "[NaN, 1, 2, 2]")),
    ("a box of three numbers", |f, v| boxed(f, v, "[1, 2, 3]")),
    ("a box in words", |f, v| boxed(f, v, "\"here\"")),
    ("an id too large", |_, v| v["images"][0]["id"] = json!(1e30)),
    ("a negative width", |_, v| v["images"][0]["width"] = json!(-32)),
    ("a megabyte where a number belongs", |_, v| v["images"][0]["id"] = json!("x".repeat(1_000_000))),
    ("an image without a file name", |_, v| v["images"][0] = json!({ "id": 1 })),
    // Boxes.
    ("boxes as shares of the image", |_, v| {
        let all = v["annotations"].as_array_mut().unwrap();
        all.iter_mut().for_each(|one| one["bbox"] = json!([0.1, 0.2, 0.5, 0.4]));
    }),
    ("a box as two corners", |_, v| first_box(v, [10.0, 8.0, 30.0, 20.0])),
    ("a box without width", |_, v| first_box(v, [5.0, 5.0, 0.0, 5.0])),
    ("a box of negative height", |_, v| first_box(v, [5.0, 9.0, 5.0, -5.0])),
    ("a box outside of the image", |_, v| first_box(v, [40.0, 5.0, 5.0, 5.0])),
    ("a box partly outside", |_, v| first_box(v, [25.0, 5.0, 10.0, 5.0])),
    ("a box above the image", |_, v| first_box(v, [5.0, -9.0, 5.0, 5.0])),
    ("a box whose corner overflows", |_, v| first_box(v, [1e308, 5.0, 1e308, 5.0])),
    ("a box of 1e300 pixels", |_, v| first_box(v, [0.0, 0.0, 1e300, 1e300])),
    ("a box in the tolerance only", |_, v| first_box(v, [32.2, 5.0, 0.5, 5.0])),
    // What refers to what.
    ("an annotation of no image", |_, v| {
        push(v, "annotations", json!({ "id": 99, "image_id": 77, "category_id": 0, "bbox": [1, 1, 2, 2] }))
    }),
    ("an annotation of no category", |_, v| {
        push(v, "annotations", json!({ "image_id": 1, "category_id": 66, "bbox": [1, 1, 2, 2] }))
    }),
    ("a category in words", |_, v| {
        push(v, "annotations", json!({ "id": 99, "image_id": 1, "category_id": "cat", "bbox": [1, 1, 2, 2] }))
    }),
    ("an annotation without an image", |_, v| {
        push(v, "annotations", json!({ "id": 99, "category_id": 0, "bbox": [1, 1, 2, 2] }))
    }),
    ("an annotation that is a number", |_, v| push(v, "annotations", json!(7))),
    ("an annotation id twice", |_, v| {
        push(v, "annotations", json!({ "id": 2, "image_id": 1, "category_id": 0, "bbox": [1, 1, 2, 2] }))
    }),
    ("one box twice", |_, v| {
        let first = v["annotations"][0].clone();
        push(
            v,
            "annotations",
            json!({ "id": 99, "image_id": first["image_id"], "category_id": first["category_id"], "bbox": first["bbox"] }),
        )
    }),
    ("an image id twice", |_, v| v["images"][1]["id"] = json!(1)),
    ("a category id twice", |_, v| v["categories"][1]["id"] = json!(0)),
    ("a category name twice, trained on and held out", |_, v| v["categories"][2]["name"] = json!("cat")),
    ("a category without a name", |_, v| v["categories"][0] = json!({ "id": 0 })),
    ("a category of an empty name", |_, v| v["categories"][0]["name"] = json!("  ")),
    ("a category of a megabyte's name", |_, v| v["categories"][0]["name"] = json!("x".repeat(1_000_000))),
    ("a video id twice", |_, v| v["videos"] = json!([{ "id": 1, "name": "a" }, { "id": 1 }])),
    ("two frames of one index", |_, v| frames(v, 4)),
    ("one image twice", |_, v| extra(v, "images/cat0.jpg")),
    ("one image twice under two spellings", |_, v| extra(v, "./images//cat0.jpg")),
    ("a reference of no category", |_, v| {
        v["references"] = references(json!({ "category_id": 9, "file_name": "images/cat0.jpg" }))
    }),
    ("a reference with a box of two numbers", |_, v| {
        v["references"] = references(json!({ "category_id": 1, "file_name": "images/cat0.jpg", "bbox": [0, 0] }))
    }),
    ("a reference without a file", |_, v| {
        v["references"] = references(json!({ "category_id": 1, "file_name": "no.jpg" }))
    }),
    ("a reference's box outside", |_, v| {
        v["references"] = references(json!({ "category_id": 1, "file_name": "images/cat0.jpg", "bbox": [0, 0, 99, 9] }))
    }),
    ("a reference that leads out", |_, v| {
        v["references"] = references(json!({ "category_id": 1, "file_name": "../secret.png" }))
    }),
    // Paths that lead out. Each is an error whatever the policy.
    ("a path with ..", |_, v| extra(v, "../secret.png")),
    ("a path with .. that comes back", |_, v| extra(v, "images/../images/cat0.jpg")),
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
    ("a linked directory that leads out", |f, v| {
        link(f.secret.parent().unwrap(), f, "linked");
        extra(v, "linked/secret.png")
    }),
    ("annotations that are a link out", |f, v| {
        std::fs::rename(f.root.join("annotations.json"), f.secret.with_extension("json")).unwrap();
        link(&f.secret.with_extension("json"), f, "annotations.json");
        *v = Value::Null
    }),
    // Names that do harm when they are shown.
    ("a name with control characters", |_, v| extra(v, "images/\u{1b}[2J\r\n.png")),
    ("a name with HTML", |_, v| extra(v, "<img src=x onerror=alert(1)>.png")),
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
    const NO_FILE: fn(&Directory) = |f| std::fs::remove_file(f.root.join("annotations.json")).unwrap();
    let cases: [Case; 8] = [
        ("held out, but not there", |_| {}, |s| s["validation_classes"] = json!(["foxx"])),
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
        ("no annotations", NO_FILE, |_| {}),
        (
            "several annotations",
            |f| {
                NO_FILE(f);
                std::fs::create_dir(f.root.join("annotations")).unwrap();
                ["a", "b"].iter().for_each(|name| write(&f.root.join(format!("annotations/{name}.json")), b"{}"));
            },
            |_| {},
        ),
        ("no directory", |f| std::fs::remove_dir_all(&f.root).unwrap(), |_| {}),
    ];
    let cases = cases.iter().map(|(case, change, settings)| {
        let (directory, text) = Directory::coco();
        directory.annotate(&text);
        change(&directory);
        (*case, outcome(&directory, Format::Coco, settings))
    });
    insta::assert_snapshot!(outcomes(cases));
}
