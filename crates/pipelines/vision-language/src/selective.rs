//! Selective loss: weights of the tokens of an answer, which mask the structure of JSON.
//!
//! Byte-level BPE is lossless: a token has as many bytes as characters of GPT-2's alphabet. A token is masked if all its bytes
//! have masked classes. The end of a value counts as value: `top` and `top left` differ in the position of the quote, and a model
//! that is not trained on it never learns to stop.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_bytes::{ByteClass, ClassifiedJson, scan};
use super::token_text;
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings;
use xrun_data::tokenizer::Tokenizer;

settings! {
    /// Tokens of an answer that count in the loss. The structure of JSON is learned early; without it the loss measures values.
    pub struct SelectiveLoss {
        /// Masked classes of tokens.
        pub mask: Mask = Mask::Structure,
        /// Method that finds masked tokens.
        pub method: MaskMethod = MaskMethod::Spans,
        /// Steps in which the mask is on.
        pub schedule: MaskSchedule = MaskSchedule::After,
        /// Steps before the mask is on, for `schedule = "after"`. With the mask on from the first step a model never learns JSON.
        pub after_step: u64 = 200,
        /// Steps of a turn, for `schedule = "alternating"`.
        #[schemars(range(min = 1))]
        pub alternate_every: u64 = 100,
        /// Steps with the mask on at the end of each turn, for `schedule = "alternating"`.
        pub alternate_for: u64 = 50,
        /// Weight of a masked token in the loss; the others have weight 1. A value of 1 disables the mask.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub structure_weight: f32 = 0.0,
        /// Count the end of a value (the closing quote, or the first byte after a number, `true`, `false` or `null`) as value.
        pub value_end: bool = true,
        /// Class of `null`.
        pub nulls: Nulls = Nulls::Value,
        /// Divisor of the sum of the losses of a step.
        pub normalise: Normalise = Normalise::Selected,
    }
}

/// Masked classes of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// Nothing.
    None,
    /// Braces, brackets, colons, commas, space and quotes.
    Structure,
    /// Structure and the names of the fields.
    StructureAndKeys,
}

/// Method that finds masked tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MaskMethod {
    /// By the bytes of the answer that a token covers: exact.
    Spans,
    /// By the text of each token alone, an older rule for comparison. It also masks commas within values and the ends of values.
    TokenText,
}

/// Steps in which the mask is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MaskSchedule {
    /// All steps.
    Always,
    /// All steps after the first `after_step`.
    After,
    /// The last `alternate_for` of each `alternate_every` steps.
    Alternating,
}

/// Class of `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Nulls {
    /// A value: an empty field is an answer.
    Value,
    /// Structure.
    Structure,
}

/// Divisor of the sum of the losses of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// Sum of the weights.
    Selected,
    /// Number of tokens of the answers, masked or not.
    Answer,
}

impl SelectiveLoss {
    /// Returns whether the mask is on in the step after `steps_done`.
    pub fn masks_at(&self, steps_done: u64) -> bool {
        match (self.mask, self.schedule) {
            (Mask::None, _) => false,
            (_, MaskSchedule::Always) => true,
            (_, MaskSchedule::After) => steps_done >= self.after_step,
            (_, MaskSchedule::Alternating) => {
                let every = self.alternate_every.max(1);
                steps_done % every >= every.saturating_sub(self.alternate_for)
            }
        }
    }

    /// Adds a problem for a turn that is shorter than its masked part; `section` is the full key of the table.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        if self.schedule == MaskSchedule::Alternating && self.alternate_for > self.alternate_every {
            let message = format!("{} steps exceed the {} of a turn", self.alternate_for, self.alternate_every);
            let problem = Problem::new(format!("{section}.alternate_for"), message);
            let problem =
                problem.help(format!("write {} or less, or a larger `alternate_every`", self.alternate_every));
            problems.add(problem.related(format!("{section}.alternate_every")));
        }
    }

    fn masks(&self, class: ByteClass) -> bool {
        match class {
            ByteClass::Structure => self.mask != Mask::None,
            ByteClass::Key => self.mask == Mask::StructureAndKeys,
            ByteClass::Value => false,
            ByteClass::Null => self.mask != Mask::None && self.nulls == Nulls::Structure,
            ByteClass::End => self.mask != Mask::None && !self.value_end,
        }
    }
}

