//! Tests of the mask: a case by hand, and random answers with a learned vocabulary.

use proptest::prelude::*;

use super::super::json_bytes::tests::json;
use super::*;
use xrun_data::tokenizer::Words;

/// Weights of an answer given by the texts of its tokens.
fn weighed(settings: &SelectiveLoss, tokens: &[&str]) -> WeighedAnswer {
    let answer = tokens.concat();
    let spans = spans(tokens.iter().map(|token| token.len()), answer.len()).unwrap();
    weigh_answer_spans(settings, true, &answer, &spans, || tokens.iter().map(|token| (*token).to_owned()).collect())
}

/// Texts of the unmasked tokens; `end` is the end of text.
fn kept<'a>(settings: &SelectiveLoss, tokens: &[&'a str]) -> Vec<&'a str> {
    let masked = weighed(settings, tokens).masked;
    assert_eq!(masked.len(), tokens.len() + 1);
    tokens.iter().copied().chain(["end"]).zip(masked).filter(|(_, masked)| !masked).map(|(token, _)| token).collect()
}

fn with(mask: Mask, method: MaskMethod) -> SelectiveLoss {
    SelectiveLoss { mask, method, schedule: MaskSchedule::Always, ..SelectiveLoss::default() }
}

const CASE: [&str; 12] = ["{\"", "a", "\":", " \"", "b", " c", "\",", " \"", "n", "\":", " 3", "}"];

