//! Table of a directory: the one that is named, or the one that is clearly meant.

use crate::boxes::raw::{HELD_OUT, TRAIN, named};
use crate::reading::confined::{Root, directories, files, stem};
use crate::reading::survey::survey;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;

/// Endings of tables.
const ENDINGS: [&str; 3] = ["csv", "tsv", "jsonl"];
/// Names of tables, the preferred first.
const NAMES: [&str; 5] = ["metadata", "labels", "_classes", "annotations", "train"];

/// Tables relative to the root, each with the split of its images.
///
/// # Errors
/// There is no table, or none of several is clearly meant.
pub fn tables(root: &Root, asked: Option<&str>) -> Result<Vec<(String, Option<Split>)>, DataError> {
    if let Some(name) = asked {
        return Ok(vec![(name.to_owned(), None)]);
    }
    let all = files(root, "", &ENDINGS)?;
    let of_split = |names: &[&str]| all.iter().find(|file| names.contains(&stem(file))).cloned();
    if let (Some(train), Some(held_out)) = (of_split(&["train"]), of_split(&HELD_OUT[..3])) {
        return Ok(vec![(train, Some(Split::Train)), (held_out, Some(Split::Validation))]);
    }
    if let Some(table) = meant(&all) {
        return Ok(vec![(table, None)]);
    }
    if !all.is_empty() {
        let message = format!("has several tables, {}; name one with `table`", all.join(", "));
        return Err(DataError::file(&root.path, message));
    }
    let (parts, mut found) = (directories(root, "")?, Vec::new());
    for (names, split) in [(&TRAIN[..], Split::Train), (&HELD_OUT[..], Split::Validation)] {
        if let Some(directory) = named(&parts, names)
            && let Some(table) = meant(&files(root, directory, &ENDINGS)?)
        {
            found.push((format!("{directory}/{table}"), Some(split)));
        }
    }
    match found.as_mut_slice() {
        [] => {
            let message = format!("has no table of labels (CSV, TSV or JSON lines){}", survey(&root.path));
            Err(DataError::file(&root.path, message))
        }
        [(_, split)] => {
            *split = None;
            Ok(found)
        }
        _ => Ok(found),
    }
}

/// The only table, or the only one of the preferred name.
fn meant(tables: &[String]) -> Option<String> {
    let named = |name: &&str| tables.iter().find(|table| stem(table) == *name);
    match tables {
        [only] => Some(only.clone()),
        _ => NAMES.iter().find_map(named).cloned(),
    }
}
