//! Checks of the settings of questions and answers.

use super::settings::{QuestionAnswers, SECTION, Source};
use crate::reading::settings_paths::{check_source, check_vocabulary, file};
use xrun_core::problem::{Problem, Problems};

/// Maximum size of a generated corpus.
const GENERATED_QUESTIONS_MAX: u128 = 10_000_000;

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &QuestionAnswers, problems: &mut Problems) {
    let key = |name: &str| format!("{SECTION}.{name}");
    let files = [("path", &settings.path), ("validation_path", &settings.validation_path)];
    check_source(SECTION, settings.source == Source::Generated, &files, file, problems);
    check_vocabulary(SECTION, &settings.encoder, &settings.merges, problems);
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
