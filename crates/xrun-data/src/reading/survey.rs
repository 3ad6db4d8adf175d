//! Survey of a directory that a format does not recognise: the known files in it, and the data set that reads each.

use std::path::Path;

use xrun_core::printable;

/// Maximum number of entries of a directory that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// Maximum number of directories below the root that are looked at.
const DIRECTORIES_MAX: usize = 64;
/// Maximum number of findings in a message.
const NAMED_MAX: usize = 3;
/// Beginnings and endings of names of files in lower case, with the data set that reads them or what to do.
const KNOWN: [(&str, &str, &str); 15] = [
    ("_annotations.coco", ".json", COCO),
    ("annotations", ".json", COCO),
    ("instances", ".json", COCO),
    ("_annotations", ".csv", "boxes in CSV, which are not read: export COCO, VOC or YOLO"),
    ("_classes", ".csv", TABLE),
    ("metadata", ".jsonl", TABLE),
    ("metadata", ".csv", TABLE),
    ("data", ".yaml", YOLO),
    ("obj", ".names", YOLO),
    ("classes", ".txt", YOLO),
    ("meta", ".csv", "`[dataset.sound-clips]` reads ESC-50's"),
    ("", ".xml", "`[dataset.voc]` reads Pascal VOC's"),
    ("", ".csv", TABLE),
    ("", ".tsv", TABLE),
    ("", ".wav", "`[dataset.sound-clips]` reads sounds, in a directory for each class or with a table"),
];
const COCO: &str = "`[dataset.coco]` reads COCO's JSON";
const TABLE: &str = "`[dataset.image-table]` reads the classes of images from a table";
const YOLO: &str = "`[dataset.yolo]` reads YOLO's text files";

/// Sentence on the first known file of each kind in a directory and those below it, beginning with `; `; empty without one.
pub fn survey(root: &Path) -> String {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut add = |directory: &Path| {
        let mut below = Vec::new();
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
        names.sort();
        for path in names {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().to_lowercase());
            let known = KNOWN.iter().position(|(begin, end, _)| name.starts_with(begin) && name.ends_with(end));
            match known {
                _ if path.is_dir() && below.len() < DIRECTORIES_MAX => below.push(path),
                Some(kind) if !found.iter().any(|(other, _)| KNOWN[*other].2 == KNOWN[kind].2) => {
                    let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                    found.push((kind, printable::line(&shown, 80)));
                }
                _ => {}
            }
        }
        below
    };
    for directory in add(root) {
        add(&directory);
    }
    found.sort();
    let named = found.iter().take(NAMED_MAX).map(|(kind, path)| format!("{path} is there: {}", KNOWN[*kind].2));
    let all: Vec<String> = named.collect();
    if all.is_empty() { String::new() } else { format!("; {}", all.join("; ")) }
}
