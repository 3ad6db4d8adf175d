//! Invalid examples are reported with their line, or left out and counted.

use std::path::Path;

use base64::Engine;
use image::{ImageFormat, Rgb, RgbImage};

use super::super::ExampleCounts;
use super::super::image_file::tests::encoded;
use super::super::settings::AnswerFormat;
use super::*;
use crate::reading::json_stream::VALUE_BYTES_MAX;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::dataset::open_dataset::OpenDataset;

fn put(directory: &Path, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(directory.join(name).parent().unwrap()).unwrap();
    xrun_core::files::write::replace(&directory.join(name), bytes).unwrap();
}

fn png(shade: u8) -> Vec<u8> {
    encoded(RgbImage::from_pixel(5, 4, Rgb([shade, 0, 0])), ImageFormat::Png)
}

fn line(image: &str, answer: &str) -> String {
    format!("{{\"text\": \"What?\", \"image\": \"{image}\", \"response\": \"{answer}\"}}\n")
}

fn settings(directory: &Path, policy: OnInvalid) -> ImageText {
    let path = Some(directory.join("a.jsonl").display().to_string());
    ImageText { source: Source::Messages, path, on_invalid: policy, ..ImageText::default() }
}

/// A directory with four good images and a file of examples with these lines behind four good ones.
fn directory(lines: &[Vec<u8>]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    for shade in 0..4 {
        put(directory.path(), &format!("images/{shade}.png"), &png(shade));
        text.extend(line(&format!("images/{shade}.png"), "red").bytes());
    }
    lines.iter().for_each(|line| text.extend(line));
    put(directory.path(), "a.jsonl", &text);
    directory
}

