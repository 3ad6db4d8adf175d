//! Checksum of the records of TensorBoard event files. TensorFlow's framing: length, checksum of the length, record,
//! checksum of the record.

/// CRC-32C, masked as TensorFlow masks it: an unmasked checksum is weak for data that contain their own checksum.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            // Castagnoli's polynomial, bits reversed.
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_agrees_with_rfc_3720() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn checksums_are_masked_as_tensorflow_does() {
        assert_eq!(masked_crc32c(&[0; 32]), 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8));
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(masked_crc32c(&ascending), 0x46dd_794e_u32.rotate_right(15).wrapping_add(0xa282_ead8));
    }
}
