//! Pascal VOC data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory);

/// A row: what it is, and how it is made.
type Case = (&'static str, Change);

const CASES: [Case; 32] = [
    ("an empty file", |f| f.xml("bad", "")),
    ("a binary file", |f| binary(f, &[0x89, 0x50, 0xff, 0])),
    ("UTF-16", |f| binary(f, &[0xff, 0xfe, 0x3c, 0, 0x61, 0, 0x2f, 0, 0x3e, 0])),
    ("plain text", |f| f.xml("bad", "cat 1 2 3 4")),
    ("truncated XML", |f| f.xml("bad", &good()[..good().len() / 2])),
    ("HTML", |f| f.xml("bad", "<html><body>404</body></html>")),
    ("the billion laughs", |f| f.xml("bad", LAUGHS)),
    ("an external entity", |f| f.xml("bad", EXTERNAL)),
    ("an unknown entity", |f| f.xml("bad", &good().replace("yak<", "&lol;<"))),
    ("deep nesting", |f| f.xml("bad", &("<a>".repeat(500_000) + &"</a>".repeat(500_000)))),
    ("deep nesting that is not closed", |f| f.xml("bad", &"<annotation>".repeat(500_000))),
    ("no file name", |f| f.xml("bad", "<annotation/>")),
    ("an empty file name", |f| f.xml("bad", "<annotation><filename> </filename></annotation>")),
    ("an object without a name", |f| change(f, "<name>yak</name>", "")),
    ("an object without a box", |f| change(f, "bndbox", "polygon")),
    ("a corner in words", |f| change(f, "<xmin>5<", "<xmin>five<")),
    ("a corner that is not there", |f| change(f, "<ymax>18</ymax>", "")),
    ("a corner that is NaN", |f| change(f, "<xmin>5<", "<xmin>NaN<")),
    ("a corner of 1e999", |f| change(f, "<xmax>15<", "<xmax>1e999<")),
    ("a width in words", |f| change(f, "<width>32<", "<width>wide<")),
    ("a negative width", |f| change(f, "<width>32<", "<width>-32<")),
    ("a width that is not the image's", |f| change(f, "<width>32<", "<width>64<")),
    ("a file name with ..", |f| change(f, "extra.png", "../../secret.png")),
    ("a file name with NUL", |f| change(f, "extra.png", "extra.png\0")),
    ("an absolute file name", |f| change(f, "extra.png", &f.secret.display().to_string())),
    ("a file name with escape sequences", |f| change(f, "extra.png", "&#x9b;2J.png")),
    ("a link that leads out", |f| {
        std::fs::remove_file(f.root.join("images/extra.png")).unwrap();
        link(&f.secret, f, "images/extra.png");
        f.xml("bad", &good())
    }),
    ("annotations that are a link out", |f| link(&f.secret, f, "annotations/bad.xml")),
    ("annotations of 17 megabytes", |f| f.xml("bad", &" ".repeat(17 << 20))),
    ("an image in two files", |f| f.xml("double", &xml("cat0.jpg", "cat", [1, 1, 5, 5]))),
    ("no directory of images", |f| std::fs::remove_dir_all(f.root.join("images")).unwrap()),
    ("no directory of annotations", |f| std::fs::remove_dir_all(f.root.join("annotations")).unwrap()),
];

/// Boxes of a further object.
const BOXES: [(&str, [i64; 4]); 5] = [
    ("no width", [6, 5, 5, 9]),
    ("corners swapped", [9, 9, 5, 5]),
    ("outside of the image", [40, 5, 50, 9]),
    ("partly outside", [-9, 5, 9, 9]),
    ("the largest numbers", [i64::MIN, i64::MIN, i64::MAX, i64::MAX]),
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
fn malformed_voc_data_sets_are_refused_or_skipped_with_a_reason() {
    // The class of an image that is left out has nothing to show, and is not asked for.
    let known = |settings: &mut Settings| settings["train_classes"] = json!(["cat", "dog"]);
    let cases = CASES.iter().map(|(case, make)| {
        let directory = directory();
        make(&directory);
        (*case, outcome(&directory, Format::Voc, &known))
    });
    insta::assert_snapshot!(outcomes(cases));
}

#[test]
fn unusable_boxes_are_refused_or_skipped_with_a_reason() {
    let cases = BOXES.iter().map(|(case, corners)| {
        let directory = directory();
        directory.xml("bad", &xml("extra.png", "cat", *corners));
        (*case, outcome(&directory, Format::Voc, &|_| {}))
    });
    insta::assert_snapshot!(outcomes(cases));
}