fn inline(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn counts(train: u64, held_out: u64, images: u64) -> ExampleCounts {
    ExampleCounts { train, held_out, unseen: 0, images, texts: Vec::new() }
}

#[test]
fn examples_of_an_image_are_in_one_split_and_share_its_number() {
    let same = inline(&png(9));
    let more = [line(&same, "a"), "\n \r\n".into(), line("images/./0.png", "b"), line(&same, "c")];
    let more: Vec<Vec<u8>> = more.into_iter().map(String::into_bytes).collect();
    let directory = directory(&more);
    // Some editors put a mark before the text.
    let text = std::fs::read(directory.path().join("a.jsonl")).unwrap();
    put(directory.path(), "a.jsonl", &[b"\xef\xbb\xbf".as_slice(), &text].concat());
    let share = ImageText { validation_fraction: 0.2, ..settings(directory.path(), OnInvalid::Fail) };
    let library = open(&share).unwrap();
    assert_eq!(library.summary(), counts(5, 2, 5));
    let images: Vec<u32> = library.places(Split::Train).iter().map(|place| place.image).collect();
    assert_eq!(images, [0, 1, 2, 3, 0]);
    let lines: Vec<u32> = library.places(Split::Validation).iter().map(|place| place.line).collect();
    assert_eq!(lines, [5, 9], "empty lines count as lines");
    assert_eq!(library.record(Split::Validation, 1).unwrap().1.answer, "c");
    assert_eq!(library.record(Split::Train, 0).unwrap().1.answer, "red");
    assert!(library.record(Split::Train, 5).is_err());
    let largest = library.largest.unwrap();
    assert_eq!((largest.width, largest.height), (5, 4));
    // A second file to validate with leaves the first whole.
    put(directory.path(), "b.jsonl", line("images/1.png", "x").as_bytes());
    let second = Some(directory.path().join("b.jsonl").display().to_string());
    let library = open(&ImageText { validation_path: second, ..share.clone() }).unwrap();
    assert_eq!(library.summary(), counts(7, 1, 6));
    // Another image is other data, and so is another text.
    let digest = open(&share).unwrap().digest;
    put(directory.path(), "images/2.png", &png(77));
    assert_ne!(open(&share).unwrap().digest, digest);
}

/// The room to decode in is as large as the longest line asks for, whichever example of an image that is.
#[test]
fn an_inline_image_is_sized_by_its_longest_line() {
    let of = |answers: [&str; 2]| {
        let directory = directory(&answers.map(|answer| line("images/0.png", answer).into_bytes()));
        open(&settings(directory.path(), OnInvalid::Fail)).unwrap().largest.unwrap().bytes
    };
    let [long, longer] = [100, 101].map(|times| "long ".repeat(times));
    assert_eq!(of(["a", &long]), of([&long, "a"]));
    assert_eq!(of(["a", &longer]) - of(["a", &long]), LINE_COPIES * "long ".len() as u64);
}

#[test]
fn unusable_data_is_refused_as_a_whole() {
    let empty = tempfile::tempdir().unwrap();
    put(empty.path(), "0.png", &png(1));
    let failure = |text: &str, source| {
        put(empty.path(), "a.jsonl", text.as_bytes());
        open(&ImageText { source, ..settings(empty.path(), OnInvalid::Skip) }).unwrap_err().to_string()
    };
    let long = "x".repeat(VALUE_BYTES_MAX) + "\n";
    for (text, source, part) in [
        ("", Source::Messages, "a.jsonl: the file is empty; expected an example a line: {\"messages\""),
        ("\n  \n\r\n", Source::Messages, "a.jsonl: the file has only empty lines; expected an example a line"),
        ("\n[\n{\"text\": \"a\"},\n", Source::Messages, "ends in line 4 before its JSON does"),
        (&line("0.png", "red"), Source::Messages, "no example is to train on"),
        (&line("1.png", "red"), Source::Messages, "1 were left out: missing_image 1"),
        (&long, Source::Messages, "1 were left out: too_long_line 1"),
        ("{}", Source::QuestionList, "is not a list of [question, answer, number of an image]: it is an object"),
        ("", Source::QuestionList, "number of an image]: the file is empty"),
        ("[[\"a\", \"b\", 1],\n[\"a\"", Source::QuestionList, "the file ends in line 2 before its JSON does"),
    ] {
        let message = failure(text, source);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_question_list_is_read_by_item_and_line() {
    let directory = tempfile::tempdir().unwrap();
    for image in 0..4 {
        put(directory.path(), &format!("images/{image}.png"), &png(image));
    }
    let text = "[[\"a?\", \"yes\", 0], [\"b?\", \"no\", 0],\n [\"c?\", \"red\", 1],\n [\"d?\", \"blue\", 2], [\"e?\", \"\", 2]]";
    put(directory.path(), "a.jsonl", text.as_bytes());
    let list = |policy, answer_format| ImageText {
        source: Source::QuestionList,
        validation_fraction: 0.3,
        answer_format,
        ..settings(directory.path(), policy)
    };
    let message = open(&list(OnInvalid::Fail, AnswerFormat::Plain)).unwrap_err().to_string();
    assert!(message.contains("a.jsonl: question 5 in line 3: the answer is empty"), "{message}");
    let library = open(&list(OnInvalid::Skip, AnswerFormat::Json)).unwrap();
    assert_eq!(library.summary(), counts(3, 1, 3));
    let (place, record) = library.record(Split::Validation, 0).unwrap();
    assert_eq!((place.line, place.item, record.answer.as_str()), (3, 4, r#"{"answer": "blue"}"#));
}

#[test]
fn an_inspection_counts_the_same_long_examples() {
    let long = line("images/0.png", &"long ".repeat(40));
    let directory = directory(&[long.into_bytes()]);
    let settings = settings(directory.path(), OnInvalid::Skip);
    let (inspected, _) = settings.inspect().unwrap();
    let summary: ExampleCounts = serde_json::from_value(inspected.summary).unwrap();
    let longest = summary.texts.last().unwrap().tokens;
    for (fit, on_invalid) in
        [(300, OnInvalid::Fail), (30, OnInvalid::Fail), (30, OnInvalid::Skip), (3, OnInvalid::Skip)]
    {
        let (mut seen, mut library) = (summary.clone(), open(&settings).unwrap());
        let tokenizer = library.tokenizer(&settings.loader_settings().vocabulary).unwrap();
        match (seen.fit(fit, on_invalid), library.fit(&tokenizer, fit, on_invalid)) {
            (Ok(broken), Ok(())) => {
                assert_eq!(broken, library.skipped);
                assert_eq!(
                    ExampleCounts { texts: Vec::new(), ..seen },
                    ExampleCounts { images: summary.images, ..library.summary() }
                );
            }
            (Err(inspected), Err(ended)) => {
                let (inspected, ended) = (inspected.to_string(), ended.to_string());
                assert!(ended.ends_with(&inspected), "{inspected}\n{ended}");
                let by = format!("raise `sequence_length` by {}", longest - fit);
                assert!(fit < 30 || inspected.contains(&by), "{inspected}");
            }
            (inspected, ended) => panic!("{inspected:?}, {ended:?}"),
        }
    }
}
