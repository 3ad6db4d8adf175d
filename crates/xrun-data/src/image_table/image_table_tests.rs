//! Tables of labels as tools write them.

use std::path::Path;

use super::*;
use crate::boxes::format;
use crate::boxes::library::Library;
use crate::reading::invalid::OnInvalid;
use xrun_core::dataset::split::Split;

fn put(root: &Path, name: &str, text: &str) {
    xrun_core::files::write::replace(&root.join(name), text.as_bytes()).unwrap();
}

/// Directory with images of these names, and a table.
fn directory(images: &[&str], table: &str, text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in images.iter().chain([&table]) {
        std::fs::create_dir_all(directory.path().join(name).parent().unwrap()).unwrap();
    }
    for name in images {
        image::RgbImage::from_pixel(8, 4, image::Rgb([9, 8, 7])).save(directory.path().join(name)).unwrap();
    }
    put(directory.path(), table, text);
    directory
}

fn opened(directory: &Path, change: impl FnOnce(&mut ImageTable)) -> Result<Library, DataError> {
    let mut settings = ImageTable { path: Some(directory.display().to_string()), ..ImageTable::default() };
    change(&mut settings);
    format::open(&settings)
}

/// Images with their classes.
fn classes(library: &Library) -> Vec<(&str, &str)> {
    let class = |video: &crate::boxes::library::Video| video.frames[0].objects[0].class;
    library.videos.iter().map(|video| (video.name.as_str(), library.classes[class(video)].name.as_str())).collect()
}

#[test]
fn tables_of_common_tools_are_read_without_a_setting() {
    for (images, table, text) in [
        (["a.png", "b.png"], "labels.csv", "file,label\na.png,cat\nb.png,dog\n"),
        (["a.png", "b.png"], "x.csv", "\u{feff}weight;picture;class\n3;a.png;cat\n4;b.png;dog\n"),
        (["train/a.png", "train/b.png"], "labels.csv", "id,breed\na,cat\nb,dog\n"),
        (["images/a.png", "images/b.png"], "t.tsv", "path\tlabel\na.png\tcat\nb.png\tdog\n"),
        (
            ["a.png", "b.png"],
            "metadata.jsonl",
            "{\"file_name\": \"a.png\", \"label\": \"cat\"}\n\n{\"file_name\": \"b.png\", \"label\": \"dog\"}\n",
        ),
        (["train/a.png", "train/b.png"], "train/_classes.csv", "filename, cat, dog\na.png,1,0\nb.png,0,1\n"),
        (["train/a.png", "train/b.png"], "train/metadata.csv", "file_name,text\na.png,cat\nb.png,dog\n"),
        (["a\\b.png", "c.png"], "labels.csv", "file,label\na\\b.png,cat\nc.png,dog\n"),
    ] {
        let directory = directory(&images, table, text);
        let library = opened(directory.path(), |_| ()).unwrap();
        assert_eq!(classes(&library), [(images[0], "cat"), (images[1], "dog")], "{table}: {text}");
        assert!(library.notes[0].starts_with(table) && library.notes.len() == 1, "{:?}", library.notes);
    }
    let directory = directory(&["a.png", "b.png", "c.png"], "labels.csv", "file,label\na.png,cat\nb.png,dog\n");
    let notes = opened(directory.path(), |_| ()).unwrap().notes;
    assert!(notes[1].starts_with("1 other image ignored"), "{notes:?}");
}

#[test]
fn splits_are_from_a_column_or_from_directories() {
    let (train, held_out) = (Some(Split::Train), Some(Split::Validation));
    let parts = |library: &Library| library.videos.iter().map(|video| video.part).collect::<Vec<_>>();
    let text = "file,label,split\na.png,cat,train\nb.png,dog,TEST\n";
    let directory = directory(&["a.png", "b.png", "train/c.png", "test/d.png"], "labels.csv", text);
    assert_eq!(parts(&opened(directory.path(), |_| ()).unwrap()), [train, held_out]);
    std::fs::remove_file(directory.path().join("labels.csv")).unwrap();
    put(directory.path(), "train/metadata.csv", "file_name,label\nc.png,cat\n");
    put(directory.path(), "test/metadata.csv", "file_name,label\nd.png,cat\n");
    assert_eq!(parts(&opened(directory.path(), |_| ()).unwrap()), [train, held_out]);
}

#[test]
fn rows_without_one_class_are_invalid_and_columns_can_be_named() {
    let text = "a,b,c\nx.png,cat,1\ny.png,,2\n../z.png,dog,3\n";
    let directory = directory(&["x.png", "y.png"], "t.csv", text);
    let refused = |change: fn(&mut ImageTable)| opened(directory.path(), change).unwrap_err().to_string();
    assert!(refused(|_| ()).contains("`label_column`"), "{}", refused(|_| ()));
    assert!(refused(|settings| settings.label_column = Some("d".into())).contains("no column \"d\""));
    assert!(refused(|settings| settings.table = Some("none.csv".into())).contains("none.csv"));
    let skipping = |settings: &mut ImageTable| {
        (settings.label_column, settings.on_invalid) = (Some("b".into()), OnInvalid::Skip);
    };
    // What leads out of the directory is refused whatever the policy.
    assert!(refused(skipping).contains("outside of the data set's directory"));
    put(directory.path(), "t.csv", "a,b,c\nx.png,cat,1\ny.png,,2\nw.png,dog\n");
    let library = opened(directory.path(), skipping).unwrap();
    assert_eq!((classes(&library), library.skipped.total()), (vec![("x.png", "cat")], 2));
}

#[test]
fn a_directory_without_a_table_of_labels_says_what_is_there() {
    let directory = directory(&["a.png"], "_annotations.coco.json", "{}");
    let message = opened(directory.path(), |_| ()).unwrap_err().to_string();
    assert!(message.contains("[dataset.coco]"), "{message}");
    put(directory.path(), "_annotations.csv", "filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,1,2,2\n");
    let library = opened(directory.path(), |_| ()).unwrap();
    assert_eq!(library.classes.len(), 1, "the class of a box is that of its image");
}