/// Kind of a token of an answer, independent of the mask, which makes losses by kind comparable between masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Has a byte of a value or of what ends one, or is the end of text.
    Value,
    /// Has a byte of a key and none of a value.
    Key,
    /// Has no byte of either: quotes, braces, commas, spaces.
    Structure,
}

/// Weights, masks and kinds of the tokens of one answer and its end of text.
#[derive(Clone, Debug, PartialEq)]
pub struct WeighedAnswer {
    /// Weight of each token in the loss: 1, or `structure_weight` for a masked one.
    pub weights: Vec<f32>,
    /// True if a token is masked.
    pub masked: Vec<bool>,
    /// Kind of each token.
    pub kinds: Vec<TokenKind>,
    /// Tokens of each field with a byte of its value or its end, in the order of the text; empty for an answer that is not
    /// JSON.
    pub fields: Vec<Range<usize>>,
}

impl DeepSize for WeighedAnswer {
    fn deep_size(&self) -> u64 {
        let numbers = self.weights.capacity() * size_of::<f32>() + self.masked.capacity() + self.kinds.capacity();
        (size_of::<Self>() + numbers + self.fields.capacity() * size_of::<Range<usize>>()) as u64
    }
}

impl WeighedAnswer {
    /// Number of unmasked tokens.
    pub fn selected(&self) -> usize {
        self.masked.iter().filter(|masked| !**masked).count()
    }
}

/// Returns the bytes of the answer that each token covers, followed by a range of one byte past the end, for the end-of-text token.
///
/// # Errors
/// The tokens do not add up to `answer_bytes`.
pub fn spans(
    token_bytes: impl IntoIterator<Item = usize>,
    answer_bytes: usize,
) -> Result<Vec<Range<usize>>, DataError> {
    let mut end = 0_usize;
    let mut spans: Vec<Range<usize>> = Vec::new();
    for bytes in token_bytes {
        let begin = end;
        end = end.saturating_add(bytes);
        spans.push(begin..end);
    }
    if end != answer_bytes {
        let message = format!(
            "the vocabulary is not byte-level: the tokens of an answer have {end} bytes, and the answer has \
            {answer_bytes}, which would mask the wrong tokens"
        );
        return Err(DataError::content(message));
    }
    spans.push(end..end + 1);
    Ok(spans)
}

/// Returns the weights of the tokens of an answer, given without the end of text. With `on = false` nothing is masked.
///
/// # Errors
/// The tokens do not match the answer.
pub fn weigh_answer(
    settings: &SelectiveLoss,
    on: bool,
    answer: &str,
    tokens: &[u32],
    tokenizer: &Tokenizer,
) -> Result<WeighedAnswer, DataError> {
    let spans = spans(tokens.iter().map(|token| tokenizer.bytes(*token)), answer.len())?;
    let texts = || tokens.iter().map(|token| tokenizer.decode(&[*token])).collect::<Vec<_>>();
    Ok(weigh_answer_spans(settings, on, answer, &spans, texts))
}

