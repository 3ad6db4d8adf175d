//! Names of the classes, which YOLO's label files number.
//!
//! Source: `data.yaml`, or one name per line of `classes.txt`. Only the key `names` of the YAML is read, in the three forms that
//! tools write: a list in brackets, a list of lines, numbers with names.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

use crate::reading::confined::{Root, annotation_file};
use xrun_core::dataset::error::DataError;
use xrun_core::printable;

/// Maximum size of a list of names.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Files that may have the names; the first that exists is read.
const FILES: [&str; 5] = ["data.yaml", "data.yml", "classes.txt", "labels/classes.txt", "obj.names"];

/// Names by number, from the file that has them; the digest covers its bytes.
///
/// # Errors
/// There is no file of names, or none of its names can be read.
pub fn read(root: &Root, digest: &mut Sha256) -> Result<Vec<String>, DataError> {
    let Some(path) = FILES.iter().map(|name| root.join(name)).find(|path| path.is_file()) else {
        let message =
            "has neither data.yaml nor classes.txt, and the classes have no names; write classes.txt, a name a line";
        return Err(DataError::file(&root.path, message));
    };
    let bytes = annotation_file(root, &path, FILE_BYTES_MAX)?;
    digest.update(&bytes);
    let text = std::str::from_utf8(&bytes).map_err(|_| DataError::file(&path, "is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let names = match is_yaml {
        true => of_yaml(text).map_err(|message| DataError::file(&path, message))?,
        false => text.trim_end().lines().map(|line| line.trim().to_owned()).collect(),
    };
    let mut known = BTreeSet::new();
    match names.iter().find(|name| !known.insert(name.as_str())) {
        _ if names.is_empty() => Err(DataError::file(&path, "names no class")),
        Some(name) => {
            let message = format!("names the class \"{}\" twice", printable::line(name, 60));
            Err(DataError::file(&path, message))
        }
        None => Ok(names),
    }
}

const EXPECTED: &str = "`names` is expected as `[cat, dog]`, as lines `- cat`, or as lines `0: cat`";

/// The value of the key `names`.
fn of_yaml(text: &str) -> Result<Vec<String>, String> {
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with("names:"));
    let (_, first) = lines.next().ok_or_else(|| format!("has no key `names`; {EXPECTED}"))?;
    let rest = uncommented(&first["names:".len()..]);
    if rest.starts_with('[') {
        let mut list = rest.to_owned();
        while !list.ends_with(']') {
            let (_, line) = lines.next().ok_or("the list `names` has no end")?;
            list = format!("{list} {}", uncommented(line));
        }
        return of_list(&list[1..list.len() - 1]);
    }
    if !rest.is_empty() {
        return Err(format!("`names` is \"{rest}\"; {EXPECTED}"));
    }
    let mut names = Vec::new();
    for (at, line) in lines {
        let item = uncommented(line);
        let is_next_key = !line.starts_with([' ', '\t', '-', '#']) && !item.is_empty();
        if is_next_key {
            break;
        }
        if item.is_empty() {
            continue;
        }
        let wrong = || format!("line {}: \"{item}\" is no name of a class; {EXPECTED}", at + 1);
        let name = match item.strip_prefix("- ") {
            Some(name) => name,
            None => {
                let (number, name) = item.split_once(':').ok_or_else(wrong)?;
                let number: usize = unquoted(number)?.parse().map_err(|_| wrong())?;
                if number != names.len() {
                    return Err(format!(
                        "line {}: class {number} follows class {}; numbers go from 0 without a gap",
                        at + 1,
                        names.len().wrapping_sub(1) as isize
                    ));
                }
                name
            }
        };
        names.push(unquoted(name)?);
    }
    Ok(names)
}

/// Names between commas, which may be in quotes.
fn of_list(text: &str) -> Result<Vec<String>, String> {
    let (mut names, mut from, mut quote) = (Vec::new(), 0, None);
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (',', None) => {
                names.push(unquoted(&text[from..at])?);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !text[from..].trim().is_empty() {
        names.push(unquoted(&text[from..])?);
    }
    Ok(names)
}

/// A plain or quoted scalar.
fn unquoted(text: &str) -> Result<String, String> {
    let text = text.trim();
    let inner = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    match inner {
        Some(inner) if text.starts_with('"') && inner.contains('\\') => {
            Err(format!("the name {text} has an escape sequence; write it without, or in a classes.txt"))
        }
        Some(inner) => Ok(inner.replace("''", "'")),
        None => Ok(text.to_owned()),
    }
}

/// A line without the comment at its end.
fn uncommented(line: &str) -> &str {
    let line = if line.trim_start().starts_with('#') { "" } else { line };
    line.split(" #").next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_tools_write_are_read() {
        for text in [
            "path: ../x # root\nnames: ['cat', \"big dog\", owl]\nnc: 3\n",
            "names:\n  - cat\n  - big dog  # of two words\n\n  - 'owl'\nnc: 3\n",
            "names:\n- cat\n- big dog\n- owl\ntrain: images/train\n",
            "train: a\nnames:\n  0: cat\n  1: big dog\n  2: owl\n",
            "names: [cat, big dog,\n  owl]\n",
        ] {
            assert_eq!(of_yaml(text).unwrap(), ["cat", "big dog", "owl"], "{text}");
        }
        assert_eq!(of_yaml("names: ['it''s', 'a, b']").unwrap(), ["it's", "a, b"]);
    }

    #[test]
    fn what_is_no_list_of_names_is_refused_with_the_line() {
        for (text, words) in [
            ("nc: 3\n", "has no key `names`"),
            ("names: [a, b\n", "has no end"),
            ("names: cat\n", "`names` is \"cat\""),
            ("names: {0: cat}\n", "`names` is \"{0: cat}\""),
            ("names:\n  0: cat\n  2: dog\n", "line 3: class 2 follows class 0"),
            ("names:\n  cat\n", "line 2: \"cat\" is no name"),
            ("names:\n  - \"a\\tb\"\n", "escape sequence"),
        ] {
            let message = of_yaml(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
