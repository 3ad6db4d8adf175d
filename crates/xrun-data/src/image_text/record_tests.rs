//! Lines that are examples, and messages about the others.

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
    for url in ["file:///data/a%20b.png", "file://localhost/data/a%20b.png"] {
        let record = of_line(line(&format!("{},{ANSWER}", IMAGE.replace("a.png", url))).as_bytes()).unwrap();
        assert_eq!(record.image, Image::File("/data/a b.png".into()));
    }
}

#[test]
fn an_image_next_to_the_messages_belongs_to_the_part_that_names_none() {
    let part = IMAGE.replace(", \"image\": \"a.png\"", ", \"text\": null");
    let with = |beside: &str| of_line(format!("{{\"messages\": [{part}, {ANSWER}], {beside}}}").as_bytes());
    for beside in ["\"image\": \"a.png\"", "\"images\": [\"a.png\"]"] {
        assert_eq!(with(beside).unwrap().image, Image::File("a.png".into()), "{beside}");
    }
    assert_eq!(with("\"images\": []").unwrap_err().0, "wrong_form");
    assert_eq!(with("\"image\": {\"path\": \"a.png\"}").unwrap_err().0, "wrong_form");
}

#[test]
fn conversations_of_llava_and_sharegpt_are_read_with_their_earlier_turns() {
    let turns = r#"{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A fox."},
        {"from": "human", "value": "Colour?"}, {"from": "gpt", "value": "red"}"#
        .replace('\n', "");
    for (key, image) in
        [("conversations", r#""image": "a.png""#), ("messages", r#""images": [{"bytes": null, "path": "a.png"}]"#)]
    {
        let record = of_line(format!("{{\"id\": \"7\", {image}, \"{key}\": [{turns}]}}").as_bytes()).unwrap();
        assert_eq!((record.question.as_str(), record.answer.as_str()), ("What?\nA fox.\nColour?", "red"), "{key}");
        assert_eq!(record.image, Image::File("a.png".into()));
    }
    let plain = r#"{"messages": [{"role": "user", "content": "a <image> b"}, {"role": "assistant", "content": "c"}], "image": "d.png"}"#;
    let record = of_line(plain.as_bytes()).unwrap();
    assert_eq!((record.question.as_str(), record.image), ("a \n b", Image::File("d.png".into())));
}

#[test]
fn invalid_records_have_a_reason_and_a_message() {
    let two = IMAGE.replace("What?\"}", "What?\"}, {\"type\": \"image\", \"image\": \"b.png\"}");
    let user = r#"{"role": "user", "content": "What?"}"#;
    let texts: Vec<String> = vec![
        line(IMAGE),
        line(&format!(r#"{IMAGE},{{"role": "assistant", "content": ""}}"#)),
        line(&format!("{ANSWER},{IMAGE}")),
        line(&format!("{user},{ANSWER}")),
        line(&format!("{two},{ANSWER}")),
        line(&format!("{},{ANSWER}", IMAGE.replace("user", "usr"))),
        line(&format!("{},{ANSWER}", IMAGE.replace("\"type\": \"image\"", "\"type\": \"imagee\""))),
        line(&format!("{},{ANSWER}", IMAGE.replace("\"type\": \"text\"", "\"type\": \"image\""))),
        line(&format!("{},{ANSWER}", IMAGE.replace("a.png", "file:///%ff.png"))),
        line(r#"{"role": "user", "content": 3}"#),
        r#"{"messages": [], "response": "b"}"#.into(),
        r#"{"text": "a", "image": "b", "response": ""}"#.into(),
        "[1]".into(),
        "nonsense".into(),
        r#"{"text": "a", "image": "b", "response": {"a": 1}}"#.into(),
        r#"{"id": "1", "image": "b", "conversations": [{"from": "human", "value": "a"}]}"#.into(),
        line(&"{\"role\":\"user\",\"content\":\"\"},".repeat(LIST_MAX + 1)),
        line(&format!(r#"{{"role":"user","content":[{}{{}}]}}"#, "{},".repeat(LIST_MAX))),
    ];
    let shown = |text: &String| {
        let (reason, message) = of_line(text.as_bytes()).unwrap_err();
        format!("{}\n    {reason}: {message}\n", &text[..text.len().min(200)])
    };
    insta::assert_snapshot!(texts.iter().map(shown).collect::<String>());
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
    let items = [r#"["a", "", 1]"#, r#"["a", "b"]"#, r#"["a", "b", -1]"#, r#"["a", "b", "7"]"#, r#"[1, "b", 2]"#, "{}"];
    let shown = |item: &str| format!("{item}: {:?}\n", of_item(item, AnswerFormat::Plain).unwrap_err());
    insta::assert_snapshot!(items.map(shown).concat());
}
