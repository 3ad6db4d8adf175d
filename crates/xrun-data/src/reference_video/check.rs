//! Which settings of a data set contradict each other, and is its folder there?

use std::path::Path;

use super::settings::{Format, Settings, Source, VocCorners};
use crate::boxes::open::check_classes;
use crate::reading::named::folder_at;
use xrun_core::problem::{Problem, Problems};

/// A generated set of more frames than this fills a disk before it is of use.
const GENERATED_FRAMES_MAX: u128 = 10_000_000;

/// Where the settings stand in an experiment.
pub const SECTION: &str = "dataset.reference-video";

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &Settings, problems: &mut Problems) {
    let key = |name: &str| format!("{SECTION}.{name}");
    match (settings.source, &settings.path) {
        (Source::Folder, None) => {
            let problem = Problem::new(key("source"), "is \"folder\", and `path` does not say which");
            problems.add(problem.help("add `path = \"…\"`, relative to this file"));
        }
        (Source::Generated, Some(_)) => {
            let problem = Problem::new(key("path"), "a folder is named, and `source` is \"generated\"");
            problems.add(problem.help("write `source = \"folder\"`, or leave `path` out").related(key("source")));
        }
        (Source::Folder, Some(path)) => {
            let help = "name the folder that holds the annotations and the pictures";
            folder_at(&key("path"), Path::new(path), help, problems);
        }
        (Source::Generated, None) => {}
    }
    check_classes(&super::open::rules(settings), problems);
    if settings.voc_corners != VocCorners::OneBased && settings.format != Format::Voc {
        let problem = Problem::new(key("voc_corners"), "is of Pascal VOC's XML, and `format` is \"coco\"");
        problems.add(problem.help("write `format = \"voc\"`, or leave `voc_corners` out").related(key("format")));
    }
    let files = [("annotations", &settings.annotations), ("validation_annotations", &settings.validation_annotations)];
    for (name, file) in files.iter().filter_map(|(name, file)| Some((*name, file.as_ref()?))) {
        let plain = |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
        if settings.source == Source::Generated {
            let problem = Problem::new(key(name), "a file is named, and `source` is \"generated\"");
            problems.add(problem.help("write `source = \"folder\"`, or leave it out").related(key("source")));
        } else if settings.format != Format::Coco {
            let problem = Problem::new(key(name), "is of COCO's JSON, and `format` is \"voc\"");
            problems.add(problem.help("write `format = \"coco\"`, or leave it out").related(key("format")));
        } else if !Path::new(file).components().all(plain) {
            let within = settings.path.as_ref().and_then(|folder| Path::new(file).strip_prefix(folder).ok());
            problems.add(match within {
                Some(within) => {
                    Problem::new(key(name), format!("\"{file}\" is a whole path, and is taken from `path` on"))
                        .help(format!("write \"{}\"", within.display()))
                }
                None => Problem::new(key(name), format!("\"{file}\" leads out of the data set's folder"))
                    .help("name a file below `path`, such as \"annotations/instances_train2017.json\""),
            });
        }
    }
    if files.iter().all(|(_, file)| file.is_some()) && settings.annotations == settings.validation_annotations {
        let problem = Problem::new(key("validation_annotations"), "is the file that is trained on");
        problems.add(problem.help("name another file").related(key("annotations")));
    }
    let generated = &settings.generated;
    let classes = generated.train_classes as u128 + generated.validation_classes as u128;
    let frames = classes * generated.videos_per_class as u128 * generated.frames_per_video as u128;
    if frames > GENERATED_FRAMES_MAX {
        let message = format!("{frames} frames would be generated, more than {GENERATED_FRAMES_MAX}");
        let problem = Problem::new(key("generated.videos_per_class"), message);
        problems.add(problem.help("fewer classes, videos or frames").related(key("generated.frames_per_video")));
    }
}
