//! The vision-language model as a user meets it: what is wrong with images, texts and settings is said by name, before anything
//! runs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::workplace::{Output, Workplace, redacted};

const MINE: &str = "[pipeline.vision-language]\n[model.vision-language]\n[dataset.image-text]\nsource = \"messages\"\n\
                    path = \"chat/chat.jsonl\"\nvalidation_fraction = 0.25\n";

/// An image of one colour as a PNG file.
fn png(shade: u8) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(20, 10, image::Rgb([shade, 90, 90]))
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    bytes.into_inner()
}

/// A PNG file that says it has so many pixels, and has not.
fn claimed(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(0);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An example in the form of messages; `image` stands as it is in the part.
fn line(image: &str, answer: &str) -> String {
    let user =
        format!("{{\"role\": \"user\", \"content\": [{image}, {{\"type\": \"text\", \"text\": \"What is it?\"}}]}}");
    let answer = serde_json::Value::from(answer);
    format!("{{\"messages\": [{user}, {{\"role\": \"assistant\", \"content\": {answer}}}]}}\n")
}

fn of_file(name: &str) -> String {
    format!("{{\"type\": \"image\", \"image\": \"{name}\"}}")
}

fn of_url(url: &str) -> String {
    format!("{{\"type\": \"image_url\", \"image_url\": {{\"url\": \"{url}\"}}}}")
}

fn inline(bytes: &[u8]) -> String {
    of_url(&format!("data:image/png;base64,{}", STANDARD.encode(bytes)))
}

/// Eight images with answers in JSON, and these lines behind them, from line 9.
pub fn chat(workplace: &Workplace, more: &[Vec<u8>]) {
    std::fs::create_dir_all(workplace.path("chat/images")).unwrap();
    let mut text = Vec::new();
    for number in 0..8 {
        let name = format!("images/{number}.png");
        std::fs::write(workplace.path(&format!("chat/{name}")), png(number)).unwrap();
        text.extend(line(&of_file(&name), &format!("{{\"number\": {number}}}")).bytes());
    }
    more.iter().for_each(|line| text.extend(line));
    std::fs::write(workplace.path("chat/chat.jsonl"), text).unwrap();
    std::fs::write(workplace.path("mine.toml"), MINE).unwrap();
}

pub fn run(workplace: &Workplace, words: &[&str], set: &[&str]) -> Output {
    let overrides = set.iter().flat_map(|text| ["-s", text]);
    workplace.xrun(&words.iter().copied().chain(overrides).collect::<Vec<_>>())
}

fn check(workplace: &Workplace, set: &[&str]) -> Output {
    run(workplace, &["check", "mine.toml"], set)
}

const SKIP: &str = "dataset.image-text.on_invalid=\"skip\"";

#[test]
fn a_broken_example_is_named_by_file_and_line_or_left_out_and_counted() {
    let role = b"{\"messages\": [{\"role\": \"assistent\", \"content\": \"a\"}]}\n".to_vec();
    let two = line(&format!("{}, {}", of_file("images/0.png"), of_file("images/1.png")), "{}").into_bytes();
    let bytes = |image: &str| line(image, "{\"number\": 1}").into_bytes();
    let broken: Vec<Vec<u8>> = vec![
        bytes(&of_file("images/99.png")),
        bytes(&of_file("../secret.png")),
        bytes(&of_file("link.png")),
        bytes(&of_url("https://example.org/a.png")),
        bytes(&of_file("thin.png")),
        bytes(&of_file("huge.png")),
        bytes(&inline(&claimed(30_000, 30_000))),
        bytes(&of_file("cut.png")),
        bytes(&of_file("chat.jsonl")),
        bytes(&of_url("data:image/png;base64,@@@@")),
        two,
        line(&of_file("images/0.png"), "").into_bytes(),
        role,
        b"{\"text\": \"\xff\"}\n".to_vec(),
        b"{\"text\"\n".to_vec(),
        [vec![b' '; 32 << 20], b"{}\n".to_vec()].concat(),
    ];
    let workplace = Workplace::new();
    chat(&workplace, &broken);
    let put = |name: &str, bytes: &[u8]| std::fs::write(workplace.path(name), bytes).unwrap();
    put("secret.png", &png(9));
    put("chat/thin.png", &claimed(1, 65_535));
    put("chat/huge.png", &claimed(30_000, 30_000));
    put("chat/cut.png", &png(5)[..60]);
    std::os::unix::fs::symlink(workplace.path("secret.png"), workplace.path("chat/link.png")).unwrap();
    let output = check(&workplace, &[]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("all_broken_examples_at_once", redacted(&output.err));
    let output = run(&workplace, &["check", "mine.toml", "--json"], &[SKIP]);
    assert_eq!(output.code, 0, "{output:?}");
    let counts = &output.json()[0]["data"]["skipped"];
    assert_eq!((&counts["too_large_image"], &counts["outside"], &counts["url"]), (&3.into(), &2.into(), &1.into()));
    let all: u64 = counts.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(all, 16, "{counts}");
}

#[test]
fn an_answer_that_is_not_json_is_legal_and_so_are_a_second_file_and_a_question_list() {
    let workplace = Workplace::new();
    chat(&workplace, &[line(&of_file("images/0.png"), "a red {circle").into_bytes()]);
    assert_eq!(check(&workplace, &[]).code, 0);
    let other = line(&inline(&png(70)), "{\"number\": 70}");
    std::fs::write(workplace.path("chat/held.jsonl"), other).unwrap();
    let output = check(&workplace, &["dataset.image-text.validation_path=\"chat/held.jsonl\""]);
    assert_eq!(output.code, 0, "{output:?}");
    std::fs::write(workplace.path("chat/questions.json"), "[[\"What?\", \"red\", 0],\n[\"What?\", \"blue\", 1]]")
        .unwrap();
    let list = ["dataset.image-text.source=\"question-list\"", "dataset.image-text.path=\"chat/questions.json\""];
    let output = check(&workplace, &list);
    assert_eq!(output.code, 0, "{output:?}");
    std::fs::write(workplace.path("chat/questions.json"), "[[\"What?\", \"red\", 0],\n[\"What?\", \"blue\", 77]]")
        .unwrap();
    let output = check(&workplace, &list);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
}

#[test]
fn settings_that_contradict_each_other_are_refused_with_what_to_write() {
    let workplace = Workplace::new();
    chat(&workplace, &[]);
    // Beside the experiment: messages underline a path, whose length would depend on this checkout's place.
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/dinov2_tiny.bin");
    std::fs::copy(reference, workplace.path("dinov2_tiny.bin")).unwrap();
    let dinov2 = "backbone.vit.weights=\"dinov2_tiny.bin\"";
    let mut refusals = String::new();
    for set in [
        vec!["dataset.image-text.image_size=50"],
        vec!["model.vision-language.pixel_shuffle=4"],
        vec!["model.vision-language.heads=3"],
        vec!["pipeline.vision-language.sequence_length=500"],
        vec!["pipeline.vision-language.sequence_length=16"],
        vec!["pipeline.vision-language.max_new_tokens=60"],
        vec!["pipeline.vision-language.trainable=[]"],
        vec!["pipeline.vision-language.trainable=[\"vision\"]", "pipeline.vision-language.lora_rank=4"],
        vec![
            "pipeline.vision-language.selective.schedule=\"alternating\"",
            "pipeline.vision-language.selective.alternate_for=101",
        ],
        vec!["model.vision-language.vision_weights=\"none.safetensors\""],
        vec![
            dinov2,
            "backbone.vit.heads=2",
            "model.vision-language.vision_layers=3",
            "dataset.image-text.image_size=50",
        ],
        vec![dinov2, "backbone.vit.heads=2", "pipeline.vision-language.trainable=[\"vision\"]"],
        vec!["dataset.image-text.encoder=\"mine.toml\""],
        vec!["limits.frame_cache=\"1 MiB\""],
        vec!["leaks.frame_cache=true"],
    ] {
        let output = check(&workplace, &set);
        assert_eq!(output.code, 2, "{set:?}: {output:?}");
        refusals += &format!("{}\n", output.err);
    }
    insta::assert_snapshot!(redacted(&refusals));
}

pub fn backbone(kind: &str, file: &str) -> String {
    format!("backbone.{kind}.weights=\"{}/tests/reference/{file}\"", env!("CARGO_MANIFEST_DIR"))
}

/// Problems that only the tokenised texts show, when the plan is made.
#[test]
fn texts_that_have_no_place_and_vocabularies_that_lose_bytes_end_the_plan_with_the_reason() {
    let workplace = Workplace::new();
    let numbers: Vec<String> = (100..200).map(|number| number.to_string()).collect();
    let long = line(&of_file("images/0.png"), &format!("{{\"text\": \"{}\"}}", numbers.join(" ")));
    chat(&workplace, &[long.into_bytes()]);
    std::fs::write(workplace.path("encoder.json"), "{\"a\": 0, \"<|endoftext|>\": 1}").unwrap();
    std::fs::write(workplace.path("vocab.bpe"), "").unwrap();
    let planned = |set: &[&str]| run(&workplace, &["--dry-run", "mine.toml"], set);
    let output = planned(&[]);
    assert_ne!(output.code, 0, "{output:?}");
    insta::assert_snapshot!("a_text_that_is_too_long", redacted(&output.err));
    let of_no_bytes = ["dataset.image-text.encoder=\"encoder.json\"", "dataset.image-text.merges=\"vocab.bpe\""];
    let (planned_with, checked) = (planned(&of_no_bytes), check(&workplace, &of_no_bytes));
    assert!(planned_with.code != 0 && checked.code != 0, "{planned_with:?} {checked:?}");
    insta::assert_snapshot!("a_vocabulary_that_loses_bytes", redacted(&(planned_with.err + &checked.err)));
    // An image that takes more to decode than the file allows.
    let output = planned(&[SKIP, "limits.decode_memory=\"1 MiB\""]);
    assert!(!output.err.contains("`limits.decode_memory`"), "{output:?}");
    let large = image::RgbImage::from_pixel(600, 400, image::Rgb([9, 9, 9]));
    large.save(workplace.path("chat/images/0.png")).unwrap();
    let output = planned(&[SKIP, "limits.decode_memory=\"1 MiB\""]);
    assert!(
        output.code != 0 && output.err.contains("images/0.png") && output.err.contains("600 x 400 pixels"),
        "{output:?}"
    );
}
