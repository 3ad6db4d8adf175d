//! Validation of a safetensors file by its header alone.
//!
//! ```text
//! length of the header, 8 bytes | header: JSON, name -> dtype, shape, offsets | data of all tensors, without gaps
//! ```
//! Source: <https://github.com/huggingface/safetensors>, whose crate checks the header.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::file;
use crate::printable;

/// Maximum size of a header; no model has that many tensors.
const HEADER_BYTES_MAX: u64 = 16 * 1024 * 1024;
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// Type and shape of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Type of its elements, such as `F32`.
    pub kind: Dtype,
    /// Size of each dimension, the outermost first.
    pub shape: Vec<usize>,
}

/// Tensors of a file by name, after checking that their data fills the file exactly.
///
/// # Errors
/// The file is unreadable, not a safetensors file, or truncated. The message has no path.
pub fn read_header(path: &Path) -> Result<BTreeMap<String, TensorInfo>, String> {
    let shorten = |text: &dyn std::fmt::Display| printable::line(&text.to_string(), MESSAGE_CHARACTERS_MAX);
    let unreadable = |error: std::io::Error| shorten(&format_args!("cannot be read: {error}"));
    let mut file = file::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut header_length = [0; 8];
    file.read_exact(&mut header_length).map_err(|_| "is not a safetensors file: fewer than 8 bytes".to_owned())?;
    let header_length = u64::from_le_bytes(header_length);
    if header_length > HEADER_BYTES_MAX {
        return Err(format!(
            "is not a safetensors file: a header of {header_length} bytes (at most {HEADER_BYTES_MAX})"
        ));
    }
    if header_length > length.saturating_sub(8) {
        return Err(format!("is truncated: the header has {header_length} bytes, the file {length}"));
    }
    let mut header = vec![0; header_length as usize];
    file.read_exact(&mut header).map_err(unreadable)?;
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| shorten(&format_args!("has an invalid header: {error}")))?;
    let (needed, found) = (header.data_len() as u64, length - 8 - header_length);
    if needed != found {
        let fault = if needed > found { "is truncated" } else { "is longer than its header says" };
        return Err(format!("{fault}: its tensors need {needed} bytes, found {found}"));
    }
    let tensor = |(name, tensor): (String, &safetensors::tensor::TensorInfo)| {
        (name, TensorInfo { kind: tensor.dtype, shape: tensor.shape.clone() })
    };
    Ok(header.tensors().into_iter().map(tensor).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &[u8] = include_bytes!("../../../../tests/reference/gpt2_tiny.safetensors");

    fn describe(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.safetensors");
        super::super::write::replace(&path, bytes).unwrap();
        read_header(&path)
    }

    /// A file of `transformers` (tests/reference/gpt2_tiny.py).
    #[test]
    fn a_file_of_transformers_is_described_and_damaged_files_are_rejected() {
        let tensors = describe(TINY).unwrap();
        assert_eq!(tensors["transformer.wte.weight"], TensorInfo { kind: Dtype::F32, shape: vec![11, 8] });
        let longer = [TINY, b"1234"].concat();
        let zip = b"PK\x03\x04PK\x03\x04 a zip of PyTorch";
        let damaged = [&TINY[..TINY.len() - 4], &longer, &TINY[..100], &zip[..4], zip];
        let messages = damaged.map(|bytes| describe(bytes).unwrap_err());
        insta::assert_snapshot!(messages.join("\n"), @r###"
        is truncated: its tensors need 7648 bytes, found 7644
        is longer than its header says: its tensors need 7648 bytes, found 7652
        is truncated: the header has 2488 bytes, the file 100
        is not a safetensors file: fewer than 8 bytes
        is not a safetensors file: a header of 289157608118635344 bytes (at most 16777216)
        "###);
    }

    #[test]
    fn an_inconsistent_header_is_rejected() {
        let with = |head: &str, numbers: usize| {
            describe(&[&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &vec![0; numbers]].concat())
        };
        let tensor = |shape: &str, from: u64, to: u64| {
            format!("{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{from},{to}]}}")
        };
        assert_eq!(with(&format!("{{\"a\":{}}}", tensor("[2]", 0, 8)), 8).unwrap()["a"].shape, [2]);
        for head in [
            "[]".to_owned(),
            format!("{{\"a\":{}}}", tensor("[3]", 0, 8)),
            format!("{{\"a\":{},\"b\":{}}}", tensor("[2]", 0, 8), tensor("[2]", 4, 12)),
            format!("{{\"a\":{}}}", tensor("[4611686018427387904,4]", 0, 8)),
            format!("{{\"a\":{}}}", tensor("[2]", 8, 0)),
        ] {
            assert!(with(&head, 8).is_err(), "{head}");
        }
    }
}
