//! Parts that the descriptions of all data sets have in common.

use std::collections::BTreeMap;

use xrun_core::printable;

/// Maximum number of classes that a line names.
const NAMED_MAX: usize = 20;
/// Maximum length of a name in a line.
const NAME_CHARACTERS_MAX: usize = 40;

/// Names in quotation marks, the first ones.
pub fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    listed(all.map(|name| format!("\"{}\"", printable::line(name, NAME_CHARACTERS_MAX))))
}

/// Classes with their counts, such as `cat 12, dog 7`, the first ones.
pub(crate) fn counts<'a>(classes: impl Iterator<Item = (&'a str, u64)>) -> String {
    listed(classes.map(|(name, count)| format!("{} {count}", printable::line(name, NAME_CHARACTERS_MAX))))
}

fn listed(mut items: impl Iterator<Item = String>) -> String {
    let first: Vec<String> = items.by_ref().take(NAMED_MAX).collect();
    match items.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Text about two splits, such as `80 to train on, 20 held out`.
pub(crate) fn splits(train: u64, held_out: u64) -> String {
    format!("{train} to train on, {held_out} held out")
}

/// Warning about classes whose names differ only in case or in spaces around them.
pub(crate) fn similar_names<'a>(classes: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut same: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    classes.for_each(|name| same.entry(name.trim().to_lowercase()).or_default().push(name));
    let similar: Vec<String> =
        same.into_values().filter(|names| names.len() > 1).map(|group| names(group.into_iter())).collect();
    let all = listed(similar.into_iter().map(|group| format!("({group})")));
    (!all.is_empty())
        .then(|| format!("classes whose names differ only in case or spaces: {all}; is one a typing mistake?"))
}

/// Warning about classes with a single sample.
pub(crate) fn single<'a>(classes: impl Iterator<Item = (&'a str, u64)>, sample: &str) -> Option<String> {
    let found: Vec<&str> = classes.filter(|(_, count)| *count == 1).map(|(name, _)| name).collect();
    (!found.is_empty()).then(|| format!("classes with a single {sample}: {}", names(found.into_iter())))
}
