//! What identifies bytes? SHA-256, in lower-case hexadecimal.

use sha2::{Digest, Sha256};

pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
