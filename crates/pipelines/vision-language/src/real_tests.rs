//! Test of spans with GPT-2's vocabulary against transformers, `tests/reference/answer_spans.py`.

use super::selective::{Mask, SelectiveLoss, spans, weigh_answer};
use crate::real_data::real_data;
use xrun_data::tokenizer::Tokenizer;

#[test]
fn tokens_and_spans_of_200_answers_equal_those_of_transformers() {
    let Some(directory) = real_data("text/gpt2") else { return };
    let tokenizer = Tokenizer::read(&directory.join("encoder.json"), &directory.join("vocab.bpe")).unwrap();
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../../../../tests/reference/answer_spans.json")).unwrap();
    let (mut masked, mut tokens_in_all) = (0, 0);
    for case in cases.as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["tokens"].clone()).unwrap();
        let letters: Vec<usize> = serde_json::from_value(case["letters"].clone()).unwrap();
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokens, expected, "{text}");
        let spans = spans(tokens.iter().map(|token| tokenizer.bytes(*token)), text.len()).unwrap();
        // Index of the character that contains a byte.
        let letter = |byte: usize| text.char_indices().filter(|(at, _)| *at <= byte).count() - 1;
        for (span, letters) in spans.iter().zip(letters.chunks_exact(2)) {
            assert_eq!([letter(span.start), letter(span.end - 1) + 1], letters, "{span:?} of {text}");
        }
        let settings = SelectiveLoss { mask: Mask::Structure, ..SelectiveLoss::default() };
        let weighed = weigh_answer(&settings, true, text, &tokens, &tokenizer).unwrap();
        masked += weighed.masked.iter().filter(|masked| **masked).count();
        tokens_in_all += weighed.masked.len();
    }
    assert_eq!((cases.as_array().unwrap().len(), tokens_in_all > 200), (200, true));
    let masked = 100.0 * masked as f64 / tokens_in_all as f64;
    assert!((10.0..60.0).contains(&masked), "{masked:.1} % of {tokens_in_all} tokens are structure");
}
