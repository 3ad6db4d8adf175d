//! Checks of the settings of questions and answers.

use super::settings::{QuestionAnswers, Source};
use crate::reading::named::file;
use xrun_core::problem::{Problem, Problems};

pub(super) const SECTION: &str = "dataset.question-answers";
/// Maximum size of a generated corpus.
const GENERATED_QUESTIONS_MAX: u128 = 10_000_000;

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &QuestionAnswers, problems: &mut Problems) {
    let key = |name: &str| format!("{SECTION}.{name}");
    match (settings.source, &settings.path) {
        (Source::File, None) => {
            let problem = Problem::new(key("source"), "is \"file\", and `path` does not say which");
            problems.add(problem.help("add `path = \"…/dev-v1.1.json\"`, relative to this file"));
        }
        (Source::Generated, Some(_)) => {
            let problem = Problem::new(key("path"), "a file is named, and `source` is \"generated\"");
            problems.add(problem.help("write `source = \"file\"`, or leave `path` out").related(key("source")));
        }
        (Source::File, Some(_)) | (Source::Generated, None) => {}
    }
    if settings.source == Source::Generated && settings.validation_path.is_some() {
        let problem = Problem::new(key("validation_path"), "a file is named, and `source` is \"generated\"");
        problems.add(problem.help("write `source = \"file\"`, or leave it out").related(key("source")));
    }
    for (name, other, given, missing) in [
        ("encoder", "merges", settings.encoder.is_some(), settings.merges.is_none()),
        ("merges", "encoder", settings.merges.is_some(), settings.encoder.is_none()),
    ] {
        if given && missing {
            let problem = Problem::new(key(name), format!("is of no use without `{other}`"));
            problems.add(problem.help("name GPT-2's `encoder.json` and `vocab.bpe`, or neither"));
        }
    }
    let paths = [
        ("path", &settings.path),
        ("validation_path", &settings.validation_path),
        ("encoder", &settings.encoder),
        ("merges", &settings.merges),
    ];
    for (name, path) in paths {
        // Files that are not read need not be there.
        if let Some(path) = path
            && (settings.source == Source::File || !name.ends_with("path"))
        {
            file(&key(name), path, problems);
        }
    }
    let generated = &settings.generated;
    let questions = generated.articles as u128
        * generated.paragraphs_per_article as u128
        * generated.sentences_per_paragraph as u128
        * super::generate::QUESTIONS_PER_SENTENCE as u128;
    if questions > GENERATED_QUESTIONS_MAX {
        let message = format!("{questions} questions would be generated, more than {GENERATED_QUESTIONS_MAX}");
        let problem = Problem::new(key("generated.articles"), message);
        problems.add(problem.help("fewer articles or paragraphs").related(key("generated.paragraphs_per_article")));
    }
}
