//! Pascal VOC data that is invalid, hostile or of no use; one row a case.

use super::*;

type Change = fn(&Directory);

/// A row: what it is, and how it is made.
type Case = (&'static str, Change);

const CASES: [Case; 19] = [
    ("an empty file", |f| f.xml("bad", "")),
    ("UTF-16", |f| binary(f, &[0xff, 0xfe, 0x3c, 0, 0x61, 0, 0x2f, 0, 0x3e, 0])),
    ("truncated XML", |f| f.xml("bad", &good()[..good().len() / 2])),
    ("the billion laughs", |f| f.xml("bad", LAUGHS)),
    ("an external entity", |f| f.xml("bad", EXTERNAL)),
    ("deep nesting", |f| f.xml("bad", &("<a>".repeat(500_000) + &"</a>".repeat(500_000)))),
    ("no file name", |f| f.xml("bad", "<annotation/>")),
    ("an object without a name", |f| change(f, "<name>yak</name>", "")),
    ("an object without a box", |f| change(f, "bndbox", "polygon")),
    ("a corner in words", |f| change(f, "<xmin>5<", "<xmin>five<")),
    ("a corner that is NaN", |f| change(f, "<xmin>5<", "<xmin>NaN<")),
    ("a negative width", |f| change(f, "<width>32<", "<width>-32<")),
    ("a width that is not the image's", |f| change(f, "<width>32<", "<width>64<")),
    ("a file name with ..", |f| change(f, "extra.png", "../../secret.png")),
    ("a file name with escape sequences", |f| change(f, "extra.png", "&#x9b;2J.png")),
    ("annotations that are a link out", |f| link(&f.secret, f, "annotations/bad.xml")),
    ("annotations of 17 megabytes", |f| f.xml("bad", &" ".repeat(17 << 20))),
    ("an image in two files", |f| f.xml("double", &xml("cat0.jpg", "cat", [1, 1, 5, 5]))),
    ("no directory of images", |f| std::fs::remove_dir_all(f.root.join("images")).unwrap()),
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
