//! Lines that are examples, and messages about the others.

use proptest::prelude::*;

use super::*;

fn line(messages: &str) -> String {
    format!("{{\"id\": 7, \"messages\": [{messages}]}}")
}

const IMAGE: &str =
    r#"{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What?"}]}"#;
const ANSWER: &str = r#"{"role": "assistant", "content": "{\"a\":  1.50}"}"#;

#[test]
fn both_forms_and_all_content_types_are_read() {
    let system = r#"{"role": "system", "content": "Be short."}"#;
    let record = of_line(line(&format!("{system}, {IMAGE}, {ANSWER}")).as_bytes()).unwrap();
    assert_eq!(record.question, "Be short.\nWhat?");
    assert_eq!(record.prompt(), "question: Be short.\nWhat?\nanswer: ");
    // Byte for byte, not written anew.
    assert_eq!(record.answer, r#"{"a":  1.50}"#);
    assert_eq!(record.image, Image::File("a.png".into()));
    let url =
        r#"{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}"#;
    let parts = r#"{"role": "assistant", "content": [{"type": "text", "text": "re"}, {"type": "text", "text": "d"}]}"#;
    let record = of_line(line(&format!("{url},{parts}")).as_bytes()).unwrap();
    assert_eq!(record.image, Image::Inline("data:image/png;base64,AA==".into()));
    assert_eq!((record.question.as_str(), record.answer.as_str()), ("", "red"));
    let record = of_line(br#"{"text": "What?", "image": "b/c.jpg", "response": "red"}"#).unwrap();
    assert_eq!((record.image, record.answer.as_str()), (Image::File("b/c.jpg".into()), "red"));
}

#[test]
fn an_image_next_to_the_messages_belongs_to_the_part_that_names_none() {
    let part = IMAGE.replace(", \"image\": \"a.png\"", ", \"text\": null");
    let with = |beside: &str| of_line(format!("{{\"messages\": [{part}, {ANSWER}], {beside}}}").as_bytes());
    for beside in
        ["\"image\": \"a.png\"", "\"images\": [\"a.png\"]", "\"images\": [{\"bytes\": null, \"path\": \"a.png\"}]"]
    {
        assert_eq!(with(beside).unwrap().image, Image::File("a.png".into()), "{beside}");
    }
    let inline = with("\"image\": {\"bytes\": \"iVBORw0KGg==\", \"path\": \"a.png\"}").unwrap().image;
    assert_eq!(inline, Image::Inline("data:image/png;base64,iVBORw0KGg==".into()));
    assert_eq!(with("\"images\": []").unwrap_err().0, "wrong_form");
    assert_eq!(with("\"image\": {\"bytes\": null}").unwrap_err().0, "wrong_form");
}

#[test]
fn a_file_url_is_a_path() {
    let image =
        |url: &str| of_line(line(&format!("{},{ANSWER}", IMAGE.replace("a.png", url))).as_bytes()).unwrap().image;
    for url in ["file:///data/a%20b.png", "file://localhost/data/a%20b.png"] {
        assert_eq!(image(url), Image::File("/data/a b.png".into()));
    }
}

#[test]
fn invalid_records_have_a_reason_and_a_message() {
    let two = IMAGE.replace("What?\"}", "What?\"}, {\"type\": \"image\", \"image\": \"b.png\"}");
    let user = r#"{"role": "user", "content": "What?"}"#;
    for (text, reason, part) in [
        (line(IMAGE), "no_answer", "assistant"),
        (line(&format!(r#"{IMAGE},{{"role": "assistant", "content": ""}}"#)), "no_answer", "assistant"),
        (line(&format!("{IMAGE},{ANSWER},{ANSWER}")), "several_answers", "2 messages"),
        (line(&format!("{ANSWER},{IMAGE}")), "answer_not_last", "message 1"),
        (line(&format!("{user},{ANSWER}")), "not_one_image", "0 images"),
        (line(&format!("{two},{ANSWER}")), "not_one_image", "2 images"),
        (line(&format!("{},{ANSWER}", IMAGE.replace("user", "usr"))), "unknown_role", "is it user?"),
        (
            line(&format!("{},{ANSWER}", IMAGE.replace("\"type\": \"image\"", "\"type\": \"imagee\""))),
            "unknown_part",
            "is it image?",
        ),
        (
            line(&format!("{},{ANSWER}", IMAGE.replace("\"type\": \"text\"", "\"type\": \"image\""))),
            "wrong_form",
            "without `image`",
        ),
        (line(&format!("{},{ANSWER}", IMAGE.replace("a.png", "https://x.org/a.png"))), "url", "https://x.org/a.png"),
        (line(&format!("{},{ANSWER}", IMAGE.replace("a.png", "file:///%ff.png"))), "url", "not UTF-8"),
        (line(r#"["user", "What?"]"#), "wrong_form", "expected an object"),
        (line(r#"{"role": "user", "content": 3}"#), "wrong_form", "a text or a list of parts"),
        (line(r#"{"role": "user"}"#), "wrong_form", "content"),
        (r#"{"message": []}"#.into(), "wrong_form", "did you mean `messages` by `message`?"),
        (r#"{"text": "a", "image": "b"}"#.into(), "no_answer", "response"),
        (r#"{"text": "a", "image": null, "response": "b"}"#.into(), "wrong_form", "`image` is null"),
        (r#"{"text": "a", "img": "b", "response": "c"}"#.into(), "wrong_form", "did you mean `image` by `img`?"),
        (
            r#"{"image": "b", "instruction": "a", "answer": "c"}"#.into(),
            "wrong_form",
            "did you mean `text` by `instruction`?",
        ),
        (r#"{"text": "a", "response": "b"}"#.into(), "wrong_form", "expected"),
        (r#"{"messages": [], "response": "b"}"#.into(), "wrong_form", "both"),
        (r#"{"text": "a", "image": "b", "response": ""}"#.into(), "no_answer", "empty"),
        ("[1]".into(), "wrong_form", "a list"),
        ("{\"messages\": [".into(), "not_json", "ends at column 14 before its JSON does"),
        ("nonsense".into(), "not_json", "is no JSON from column"),
        ("{'text': 'a'}".into(), "not_json", "double quotation marks"),
        (
            r#"{"text": "a", "image": "b", "response": {"a": 1}}"#.into(),
            "wrong_form",
            "`response` is an object, expected a text",
        ),
        (r#"{"text": "a", "images": ["b"], "response": "c"}"#.into(), "wrong_form", "in place of the list `images`"),
        (
            format!("{{\"messages\": [{user}, {ANSWER}], \"images\": [\"b\"]}}"),
            "not_one_image",
            "next to `messages` is not read",
        ),
        (
            r#"{"id": "1", "image": "b", "conversations": [{"from": "human", "value": "a"}]}"#.into(),
            "wrong_form",
            "the form of LLaVA and ShareGPT",
        ),
        (line(&format!("{},{ANSWER}", IMAGE.replace("user", "human"))), "unknown_role", "write \"user\""),
        (line(&format!("{IMAGE},{}", ANSWER.replace("assistant", "gpt"))), "unknown_role", "write \"assistant\""),
        (line(&"{\"role\":\"user\",\"content\":\"\"},".repeat(LIST_MAX + 1)), "wrong_form", "a list of more than 4096"),
        (
            line(&format!(r#"{{"role":"user","content":[{}{{}}]}}"#, "{},".repeat(LIST_MAX))),
            "wrong_form",
            "more than 4096",
        ),
    ] {
        let (found, message) = of_line(text.as_bytes()).unwrap_err();
        let shown = &text[..text.len().min(200)];
        assert!(found == reason && message.contains(part), "{found}: {message} ({shown})");
    }
    let (reason, message) = of_line(b"{\"text\": \"\xff\"}").unwrap_err();
    assert!(reason == "not_utf8" && message.contains("byte 10"), "{message}");
    // What a data file says cannot repaint a terminal.
    let (_, message) = of_line(line(&IMAGE.replace("user", "\\u001b[2J")).as_bytes()).unwrap_err();
    assert!(!message.contains('\u{1b}'), "{message}");
}

#[test]
fn an_item_of_a_question_list_is_read_in_both_forms() {
    let item = r#"["what color is the \"shape\"?", "re\"d", 12]"#;
    let plain = of_item(item, AnswerFormat::Plain).unwrap();
    assert_eq!((plain.question.as_str(), plain.answer.as_str()), ("what color is the \"shape\"?", "re\"d"));
    assert_eq!(plain.image, Image::File("images/12.png".into()));
    assert_eq!(of_item(item, AnswerFormat::Json).unwrap().answer, r#"{"answer": "re\"d"}"#);
    for (item, reason) in [
        (r#"["a", "", 1]"#, "no_answer"),
        (r#"["a", "b"]"#, "wrong_form"),
        (r#"["a", "b", -1]"#, "wrong_form"),
        (r#"["a", "b", "../c"]"#, "wrong_form"),
        (r#"["a", "b", 1, 2]"#, "wrong_form"),
        (r#"{"question": "a"}"#, "wrong_form"),
    ] {
        assert_eq!(of_item(item, AnswerFormat::Plain).unwrap_err().0, reason, "{item}");
    }
}

proptest! {
    #[test]
    fn mutated_records_never_panic(at: prop::sample::Index, byte: u8) {
        let mut text = line(&format!("{IMAGE}, {ANSWER}")).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = of_line(&text);
    }
}
