//! Checks of the settings of images with conversations.

use super::settings::{AnswerFormat, ImageText, Source};
use crate::reading::settings_paths::{check_links, check_source, check_vocabulary, file};
use xrun_core::problem::{Problem, Problems};

pub(super) const SECTION: &str = "dataset.image-text";
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_text::settings::Generated;

    fn problems_of(settings: &ImageText) -> Vec<(String, String)> {
        let mut problems = Problems::default();
        check(settings, &mut problems);
        problems.iter().map(|problem| (problem.key.clone(), problem.message.clone())).collect()
    }

    #[test]
    fn the_defaults_are_right_and_what_contradicts_itself_is_said_at_its_key() {
        assert_eq!(problems_of(&ImageText::default()), []);
        let named = |path: &str| Some(path.to_owned());
        let messages = ImageText { source: Source::Messages, path: named("/etc/hostname"), ..ImageText::default() };
        assert_eq!(problems_of(&messages), []);
        let many = Generated { examples: 100_000, image_size: 4096, ..Generated::default() };
        for (settings, key, part) in [
            (ImageText { path: None, ..messages.clone() }, "source", "needs `path`, which is missing"),
            (ImageText { path: named("/none/such"), ..messages.clone() }, "path", "there is no file /none/such"),
            (ImageText { path: named("/etc"), ..messages.clone() }, "path", "/etc is not a file"),
            (
                ImageText { path: named("/etc/hostname"), ..ImageText::default() },
                "path",
                "no effect: `source` is \"generated\"",
            ),
            (ImageText { validation_path: named("/none"), ..messages.clone() }, "validation_path", "there is no file"),
            (ImageText { answer_format: AnswerFormat::Json, ..messages.clone() }, "answer_format", "question-list"),
            (ImageText { encoder: named("/etc/hostname"), ..ImageText::default() }, "encoder", "without `merges`"),
            (ImageText { generated: many, ..ImageText::default() }, "generated.examples", "pixels would be generated"),
        ] {
            let found = problems_of(&settings);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].0, format!("{SECTION}.{key}"));
            assert!(found[0].1.contains(part), "{found:?}");
        }
    }
}
