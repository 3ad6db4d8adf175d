//! At which precision does a step train, and what is a precision called?

use rand::RngExt;

use super::settings::{PrecisionPolicy, Settings};
use xrun_core::seed::generator;
use xrun_core::task::Metric;

/// That many bits are as many as a number has: nothing is quantised.
pub const FULL: u32 = 32;

/// Bits of weights, activations, and keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Bits of a weight; [`FULL`] for floats.
    pub weights: u32,
    /// Bits of an activation; [`FULL`] for floats.
    pub activations: u32,
    /// Bits of a key or a value of attention; [`FULL`] for floats.
    pub key_values: u32,
}

/// The precisions of the file, widest first.
pub fn precisions(settings: &Settings) -> Vec<Precision> {
    let bits = settings.weight_bits.iter().zip(&settings.activation_bits).zip(&settings.key_value_bits);
    bits.map(|((weights, activations), key_values)| Precision {
        weights: *weights,
        activations: *activations,
        key_values: *key_values,
    })
    .collect()
}

/// The precisions of a step (from 1): indices into [`precisions`], one, or three by the sandwich rule. A pure function of
/// the seed and the step.
pub fn drawn(policy: PrecisionPolicy, count: usize, seed: u32, step: u64) -> Vec<usize> {
    let random = &mut generator(seed, "precision", step);
    match policy {
        PrecisionPolicy::Uniform => vec![random.random_range(0..count)],
        PrecisionPolicy::Cyclic => vec![(step.saturating_sub(1) % count as u64) as usize],
        PrecisionPolicy::Sandwich => match count {
            0..=2 => (0..count).collect(),
            _ => vec![0, random.random_range(1..count - 1), count - 1],
        },
    }
}

/// Figures of a report: a line a precision.
const PERPLEXITY: &str = "Perplexity";
const EXACT_MATCH: &str = "Exact match";
const F1: &str = "F1";
const BITS_PER_BYTE: &str = "Bits a byte";
const ABOUT_PERPLEXITY: &str = "Of the tokens that the loss counts, of held-out questions; 1 is certainty.";
const ABOUT_EXACT_MATCH: &str = "Greedy answers that are an accepted one, by SQuAD's rules.";
const ABOUT_F1: &str = "Words that a greedy answer shares with the nearest accepted one, by SQuAD's rules.";
const ABOUT_BITS_PER_BYTE: &str = "Perplexity in bits over the bytes of text, which compares vocabularies.";

macro_rules! names {
    ($($bits:literal),*) => {
        /// Validation metrics by name, of all precisions that there can be. The first, the geometric mean of the
        /// perplexities, chooses the best checkpoint unless the file names another.
        pub const METRICS: &[Metric] = &[
            Metric::lower("perplexity", "")
                .within(PERPLEXITY, "mean")
                .about("The geometric mean of the perplexities of all precisions."),
            Metric::lower("perplexity_full", "").within(PERPLEXITY, "full").about(ABOUT_PERPLEXITY),
            Metric::higher("exact_match_full", "%").within(EXACT_MATCH, "full").about(ABOUT_EXACT_MATCH),
            Metric::higher("f1_full", "%").within(F1, "full").about(ABOUT_F1),
            Metric::lower("bits_per_byte_full", "bits").within(BITS_PER_BYTE, "full").about(ABOUT_BITS_PER_BYTE),
            $(
                Metric::lower(concat!("perplexity_", stringify!($bits), "_bit"), "")
                    .within(PERPLEXITY, concat!(stringify!($bits), " bit"))
                    .about(ABOUT_PERPLEXITY),
                Metric::higher(concat!("exact_match_", stringify!($bits), "_bit"), "%")
                    .within(EXACT_MATCH, concat!(stringify!($bits), " bit"))
                    .about(ABOUT_EXACT_MATCH),
                Metric::higher(concat!("f1_", stringify!($bits), "_bit"), "%")
                    .within(F1, concat!(stringify!($bits), " bit"))
                    .about(ABOUT_F1),
                Metric::lower(concat!("bits_per_byte_", stringify!($bits), "_bit"), "bits")
                    .within(BITS_PER_BYTE, concat!(stringify!($bits), " bit"))
                    .about(ABOUT_BITS_PER_BYTE),
            )*
        ];

        /// What a precision with these bits of weights is called in the result: the kind of a step, perplexity, exact
        /// match, F1 and bits a byte.
        pub fn names(bits: u32) -> Names {
            match bits {
                $($bits => Names {
                    kind: concat!(stringify!($bits), "_bit"),
                    perplexity: concat!("perplexity_", stringify!($bits), "_bit"),
                    exact_match: concat!("exact_match_", stringify!($bits), "_bit"),
                    f1: concat!("f1_", stringify!($bits), "_bit"),
                    bits_per_byte: concat!("bits_per_byte_", stringify!($bits), "_bit"),
                },)*
                _ => Names {
                    kind: "full",
                    perplexity: "perplexity_full",
                    exact_match: "exact_match_full",
                    f1: "f1_full",
                    bits_per_byte: "bits_per_byte_full",
                },
            }
        }
    };
}

names!(16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2);

/// See [`names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Of a training step: `8_bit`.
    pub kind: &'static str,
    /// Of a metric: `perplexity_8_bit`.
    pub perplexity: &'static str,
    /// Of a metric: `exact_match_8_bit`.
    pub exact_match: &'static str,
    /// Of a metric: `f1_8_bit`.
    pub f1: &'static str,
    /// Of a metric: `bits_per_byte_8_bit`.
    pub bits_per_byte: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_trains_every_precision() {
        for policy in [PrecisionPolicy::Uniform, PrecisionPolicy::Cyclic, PrecisionPolicy::Sandwich] {
            let mut seen = [0; 4];
            for step in 1..=100 {
                let drawn = drawn(policy, 4, 3, step);
                assert_eq!(drawn, super::drawn(policy, 4, 3, step), "a step draws the same again");
                drawn.into_iter().for_each(|precision| seen[precision] += 1);
            }
            assert!(seen.iter().all(|count| *count >= 15), "{policy:?}: {seen:?}");
        }
        assert_eq!(drawn(PrecisionPolicy::Sandwich, 3, 0, 1), [0, 1, 2]);
        assert_eq!(drawn(PrecisionPolicy::Sandwich, 1, 0, 1), [0]);
        assert_eq!([1, 2, 3].map(|step| drawn(PrecisionPolicy::Cyclic, 2, 0, step)[0]), [0, 1, 0]);
    }

    #[test]
    fn names_tell_bits_and_are_known_before_the_run() {
        for bits in [FULL, 2, 16] {
            let names = names(bits);
            for name in [names.perplexity, names.exact_match, names.f1, names.bits_per_byte] {
                assert!(METRICS.iter().any(|known| known.name == name), "{name}");
            }
        }
        assert_eq!((names(8).kind, names(32).perplexity, names(12).f1), ("8_bit", "perplexity_full", "f1_12_bit"));
    }
}
