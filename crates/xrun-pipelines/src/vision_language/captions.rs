//! What do a picture's answer and its masked tokens look like, for people?

use super::selective::{Settings, weigh};
use crate::metrics::fields::Judged;
use xrun_core::printable;
use xrun_data::image_text::store::Text;
use xrun_data::tokenizer::Tokenizer;

/// Characters of an instruction, and of an answer.
const TEXT_MAX: usize = 300;

/// The instruction, what was said, and which fields are wrong.
pub fn caption(question: &str, said: &str, truth: &str, judged: &Judged) -> String {
    let line = |text: &str| printable::line(text, TEXT_MAX);
    let mut caption = format!("{} → {}", line(question), line(said));
    let wrong: Vec<&str> =
        judged.fields.iter().filter(|(_, right)| !right).map(|(field, _)| field.trim_start_matches('/')).collect();
    if !judged.valid_json && !judged.fields.is_empty() {
        caption += " ✗ not one JSON object";
    } else if !wrong.is_empty() {
        caption += &format!(" ✗ wrong: {}", line(&wrong.join(", ")));
    } else if judged.exact_object || judged.exact_match {
        return caption + " ✓ right";
    } else if !judged.fields.is_empty() {
        caption += " ✗ more than was asked for";
    } else {
        caption += " ✗ wrong";
    }
    caption + &format!(". True: {}", line(truth))
}

/// The tokens of an answer with a line between them; those that the mask leaves out of the loss stand in brackets. Empty
/// where nothing is ever masked.
pub fn masking(text: &Text, tokenizer: &Tokenizer, settings: &Settings) -> String {
    let Ok(weighed) = weigh(settings, true, &text.answer_text, &text.answer, tokenizer) else { return String::new() };
    let masked = weighed.masked.iter().filter(|masked| **masked).count();
    if masked == 0 {
        return String::new();
    }
    let token = |(token, masked): (&u32, &bool)| {
        let said = tokenizer.decode(&[*token]);
        if *masked { format!("⟦{said}⟧") } else { said }
    };
    let tokens: Vec<String> = text.answer.iter().zip(&weighed.masked).map(token).collect();
    let all = weighed.masked.len();
    format!(
        ". Tokens of this answer, those in ⟦ ⟧ are masked when the mask is on ({masked} of {all} with the end of text): {}",
        printable::line(&tokens.join("|"), 4 * TEXT_MAX)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::fields::judge;
    use xrun_data::tokenizer::Words;

    fn said(said: &str, truth: &str) -> String {
        caption("What is it?", said, truth, &judge(said, truth))
    }

    #[test]
    fn wrong_fields_are_named() {
        let truth = r#"{"shape": "cross", "size": 2}"#;
        assert_eq!(said(truth, truth), format!("What is it? → {truth} ✓ right"));
        let wrong = said(r#"{"shape": "circle", "size": 2}"#, truth);
        assert!(wrong.contains("✗ wrong: shape. True: {\"shape\": \"cross\""), "{wrong}");
        assert!(said("{\"shape\":", truth).contains("✗ not one JSON object"));
        let more = r#"{"shape": "cross", "size": 2, "mark": null}"#;
        assert!(said(more, truth).contains("✗ more than was asked for"));
        assert!(said("red", "blue").contains("✗ wrong. True: blue"));
    }

    #[test]
    fn masked_tokens_stand_in_brackets() {
        let tokenizer = Tokenizer::learn(&Words::default(), 257).unwrap();
        let answer = r#"{"a": 1}"#;
        let tokens = tokenizer.encode(answer).unwrap();
        let text = Text { prompt: Vec::new(), answer: tokens, answer_text: answer.into(), question: String::new() };
        let shown = masking(&text, &tokenizer, &Settings::default());
        assert!(shown.ends_with("⟦{⟧|⟦\"⟧|a|⟦\"⟧|⟦:⟧|⟦ ⟧|1|}"), "{shown}");
        assert!(shown.contains("(5 of 9 with the end of text)"), "{shown}");
        let none = Settings { mask: super::super::selective::Mask::None, ..Settings::default() };
        assert_eq!(masking(&text, &tokenizer, &none), "");
    }
}
