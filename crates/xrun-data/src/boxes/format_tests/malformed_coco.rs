//! COCO data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory, &mut Value);

/// A row: what it is, how it is made, and what must come of it.
const CASES: [(&str, Change, Expected); 60] = [
    // The text. Each is an error whatever the policy.
    ("an empty file", |f, v| raw(f, v, b""), refused(&["annotations.json", "COCO", "the file is empty"])),
    ("a binary file", |f, v| raw(f, v, &[0x89, b'P', b'N', b'G', 0, 255]), refused(&["annotations.json", "COCO"])),
    ("plain text", |f, v| raw(f, v, b"cat 1 2 3 4"), refused(&["annotations.json", "COCO", "column 1"])),
    ("truncated JSON", truncated, refused(&["annotations.json", "cut off", "line 1"])),
    ("a list", |f, v| raw(f, v, b"[1, 2]"), refused(&["annotations.json", "COCO"])),
    ("another object", |f, v| raw(f, v, b"{\"a\": 1}"), refused(&["annotations.json", "missing field `images`"])),
    ("nothing but deep lists", |f, v| raw(f, v, &[b'['; 1_000_000]), refused(&["annotations.json", "COCO"])),
    ("deep nesting in an unknown key", |f, v| raw(f, v, deep().as_bytes()), refused(&["annotations.json", "COCO"])),
    ("a byte that is not UTF-8", |f, v| raw(f, v, b"{\"images\": \"\xff\"}"), refused(&["annotations.json"])),
    (
        "a number too large for any type",
        |f, v| boxed(f, v, "[1e999, 1, 2, 2]"),
        left_out(&["annotation 0 of", "out of range", "line 1"], "malformed_annotation"),
    ),
    ("NaN, as Python writes it", |f, v| boxed(f, v, "[NaN, 1, 2, 2]"), refused(&["annotations.json", "line 1"])),
    (
        "a box of three numbers",
        |f, v| boxed(f, v, "[1, 2, 3]"),
        left_out(&["annotation 1 (line 1)", "`bbox` = [1,2,3]", "four numbers"], "malformed_annotation"),
    ),
    (
        "a box in words",
        |f, v| boxed(f, v, "\"here\""),
        left_out(&["annotation 1 (line 1)", "`bbox` = \"here\""], "malformed_annotation"),
    ),
    (
        "an id too large",
        |_, v| v["images"][0]["id"] = json!(1e30),
        refused(&["annotations.json", "image 0", "no whole number"]),
    ),
    ("a negative width", |_, v| v["images"][0]["width"] = json!(-32), refused(&["-32", "line 1"])),
    (
        "a megabyte where a number belongs",
        |_, v| v["images"][0]["id"] = json!("x".repeat(1_000_000)),
        refused(&["COCO"]),
    ),
    (
        "an image without a file name",
        |_, v| v["images"][0] = json!({ "id": 1 }),
        refused(&["missing field `file_name`"]),
    ),
    // Boxes.
    (
        "boxes as shares of the image",
        |_, v| {
            let all = v["annotations"].as_array_mut().unwrap();
            all.iter_mut().for_each(|one| one["bbox"] = json!([0.1, 0.2, 0.5, 0.4]));
        },
        refused(&["boxes lie in the first pixel", "box_units = \"fractions\""]),
    ),
    (
        "a box as two corners",
        |_, v| first_box(v, [10.0, 8.0, 30.0, 20.0]),
        left_out(&["cat0.jpg", "outside", "it would fit as [left, top, right, bottom]"], "box_outside"),
    ),
    (
        "a box without width",
        |_, v| first_box(v, [5.0, 5.0, 0.0, 5.0]),
        left_out(&["cat0.jpg", "annotation 99", "empty"], "empty_box"),
    ),
    (
        "a box of negative height",
        |_, v| first_box(v, [5.0, 9.0, 5.0, -5.0]),
        left_out(&["cat0.jpg", "empty"], "empty_box"),
    ),
    (
        "a box outside of the image",
        |_, v| first_box(v, [40.0, 5.0, 5.0, 5.0]),
        left_out(&["cat0.jpg", "outside", "32 x 24"], "box_outside"),
    ),
    (
        "a box partly outside",
        |_, v| first_box(v, [25.0, 5.0, 10.0, 5.0]),
        left_out(&["cat0.jpg", "outside", "25, 5 to 35, 10"], "box_outside"),
    ),
    (
        "a box above the image",
        |_, v| first_box(v, [5.0, -9.0, 5.0, 5.0]),
        left_out(&["cat0.jpg", "outside"], "box_outside"),
    ),
    (
        "a box whose corner overflows",
        |_, v| first_box(v, [1e308, 5.0, 1e308, 5.0]),
        left_out(&["cat0.jpg", "no number"], "empty_box"),
    ),
    (
        "a box of 1e300 pixels",
        |_, v| first_box(v, [0.0, 0.0, 1e300, 1e300]),
        left_out(&["cat0.jpg", "outside"], "box_outside"),
    ),
    (
        "a box in the tolerance only",
        |_, v| first_box(v, [32.2, 5.0, 0.5, 5.0]),
        left_out(&["cat0.jpg", "empty"], "empty_box"),
    ),
    // What refers to what.
    (
        "an annotation of no image",
        |_, v| push(v, "annotations", json!({ "id": 99, "image_id": 77, "category_id": 0, "bbox": [1, 1, 2, 2] })),
        left_out(&["annotations.json", "annotation 99", "image 77"], "unknown_image"),
    ),
    (
        "an annotation of no category",
        |_, v| push(v, "annotations", json!({ "image_id": 1, "category_id": 66, "bbox": [1, 1, 2, 2] })),
        left_out(&["annotations.json", "annotation 8 of the list", "category 66"], "unknown_category"),
    ),
    (
        "a category in words",
        |_, v| push(v, "annotations", json!({ "id": 99, "image_id": 1, "category_id": "cat", "bbox": [1, 1, 2, 2] })),
        left_out(&["annotation 99 (line 1)", "`category_id` = \"cat\"", "whole number"], "malformed_annotation"),
    ),
    (
        "an annotation without an image",
        |_, v| push(v, "annotations", json!({ "id": 99, "category_id": 0, "bbox": [1, 1, 2, 2] })),
        left_out(&["annotation 99 (line 1) has no `image_id`"], "malformed_annotation"),
    ),
    (
        "an annotation that is a number",
        |_, v| push(v, "annotations", json!(7)),
        left_out(&["annotation 8 of the list (line 1)"], "malformed_annotation"),
    ),
    (
        "an annotation id twice",
        |_, v| push(v, "annotations", json!({ "id": 2, "image_id": 1, "category_id": 0, "bbox": [1, 1, 2, 2] })),
        refused(&["annotations.json", "annotation 2 occurs twice"]),
    ),
    (
        "one box twice",
        |_, v| {
            let first = v["annotations"][0].clone();
            push(
                v,
                "annotations",
                json!({ "id": 99, "image_id": first["image_id"], "category_id": first["category_id"], "bbox": first["bbox"] }),
            )
        },
        left_out(&["cat0.jpg", "annotation 99 has the class and the box of annotation"], "repeated_box"),
    ),
    (
        "an image id twice",
        |_, v| v["images"][1]["id"] = json!(1),
        refused(&["annotations.json", "image id 1 occurs twice"]),
    ),
    ("a category id twice", |_, v| v["categories"][1]["id"] = json!(0), refused(&["category id 0 occurs twice"])),
    (
        "a category name twice, trained on and held out",
        |_, v| v["categories"][2]["name"] = json!("cat"),
        refused(&["categories 0 and 2", "\"cat\""]),
    ),
    ("a category without a name", |_, v| v["categories"][0] = json!({ "id": 0 }), refused(&["missing field `name`"])),
    ("a category of an empty name", |_, v| v["categories"][0]["name"] = json!("  "), refused(&["name of a class"])),
    (
        "a category of a megabyte's name",
        |_, v| v["categories"][0]["name"] = json!("x".repeat(1_000_000)),
        refused(&["name of a class", "200 bytes"]),
    ),
    (
        "a video id twice",
        |_, v| v["videos"] = json!([{ "id": 1, "name": "a" }, { "id": 1 }]),
        refused(&["video id 1 occurs twice"]),
    ),
    (
        "two frames of one index",
        |_, v| frames(v, 4),
        left_out(&["extra.png", "frame 4", "\"video 5\"", "images/cat0.jpg"], "repeated_frame"),
    ),
    (
        "one image twice",
        |_, v| extra(v, "images/cat0.jpg"),
        left_out(&["images/cat0.jpg", "listed twice"], "repeated_image"),
    ),
    (
        "one image twice under two spellings",
        |_, v| extra(v, "./images//cat0.jpg"),
        left_out(&["images/cat0.jpg", "listed twice"], "repeated_image"),
    ),
    (
        "a reference of no category",
        |_, v| v["references"] = references(json!({ "category_id": 9, "file_name": "images/cat0.jpg" })),
        left_out(&["images/cat0.jpg", "category 9"], "unknown_category"),
    ),
    (
        "a reference with a box of two numbers",
        |_, v| {
            v["references"] = references(json!({ "category_id": 1, "file_name": "images/cat0.jpg", "bbox": [0, 0] }))
        },
        left_out(&["reference 4 of the list (line 1)", "length 2"], "malformed_reference"),
    ),
    (
        "a reference without a file",
        |_, v| v["references"] = references(json!({ "category_id": 1, "file_name": "no.jpg" })),
        left_out(&["no.jpg", "is missing"], "missing_image"),
    ),
    (
        "a reference's box outside",
        |_, v| {
            v["references"] =
                references(json!({ "category_id": 1, "file_name": "images/cat0.jpg", "bbox": [0, 0, 99, 9] }))
        },
        left_out(&["cat0.jpg", "the reference", "outside"], "box_outside"),
    ),
    (
        "a reference that leads out",
        |_, v| v["references"] = references(json!({ "category_id": 1, "file_name": "../secret.png" })),
        refused(&["../secret.png", "outside"]),
    ),
    // Paths that lead out. Each is an error whatever the policy.
    (
        "a path with ..",
        |_, v| extra(v, "../secret.png"),
        refused(&["../secret.png", "outside of the data set's directory"]),
    ),
    (
        "a path with .. that comes back",
        |_, v| extra(v, "images/../images/cat0.jpg"),
        refused(&["outside of the data set's directory"]),
    ),
    (
        "an absolute path",
        |f, v| {
            let secret = f.secret.display().to_string();
            extra(v, &secret)
        },
        refused(&["secret.png", "outside"]),
    ),
    ("a path with NUL", |_, v| extra(v, "images/cat0.jpg\0.png"), refused(&["outside"])),
    ("an empty path", |_, v| extra(v, ""), refused(&["outside"])),
    (
        "a link that leads out",
        |f, v| {
            link(&f.secret, f, "images/extra.png");
            extra(v, "images/extra.png")
        },
        refused(&["images/extra.png", "outside"]),
    ),
    (
        "a linked directory that leads out",
        |f, v| {
            link(f.secret.parent().unwrap(), f, "linked");
            extra(v, "linked/secret.png")
        },
        refused(&["linked/secret.png", "outside"]),
    ),
    (
        "annotations that are a link out",
        |f, v| {
            std::fs::rename(f.root.join("annotations.json"), f.secret.with_extension("json")).unwrap();
            link(&f.secret.with_extension("json"), f, "annotations.json");
            *v = Value::Null
        },
        refused(&["annotations.json", "link", "outside"]),
    ),
    // Names that do harm when they are shown.
    (
        "a name with control characters",
        |_, v| extra(v, "images/\u{1b}[2J\r\n.png"),
        left_out(&["is missing"], "missing_image"),
    ),
    (
        "a name with HTML",
        |_, v| extra(v, "<img src=x onerror=alert(1)>.png"),
        left_out(&["onerror", "is missing"], "missing_image"),
    ),
    (
        "a name of a megabyte",
        |_, v| {
            let name = "y".repeat(1_000_000);
            extra(v, &name)
        },
        left_out(&["is missing"], "missing_image"),
    ),
];

