//! Which tokens of an answer count in the loss, and how much? Those that are more than the structure of JSON.
//!
//! Byte-level BPE loses nothing, so a token stands for as many bytes as it has letters in GPT-2's alphabet. A token is masked
//! when all its bytes are of the mask; one byte outside keeps it. What ends a value counts as value: `top` and `top left`
//! differ in where the quote comes, and with that masked a model never learns to stop.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json_bytes::{Class, Scan, scan};
use super::token_text;
use xrun_core::bounded::HeldBytes;
use xrun_core::dataset::error::DataError;
use xrun_core::problem::{Problem, Problems};
use xrun_data::tokenizer::Tokenizer;

/// Which tokens of an answer count in the loss. Structure of JSON is learnt soon; without it the loss is of the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What is masked.
    pub mask: Mask,
    /// How it is found which tokens are masked.
    pub method: Method,
    /// In which steps the mask is on.
    pub schedule: Schedule,
    /// Steps before the mask is on, for `schedule = "after"`: structure is learnt first. Masked from nothing, no JSON is ever
    /// learnt.
    pub after_step: u64,
    /// Steps of a turn, for `schedule = "alternating"`.
    #[schemars(range(min = 1))]
    pub alternate_every: u64,
    /// Steps with the mask on at the end of each turn, for `schedule = "alternating"`.
    pub alternate_for: u64,
    /// The weight of a masked token in the loss; that of the others is 1. With 1 nothing is masked.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub structure_weight: f32,
    /// What ends a value (the closing quote, or the first byte after a number, `true`, `false` or `null`) counts as value.
    pub value_end: bool,
    /// What `null` is.
    pub nulls: Nulls,
    /// What the sum of the losses of a step is divided by.
    pub normalise: Normalise,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mask: Mask::Structure,
            method: Method::Spans,
            schedule: Schedule::After,
            after_step: 200,
            alternate_every: 100,
            alternate_for: 50,
            structure_weight: 0.0,
            value_end: true,
            nulls: Nulls::Value,
            normalise: Normalise::Selected,
        }
    }
}

/// What is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// Nothing.
    None,
    /// Braces, brackets, colons, commas, space and quotes.
    Structure,
    /// The same, and the names of the fields.
    StructureAndKeys,
}

/// How it is found which tokens are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By the bytes of the answer that a token stands for: exact.
    Spans,
    /// By the text of each token alone, an older rule, for comparison. It masks commas within values and the ends of values.
    TokenText,
}

/// In which steps the mask is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// In all.
    Always,
    /// After `after_step` steps.
    After,
    /// In the last `alternate_for` of each `alternate_every` steps.
    Alternating,
}

/// What `null` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Nulls {
    /// A value: that a field is empty is an answer.
    Value,
    /// Structure.
    Structure,
}

/// What the sum of the losses of a step is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// By the sum of the weights.
    Selected,
    /// By the number of tokens of the answers, masked or not.
    Answer,
}

impl Settings {
    /// Whether the mask is on in the step after `step` others.
    pub fn is_on(&self, step: u64) -> bool {
        match (self.mask, self.schedule) {
            (Mask::None, _) => false,
            (_, Schedule::Always) => true,
            (_, Schedule::After) => step >= self.after_step,
            (_, Schedule::Alternating) => {
                let every = self.alternate_every.max(1);
                step % every >= every.saturating_sub(self.alternate_for)
            }
        }
    }

    /// Adds what contradicts itself; `section` is the table's whole key.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        if self.schedule == Schedule::Alternating && self.alternate_for > self.alternate_every {
            let message = format!("is {}, more than the {} steps of a turn", self.alternate_for, self.alternate_every);
            let problem = Problem::new(format!("{section}.alternate_for"), message);
            problems.add(problem.help("at most `alternate_every`").related(format!("{section}.alternate_every")));
        }
    }

    fn masks(&self, class: Class) -> bool {
        match class {
            Class::Structure => self.mask != Mask::None,
            Class::Key => self.mask == Mask::StructureAndKeys,
            Class::Value => false,
            Class::Null => self.mask != Mask::None && self.nulls == Nulls::Structure,
            Class::End => self.mask != Mask::None && !self.value_end,
        }
    }
}

/// What a token of an answer is, whatever is masked: losses of each kind are compared between masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Has a byte of a value or of what ends one, or is the end of text.
    Value,
    /// Has a byte of a key and none of a value.
    Key,
    /// Has no byte of either: quotes, braces, commas, spaces.
    Structure,
}

/// The tokens of one answer and its end of text, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// In the loss; 1 of a kept token, `structure_weight` of a masked one.
    pub weights: Vec<f32>,
    /// Whether a token is masked.
    pub masked: Vec<bool>,
    /// What each token is.
    pub kinds: Vec<TokenKind>,
    /// The tokens of each field of the answer that have a byte of its value or of what ends it, in the order of the text;
    /// none of an answer that is not JSON.
    pub fields: Vec<Range<usize>>,
}