#[test]
fn unmasked_tokens_by_hand() {
    assert_eq!(CASE.concat(), r#"{"a": "b c", "n": 3}"#);
    let kept = |mask, method| kept(&with(mask, method), &CASE);
    assert_eq!(kept(Mask::Structure, MaskMethod::Spans), ["a", "b", " c", "\",", "n", " 3", "}", "end"]);
    assert_eq!(kept(Mask::StructureAndKeys, MaskMethod::Spans), ["b", " c", "\",", " 3", "}", "end"]);
    assert_eq!(kept(Mask::Structure, MaskMethod::TokenText), ["a", "b", " c", "n", " 3", "end"]);
    assert_eq!(kept(Mask::None, MaskMethod::Spans).len(), 13);
    assert_eq!(kept(Mask::None, MaskMethod::TokenText).len(), 13);
}

#[test]
fn kinds_and_fields_do_not_depend_on_the_mask() {
    use TokenKind::{Key as K, Structure as S, Value as V};
    for mask in [Mask::None, Mask::StructureAndKeys] {
        let weighed = weighed(&with(mask, MaskMethod::Spans), &CASE);
        assert_eq!(weighed.kinds, [S, K, S, S, V, V, V, S, K, S, V, V, V]);
        // `b`, ` c` and `",`; ` 3` and `}`.
        assert_eq!(weighed.fields, [4..7, 10..12]);
    }
    // The end of text ends a number that nothing follows.
    assert_eq!(weighed(&with(Mask::Structure, MaskMethod::Spans), &["1", "2"]).fields, [Range { start: 0, end: 3 }]);
    // One token of all bytes belongs to both fields.
    assert_eq!(weighed(&with(Mask::Structure, MaskMethod::Spans), &["[1,2]"]).fields, [0..1, 0..1]);
}

#[test]
fn ends_of_values_and_nulls_follow_the_settings() {
    let settings = SelectiveLoss { value_end: false, ..with(Mask::Structure, MaskMethod::Spans) };
    assert_eq!(kept(&settings, &CASE), ["a", "b", " c", "n", " 3", "end"]);
    let empty = ["{\"", "m", "\":", " ", "null", "}"];
    let settings = with(Mask::Structure, MaskMethod::Spans);
    assert_eq!(kept(&settings, &empty), ["m", "null", "}", "end"]);
    let nulls = SelectiveLoss { nulls: Nulls::Structure, ..settings.clone() };
    assert_eq!(kept(&nulls, &empty), ["m", "}", "end"]);
    let both = SelectiveLoss { value_end: false, ..nulls };
    assert_eq!(kept(&both, &empty), ["m", "end"]);
    // Where quotes and words are one token, it is kept.
    assert_eq!(kept(&settings, &["{\"", "a\": \"b", "\"", "}"]), ["a\": \"b", "\"", "end"]);
}

#[test]
fn an_answer_that_is_not_json_is_all_value() {
    for answer in [["re", "d"], ["{\"", "a"], [" ", ","]] {
        let weighed = weighed(&with(Mask::StructureAndKeys, MaskMethod::Spans), &answer);
        assert_eq!(weighed.masked, [false; 3]);
        assert_eq!(weighed.kinds, [TokenKind::Value; 3]);
        assert!(weighed.fields.is_empty());
    }
}

/// Each of these tokens is a value or ends one, which only its bytes show; the older rule masks it.
#[test]
fn the_token_text_method_masks_values_that_the_spans_method_keeps() {
    for (tokens, value) in [
        (vec!["{\"", "a", "\":\"", "Paris", ",", " France", "\"", "}"], ","),
        (vec!["{\"", "a", "\":\"", "12", ":", "30", "\"", "}"], ":"),
        (vec!["{\"", "a", "\":\"", "string", "\"", "}"], "string"),
        (vec!["{\"", "a", "\":\"", "the format", "\"", "}"], "the format"),
        (vec!["{\"", "a", "\":", "null", "}"], "null"),
        (vec!["{\"", "a", "\":\"", "top", "\"", "}"], "\""),
    ] {
        let [spans, texts] =
            [MaskMethod::Spans, MaskMethod::TokenText].map(|method| kept(&with(Mask::Structure, method), &tokens));
        assert!(spans.contains(&value), "{tokens:?}");
        assert!(!texts.contains(&value), "{tokens:?}");
    }
    // A value that reads like a key is masked with the keys.
    let tokens = ["{\"", "a", "\":\"", "a", "\"", "}"];
    assert_eq!(kept(&with(Mask::StructureAndKeys, MaskMethod::Spans), &tokens), ["a", "\"", "end"]);
    assert_eq!(kept(&with(Mask::StructureAndKeys, MaskMethod::TokenText), &tokens), ["end"]);
}

#[test]
fn the_schedule_switches_the_mask() {
    let on = |settings: &SelectiveLoss| (0..8).filter(|step| settings.masks_at(*step)).collect::<Vec<u64>>();
    let of = |schedule| SelectiveLoss {
        schedule,
        after_step: 5,
        alternate_every: 4,
        alternate_for: 1,
        ..SelectiveLoss::default()
    };
    assert_eq!(on(&of(MaskSchedule::Always)), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(on(&of(MaskSchedule::After)), [5, 6, 7]);
    assert_eq!(on(&of(MaskSchedule::Alternating)), [3, 7]);
    assert!(on(&SelectiveLoss { mask: Mask::None, ..of(MaskSchedule::Always) }).is_empty());
}

#[test]
fn a_weight_of_one_and_a_mask_that_is_off_mask_nothing() {
    let half = SelectiveLoss { structure_weight: 0.5, ..with(Mask::Structure, MaskMethod::Spans) };
    let weights = weighed(&half, &CASE).weights;
    assert_eq!(weights, [0.5, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0]);
    assert_eq!(weighed(&half, &CASE).selected(), 8);
    let one = SelectiveLoss { structure_weight: 1.0, ..half.clone() };
    assert_eq!(weighed(&one, &CASE).weights, weighed(&with(Mask::None, MaskMethod::Spans), &CASE).weights);
    let answer = CASE.concat();
    let spans = spans(CASE.iter().map(|token| token.len()), answer.len()).unwrap();
    assert_eq!(weigh_answer_spans(&half, false, &answer, &spans, Vec::new).weights, [1.0; 13]);
}

#[test]
fn tokens_that_do_not_match_the_answer_are_refused() {
    for bytes in [vec![2, 3], vec![2, 1], vec![], vec![usize::MAX, 2]] {
        assert!(spans(bytes.clone(), 4).is_err(), "{bytes:?}");
    }
}

/// Micro-batches with weights 3 and 1 and losses 6 and 4.
#[test]
fn the_loss_of_a_step_is_divided_once() {
    let part = |weights, weighted_loss, tokens| StepSums { weights, weighted_loss, tokens, selected: weights as u64 };
    let mut step = StepSums::default();
    assert_eq!(step.loss(Normalise::Selected), None);
    step.add(&part(3.0, 6.0, 5));
    step.add(&part(1.0, 4.0, 3));
    assert_eq!(step.loss(Normalise::Selected), Some(2.5));
    assert_eq!(step.loss(Normalise::Answer), Some(1.25));
    assert_eq!(step.masked_fraction(), Some(0.5));
}

/// Tokenizer learned from few answers, whose tokens span structure and values.
fn tokenizer() -> &'static Tokenizer {
    static LEARNT: std::sync::LazyLock<Tokenizer> = std::sync::LazyLock::new(|| {
        let mut words = Words::default();
        words.add(r#"{"shape": "cross", "colour": "red", "place": "top left", "size": 2, "mark": null}"#, 9).unwrap();
        words.add(r#"[{"é": ["日本", "\\u00e9", true, -1.5e3]}, ",", "}]"]"#, 9).unwrap();
        Tokenizer::learn(&words, 400).unwrap()
    });
    &LEARNT
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Bytes add up, and a token is masked exactly if all its bytes are structure.
    #[test]
    fn masks_follow_the_bytes_of_tokens(answer in json(), keys: bool) {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode(&answer).unwrap();
        let mask = if keys { Mask::StructureAndKeys } else { Mask::Structure };
        let settings = with(mask, MaskMethod::Spans);
        let weighed = weigh_answer(&settings, true, &answer, &tokens, tokenizer).unwrap();
        prop_assert_eq!(weighed.weights.len(), tokens.len() + 1);
        prop_assert_eq!(weighed.weights.last(), Some(&1.0));
        let classes = scan(&answer).unwrap().classes;
        let mut at = 0;
        for (token, masked) in tokens.iter().zip(&weighed.masked) {
            let bytes = &classes[at..at + tokenizer.bytes(*token)];
            at += bytes.len();
            let structure = |class: &ByteClass| *class == ByteClass::Structure || (keys && *class == ByteClass::Key);
            prop_assert_eq!(*masked, bytes.iter().all(structure));
        }
        prop_assert_eq!(at, answer.len());
        // With one token per byte, the tokens of a field are its bytes.
        let bytes: Vec<Range<usize>> = (0..=answer.len()).map(|byte| byte..byte + 1).collect();
        let by_bytes = weigh_answer_spans(&settings, true, &answer, &bytes, Vec::new);
        prop_assert_eq!(&by_bytes.fields, &scan(&answer).unwrap().value_spans);
        prop_assert_eq!(by_bytes.fields.len(), weighed.fields.len());
    }
}