const fn refused(words: &'static [&'static str]) -> Expected {
    Expected { words, skipped: None }
}

const fn left_out(words: &'static [&'static str], reason: &'static str) -> Expected {
    Expected { words, skipped: Some(reason) }
}

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
fn each_of_60_malformed_coco_data_sets_is_refused_or_skipped_with_a_reason() {
    let mut faults = Vec::new();
    for (case, change, expected) in &CASES {
        let (directory, mut text) = Directory::coco();
        painted().save(directory.root.join("images/extra.png")).unwrap();
        directory.annotate(&text);
        change(&directory, &mut text);
        if !text.is_null() {
            directory.annotate(&text);
        }
        faults.push((*case, fault(&directory, Format::Coco, &|_| {}, expected)));
    }
    assert_no_faults(faults);
}

#[test]
fn each_of_8_unusable_directories_or_class_selections_is_refused() {
    let refuse = |case: &str, change: &dyn Fn(&Directory), settings: &dyn Fn(&mut Settings), words| {
        let (directory, text) = Directory::coco();
        directory.annotate(&text);
        change(&directory);
        assert_no_faults(vec![(case, fault(&directory, Format::Coco, settings, &refused(words)))]);
    };
    refuse(
        "held out, but not there",
        &|_| {},
        &|s| s["validation_classes"] = json!(["foxx"]),
        &["validation_classes", "no class \"foxx\"", "did you mean \"fox\"", "owl"],
    );
    refuse(
        "trained on, but not there",
        &|_| {},
        &|s| s["train_classes"] = json!(["zebra"]),
        &["train_classes", "zebra"],
    );
    refuse(
        "too few to train on",
        &|_| {},
        &|s| s["validation_classes"] = json!(["cat", "fox", "owl"]),
        &["1 class is to train on", "at least 2", "train_classes"],
    );
    let base = |f: &Directory| {
        f.annotate(&serde_json::from_str(&Directory::coco().1.to_string().replace("novel", "x")).unwrap())
    };
    refuse("nothing held out", &base, &|_| {}, &["0 classes are held out", "validation_classes"]);
    let unseen = |f: &Directory| {
        let mut text = Directory::coco().1;
        push(&mut text, "categories", json!({ "id": 9, "name": "yak" }));
        f.annotate(&text);
    };
    let named = |settings: &mut Settings| settings["train_classes"] = json!(["cat", "dog", "yak"]);
    refuse(
        "a class that nothing shows",
        &unseen,
        &named,
        &["\"yak\" is in 0 images", "all that lack them: `train_classes = ["],
    );
    let no_file = |f: &Directory| std::fs::remove_file(f.root.join("annotations.json")).unwrap();
    refuse("no annotations", &no_file, &|_| {}, &["root", "neither annotations.json"]);
    let several = |f: &Directory| {
        no_file(f);
        std::fs::create_dir(f.root.join("annotations")).unwrap();
        ["a", "b"].iter().for_each(|name| write(&f.root.join(format!("annotations/{name}.json")), b"{}"));
    };
    refuse("several annotations", &several, &|_| {}, &["several JSON files"]);
    refuse(
        "no directory",
        &|f| std::fs::remove_dir_all(&f.root).unwrap(),
        &|_| {},
        &["root", "directory cannot be read"],
    );
}