/// [`weigh_answer`] for given [`spans`]; `texts` returns the text of each token, which only `token-text` needs.
pub fn weigh_answer_spans(
    settings: &SelectiveLoss,
    on: bool,
    answer: &str,
    spans: &[Range<usize>],
    texts: impl FnOnce() -> Vec<String>,
) -> WeighedAnswer {
    // An answer that is not JSON is one value.
    let ClassifiedJson { mut classes, value_spans } = scan(answer)
        .unwrap_or_else(|| ClassifiedJson { classes: vec![ByteClass::Value; answer.len()], value_spans: Vec::new() });
    let keys = keys(answer, &classes);
    // The end of text ends the answer.
    classes.push(ByteClass::End);
    let of = |span: &Range<usize>| &classes[span.clone()];
    let kinds = spans.iter().map(|span| kind(of(span))).collect();
    let last = spans.len() - 1;
    let mut masked = vec![false; spans.len()];
    match settings.method {
        _ if !on || settings.mask == Mask::None => {}
        MaskMethod::Spans => {
            for (masked, span) in masked.iter_mut().zip(spans) {
                *masked = of(span).iter().all(|class| settings.masks(*class));
            }
        }
        MaskMethod::TokenText => {
            let texts = texts();
            masked.iter_mut().zip(&texts).for_each(|(masked, text)| *masked = token_text::is_masked(text));
            if settings.mask == Mask::StructureAndKeys {
                token_text::mask_keys(&texts, &keys, &mut masked);
            }
        }
    }
    masked[last] = false;
    let weight = |masked: &bool| if *masked { settings.structure_weight } else { 1.0 };
    let tokens_of = |bytes: &Range<usize>| {
        let first = spans.partition_point(|span| span.end <= bytes.start);
        first..spans.partition_point(|span| span.start < bytes.end).max(first)
    };
    let fields = value_spans.iter().map(tokens_of).collect();
    WeighedAnswer { weights: masked.iter().map(weight).collect(), masked, kinds, fields }
}

fn kind(classes: &[ByteClass]) -> TokenKind {
    match () {
        () if classes.iter().any(|class| matches!(class, ByteClass::Value | ByteClass::Null | ByteClass::End)) => {
            TokenKind::Value
        }
        () if classes.contains(&ByteClass::Key) => TokenKind::Key,
        () => TokenKind::Structure,
    }
}

/// Keys of an answer as written.
fn keys<'a>(answer: &'a str, classes: &[ByteClass]) -> Vec<&'a str> {
    let mut begin = 0;
    let runs = classes.chunk_by(|one, other| one == other).map(|run| {
        begin += run.len();
        (run[0] == ByteClass::Key).then(|| &answer[begin - run.len()..begin])
    });
    runs.flatten().collect()
}

/// Sums of a step over its micro-batches, divided once: any split of the same examples gives the same step, unlike a mean of
/// means.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepSums {
    /// Sum of weight times loss over tokens.
    pub weighted_loss: f64,
    /// Sum of the weights.
    pub weights: f64,
    /// Number of tokens of the answers, end of text included.
    pub tokens: u64,
    /// Number of these that are not masked.
    pub selected: u64,
}

impl StepSums {
    /// Adds the sums of another micro-batch.
    pub fn add(&mut self, other: &Self) {
        self.weighted_loss += other.weighted_loss;
        self.weights += other.weights;
        self.tokens += other.tokens;
        self.selected += other.selected;
    }

    /// Divisor of the sums of losses and gradients; `None` if nothing counts.
    pub fn divisor(&self, normalise: Normalise) -> Option<f64> {
        let divisor = match normalise {
            Normalise::Selected => self.weights,
            Normalise::Answer => self.tokens as f64,
        };
        (divisor > 0.0).then_some(divisor)
    }

    /// Loss of the step; `None` if nothing counts.
    pub fn loss(&self, normalise: Normalise) -> Option<f64> {
        Some(self.weighted_loss / self.divisor(normalise)?)
    }

    /// Fraction of the answers' tokens that is masked; `None` without tokens.
    pub fn masked_fraction(&self) -> Option<f64> {
        (self.tokens > 0).then(|| 1.0 - self.selected as f64 / self.tokens as f64)
    }
}

#[cfg(test)]
#[path = "selective_tests.rs"]
mod tests;
