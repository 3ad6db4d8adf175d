//! Lines of the program's source: their text, and the line that adds to a container.

use std::io::Read;
use std::path::Path;

use super::answer::Frame;
use xrun_core::files::file;
use xrun_core::printable;
use xrun_results::explanation::SourceLine;

/// Cap on the bytes of a source file.
const FILE_BYTES_MAX: u64 = 4 << 20;
const TEXT_CHARACTERS_MAX: usize = 160;
/// Methods that add items to a container.
const ADDING: &[&str] =
    &["append", "appendleft", "add", "extend", "insert", "put", "put_nowait", "setdefault", "update", "register"];

/// Text of a source file; empty if it cannot be read.
pub fn read(path: &str) -> String {
    let mut text = Vec::new();
    let opened = file::open(Path::new(path));
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&text).into_owned())
}

/// A frame with the text of its line.
pub fn line(frame: &Frame) -> SourceLine {
    let Frame(path, number) = frame;
    let text = read(path).lines().nth((*number as usize).saturating_sub(1)).unwrap_or_default().trim().to_owned();
    SourceLine { file: path.clone(), line: *number, text: printable::line(&text, TEXT_CHARACTERS_MAX) }
}

/// Finds the line that adds to the container of these names, the nearest first, such as `queue` and `results` for
/// `results.queue`: among `births` first, then the nearest to one of them, in the files of `births` and in `file`.
pub fn adding_line(names: &[&str], births: &[Frame], file: Option<&str>) -> Option<SourceLine> {
    let texts: Vec<SourceLine> = births.iter().map(line).collect();
    let of_birth = |name: &&str| texts.iter().find(|one| adds(&one.text, name)).cloned();
    let found = names.iter().find_map(of_birth);
    found.or_else(|| names.iter().find_map(|name| nearest_line(name, births, file)))
}

fn nearest_line(name: &str, births: &[Frame], file: Option<&str>) -> Option<SourceLine> {
    let mut files: Vec<&str> = births.iter().map(|Frame(path, _)| path.as_str()).chain(file).collect();
    files.dedup();
    let nearest = |path: &str| {
        let text = read(path);
        let distance = |number: u32| {
            let same = births.iter().filter(|Frame(other, _)| other == path);
            same.map(|Frame(_, line)| line.abs_diff(number)).min().unwrap_or(u32::MAX)
        };
        let numbers = (1..).zip(text.lines()).filter(|(_, line)| adds(line, name)).map(|(number, _)| number);
        numbers.min_by_key(|&number| distance(number)).map(|number| line(&Frame(path.to_owned(), number)))
    };
    files.into_iter().find_map(nearest)
}

/// Returns whether a line assigns to a variable a value that is computed from it, such as `total = total + loss`.
pub fn is_recurrence(text: &str, name: &str) -> bool {
    let compound =
        ["+=", "-=", "*=", "/="].iter().any(|sign| after_word(text, name, |rest| rest.trim_start().starts_with(sign)));
    compound
        || text
            .split_once('=')
            .is_some_and(|(left, right)| !right.starts_with('=') && has_word(left, name) && has_word(right, name))
}

/// Returns whether a line adds an item to a container, or replaces it by a larger one.
fn adds(text: &str, name: &str) -> bool {
    if text.trim_start().starts_with('#') {
        return false;
    }
    after_word(text, name, |rest| {
        let method = rest.strip_prefix('.').and_then(|rest| rest.split_once('('));
        method.is_some_and(|(method, _)| ADDING.contains(&method)) || (rest.starts_with('[') && assigns(rest))
    }) || is_recurrence(text, name)
}

/// Returns whether a text such as `[key] = value` assigns to an item.
fn assigns(text: &str) -> bool {
    let mut depth = 0_u32;
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            let rest = text[at + character.len_utf8()..].trim_start();
            return (rest.starts_with('=') && !rest.starts_with("==")) || rest.starts_with("+=");
        }
    }
    false
}

/// Returns whether `test` holds for what follows one of the places where a name is a word.
fn after_word(text: &str, name: &str, test: impl Fn(&str) -> bool) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).any(|(at, _)| {
        let rest = &text[at + name.len()..];
        !text[..at].ends_with(is_part) && !rest.starts_with(is_part) && test(rest)
    })
}

fn has_word(text: &str, name: &str) -> bool {
    after_word(text, name, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_add_to_a_container_are_recognised() {
        let adding = [
            "losses.append(loss)",
            "self.losses[key] = loss",
            "self.losses[keys[0]] += loss",
            "losses = torch.cat([losses, loss])",
            "losses += [loss]",
        ];
        assert_eq!(adding.map(|line| adds(line, "losses")), [true; 5]);
        let others =
            ["losses = []", "print(losses[0])", "losses[0] == 3", "all_losses.append(1)", "# losses.append(1)"];
        assert_eq!(others.map(|line| adds(line, "losses")), [false; 5]);
    }

    #[test]
    fn the_line_nearest_to_a_birth_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("train.py");
        let text = "kept = []\nkept.append(0)\nfor step in steps:\n    loss = model(step)\n    kept.append(loss)\n";
        xrun_core::files::write::replace(&path, text.as_bytes()).unwrap();
        let path = path.display().to_string();
        let found = adding_line(&["queue", "kept"], &[Frame(path.clone(), 4)], None).unwrap();
        assert_eq!((found.line, found.text.as_str()), (5, "kept.append(loss)"));
        assert_eq!(adding_line(&["other"], &[Frame(path, 4)], None), None);
    }
}
