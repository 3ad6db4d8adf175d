//! Perplexity of a language model, the exponential of its mean cross-entropy.

/// Upper limit of the reported perplexity: that of an untrained model may overflow.
const MAX: f64 = 1e12;

/// Perplexity of a mean cross-entropy in nats per token; `None` for NaN.
pub fn perplexity(cross_entropy: f64) -> Option<f64> {
    // `min` alone would turn NaN into the limit.
    (!cross_entropy.is_nan()).then(|| cross_entropy.exp().min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_one_without_loss_limited_and_none_for_nan() {
        assert_eq!(perplexity(0.0), Some(1.0));
        assert_eq!(perplexity(1e6), Some(MAX));
        assert_eq!(perplexity(f64::NAN), None);
    }
}
