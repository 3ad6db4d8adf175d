//! How is a mistake in an experiment described, located, hinted and collected?
//!
//! A [`Problem`] names a key, says what was expected and what was found, and knows the layer it came from (a file, an
//! environment variable, a command-line override) and the bytes in that layer's text. [`Problems`] collects them, so
//! that a user sees everything that is wrong at once.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// More than this are not collected: nobody reads them, and a hostile file could hold millions.
pub const PROBLEMS_MAX: usize = 100;

/// A text in which a problem can be pointed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What to call it: `experiments/stage2.toml`, `environment variable XRUN__LIMITS__WORKERS`, `command line`.
    pub name: String,
    /// All of it: places are counted in its bytes.
    pub text: String,
    /// Where the text is an option that stands for a key, such as `--device gpu`.
    pub option: Option<OptionKey>,
}

/// An option of the command line that stands for a key of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionKey {
    /// Such as `--device`.
    pub option: &'static str,
    /// Such as `experiment.device`.
    pub key: &'static str,
}

impl Source {
    /// A text that is no option for a key.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), option: None }
    }
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The text.
    pub source: Arc<Source>,
    /// Bytes of it: those of the key or the value that is wrong.
    pub span: Range<usize>,
}

impl Place {
    /// Line and column, both from 1; the column counts characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..floor_char_boundary(&self.source.text, self.span.start)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One mistake in what a person wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The dotted key, such as `limits.workers`; empty when the whole file is meant.
    pub key: String,
    /// A lower-case fragment: what was expected and what was found.
    pub message: String,
    /// What to write instead.
    pub help: Option<Box<str>>,
    /// Where it stands; `None` where nothing stands, as of a key that is missing.
    pub place: Option<Place>,
    /// Other keys that it is about, when two contradict each other.
    pub related: Vec<Related>,
    /// What is written may be so; what it names on the disk is not there, or is something else.
    pub is_of_disk: bool,
}

/// Another key that a problem is about, and where it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// The dotted key.
    pub key: String,
    /// Where it was set; `None` where it has its default.
    pub place: Option<Place>,
}

impl Problem {
    /// A mistake without a place and without advice.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            help: None,
            place: None,
            related: Vec::new(),
            is_of_disk: false,
        }
    }

    /// Says what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into().into_boxed_str());
        self
    }

    /// Says that the text could stay as it is, were the disk another one.
    pub fn of_disk(mut self) -> Self {
        self.is_of_disk = true;
        self
    }

    /// Names another key that the problem is about; its place is filled in when it was set anywhere.
    pub fn related(mut self, key: impl Into<String>) -> Self {
        self.related.push(Related { key: key.into(), place: None });
        self
    }

    /// Says where it stands.
    pub fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    /// What a person typed for it: the key, or the option that stands for it.
    pub fn typed(&self) -> &str {
        let option = self.place.as_ref().and_then(|place| place.source.option);
        option.filter(|option| option.key == self.key).map_or(&self.key, |option| option.option)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            let (line, column) = place.line_and_column();
            write!(formatter, "{}:{line}:{column}: ", printable(&place.source.name))?;
        }
        if !self.key.is_empty() {
            write!(formatter, "`{}`: ", printable(self.typed()))?;
        }
        formatter.write_str(&printable(&self.message))?;
        match &self.help {
            Some(help) => write!(formatter, " ({})", printable(help)),
            None => Ok(()),
        }
    }
}

/// All mistakes found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    /// How many more there were than are kept.
    pub left_out: usize,
}

impl Problems {
    /// Adds one, unless the same is there; beyond [`PROBLEMS_MAX`] it is only counted.
    pub fn add(&mut self, problem: Problem) {
        if self.list.contains(&problem) {
            return;
        }
        if self.list.len() < PROBLEMS_MAX {
            self.list.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Whether nothing was found to be wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// No more are kept: a message for another one would be made in vain. Counts it.
    pub fn leaves_out_one_more(&mut self) -> bool {
        let full = self.list.len() >= PROBLEMS_MAX;
        self.left_out += usize::from(full);
        full
    }

    /// Those that are kept, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// The same, to be changed: places are filled in afterwards.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Problem> {
        self.list.iter_mut()
    }

    /// Adds those of another list, and its count of what was left out.
    pub fn extend(&mut self, other: Self) {
        self.left_out += other.left_out;
        for problem in other.list {
            self.add(problem);
        }
    }

    /// `Ok` when there are none.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            writeln!(formatter, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Whether a character could drive a terminal or reorder what stands on it.
pub fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with characters that could drive a terminal written as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_hostile(c) { c.escape_unicode().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// The candidate most like `word`, if any is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let word = plain(word);
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&word, &plain(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= 0.8) // `worker` and `workers` are near, `seed` and `speed_up` are not
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let source = Arc::new(Source::new("a.toml", "a = 1\nè = 2\n"));
        let place = Place { source: source.clone(), span: 11..12 };
        assert_eq!(place.line_and_column(), (2, 5));
        let past_the_end = Place { source, span: 999..1000 };
        assert_eq!(past_the_end.line_and_column(), (3, 1));
    }

    #[test]
    fn the_nearest_name_is_suggested_and_far_ones_are_not() {
        let names = ["workers", "prefetch", "frame_cache"];
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("frame-cahce", names), Some("frame_cache"));
        assert_eq!(nearest("colour", names), None);
    }

    #[test]
    fn escape_sequences_and_direction_marks_are_written_out() {
        assert_eq!(printable("plain è"), "plain è");
        assert_eq!(printable("\u{1b}[2J\u{202e}"), "\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn the_number_of_problems_kept_is_bounded() {
        let mut problems = Problems::default();
        for number in 0..1_000 {
            problems.add(Problem::new(format!("key{number}"), "unknown key"));
        }
        assert_eq!(problems.iter().count(), PROBLEMS_MAX);
        assert_eq!(problems.left_out, 900);
    }
}
