//! How do the ranges of activations stand in a file, and which files are refused?

use std::path::Path;

use serde::{Deserialize, Serialize};

use xrun_core::files::file;

/// Inside a checkpoint.
pub const FILE: &str = "ranges.json";

/// Low and high, one number for all or one for each channel; `None` for a range that saw nothing.
pub type Saved = Option<(Vec<f32>, Vec<f32>)>;

/// More ranges than a model has.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// By precision, then block and quantiser.
    ranges: Vec<Vec<Saved>>,
}

fn sound(low: &[f32], high: &[f32]) -> bool {
    let ordered = |(low, high): (&f32, &f32)| low.is_finite() && high.is_finite() && low <= high;
    !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(ordered)
}

/// Numbers that are exact when they are read again.
pub fn to_json(ranges: Vec<Vec<Saved>>) -> Vec<u8> {
    serde_json::to_vec(&File { version: 1, ranges }).unwrap_or_default()
}

/// Reads what [`to_json`] wrote of so many precisions, with so many ranges each.
///
/// # Errors
/// The file does not read, is of another model, or has a range that is none; without its name.
pub fn read(path: &Path, precisions: usize, quantisers: usize) -> Result<Vec<Vec<Saved>>, String> {
    let bytes = file::bytes(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let fits = file.version == 1
        && file.ranges.len() == precisions
        && file.ranges.iter().all(|saved| saved.len() == quantisers);
    if !fits {
        return Err("does not fit the precisions and the model of this experiment".into());
    }
    let mut all = file.ranges.iter().flatten().flatten();
    if !all.all(|(low, high)| sound(low, high)) {
        return Err("has a range that is empty, that has no end, or whose ends are the wrong way round".into());
    }
    Ok(file.ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_to_the_same_bits_and_what_is_no_range_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let ranges = vec![vec![Some((vec![-1.0 / 3.0, 1e-30], vec![0.1, 7.7])), None]];
        xrun_core::files::write::replace(&path, &to_json(ranges.clone())).unwrap();
        assert_eq!(read(&path, 1, 2).unwrap(), ranges);
        assert!(read(&path, 2, 2).unwrap_err().contains("does not fit"));
        assert!(read(&path, 1, 3).unwrap_err().contains("does not fit"));
        for wrong in ["[[],[]]", "[[0.0],[1.0,2.0]]", "[[2.0],[1.0]]"] {
            let text = format!("{{\"version\":1,\"ranges\":[[{wrong},null]]}}");
            xrun_core::files::write::replace(&path, text.as_bytes()).unwrap();
            let message = read(&path, 1, 2).unwrap_err();
            // A number that is none in 32 bits is refused by the reader of JSON already, with some of its features.
            assert!(message.contains("wrong way round") || message.contains("out of range"), "{wrong}: {message}");
        }
        let text = br#"{"version":1,"ranges":[[[[-1e39],[1.0]],null]]}"#;
        xrun_core::files::write::replace(&path, text).unwrap();
        assert!(read(&path, 1, 2).unwrap_err().contains("out of range"));
    }
}
