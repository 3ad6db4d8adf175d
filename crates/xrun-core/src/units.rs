//! Parsing and printing of sizes in bytes and of durations.
//!
//! Sizes are integers of bytes and print in IEC units (KiB, MiB, GiB), as in verdicts. `bytesize` and `humantime` parse.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use xrun_verdict::units::{UNITS, interval, seconds};

/// A size in bytes. Written as an integer of bytes or as text with a unit: `"300 MiB"`, `"1.5 GiB"`, `"20 MB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Size of `count` MiB.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    /// Text without rounding, in the largest unit that divides the size: `40 MiB`, `1025 B`.
    pub fn exact(self) -> String {
        self.largest_unit()
            .map_or_else(|| format!("{} B", self.0), |(shift, name)| format!("{} {name}", self.0 >> shift))
    }

    /// Largest unit that divides the size, as a power of two and a name; `None` where none does.
    fn largest_unit(self) -> Option<(u32, &'static str)> {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        units.into_iter().find(|(shift, _)| self.0 > 0 && self.0.is_multiple_of(1 << shift))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&xrun_verdict::units::bytes(self.0))
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_digit = text.trim_start().starts_with(|c: char| c.is_ascii_digit());
        match text.parse::<bytesize::ByteSize>() {
            Ok(size) if has_digit => Ok(Self(size.as_u64())),
            _ => Err(format!("expected a size such as \"300 MiB\" or an integer of bytes, found \"{text}\"")),
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.largest_unit() {
            Some(_) => serializer.serialize_str(&self.exact()),
            None => serializer.serialize_u64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a size such as \"300 MiB\" or an integer of bytes")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: an integer of bytes, or text with a unit such as \"300 MiB\".",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]+)?\\s*([kKmMgGtT]([iI]?[bB])?|[bB])?\\s*$", "format": "bytes" }
            ]
        })
    }
}

/// A duration. Written as text with a unit, `"30 s"`, `"2h 30m"`, or as a clock shows it, `"04:00:00"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", humantime::format_duration(self.0))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = humantime::parse_duration(text).ok().or_else(|| clock(text));
        parsed.map(Self).ok_or_else(|| format!("expected a duration such as \"30 s\" or \"2h 30m\", found \"{text}\""))
    }
}

/// Duration as `hours:minutes:seconds`, or with days as `days-hours[:minutes[:seconds]]`. Two numbers without days are none:
/// they could be hours or minutes.
fn clock(text: &str) -> Option<Duration> {
    let (days, rest) = text.trim().split_once('-').map_or((None, text.trim()), |(days, rest)| (Some(days), rest));
    let numbers: Vec<u64> =
        rest.split(':').map(|part| part.parse::<u32>().ok().map(u64::from)).collect::<Option<_>>()?;
    let is_whole = if days.is_some() { numbers.len() <= 3 } else { numbers.len() == 3 };
    let days = days.map_or(Some(0), |days| days.parse::<u32>().ok().map(u64::from))?;
    let seconds = numbers.iter().zip([3600, 60, 1]).map(|(number, unit)| number * unit).sum::<u64>();
    is_whole.then_some(Duration::from_secs(days * 86_400 + seconds))
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration as text with a unit, such as \"30 s\" or \"2h 30m\", or as \"04:00:00\" or \"1-04:00:00\".",
            "type": "string",
            "format": "span"
        })
    }
}

/// Number with its noun in the singular or plural: `1 step`, `2 steps`, `2 batches`, `2 queries`.
pub fn pluralize(count: u64, noun: &str) -> String {
    let is_vowel = |letter: char| "aeiou".contains(letter);
    match noun.strip_suffix('y') {
        _ if count == 1 => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(is_vowel) => format!("{count} {stem}ies"),
        _ if ["s", "x", "tch", "sh"].iter().any(|ending| noun.ends_with(ending)) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_text_parses_to_the_same_size() {
        for bytes in [0, 1, 1025, 40 << 20, (40 << 20) + 1, 3 << 30, u64::MAX] {
            assert_eq!(Bytes(bytes).exact().parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(40 << 20).exact(), "40 MiB");
    }

    #[test]
    fn sizes_parse_with_and_without_units() {
        assert_eq!("300 MiB".parse(), Ok(Bytes(300 << 20)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("20 MB".parse(), Ok(Bytes(20_000_000)));
        assert_eq!("7".parse(), Ok(Bytes(7)));
        for wrong in ["", "MiB", "12 apples", "-3 MiB", "nan", "3 MiB extra"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong} was taken for a size");
        }
    }

    #[test]
    fn the_unit_is_chosen_after_rounding() {
        assert_eq!(Bytes((1 << 20) - 1).to_string(), "1.0 MiB");
        assert_eq!(Bytes(1000 << 10).to_string(), "1000.0 KiB");
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!("30 s".parse(), Ok(Span(Duration::from_secs(30))));
        for (text, seconds) in [("04:00:00", 14_400), ("1-02:30:00", 95_400), ("2-12", 216_000), ("1-00:30", 88_200)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["30:00", "90", "1:2:3:4", "1-", "-1:00:00", "4:00:00 h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert_eq!("2h 30m".parse(), Ok(Span(Duration::from_secs(9000))));
        assert!("30".parse::<Span>().is_err());
    }

    #[test]
    fn nouns_are_singular_and_plural() {
        assert_eq!(pluralize(1, "class"), "1 class");
        assert_eq!([pluralize(10, "class"), pluralize(2, "batch")], ["10 classes", "2 batches"]);
        assert_eq!([pluralize(2, "query"), pluralize(2, "day")], ["2 queries", "2 days"]);
        assert_eq!(pluralize(0, "step"), "0 steps");
    }
}
