//! Lookup of the sections that have a key.

use serde_json::Value;

use super::pipeline::{ModelKind, PipelineKind};
use super::schema;
use super::shape::list;
use super::tree::join;
use crate::dataset::kind::DatasetKind;
use crate::settings::variant::Section;

/// Maximum number of sections in a message.
const SECTIONS_MAX: usize = 6;

/// Sections that have a key of this name.
pub fn sections_with_key(schema: &Value, key: &str) -> Vec<String> {
    fn collect(schema: &Value, path: &str, key: &str, sections: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if name == key && !path.is_empty() {
                sections.push(path.to_owned());
            }
            collect(part, &join(path, name), key, sections);
        }
    }
    let mut found = Vec::new();
    collect(schema, "", key, &mut found);
    found
}

/// Help such as `` `seed` is a key of `[experiment]` and `[dataset.synthetic-video]` ``; `None` for no sections.
pub fn section_help(key: &str, sections: &[String]) -> Option<String> {
    let named: Vec<String> = sections.iter().take(SECTIONS_MAX).map(|section| format!("[{section}]")).collect();
    let more = match sections.len().saturating_sub(SECTIONS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = list(named.iter().map(String::as_str), "and");
    (!sections.is_empty()).then(|| format!("`{key}` is a key of {named}{more}"))
}

/// Returns whether a section belongs to one pipeline, model, backbone or data set; other sections are shared by all experiments.
fn is_specific(section: &str) -> bool {
    let first = section.split('.').next().unwrap_or_default();
    [<dyn PipelineKind>::SECTION, <dyn ModelKind>::SECTION, "backbone", <dyn DatasetKind>::SECTION]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(first))
}

/// Key that a bare name means, and its sections. Those that all experiments share take precedence over those of kinds:
/// `learning_rate` is the optimiser's.
pub fn likely_sections(schema: &Value, word: &str) -> (String, Vec<String>) {
    let name = word.to_lowercase().replace('-', "_");
    let name = if name == "lr" { "learning_rate".to_owned() } else { name };
    let own = sections_with_key(schema, &name);
    let (of_kinds, shared): (Vec<String>, Vec<String>) = own.into_iter().partition(|section| is_specific(section));
    (name, if shared.is_empty() { of_kinds } else { shared })
}

/// Dotted keys that a bare name on the command line may mean: `training.epochs` for `epochs`.
pub fn dotted_keys(word: &str) -> Vec<String> {
    let (name, sections) = likely_sections(schema::shared(), word);
    sections.iter().map(|section| join(section, &name)).collect()
}

/// All dotted keys that take a value, for completions.
pub fn all_keys() -> Vec<String> {
    fn collect(schema: &Value, path: &str, keys: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let key = join(path, name);
            match part.get("properties") {
                Some(_) => collect(part, &key, keys),
                None if key != "extends" => keys.push(key),
                None => {}
            }
        }
    }
    let mut keys = Vec::new();
    collect(schema::shared(), "", &mut keys);
    keys
}
