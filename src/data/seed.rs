//! Where does randomness come from? Every sample is a pure function of (seed, purpose, number).
//!
//! So the order of work does not matter, a number of workers changes nothing, and a resumed run needs no saved state.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// The generator of one sample.
pub fn generator(seed: u32, purpose: &str, number: u64) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(number.to_le_bytes());
    hash.update(purpose.as_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// Lower-case hexadecimal SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn each_seed_purpose_and_number_has_a_sequence_of_its_own() {
        let first = |seed, purpose, number| generator(seed, purpose, number).random::<u64>();
        assert_eq!(first(1, "episode", 7), first(1, "episode", 7));
        let others = [first(2, "episode", 7), first(1, "triplet", 7), first(1, "episode", 8)];
        assert!(others.iter().all(|other| *other != first(1, "episode", 7)));
    }
}
