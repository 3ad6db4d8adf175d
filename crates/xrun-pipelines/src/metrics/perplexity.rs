//! How surprised is a language model? The exponential of its mean cross-entropy.

/// A perplexity above this is written as this: an untrained model can be beyond all numbers.
const MAX: f64 = 1e12;

/// Of a mean cross-entropy in nats a token; `None` where that is no number.
pub fn perplexity(cross_entropy: f64) -> Option<f64> {
    // `min` would make a number of what is none.
    (!cross_entropy.is_nan()).then(|| cross_entropy.exp().min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_is_one_and_what_is_no_number_stays_so() {
        assert_eq!(perplexity(0.0), Some(1.0));
        assert_eq!(perplexity(1e6), Some(MAX));
        assert_eq!(perplexity(f64::NAN), None);
    }
}
