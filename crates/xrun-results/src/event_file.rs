//! Checksum of the records of TensorBoard event files. TensorFlow's framing: length, checksum of the length, record,
//! checksum of the record.

/// CRC-32C, masked as TensorFlow masks it: an unmasked checksum is weak for data that contain their own checksum.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_masked_as_tensorflow_does() {
        assert_eq!(masked_crc32c(&[0; 32]), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8));
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(masked_crc32c(&ascending), 0x46dd_794e_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }
}
