//! easy-VQA as it is published; `docs/data.md` says where to get it.

use super::open::open;
use super::settings::{AnswerFormat, ImageText, Source};
use super::store::ImageTextStore;
use crate::real_data::real_data;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;
use xrun_core::settings::sections::Limits;

#[test]
fn easy_vqa_is_read_without_conversion() {
    let Some(path) = real_data("captions/easy-vqa/questions.json") else { return };
    let settings = ImageText {
        source: Source::QuestionList,
        path: Some(path.display().to_string()),
        validation_fraction: 0.2,
        answer_format: AnswerFormat::Json,
        image_size: 64,
        ..ImageText::default()
    };
    let mut library = open(&settings).unwrap();
    // By Python, from the file: 4,943 questions about 500 images, 1,009 of them about the last 100.
    assert_eq!(
        library.summary(),
        super::ExampleCounts { train: 3934, held_out: 1009, unseen: 0, images: 500, texts: Vec::new() }
    );
    let tokenizer = library.tokenizer(&settings.loader_settings().vocabulary).unwrap();
    library.fit(&tokenizer, 64, settings.on_invalid).unwrap();
    let ledger = Ledger::default();
    let store = ImageTextStore::new(library, tokenizer, &settings.loader_settings(), &Limits::default(), &ledger);
    for number in (0..store.count(Split::Validation)).step_by(50) {
        let example = store.example(Split::Validation, number).unwrap();
        // Not scaled: the bytes of the file.
        assert_eq!(example.image, store.original(Split::Validation, number).unwrap());
        assert!(example.text.answer_text.starts_with("{\"answer\": \""), "{}", example.text.answer_text);
    }
    let first = store.text(Split::Train, 0).unwrap();
    assert_eq!(
        (first.question.as_str(), first.answer_text.as_str()),
        ("what is the blue shape?", "{\"answer\": \"rectangle\"}")
    );
}
