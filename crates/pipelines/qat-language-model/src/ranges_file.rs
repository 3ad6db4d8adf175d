//! File format of the ranges of activations, and its validation.

use std::path::Path;

use serde::{Deserialize, Serialize};

use xrun_core::files::file;

/// File name in a checkpoint.
pub const FILE: &str = "ranges.json";

/// Low and high bounds, one number each or one per channel; `None` for a range without bounds.
pub type SavedRange = Option<(Vec<f32>, Vec<f32>)>;

/// Maximum size of the file, larger than that of any model.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Message for a file of another number of precisions or another model.
pub const MISMATCH: &str = "does not fit the precisions and the model of this experiment";
/// Message for a range without finite, ordered bounds.
const INVALID: &str = "has a range whose bounds are missing, not finite or in the wrong order";

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// By precision, then block and quantizer.
    ranges: Vec<Vec<SavedRange>>,
}

fn is_valid(low: &[f32], high: &[f32]) -> bool {
    let ordered = |(low, high): (&f32, &f32)| low.is_finite() && high.is_finite() && low <= high;
    !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(ordered)
}

/// Serialises ranges without loss.
pub fn to_json(ranges: Vec<Vec<SavedRange>>) -> Vec<u8> {
    serde_json::to_vec(&File { version: 1, ranges }).unwrap_or_default()
}

/// Reads the output of [`to_json`] with `quantizers` ranges for each of `precisions` precisions.
///
/// # Errors
/// The file cannot be read, does not fit the model, or has an invalid range. The message does not name the file.
pub fn read(path: &Path, precisions: usize, quantizers: usize) -> Result<Vec<Vec<SavedRange>>, String> {
    let bytes = file::bytes(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let fits = file.version == 1
        && file.ranges.len() == precisions
        && file.ranges.iter().all(|saved| saved.len() == quantizers);
    if !fits {
        return Err(MISMATCH.into());
    }
    let mut all = file.ranges.iter().flatten().flatten();
    if !all.all(|(low, high)| is_valid(low, high)) {
        return Err(INVALID.into());
    }
    Ok(file.ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ranges_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for wrong in ["[[],[]]", "[[0.0],[1.0,2.0]]", "[[2.0],[1.0]]"] {
            let text = format!("{{\"version\":1,\"ranges\":[[{wrong},null]]}}");
            xrun_core::files::write::replace(&path, text.as_bytes()).unwrap();
            assert_eq!(read(&path, 1, 2), Err(INVALID.into()), "{wrong}");
        }
        let text = br#"{"version":1,"ranges":[[[[-1e39],[1.0]],null]]}"#;
        xrun_core::files::write::replace(&path, text).unwrap();
        // Depending on its features, the JSON parser itself refuses a number that a 32-bit float cannot hold.
        assert!(read(&path, 1, 2).is_err());
    }
}
