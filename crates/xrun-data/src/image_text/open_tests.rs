//! Invalid examples are reported with their line, or left out and counted.

use std::path::Path;

use base64::Engine;
use image::{ImageFormat, Rgb, RgbImage};

use super::super::ExampleCounts;
use super::super::image_file::tests::{claimed, encoded};
use super::super::settings::AnswerFormat;
use super::*;
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

/// Section 4's list: each is reported with its file and line, or skipped and counted.
#[test]
fn invalid_examples_are_reported_with_their_line_or_skipped_and_counted() {
    let whole = encoded(RgbImage::from_fn(90, 90, |x, y| Rgb([(x * y) as u8, y as u8, 9])), ImageFormat::Jpeg);
    let bad = |image: &str| line(image, "red").into_bytes();
    let cases: [(Vec<u8>, &str, &str); 17] = [
        (bad("images/9.png"), "missing_image", "9.png is not there"),
        (bad("images"), "missing_image", "is no file"),
        (bad("../secret.png"), "outside", "outside of"),
        (bad("/etc/hostname"), "outside", "outside of"),
        (bad("out.png"), "outside", "outside of"),
        (bad("http://x.org/a.png"), "url", "download"),
        (bad("cut.jpg"), "broken_image", "cut.jpg: the image is cut off"),
        (bad("text.png"), "not_png_or_jpeg", "text.png: "),
        (bad("thin.png"), "too_large_image", "1 x 65535"),
        (bad("huge.png"), "too_large_image", "30000 x 30000"),
        (bad(&inline(&claimed(30_000, 30_000))), "too_large_image", "30000 x 30000"),
        (bad(&inline(&whole[..whole.len() * 3 / 4])), "broken_image", "cut off"),
        (bad("data:image/png;base64,@@"), "wrong_base64", "base64"),
        (b"{\"text\": \"\xff\"}\n".to_vec(), "not_utf8", "UTF-8"),
        (b"{\"text\"\n".to_vec(), "not_json", "column"),
        (line("images/0.png", "").into_bytes(), "no_answer", "empty"),
        (b"{\"messages\": [{\"role\": \"x\", \"content\": \"\"}]}\n".to_vec(), "unknown_role", "\"x\""),
    ];
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "secret.png", &png(0));
    let prepare = |lines: &[Vec<u8>]| {
        let directory = directory(lines);
        let path = directory.path();
        put(path, "cut.jpg", &whole[..whole.len() * 3 / 4]);
        put(path, "text.png", b"hello");
        put(path, "thin.png", &claimed(1, 65_535));
        put(path, "huge.png", &claimed(30_000, 30_000));
        std::os::unix::fs::symlink(outside.path().join("secret.png"), path.join("out.png")).unwrap();
        directory
    };
    for (text, reason, part) in &cases {
        let directory = prepare(std::slice::from_ref(text));
        let message = open(&settings(directory.path(), OnInvalid::Fail)).unwrap_err().to_string();
        assert!(message.contains("a.jsonl: line 5: ") && message.contains(part), "{message}");
        assert!(message.contains("on_invalid = \"skip\""), "{message}");
        let library = open(&settings(directory.path(), OnInvalid::Skip)).unwrap();
        assert_eq!(library.skipped.counts.get(*reason), Some(&1), "{:?}", library.skipped);
        assert_eq!((library.skipped.total(), library.sample_count()), (1, 4));
    }
    let all: Vec<Vec<u8>> = cases.iter().map(|(text, ..)| text.clone()).collect();
    let directory = prepare(&all);
    let DataError::Several(broken) = open(&settings(directory.path(), OnInvalid::Fail)).unwrap_err() else {
        panic!("several mistakes")
    };
    assert_eq!(broken.total(), 17);
}

