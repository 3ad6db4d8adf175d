//! Layouts of directories as exporters write them, units of boxes, and symlinks.

use super::*;
use xrun_core::dataset::open_dataset::OpenDataset;

/// Moves the annotated images of [`Directory::coco`] into a directory, and names them without it.
fn moved(directory: &Directory, text: &mut Value, to: &str) {
    std::fs::create_dir_all(directory.root.join(to)).unwrap();
    for image in text["images"].as_array_mut().unwrap() {
        let name = image["file_name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        std::fs::copy(directory.root.join("images").join(&name), directory.root.join(to).join(&name)).unwrap();
        image["file_name"] = json!(name);
    }
}

fn parts(library: &Library) -> (usize, usize, usize) {
    let count = |part| library.videos.iter().filter(|video| video.part == part).count();
    (count(None), count(Some(Split::Train)), count(Some(Split::Validation)))
}

fn put(directory: &Directory, name: &str, text: &Value) {
    let path = directory.root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, text.to_string());
}

#[test]
fn roboflows_splits_are_found_and_its_parent_category_is_left_out() {
    let (directory, mut text) = Directory::coco();
    text["categories"].as_array_mut().unwrap().push(json!({ "id": 90, "name": "things", "supercategory": "none" }));
    text["annotations"][0]["bbox"] = json!([4, 5, 0.5, 12]);
    for split in ["train", "valid", "test"] {
        let mut text = text.clone();
        if split == "valid" {
            text["categories"].as_array_mut().unwrap().reverse();
        }
        moved(&directory, &mut text, split);
        put(&directory, &format!("{split}/_annotations.coco.json"), &text);
    }
    std::fs::remove_dir_all(directory.root.join("images")).unwrap();
    let library = opened(&directory, Format::Coco);
    assert_eq!(parts(&library), (0, 8, 8), "a split `test` is not read");
    let things = library.classes.iter().find(|class| class.name == "things").unwrap();
    assert_eq!((things.split, things.references.len()), (None, 0));
    for video in &library.videos {
        let class = &library.classes[video.frames[0].objects[0].class].name;
        assert!(video.name.contains(class.as_str()), "{} shows {class}: both files name their classes", video.name);
    }
    insta::assert_snapshot!(library.description().lines.join("\n"), @r"
    16 images, 16 annotated objects in 5 classes
    images by annotation file or directory: 8 to train on, 8 held out
    classes: cat 4, dog 4
    classes held out from few-shot training: fox 4, owl 4
    classes not used: things 0
    image size 32 x 24 pixels; box sides 0.5 to 12.0
    ");
    insta::assert_snapshot!(library.description().warnings.join("\n"), @r#"
    boxes narrower or lower than one pixel: 2
    classes without an annotation, left out: "things"
    "#);
    std::fs::remove_dir_all(directory.root.join("valid")).unwrap();
    assert_eq!(parts(&opened(&directory, Format::Coco)), (0, 8, 8), "a test serves where nothing else is held out");
    let only = directory.settings(Format::Coco, OnInvalid::Fail)["path"].as_str().unwrap().to_owned() + "/train";
    assert_eq!(parts(&open(Format::Coco, &json!({ "path": only })).unwrap()), (8, 0, 0));
}

#[test]
fn files_named_otherwise_than_cocos_lead_to_their_images() {
    for (file, images) in [
        ("annotations/instances_minitrain2017.json", "train2017"),
        ("annotations/person_keypoints_val2017.json", "val2017"),
        ("annotations/instances_default.json", "images/default"),
        ("annotations/instances_Train.json", "images/Train"),
    ] {
        let (directory, mut text) = Directory::coco();
        moved(&directory, &mut text, images);
        put(&directory, file, &text);
        let others: Vec<PathBuf> =
            std::fs::read_dir(directory.root.join("images")).unwrap().flatten().map(|e| e.path()).collect();
        others.iter().filter(|path| path.is_file()).for_each(|path| std::fs::remove_file(path).unwrap());
        assert_eq!(parts(&opened(&directory, Format::Coco)), (8, 0, 0), "{file}");
    }
}

#[test]
fn the_splits_of_keypoints_are_taken_where_there_are_no_instances() {
    let (directory, text) = Directory::coco();
    for name in ["person_keypoints_train", "person_keypoints_val", "captions_val", "image_info_test"] {
        put(&directory, &format!("annotations/{name}.json"), &text);
    }
    let (train, validation) = ("annotations/person_keypoints_train.json", "annotations/person_keypoints_val.json");
    let found = open(Format::Coco, &directory.settings(Format::Coco, OnInvalid::Skip));
    let named = json!({ "path": directory.root, "on_invalid": "skip", "annotations": train, "validation_annotations": validation });
    assert_eq!(found, open(Format::Coco, &named));
}

#[test]
fn voc_files_next_to_their_images_are_read_with_their_splits() {
    let directory = Directory::voc();
    for split in ["", "train", "valid"] {
        std::fs::create_dir_all(directory.root.join(split)).unwrap();
        for from in ["images", "annotations"] {
            for entry in std::fs::read_dir(directory.root.join(from)).unwrap().flatten() {
                std::fs::copy(entry.path(), directory.root.join(split).join(entry.file_name())).unwrap();
            }
        }
    }
    ["images", "annotations"].iter().for_each(|name| std::fs::remove_dir_all(directory.root.join(name)).unwrap());
    assert_eq!(parts(&opened(&directory, Format::Voc)), (0, 8, 8));
    std::fs::remove_dir_all(directory.root.join("valid")).unwrap();
    assert_eq!(parts(&opened(&directory, Format::Voc)), (8, 0, 0));
    std::fs::remove_dir_all(directory.root.join("train")).unwrap();
    let library = opened(&directory, Format::Voc);
    assert_eq!((parts(&library), library.videos[0].name.contains('/')), ((8, 0, 0), false));
}

#[test]
fn boxes_and_references_in_fractions_are_those_in_pixels() {
    let (directory, mut text) = Directory::coco();
    text["references"] = json!([]);
    for (category, name) in [(0, "cat0.jpg"), (1, "dog0.jpg"), (2, "fox0.jpg"), (3, "owl0.jpg")] {
        let reference =
            json!({ "category_id": category, "file_name": format!("images/{name}"), "bbox": [4, 6, 8, 12] });
        text["references"].as_array_mut().unwrap().push(reference);
    }
    text["annotations"].as_array_mut().unwrap().iter_mut().for_each(|one| one["bbox"] = json!([4, 6, 8, 12]));
    directory.annotate(&text);
    let pixels = opened(&directory, Format::Coco);
    let fractions = json!([4.0 / 32.0, 0.25, 0.25, 0.5]);
    for list in ["annotations", "references"] {
        text[list].as_array_mut().unwrap().iter_mut().for_each(|one| one["bbox"] = fractions.clone());
    }
    text["annotations"][0]["area"] = json!(0.125);
    directory.annotate(&text);
    let found = open(Format::Coco, &json!({ "path": directory.root, "box_units": "fractions" })).unwrap();
    assert_eq!((found.classes, found.videos), (pixels.classes, pixels.videos));
}

#[test]
fn symlinks_are_followed_into_the_directory_that_is_named_and_no_further() {
    let (directory, text) = Directory::coco();
    directory.annotate(&text);
    let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let elsewhere = scratch.path().join("images");
    std::fs::create_dir(&elsewhere).unwrap();
    for entry in std::fs::read_dir(directory.root.join("images")).unwrap().flatten() {
        std::fs::copy(entry.path(), elsewhere.join(entry.file_name())).unwrap();
    }
    std::fs::remove_dir_all(directory.root.join("images")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, directory.root.join("images")).unwrap();
    let opened = |links: Value| {
        let mut settings = json!({ "path": directory.root });
        settings.as_object_mut().unwrap().extend(links.as_object().unwrap().clone());
        open(Format::Coco, &settings)
    };
    let allowed = opened(json!({ "follow_links": true, "link_root": scratch.path() })).unwrap();
    assert_eq!(allowed.videos.len(), 8);
    for refused in [json!({}), json!({ "follow_links": true, "link_root": other.path() })] {
        let message = opened(refused).unwrap_err().to_string();
        let named = format!("link_root = \"{}\"", elsewhere.canonicalize().unwrap().display());
        assert!(message.contains("is behind a symlink to") && message.contains(&named), "{message}");
    }
}
