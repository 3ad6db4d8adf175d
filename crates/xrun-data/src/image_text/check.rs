//! Checks of the settings of images with conversations.

use super::settings::{AnswerFormat, ImageText, SECTION, Source};
use crate::reading::settings_paths::{check_links, check_source, check_vocabulary, file};
use xrun_core::problem::{Problem, Problems};

/// Maximum number of pixels of a generated set.
const GENERATED_PIXELS_MAX: u128 = 100_000_000_000;

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &ImageText, problems: &mut Problems) {
    let key = |name: &str| format!("{SECTION}.{name}");
    let generated = settings.source == Source::Generated;
    let files = [("path", &settings.path), ("validation_path", &settings.validation_path)];
    check_source(SECTION, generated, &files, file, problems);
    check_links(SECTION, settings.follow_links, settings.link_root.as_deref(), problems);
    if settings.answer_format == AnswerFormat::Json && settings.source != Source::QuestionList {
        let problem = Problem::new(key("answer_format"), "is for `source = \"question-list\"` only");
        problems.add(problem.help("leave it out: answers are taken as the file has them").related(key("source")));
    }
    check_vocabulary(SECTION, &settings.encoder, &settings.merges, problems);
    let set = &settings.generated;
    let examples = (set.examples + set.held_out_examples + set.unseen_examples) as u128;
    let pixels = examples * set.image_size as u128 * set.image_size as u128;
    if generated && pixels > GENERATED_PIXELS_MAX {
        let message = format!("{pixels} pixels would be generated, more than {GENERATED_PIXELS_MAX}");
        let problem = Problem::new(key("generated.examples"), message);
        problems.add(problem.help("fewer or smaller images").related(key("generated.image_size")));
    }
}
