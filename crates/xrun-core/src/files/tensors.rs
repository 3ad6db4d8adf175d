//! Which tensors does a safetensors file have, and is it whole? Only its head is read, before anything else looks at it.
//!
//! ```text
//! length of the head, 8 bytes | head: JSON, name -> kind of number, shape, place | numbers of all tensors, without gaps
//! ```
//! Source: the format as <https://github.com/huggingface/safetensors> has it; the head is checked by that crate.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::file;
use crate::printable;

/// More than this describes more tensors than a model has.
const HEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// How its numbers are stored, such as `F32`.
    pub kind: Dtype,
    /// The length of each dimension, the outermost first.
    pub shape: Vec<usize>,
}

/// The tensors of a file, by name. Their numbers fill the file behind its head to the last byte.
///
/// # Errors
/// The file does not read, is no safetensors file, or is not whole; without its name.
pub fn described(path: &Path) -> Result<BTreeMap<String, Described>, String> {
    let said = |text: &dyn std::fmt::Display| printable::line(&text.to_string(), MESSAGE_CHARACTERS_MAX);
    let unread = |error: std::io::Error| said(&format_args!("cannot be read: {error}"));
    let mut file = file::open(path).map_err(unread)?;
    let length = file.metadata().map_err(unread)?.len();
    let mut head_length = [0; 8];
    file.read_exact(&mut head_length).map_err(|_| "is no safetensors file: it has less than 8 bytes".to_owned())?;
    let head_length = u64::from_le_bytes(head_length);
    if head_length > HEAD_BYTES_MAX {
        return Err(format!(
            "is no safetensors file: its head would have {head_length} bytes, and at most {HEAD_BYTES_MAX} are read"
        ));
    }
    if head_length > length.saturating_sub(8) {
        return Err(format!("is cut off: its head has {head_length} bytes, and the file {length}"));
    }
    let mut head = vec![0; head_length as usize];
    file.read_exact(&mut head).map_err(unread)?;
    let head: Metadata =
        serde_json::from_slice(&head).map_err(|error| said(&format_args!("has a wrong head: {error}")))?;
    let (needed, there) = (head.data_len() as u64, length - 8 - head_length);
    if needed != there {
        let what = if needed > there { "is cut off" } else { "is longer than its head says" };
        return Err(format!("{what}: its tensors have {needed} bytes, and {there} are there"));
    }
    let tensor = |(name, tensor): (String, &safetensors::tensor::TensorInfo)| {
        (name, Described { kind: tensor.dtype, shape: tensor.shape.clone() })
    };
    Ok(head.tensors().into_iter().map(tensor).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &[u8] = include_bytes!("../../../../tests/reference/gpt2_tiny.safetensors");

    fn of(bytes: &[u8]) -> Result<BTreeMap<String, Described>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        super::super::write::replace(&path, bytes).unwrap();
        described(&path)
    }

    /// A file of `transformers` (tests/reference/gpt2_tiny.py).
    #[test]
    fn a_file_of_another_program_is_described_and_one_that_is_not_whole_is_refused() {
        let tensors = of(TINY).unwrap();
        assert_eq!(tensors["transformer.wte.weight"], Described { kind: Dtype::F32, shape: vec![11, 8] });
        assert!(of(&TINY[..TINY.len() - 4]).unwrap_err().contains("is cut off: its tensors have"));
        assert!(of(&[TINY, b"1234"].concat()).unwrap_err().contains("longer than its head says"));
        assert!(of(&TINY[..100]).unwrap_err().contains("is cut off: its head has"));
        assert!(of(b"PK\x03\x04").unwrap_err().contains("less than 8 bytes"));
        assert!(of(b"PK\x03\x04PK\x03\x04 a zip of PyTorch").unwrap_err().contains("no safetensors file"));
    }

    #[test]
    fn a_head_that_does_not_add_up_is_refused() {
        let with = |head: &str, numbers: usize| {
            of(&[&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &vec![0; numbers]].concat())
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
            assert!(with(&head, 8).unwrap_err().contains("wrong head"), "{head}");
        }
    }
}
