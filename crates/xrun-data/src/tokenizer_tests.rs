//! Text comes back from tokens, and real files are read as GPT-2 reads them.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::real_data::real_data;
use xrun_core::files::write;

const TEXTS: [&str; 4] = ["the cat sat on the mat", "the dog sat on the log", "the cat and the dog", "on and on"];

fn counted(texts: &[&str]) -> Words {
    let mut words = Words::default();
    texts.iter().for_each(|text| words.add(text, 1).unwrap());
    words
}

#[test]
fn a_shared_context_counts_once_per_question() {
    let (context, questions) = ("Ala ma kota. Żuraw  też.\n\nEnd", ["Who?", "What has  Ala?", "Why not?"]);
    let joined: Vec<String> =
        questions.iter().map(|asked| format!("Question: {asked}\nContext: {context}\nAnswer:")).collect();
    let mut parts = Words::default();
    parts.add(&format!("Context: {context}\nAnswer:"), 3).unwrap();
    parts.add("\n", 2).unwrap();
    questions.iter().for_each(|asked| parts.add(&format!("Question: {asked}\n"), 1).unwrap());
    assert_eq!(parts, counted(&[&joined.join("\n")]));
}

/// Merges of words without an end would take hours: DNA, base64, a language without spaces.
#[test]
fn only_overlong_words_are_cut_and_reported() {
    let letters = |count: usize| -> String {
        let letter = |at: usize| char::from(b"ACGT"[(at * at + at / 7 + at / 1013) % 4]);
        (0..count).map(letter).collect()
    };
    let words_of = |text: &str| counted(&[text, text]);
    // The space in front of a word belongs to it, and a letter may have several bytes.
    let longest =
        format!("{} {} {}", letters(WORD_BYTES_MAX), letters(WORD_BYTES_MAX - 1), "ż".repeat(WORD_BYTES_MAX / 2 - 1));
    assert_eq!(words_of(&longest).note(), None);
    assert_eq!(words_of(&longest).counts.len(), 3);
    for (longer, pieces) in [(letters(WORD_BYTES_MAX + 1), 2), ("ż".repeat(WORD_BYTES_MAX), 1), (" ".repeat(5000), 2)]
    {
        let words = words_of(&longer);
        assert_eq!((words.cut, words.counts.len()), (2, pieces), "{}", longer.len());
        let bytes = words.counts.iter().map(|(word, times)| word.chars().count() as u64 * times).sum::<u64>();
        assert_eq!(bytes, 2 * longer.len() as u64, "nothing of it is lost");
    }
    let words = words_of(&format!("{} and {}", letters(100_000), letters(200_000)));
    assert_eq!(words.cut, 4);
    let tokenizer = Tokenizer::learn(&words, 400).unwrap();
    assert!(tokenizer.size() > 300 && tokenizer.note().is_some());
    assert_eq!(tokenizer.decode(&tokenizer.encode(&longest).unwrap()), longest);
}

fn learnt(size: usize) -> Tokenizer {
    Tokenizer::learn(&counted(&TEXTS), size).unwrap()
}

/// Files of a vocabulary of bytes with two merges.
fn files(directory: &Path) -> (PathBuf, PathBuf) {
    let mut bytes: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    bytes.sort_unstable();
    let mut tokens: BTreeMap<String, u32> = BTreeMap::new();
    for text in bytes.into_iter().map(String::from).chain(["th".into(), "the".into(), END_OF_TEXT.into()]) {
        let next = tokens.len() as u32;
        tokens.insert(text, next);
    }
    let (encoder, merges) = (directory.join("encoder.json"), directory.join("vocab.bpe"));
    write::replace(&encoder, &serde_json::to_vec(&tokens).unwrap()).unwrap();
    write::replace(&merges, b"#version: 0.2\nt h\nth e\n").unwrap();
    (encoder, merges)
}

#[test]
fn a_learned_vocabulary_compresses_and_is_reproducible() {
    let (small, large) = (learnt(257), learnt(280));
    assert_eq!((small.size(), small.encode("the cat").unwrap().len()), (257, 7));
    assert!(large.size() > 260 && large.encode("the cat").unwrap().len() <= 3);
    let mut backwards = TEXTS;
    backwards.reverse();
    let again = Tokenizer::learn(&counted(&backwards), 280).unwrap();
    assert_eq!(large.encode("the dog sat").unwrap(), again.encode("the dog sat").unwrap());
}

