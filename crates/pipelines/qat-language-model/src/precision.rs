//! Precisions: their bits, the ones that a step trains, and the names of their metrics.

use rand::RngExt;

use super::settings::{PrecisionPolicy, QatLanguageModel};
use xrun_core::seed::generator;
use xrun_core::task::{HeldOutLoss, Metric};

/// Bits of a float that is not quantised.
pub const FULL_PRECISION: u32 = 32;

/// Bits of weights, activations, and keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Bits of a weight; [`FULL_PRECISION`] for floats.
    pub weights: u32,
    /// Bits of an activation; [`FULL_PRECISION`] for floats.
    pub activations: u32,
    /// Bits of a key or a value of attention; [`FULL_PRECISION`] for floats.
    pub key_values: u32,
}

/// Precisions of the settings, widest first.
pub fn precisions(settings: &QatLanguageModel) -> Vec<Precision> {
    let bits = settings.weight_bits.iter().zip(&settings.activation_bits).zip(&settings.kv_cache_bits);
    bits.map(|((weights, activations), key_values)| Precision {
        weights: *weights,
        activations: *activations,
        key_values: *key_values,
    })
    .collect()
}

/// Draws the precisions of a step (from 1) as indices into [`precisions`]: one, or up to three by the sandwich rule. A pure
/// function of the seed and the step.
pub fn draw(policy: PrecisionPolicy, count: usize, seed: u32, step: u64) -> Vec<usize> {
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

/// Figures of a report, each with one line per precision.
pub const PERPLEXITY: &str = "Perplexity";
const EXACT_MATCH: &str = "Exact match";
const F1: &str = "F1";
const BITS_PER_BYTE: &str = "Bits a byte";
const ABOUT_PERPLEXITY: &str =
    "Perplexity of held-out questions, over the tokens that the loss counts; 1 is the minimum.";
const ABOUT_EXACT_MATCH: &str = "Percentage of greedy answers that equal an accepted answer, by SQuAD's rules.";
const ABOUT_F1: &str = "F1 of the words of a greedy answer and the nearest accepted answer, by SQuAD's rules.";
const ABOUT_BITS_PER_BYTE: &str = "Cross-entropy in bits per byte of text, which is comparable between vocabularies.";

macro_rules! names {
    ($($bits:literal),*) => {
        /// Validation metrics of all possible precisions. The first one, the geometric mean of the perplexities, selects the
        /// best checkpoint unless the experiment names another.
        pub const METRICS: &[Metric] = &[
            Metric::lower("perplexity", "")
                .held_out_loss(HeldOutLoss::Perplexity)
                .within(PERPLEXITY, "mean")
                .about("Geometric mean of the perplexities of all precisions."),
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

        /// Names of a precision with `bits` bits of weights in the records of a run.
        pub fn names(bits: u32) -> PrecisionNames {
            match bits {
                $($bits => PrecisionNames {
                    kind: concat!(stringify!($bits), "_bit"),
                    perplexity: concat!("perplexity_", stringify!($bits), "_bit"),
                    exact_match: concat!("exact_match_", stringify!($bits), "_bit"),
                    f1: concat!("f1_", stringify!($bits), "_bit"),
                    bits_per_byte: concat!("bits_per_byte_", stringify!($bits), "_bit"),
                },)*
                _ => PrecisionNames {
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

/// Names of a precision in the records of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrecisionNames {
    /// Kind of a training step, such as `8_bit`.
    pub kind: &'static str,
    /// Metric of perplexity, such as `perplexity_8_bit`.
    pub perplexity: &'static str,
    /// Metric of exact match, such as `exact_match_8_bit`.
    pub exact_match: &'static str,
    /// Metric of F1, such as `f1_8_bit`.
    pub f1: &'static str,
    /// Metric of bits per byte, such as `bits_per_byte_8_bit`.
    pub bits_per_byte: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_trains_every_precision() {
        for policy in [PrecisionPolicy::Uniform, PrecisionPolicy::Cyclic, PrecisionPolicy::Sandwich] {
            let mut counts = [0; 4];
            for step in 1..=100 {
                let drawn = draw(policy, 4, 3, step);
                assert_eq!(drawn, super::draw(policy, 4, 3, step), "a step draws the same again");
                drawn.into_iter().for_each(|precision| counts[precision] += 1);
            }
            assert!(counts.iter().all(|count| *count >= 15), "{policy:?}: {counts:?}");
        }
        assert_eq!(draw(PrecisionPolicy::Sandwich, 3, 0, 1), [0, 1, 2]);
        assert_eq!(draw(PrecisionPolicy::Sandwich, 1, 0, 1), [0]);
        assert_eq!([1, 2, 3].map(|step| draw(PrecisionPolicy::Cyclic, 2, 0, step)[0]), [0, 1, 0]);
    }

    #[test]
    fn every_name_is_a_declared_metric() {
        for bits in [FULL_PRECISION, 2, 16] {
            let names = names(bits);
            for name in [names.perplexity, names.exact_match, names.f1, names.bits_per_byte] {
                assert!(METRICS.iter().any(|known| known.name == name), "{name}");
            }
        }
        assert_eq!((names(8).kind, names(32).perplexity, names(12).f1), ("8_bit", "perplexity_full", "f1_12_bit"));
    }
}
