//! Names of the classes, which YOLO's label files number.
//!
//! Source: `data.yaml`, or one name per line of `classes.txt`. Only the key `names` of the YAML is read: a list, or numbers with
//! names.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser};

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

/// The value of the key `names`. Aliases are not followed, and what is behind the names is not read.
fn of_yaml(text: &str) -> Result<Vec<String>, String> {
    let mut parser = Parser::new_from_str(text);
    let mut next = || match parser.next() {
        Some(event) => {
            event.map(|(event, span)| (event, span.start.line())).map_err(|error| format!("is no YAML: {error}"))
        }
        None => Ok((Event::StreamEnd, 0)),
    };
    // A key is a scalar at depth 1 whose value comes next.
    let (mut depth, mut is_key) = (0_usize, false);
    loop {
        match next()?.0 {
            Event::StreamEnd => return Err(format!("has no key `names`; {EXPECTED}")),
            Event::Scalar(key, ..) if is_key && key == "names" => break,
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_key = depth == 1 && !is_key;
    }
    let wrong = |line: usize| Err(format!("line {line}: {EXPECTED}"));
    let numbered = match next()? {
        (Event::SequenceStart(..), _) => false,
        (Event::MappingStart(..), _) => true,
        (_, line) => return wrong(line),
    };
    let mut names = Vec::new();
    loop {
        let (name, line) = match next()? {
            (Event::SequenceEnd | Event::MappingEnd, _) => return Ok(names),
            (Event::Scalar(number, ..), line) if numbered && number.parse() != Ok(names.len()) => {
                let message = format!("line {line}: class {number} where {} is expected", names.len());
                return Err(format!("{message}; numbers go from 0 without a gap"));
            }
            (Event::Scalar(..), _) if numbered => next()?,
            item => item,
        };
        match name {
            Event::Scalar(name, ..) => names.push(name.into_owned()),
            _ => return wrong(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_numbered_names_are_read_in_every_style() {
        for text in [
            "path: ../x # root\nnames: ['cat', \"big dog\", owl]\nnc: 3\n",
            "names:\n  - cat\n  - big dog  # of two words\n\n  - 'owl'\nnc: 3\n",
            "names:\n- cat\n- big dog\n- owl\ntrain: images/train\n",
            "train: {names: [a]}\nnames:\n  0: cat\n  1: big dog\n  2: owl\ndownload: |\n  names: x\n",
            "names: [cat, big dog,\n  owl]\n",
        ] {
            assert_eq!(of_yaml(text).unwrap(), ["cat", "big dog", "owl"], "{text}");
        }
        assert_eq!(of_yaml("names: ['it''s', 'a, b', \"a\\tb\"]").unwrap(), ["it's", "a, b", "a\tb"]);
    }

    #[test]
    fn what_is_no_list_of_names_is_refused_with_the_line() {
        let texts = [
            "nc: 3\n",
            "names: [a, b\n",
            "names: cat\n",
            "names:\n  0: cat\n  2: dog\n",
            "names:\n  - [a]\n",
            "a: &b [x]\nnames: *b\n",
            "names: \"a",
        ];
        let messages = texts.map(|text| format!("{text:?}: {}\n", of_yaml(text).unwrap_err()));
        insta::assert_snapshot!(messages.concat());
    }
}
