//! Captions of the images of a validation: the answer, its errors and the masked tokens.

use super::selective::{SelectiveLoss, weigh_answer};
use xrun_core::printable;
use xrun_data::image_text::store::Text;
use xrun_data::tokenizer::Tokenizer;
use xrun_training::metrics::fields::AnswerComparison;

/// Maximum length of an instruction or an answer in characters.
const TEXT_MAX: usize = 300;

/// Caption with the instruction, the model's answer, its wrong fields and the true answer.
pub fn caption(question: &str, answer: &str, truth: &str, judged: &AnswerComparison) -> String {
    let line = |text: &str| printable::line(text, TEXT_MAX);
    let mut caption = format!("{} → {}", line(question), line(answer));
    let wrong: Vec<&str> =
        judged.fields.iter().filter(|(_, right)| !right).map(|(field, _)| field.trim_start_matches('/')).collect();
    if !judged.valid_json && !judged.fields.is_empty() {
        caption += " ✗ not one JSON object";
    } else if !wrong.is_empty() {
        caption += &format!(" ✗ wrong: {}", line(&wrong.join(", ")));
    } else if judged.exact_object || judged.exact_match {
        return caption + " ✓ right";
    } else if !judged.fields.is_empty() {
        caption += " ✗ additional fields";
    } else {
        caption += " ✗ wrong";
    }
    caption + &format!(". True: {}", line(truth))
}

/// Tokens of an answer, separated by `|` and with masked ones in brackets; empty if nothing is masked.
pub fn masking(text: &Text, tokenizer: &Tokenizer, settings: &SelectiveLoss) -> String {
    let Ok(weighed) = weigh_answer(settings, true, &text.answer_text, &text.answer, tokenizer) else {
        return String::new();
    };
    let masked = weighed.masked.iter().filter(|masked| **masked).count();
    if masked == 0 {
        return String::new();
    }
    let token = |(token, masked): (&u32, &bool)| {
        let text = tokenizer.decode(&[*token]);
        if *masked { format!("⟦{text}⟧") } else { text }
    };
    let tokens: Vec<String> = text.answer.iter().zip(&weighed.masked).map(token).collect();
    let all = weighed.masked.len();
    format!(
        ". Tokens of the true answer, masked ones in ⟦ ⟧ ({masked} of {all}, end of text included): {}",
        printable::line(&tokens.join("|"), 4 * TEXT_MAX)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_data::tokenizer::Words;
    use xrun_training::metrics::fields::compare_answer;

    /// Part of the caption of `answer` between the answer and the truth.
    fn verdict(answer: &str, truth: &str) -> String {
        let caption = caption("What is it?", answer, truth, &compare_answer(answer, truth));
        let rest = caption.strip_prefix(&format!("What is it? → {answer} ")).unwrap();
        rest.split(". True").next().unwrap().to_owned()
    }

    #[test]
    fn captions_name_errors_and_wrong_fields() {
        let truth = r#"{"shape": "cross", "size": 2}"#;
        assert_eq!(verdict(truth, truth), "✓ right");
        assert_eq!(verdict(r#"{"shape": "circle", "size": 2}"#, truth), "✗ wrong: shape");
        assert_eq!(verdict("{\"shape\":", truth), "✗ not one JSON object");
        assert_eq!(verdict(r#"{"shape": "cross", "size": 2, "mark": null}"#, truth), "✗ additional fields");
        assert_eq!(verdict("red", "blue"), "✗ wrong");
        let caption = caption("What?", "red", "blue", &compare_answer("red", "blue"));
        assert!(caption.ends_with("True: blue"), "{caption}");
    }

    #[test]
    fn masked_tokens_are_in_brackets() {
        let tokenizer = Tokenizer::learn(&Words::default(), 257).unwrap();
        let answer = r#"{"a": 1}"#;
        let tokens = tokenizer.encode(answer).unwrap();
        let text = Text { prompt: Vec::new(), answer: tokens, answer_text: answer.into(), question: String::new() };
        let shown = masking(&text, &tokenizer, &SelectiveLoss::default());
        assert!(shown.ends_with("⟦{⟧|⟦\"⟧|a|⟦\"⟧|⟦:⟧|⟦ ⟧|1|}"), "{shown}");
        assert!(shown.contains("5 of 9"), "{shown}");
        let none = SelectiveLoss { mask: super::super::selective::Mask::None, ..SelectiveLoss::default() };
        assert_eq!(masking(&text, &tokenizer, &none), "");
    }
}
