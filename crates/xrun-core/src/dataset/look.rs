//! What does a data set look like? What was seen is remembered until a file of the data changes.
//!
//! It depends on the data and its own settings only, so that a change of any other key in an editor costs a look at the
//! times of the files, and nothing is read again.

use std::path::{Path, PathBuf};

use super::error::DataError;
use super::kind::{Dataset, Look};
use super::stamp::{program, stamp};
use super::{cache, digest, known};
use crate::files::{file, seal, write};

/// More looks than this are not remembered.
const LOOKS_MAX: usize = 256;
/// More is no look.
const LOOK_BYTES_MAX: u64 = 1024 * 1024;
/// Looks of other versions say other things.
const FORM: &str = "look 4";

type Answer = Result<Look<serde_json::Value>, DataError>;

/// Looks at data that people made, or remembers; `None` of data that xrun generates, which is as it should be.
///
/// # Errors
/// All that would end a run before its first step.
pub fn look(dataset: &Dataset) -> Result<Option<Look<serde_json::Value>>, DataError> {
    let files = dataset.files();
    if files.is_empty() {
        return Ok(None);
    }
    let place = stamp(&files).map(|stamp| place(dataset, &stamp));
    if let Some(known) = place.as_ref().and_then(|place| recall(place)) {
        return known.map(Some);
    }
    let seen = dataset.kind().look(dataset.any());
    if let Some(place) = place {
        keep(&place, &seen);
    }
    seen.map(Some)
}

fn place(dataset: &Dataset, stamp: &str) -> PathBuf {
    // Settings always serialise: their keys are strings.
    let settings = serde_json::to_string(dataset).unwrap_or_default();
    let key = format!("{FORM} {:?} {stamp} {settings}", program());
    cache::folder().join("looks").join(format!("{}.json", &digest::digest(key.as_bytes())[..32]))
}

fn recall(place: &Path) -> Option<Answer> {
    let bytes = file::bytes(place, LOOK_BYTES_MAX).ok()?;
    seal::check_text(&bytes).inspect_err(|_| known::say_damaged(place, "the data is looked at again")).ok()?;
    serde_json::from_str(std::str::from_utf8(&bytes).ok()?.lines().next()?).ok()
}

/// A cache that cannot be written is no reason to stop.
fn keep(place: &Path, seen: &Answer) {
    let (Ok(text), Some(folder)) = (serde_json::to_string(seen), place.parent()) else { return };
    if cache::make(folder).is_ok() {
        let _ = write::replace(place, &seal::text(&format!("{text}\n")));
        cache::forget_oldest(folder, LOOKS_MAX);
    }
}