impl HeldBytes for Weighed {
    fn held_bytes(&self) -> u64 {
        let numbers = self.weights.capacity() * size_of::<f32>() + self.masked.capacity() + self.kinds.capacity();
        (size_of::<Self>() + numbers + self.fields.capacity() * size_of::<Range<usize>>()) as u64
    }
}

impl Weighed {
    /// Tokens that count fully.
    pub fn selected(&self) -> usize {
        self.masked.iter().filter(|masked| !**masked).count()
    }
}

/// The bytes of the answer that each token stands for, and one byte behind it for the end of text.
///
/// # Errors
/// They do not add up to the answer's bytes.
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
            "the tokens of an answer have {end} bytes, and the answer has {answer_bytes}: its vocabulary is not \
             byte-level, and the loss would be taken of the wrong tokens"
        );
        return Err(DataError::content(message));
    }
    spans.push(end..end + 1);
    Ok(spans)
}

/// Weighs the tokens of an answer, which are given without the end of text. With `on = false` all count fully.
///
/// # Errors
/// The tokens are not those of the answer.
pub fn weigh(
    settings: &Settings,
    on: bool,
    answer: &str,
    tokens: &[u32],
    tokenizer: &Tokenizer,
) -> Result<Weighed, DataError> {
    let spans = spans(tokens.iter().map(|token| tokenizer.bytes(*token)), answer.len())?;
    let texts = || tokens.iter().map(|token| tokenizer.decode(&[*token])).collect::<Vec<_>>();
    Ok(weigh_spans(settings, on, answer, &spans, texts))
}

/// As [`weigh`], with the [`spans`] and the text of each token, which only `token-text` asks for.
pub fn weigh_spans(
    settings: &Settings,
    on: bool,
    answer: &str,
    spans: &[Range<usize>],
    texts: impl FnOnce() -> Vec<String>,
) -> Weighed {
    // Not JSON: all is value.
    let Scan { mut classes, fields } =
        scan(answer).unwrap_or_else(|| Scan { classes: vec![Class::Value; answer.len()], fields: Vec::new() });
    let keys = keys(answer, &classes);
    // The end of text ends the answer.
    classes.push(Class::End);
    let of = |span: &Range<usize>| &classes[span.clone()];
    let kinds = spans.iter().map(|span| kind(of(span))).collect();
    let last = spans.len() - 1;
    let mut masked = vec![false; spans.len()];
    match settings.method {
        _ if !on || settings.mask == Mask::None => {}
        Method::Spans => {
            for (masked, span) in masked.iter_mut().zip(spans) {
                *masked = of(span).iter().all(|class| settings.masks(*class));
            }
        }
        Method::TokenText => {
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
    let fields = fields.iter().map(tokens_of).collect();
    Weighed { weights: masked.iter().map(weight).collect(), masked, kinds, fields }
}

fn kind(classes: &[Class]) -> TokenKind {
    match () {
        () if classes.iter().any(|class| matches!(class, Class::Value | Class::Null | Class::End)) => TokenKind::Value,
        () if classes.contains(&Class::Key) => TokenKind::Key,
        () => TokenKind::Structure,
    }
}

/// The keys of an answer as they are written.
fn keys<'a>(answer: &'a str, classes: &[Class]) -> Vec<&'a str> {
    let mut begin = 0;
    let runs = classes.chunk_by(|one, other| one == other).map(|run| {
        begin += run.len();
        (run[0] == Class::Key).then(|| &answer[begin - run.len()..begin])
    });
    runs.flatten().collect()
}

/// The loss of a step from those of its micro-batches: sums, divided once. So any split of the same examples gives the same
/// step; the mean of the means would not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepSums {
    /// Of weight times loss of each token.
    pub weighted_loss: f64,
    /// Of the weights.
    pub weights: f64,
    /// Tokens of the answers, with the end of text.
    pub tokens: u64,
    /// Of these, those that count fully.
    pub selected: u64,
}

impl StepSums {
    /// Those of another micro-batch.
    pub fn add(&mut self, other: &Self) {
        self.weighted_loss += other.weighted_loss;
        self.weights += other.weights;
        self.tokens += other.tokens;
        self.selected += other.selected;
    }

    /// What sums of losses and of gradients are divided by; `None` where nothing counts.
    pub fn divisor(&self, normalise: Normalise) -> Option<f64> {
        let divisor = match normalise {
            Normalise::Selected => self.weights,
            Normalise::Answer => self.tokens as f64,
        };
        (divisor > 0.0).then_some(divisor)
    }

    /// The loss of the step.
    pub fn loss(&self, normalise: Normalise) -> Option<f64> {
        Some(self.weighted_loss / self.divisor(normalise)?)
    }

    /// The share of the answers' tokens that is masked.
    pub fn share_masked(&self) -> Option<f64> {
        (self.tokens > 0).then(|| 1.0 - self.selected as f64 / self.tokens as f64)
    }
}

#[cfg(test)]
#[path = "selective_tests.rs"]
mod tests;
