//! Inspection of a data set, cached until one of its files changes.
//!
//! The result depends only on the data and its own settings. A change of any other key costs one `stat` per file.

use std::path::{Path, PathBuf};

use super::error::DataError;
use super::kind::{Dataset, DatasetSummary, Inspected};
use super::stamp::{program, stamp};
use super::{cache, digest, digest_cache};
use crate::files::{checksum, file, write};

/// Maximum number of cached inspections.
const INSPECTIONS_MAX: usize = 256;
/// Maximum size of one.
const INSPECTION_BYTES_MAX: u64 = 1024 * 1024;
/// Format of a cached inspection; part of its cache key.
const FORMAT: &str = "look 5";

type InspectionResult = Result<DatasetSummary<serde_json::Value>, DataError>;

/// Inspects data of the user, or returns the cached result; `None` for generated data.
///
/// # Errors
/// Every fault of the data that would end a run before its first step.
pub fn inspect(dataset: &Dataset) -> Result<Option<Inspected>, DataError> {
    let files = dataset.files();
    if files.is_empty() {
        return Ok(None);
    }
    let entry = stamp(&files).map(|stamp| cache_entry(dataset, &stamp));
    if let Some(cached) = entry.as_ref().and_then(|entry| load(entry)) {
        return cached.map(|summary| Some((summary, None)));
    }
    let (summary, opened) = dataset.inspect().map_or_else(|e| (Err(e), None), |(s, o)| (Ok(s), o));
    if let Some(entry) = entry {
        store(&entry, &summary);
    }
    summary.map(|summary| Some((summary, opened)))
}

fn cache_entry(dataset: &Dataset, stamp: &str) -> PathBuf {
    // The keys of settings are strings, so serialising cannot fail.
    let settings = serde_json::to_string(dataset).unwrap_or_default();
    let key = format!("{FORMAT} {:?} {stamp} {settings}", program());
    cache::directory().join("inspections").join(format!("{}.json", &digest::digest(key.as_bytes())[..32]))
}

fn load(entry: &Path) -> Option<InspectionResult> {
    let bytes = file::bytes(entry, INSPECTION_BYTES_MAX).ok()?;
    checksum::check_text(&bytes)
        .inspect_err(|_| digest_cache::report_damaged(entry, "inspecting the data again"))
        .ok()?;
    serde_json::from_str(std::str::from_utf8(&bytes).ok()?.lines().next()?).ok()
}

/// Errors are ignored: the cache is optional.
fn store(entry: &Path, inspected: &InspectionResult) {
    let (Ok(text), Some(directory)) = (serde_json::to_string(inspected), entry.parent()) else { return };
    if cache::create(directory).is_ok() {
        let _ = write::replace(entry, &checksum::text(format!("{text}\n")));
        cache::remove_oldest(directory, INSPECTIONS_MAX);
    }
}