#[test]
fn a_line_of_more_than_32_mib_is_skipped() {
    let long = |bytes: usize| {
        let mut text = vec![b'x'; bytes - 1];
        text.push(b'\n');
        text
    };
    let most = LINE_BYTES_MAX as usize;
    let directory = directory(&[long(most + 2), line("images/0.png", "blue").into_bytes(), long(most)]);
    let library = open(&settings(directory.path(), OnInvalid::Skip)).unwrap();
    let counts: Vec<(&str, u64)> = library.skipped.counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    // One of just the size is read, and is no JSON.
    assert_eq!(counts, [("not_json", 1), ("too_long_line", 1)]);
    let messages: Vec<String> = library.skipped.first.iter().map(|item| item.error.to_string()).collect();
    assert!(messages[0].contains("line 5: has more than 33554432 bytes"), "{messages:?}");
    assert!(messages[1].contains("line 7: "), "{messages:?}");
    let (place, record) = library.record(Split::Train, 3).unwrap();
    assert_eq!((place.line, record.answer.as_str()), (6, "blue"));
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
    assert_eq!(
        library.summary(),
        super::super::ExampleCounts { train: 5, held_out: 2, unseen: 0, images: 5, texts: Vec::new() }
    );
    let images: Vec<u32> = library.places(Split::Train).iter().map(|place| place.image).collect();
    assert_eq!(images, [0, 1, 2, 3, 0]);
    let lines: Vec<u32> = library.places(Split::Validation).iter().map(|place| place.line).collect();
    assert_eq!(lines, [5, 9], "empty lines count as lines");
    assert_eq!(library.record(Split::Validation, 1).unwrap().1.answer, "c");
    assert_eq!(library.record(Split::Train, 0).unwrap().1.answer, "red");
    assert_eq!(library.index_bytes() % 24, directory.path().join("a.jsonl").as_os_str().len() as u64 % 24);
    assert!(library.record(Split::Train, 5).is_err());
    let largest = library.largest.unwrap();
    assert_eq!((largest.width, largest.height), (5, 4));
    // A second file to validate with leaves the first whole.
    put(directory.path(), "b.jsonl", line("images/1.png", "x").as_bytes());
    let second = Some(directory.path().join("b.jsonl").display().to_string());
    let library = open(&ImageText { validation_path: second, ..share.clone() }).unwrap();
    assert_eq!(
        library.summary(),
        super::super::ExampleCounts { train: 7, held_out: 1, unseen: 0, images: 6, texts: Vec::new() }
    );
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
    put(empty.path(), "a.jsonl", b"");
    put(empty.path(), "0.png", &png(1));
    let failure = |settings: &ImageText| open(settings).unwrap_err().to_string();
    let of = |policy| settings(empty.path(), policy);
    assert!(
        failure(&of(OnInvalid::Fail)).contains("a.jsonl: the file is empty; expected an example a line: {\"messages\"")
    );
    put(empty.path(), "a.jsonl", b"\n  \n\r\n");
    assert!(
        failure(&of(OnInvalid::Skip)).contains("a.jsonl: the file has only empty lines; expected an example a line")
    );
    put(empty.path(), "a.jsonl", b"\n[\n{\"text\": \"a\"},\n");
    assert!(failure(&of(OnInvalid::Skip)).contains("a.jsonl: the file is one JSON list (`jq -c '.[]'`"));
    put(empty.path(), "a.jsonl", line("0.png", "red").as_bytes());
    assert!(failure(&of(OnInvalid::Fail)).contains("no example is to train on"));
    put(empty.path(), "a.jsonl", line("1.png", "red").as_bytes());
    let message = failure(&of(OnInvalid::Skip));
    assert!(message.contains("1 were left out: missing_image 1"), "{message}");
    let list = ImageText { source: Source::QuestionList, ..of(OnInvalid::Fail) };
    assert!(failure(&list).ends_with("is not a list of [question, answer, number of an image]: it is an object"));
    put(empty.path(), "a.jsonl", b"");
    assert!(failure(&list).ends_with("number of an image]: the file is empty"), "{}", failure(&list));
    put(empty.path(), "a.jsonl", b"[[\"a\", \"b\", 1],\n[\"a\"");
    assert!(failure(&list).contains("the file ends in line 2 before its JSON does"), "{}", failure(&list));
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
    assert_eq!(
        library.summary(),
        super::super::ExampleCounts { train: 3, held_out: 1, unseen: 0, images: 3, texts: Vec::new() }
    );
    let (place, record) = library.record(Split::Validation, 0).unwrap();
    assert_eq!((place.line, place.item, record.answer.as_str()), (3, 4, r#"{"answer": "blue"}"#));
}

#[test]
fn long_examples_are_never_cut() {
    let long = line("images/0.png", &"long ".repeat(40));
    let directory = directory(&[long.into_bytes()]);
    let of = |policy| settings(directory.path(), policy);
    let fitted = |policy, tokens| {
        let mut library = open(&of(policy)).unwrap();
        let tokenizer = library.tokenizer(&of(policy).loader_settings().vocabulary).unwrap();
        library.fit(&tokenizer, tokens, policy).map(|()| library)
    };
    assert_eq!(fitted(OnInvalid::Fail, 300).unwrap().sample_count(), 5);
    let message = fitted(OnInvalid::Fail, 30).unwrap_err().to_string();
    assert!(message.contains("a.jsonl: line 5: ") && message.contains("raise `sequence_length`"), "{message}");
    let library = fitted(OnInvalid::Skip, 30).unwrap();
    assert_eq!((library.skipped.counts.get("too_long"), library.sample_count()), (Some(&1), 4));
    let message = fitted(OnInvalid::Skip, 3).unwrap_err().to_string();
    assert!(message.contains("no example is to train on (5 were left out: too_long 5)"), "{message}");
}

#[test]
fn an_inspection_counts_the_same_long_examples() {
    let long = line("images/0.png", &"long ".repeat(40));
    let directory = directory(&[long.into_bytes()]);
    let settings = settings(directory.path(), OnInvalid::Skip);
    let (inspected, _) = settings.inspect().unwrap();
    let summary: ExampleCounts = serde_json::from_value(inspected.summary).unwrap();
    assert_eq!(summary.texts.iter().map(|text| text.examples).fold([0; 3], add), [4, 1, 0]);
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

fn add(one: [u64; 3], other: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|at| one[at] + other[at])
}

#[cfg(unix)]
#[test]
fn images_behind_a_symlink_are_read_where_it_may_lead() {
    let directory = directory(&[]);
    let scratch = tempfile::tempdir().unwrap();
    std::fs::rename(directory.path().join("images"), scratch.path().join("images")).unwrap();
    std::os::unix::fs::symlink(scratch.path().join("images"), directory.path().join("images")).unwrap();
    let closed = settings(directory.path(), OnInvalid::Fail);
    let message = open(&closed).unwrap_err().to_string();
    assert!(message.contains("symlink") && message.contains("follow_links = true"), "{message}");
    let link_root = Some(scratch.path().display().to_string());
    let library = open(&ImageText { follow_links: true, link_root, ..closed }).unwrap();
    assert_eq!(library.sample_count(), 4);
}
