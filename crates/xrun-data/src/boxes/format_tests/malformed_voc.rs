//! Pascal VOC data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory);

/// A row: what it is, how it is made, what a person must read, and the reason when it is left out on request.
type Case = (&'static str, Change, &'static [&'static str], Option<&'static str>);

const SKIPPED: &str = "broken_annotation";

const CASES: [Case; 32] = [
    ("an empty file", |f| f.xml("bad", ""), &["bad.xml", "not XML"], Some(SKIPPED)),
    ("a binary file", |f| binary(f, &[0x89, 0x50, 0xff, 0]), &["bad.xml", "not UTF-8"], Some(SKIPPED)),
    (
        "UTF-16",
        |f| binary(f, &[0xff, 0xfe, 0x3c, 0, 0x61, 0, 0x2f, 0, 0x3e, 0]),
        &["bad.xml", "not UTF-8"],
        Some(SKIPPED),
    ),
    ("plain text", |f| f.xml("bad", "cat 1 2 3 4"), &["bad.xml", "not XML"], Some(SKIPPED)),
    ("truncated XML", |f| f.xml("bad", &good()[..good().len() / 2]), &["bad.xml", "not XML"], Some(SKIPPED)),
    ("HTML", |f| f.xml("bad", "<html><body>404</body></html>"), &["bad.xml", "<html>", "<annotation>"], Some(SKIPPED)),
    ("the billion laughs", |f| f.xml("bad", LAUGHS), &["bad.xml", "not XML", "DTD"], Some(SKIPPED)),
    ("an external entity", |f| f.xml("bad", EXTERNAL), &["bad.xml", "not XML", "DTD"], Some(SKIPPED)),
    (
        "an unknown entity",
        |f| f.xml("bad", &good().replace("yak<", "&lol;<")),
        &["bad.xml", "not XML", "lol"],
        Some(SKIPPED),
    ),
    (
        "deep nesting",
        |f| f.xml("bad", &("<a>".repeat(500_000) + &"</a>".repeat(500_000))),
        &["bad.xml", "<a>"],
        Some(SKIPPED),
    ),
    (
        "deep nesting that is not closed",
        |f| f.xml("bad", &"<annotation>".repeat(500_000)),
        &["bad.xml", "not XML"],
        Some(SKIPPED),
    ),
    ("no file name", |f| f.xml("bad", "<annotation/>"), &["bad.xml", "no <filename>"], Some(SKIPPED)),
    (
        "an empty file name",
        |f| f.xml("bad", "<annotation><filename> </filename></annotation>"),
        &["no <filename>"],
        Some(SKIPPED),
    ),
    (
        "an object without a name",
        |f| change(f, "<name>yak</name>", ""),
        &["bad.xml", "object 1 has no <name>"],
        Some(SKIPPED),
    ),
    (
        "an object without a box",
        |f| change(f, "bndbox", "polygon"),
        &["bad.xml", "object 1 has no <bndbox>"],
        Some(SKIPPED),
    ),
    ("a corner in words", |f| change(f, "<xmin>5<", "<xmin>five<"), &["bad.xml", "no number in <xmin>"], Some(SKIPPED)),
    (
        "a corner that is not there",
        |f| change(f, "<ymax>18</ymax>", ""),
        &["bad.xml", "no number in <ymax>"],
        Some(SKIPPED),
    ),
    (
        "a corner that is NaN",
        |f| change(f, "<xmin>5<", "<xmin>NaN<"),
        &["bad.xml", "no number in <xmin>"],
        Some(SKIPPED),
    ),
    (
        "a corner of 1e999",
        |f| change(f, "<xmax>15<", "<xmax>1e999<"),
        &["bad.xml", "no number in <xmax>"],
        Some(SKIPPED),
    ),
    ("a width in words", |f| change(f, "<width>32<", "<width>wide<"), &["bad.xml", "<size>", "<width>"], Some(SKIPPED)),
    ("a negative width", |f| change(f, "<width>32<", "<width>-32<"), &["bad.xml", "<size>", "<width>"], Some(SKIPPED)),
    (
        "a width that is not the image's",
        |f| change(f, "<width>32<", "<width>64<"),
        &["extra.png", "32 x 24", "64 x 24"],
        Some("wrong_size"),
    ),
    ("a file name with ..", |f| change(f, "extra.png", "../../secret.png"), &["../../secret.png", "outside"], None),
    ("a file name with NUL", |f| change(f, "extra.png", "extra.png\0"), &["bad.xml", "not XML"], Some(SKIPPED)),
    (
        "an absolute file name",
        |f| change(f, "extra.png", &f.secret.display().to_string()),
        &["secret.png", "is missing"],
        Some("missing_image"),
    ),
    (
        "a file name with escape sequences",
        |f| change(f, "extra.png", "&#x9b;2J.png"),
        &["is missing"],
        Some("missing_image"),
    ),
    (
        "a link that leads out",
        |f| {
            std::fs::remove_file(f.root.join("images/extra.png")).unwrap();
            link(&f.secret, f, "images/extra.png");
            f.xml("bad", &good())
        },
        &["extra.png", "outside"],
        None,
    ),
    (
        "annotations that are a link out",
        |f| link(&f.secret, f, "annotations/bad.xml"),
        &["bad.xml", "link", "outside"],
        None,
    ),
    ("annotations of 17 megabytes", |f| f.xml("bad", &" ".repeat(17 << 20)), &["bad.xml", "at most 16777216"], None),
    (
        "an image in two files",
        |f| f.xml("double", &xml("cat0.jpg", "cat", [1, 1, 5, 5])),
        &["cat0.jpg", "listed twice"],
        Some("repeated_image"),
    ),
    (
        "no directory of images",
        |f| std::fs::remove_dir_all(f.root.join("images")).unwrap(),
        &["root", "no directory `images`"],
        None,
    ),
    (
        "no directory of annotations",
        |f| std::fs::remove_dir_all(f.root.join("annotations")).unwrap(),
        &["root", "no directory `annotations`"],
        None,
    ),
];

/// Boxes of a further object, and the reason when it is left out on request.
const BOXES: [(&str, [i64; 4], &str, &str); 5] = [
    ("no width", [6, 5, 5, 9], "empty", "empty_box"),
    ("corners swapped", [9, 9, 5, 5], "empty", "empty_box"),
    ("outside of the image", [40, 5, 50, 9], "outside", "box_outside"),
    ("partly outside", [-9, 5, 9, 9], "outside", "box_outside"),
    ("the largest numbers", [i64::MIN, i64::MIN, i64::MAX, i64::MAX], "outside", "box_outside"),
];

const LAUGHS: &str = "<?xml version=\"1.0\"?><!DOCTYPE lolz [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">\
    <!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\">]>\
    <annotation><filename>&d;</filename></annotation>";
const EXTERNAL: &str = "<!DOCTYPE annotation [<!ENTITY secret SYSTEM \"file:///etc/passwd\">]>\
    <annotation><filename>&secret;</filename></annotation>";

/// An annotation of an image that is there, with a class of its own.
fn good() -> String {
    xml("extra.png", "yak", [5, 6, 15, 18])
}

fn change(directory: &Directory, from: &str, to: &str) {
    assert!(good().contains(from));
    directory.xml("bad", &good().replace(from, to));
}

fn binary(directory: &Directory, bytes: &[u8]) {
    write(&directory.root.join("annotations/bad.xml"), bytes);
}

fn link(to: &Path, directory: &Directory, name: &str) {
    std::os::unix::fs::symlink(to, directory.root.join(name)).unwrap();
}

fn directory() -> Directory {
    let directory = Directory::voc();
    painted().save(directory.root.join("images/extra.png")).unwrap();
    directory
}

#[test]
fn each_of_32_malformed_voc_data_sets_is_refused_or_skipped_with_a_reason() {
    let mut faults = Vec::new();
    for (case, make, words, skipped) in &CASES {
        let directory = directory();
        make(&directory);
        // The class of an image that is left out has nothing to show, and is not asked for.
        let known = |settings: &mut Settings| settings["train_classes"] = json!(["cat", "dog"]);
        let expected = Expected { words, skipped: *skipped };
        let classes_of_its_own = matches!(skipped, Some("wrong_size" | "missing_image"));
        if classes_of_its_own {
            let bad = std::fs::read_to_string(directory.root.join("annotations/bad.xml")).unwrap();
            directory.xml("bad", &bad.replace("yak", "cat"));
        }
        faults.push((*case, fault(&directory, Format::Voc, &known, &expected)));
    }
    assert_no_faults(faults);
}

#[test]
fn each_of_5_unusable_boxes_is_refused_or_skipped_with_a_reason() {
    for (case, corners, word, reason) in &BOXES {
        let directory = directory();
        directory.xml("bad", &xml("extra.png", "cat", *corners));
        let message = open(Format::Voc, &directory.settings(Format::Voc, OnInvalid::Fail)).expect_err(case).to_string();
        assert!(message.contains("extra.png: object 1") && message.contains(word), "{case}: {message}");
        let library = open(Format::Voc, &directory.settings(Format::Voc, OnInvalid::Skip)).expect(case);
        assert_eq!(library.skipped.counts.get(*reason), Some(&1), "{case}");
        assert_sound(&library);
    }
}