#[test]
fn files_are_read_and_merged_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let (encoder, merges) = files(directory.path());
    let tokenizer = Tokenizer::read(&encoder, &merges).unwrap();
    assert_eq!((tokenizer.size(), tokenizer.eos_token()), (259, 258));
    assert_eq!(tokenizer.encode("the th").unwrap().len(), 3, "the, space, th");
    assert_eq!(tokenizer.decode(&tokenizer.encode("the źrebię").unwrap()), "the źrebię");
}

/// Written files are read by [`Tokenizer::read`] and give the same tokens.
#[test]
fn a_learned_vocabulary_is_written_in_hugging_faces_format() {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = learnt(280);
    let (vocabulary, merges) = tokenizer.files();
    let paths = ["vocab.json", "merges.txt"].map(|name| directory.path().join(name));
    write::replace(&paths[0], &vocabulary).unwrap();
    write::replace(&paths[1], &merges).unwrap();
    let again = Tokenizer::read(&paths[0], &paths[1]).unwrap();
    assert_eq!((again.size(), again.eos_token()), (tokenizer.size(), tokenizer.eos_token()));
    for text in TEXTS.into_iter().chain(["Żuraw sat, on 3 mats"]) {
        assert_eq!(again.encode(text).unwrap(), tokenizer.encode(text).unwrap());
    }
    assert!(again.encode(" the").unwrap().len() == 1, "merges are there");
}

#[test]
fn invalid_files_are_refused_with_line_and_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (encoder, merges) = files(directory.path());
    let whole = (std::fs::read_to_string(&encoder).unwrap(), std::fs::read_to_string(&merges).unwrap());
    for (path, text, part) in [
        (&encoder, "[]".to_owned(), "expected an object"),
        (&encoder, whole.0.replace(":258", ":300"), "where 258 should be, 300 is"),
        (&encoder, whole.0.replace(END_OF_TEXT, "<|end|>"), "has no \"<|endoftext|>\""),
        (&merges, "#version: 0.2\nt h\nth e x\n".into(), "line 3: expected two texts"),
        (&merges, "#version: 0.2\nt h\nq z\n".into(), "line 3: \"qz\" is not in"),
    ] {
        write::replace(path, text.as_bytes()).unwrap();
        let message = Tokenizer::read(&encoder, &merges).unwrap_err().to_string();
        assert!(message.contains(part) && message.starts_with(path.to_str().unwrap()), "{message}");
        write::replace(&encoder, whole.0.as_bytes()).unwrap();
        write::replace(&merges, whole.1.as_bytes()).unwrap();
    }
    let gone = Tokenizer::read(&directory.path().join("none.json"), &merges).unwrap_err().to_string();
    assert!(gone.contains("cannot be read"), "{gone}");
}

proptest! {
    #[test]
    fn encoding_round_trips(text in "\\PC{0,40}") {
        let tokenizer = learnt(270);
        let tokens = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokens.iter().map(|token| tokenizer.bytes(*token)).sum::<usize>(), text.len());
        prop_assert_eq!(tokenizer.bytes(tokenizer.eos_token()), 0);
        prop_assert_eq!(tokenizer.decode(&tokens), text);
        prop_assert!(!tokenizer.encode(END_OF_TEXT).unwrap().contains(&tokenizer.eos_token()), "text like it is text");
    }
}

/// Expected values: GPT-2's rules written out in Python, and transformers (`tests/reference/gpt2_tokens.py`).
#[test]
fn tokens_equal_those_of_gpt2() {
    let Some(directory) = real_data("text/gpt2") else { return };
    let tokenizer = Tokenizer::read(&directory.join("encoder.json"), &directory.join("vocab.bpe")).unwrap();
    assert_eq!((tokenizer.size(), tokenizer.eos_token()), (50257, 50256));
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/reference/gpt2_tokens.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["tokens"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text}");
        assert_eq!(tokenizer.decode(&expected), text);
    }
}
