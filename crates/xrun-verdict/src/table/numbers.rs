//! Numbers and sizes in cells: decimal commas, separators of thousands, and units.

use super::names::bytes_of;

/// Amount in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Number without a unit.
    Number(f64),
    /// Number of bytes, from a number with a unit.
    Bytes(f64),
    Percent(f64),
    /// Value that was not measured.
    Missing,
}

/// Notation of the numbers of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// True if a comma stands before decimals; otherwise it may stand between thousands.
    decimal_comma: bool,
    /// True if a point stands between thousands.
    point_groups: bool,
}

/// Texts of values that were not measured.
const MISSING: &[&str] = &["", "-", "--", "na", "n/a", "nan", "null", "none", "<na>", "err!", "#n/a"];

impl Numbers {
    /// Notation of these cells. A comma before three digits separates thousands, unless another cell has other decimals or
    /// `semicolons` separate cells.
    pub fn of<'a>(cells: impl Iterator<Item = &'a str>, semicolons: bool) -> Self {
        let (mut decimal, mut grouped, mut point_groups) = (false, false, false);
        for cell in cells {
            let number = numeric_prefix(cell);
            let Some((whole, rest)) = number.split_once(',') else { continue };
            let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_grouped(whole, '.') && whole.contains('.') && is_digits(rest) {
                (decimal, point_groups) = (true, true);
            } else if is_digits(whole) && is_digits(rest) {
                decimal |= rest.len() != 3 || whole.len() > 3 || whole.starts_with('0');
            } else if is_grouped(number.split('.').next().unwrap_or_default(), ',') {
                grouped = true;
            }
        }
        Self { decimal_comma: decimal || (semicolons && !grouped), point_groups }
    }

    /// Parses a number; `None` for a cell with anything else.
    pub fn number(&self, cell: &str) -> Option<f64> {
        let starts = cell.starts_with(|letter: char| letter.is_ascii_digit() || ['-', '+', '.'].contains(&letter));
        if !starts {
            return None;
        }
        match cell.parse() {
            Ok(number) if !(self.point_groups && is_grouped(cell, '.') && cell.contains('.')) => Some(number),
            // A number with a unit.
            _ if cell.bytes().any(|byte| byte.is_ascii_alphabetic() && !byte.eq_ignore_ascii_case(&b'e')) => None,
            _ => self.plain(cell).parse().ok(),
        }
    }

    /// Number without separators of thousands, with a decimal point.
    fn plain(&self, cell: &str) -> String {
        let mut text = cell.to_owned();
        for separator in ['\'', '_', '\u{a0}', '\u{202f}', ' '] {
            let whole = text.split([',', '.']).next().unwrap_or_default();
            if whole.contains(separator) && is_grouped(whole, separator) {
                text = text.replace(separator, "");
            }
        }
        if self.decimal_comma {
            let whole = text.split(',').next().unwrap_or_default();
            if self.point_groups && is_grouped(whole, '.') {
                text = text.replace('.', "");
            }
            return text.replace(',', ".");
        }
        let whole = text.split('.').next().unwrap_or_default();
        let is_after_point = text[whole.len()..].contains(',');
        if is_grouped(whole, ',') && !is_after_point { text.replace(',', "") } else { text }
    }

    /// Parses a cell. `kibi` is true where `kB` are KiB, as in `/proc`.
    ///
    /// # Errors
    /// Reason why it is no amount.
    pub fn amount(&self, cell: &str, kibi: bool) -> Result<Amount, &'static str> {
        if let Some(number) = self.number(cell) {
            return match number {
                number if number < 0.0 => Err("is negative"),
                number if number.is_finite() => Ok(Amount::Number(number)),
                number if number.is_nan() => Ok(Amount::Missing),
                _ => Err("is not finite"),
            };
        }
        if is_missing(cell) {
            return Ok(Amount::Missing);
        }
        let prefix = numeric_prefix(cell);
        let Tail { unit, has_limit, rest, .. } = tail(&cell[prefix.len()..]);
        let number = self.number(prefix.trim_end()).filter(|number| number.is_finite()).ok_or("is no number")?;
        match (unit, rest.chars().next()) {
            _ if number < 0.0 => Err("is negative"),
            (_, Some(letter)) if letter.is_alphabetic() => Err("has a unit that is no size"),
            // `968 MB (+5)`: what follows is a change.
            (_, Some(letter)) if !['(', '['].contains(&letter) => Err("is no number"),
            ("%", _) => Ok(Amount::Percent(number)),
            ("", Some('[')) => Err("is no number"),
            ("", None) if !has_limit => Err("is no number"),
            ("", _) => Ok(Amount::Number(number)),
            _ => cell_unit(unit, kibi).map(|unit| Amount::Bytes(number * unit)).ok_or("has a unit that is no size"),
        }
    }

    /// Number of a cell without a unit.
    pub fn plain_amount(&self, cell: &str) -> Option<f64> {
        match self.amount(cell, false) {
            Ok(Amount::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Cell with a decimal point, for a number of seconds.
    pub fn with_decimal_point<'a>(&self, cell: &'a str) -> std::borrow::Cow<'a, str> {
        match self.decimal_comma && !cell.contains(':') && cell.contains(',') {
            true => cell.replace(',', ".").into(),
            false => cell.into(),
        }
    }
}

/// Returns whether a cell says that its value was not measured.
pub fn is_missing(cell: &str) -> bool {
    (cell.len() < 5 && MISSING.iter().any(|missing| cell.eq_ignore_ascii_case(missing)))
        || (cell.starts_with('[') && cell.ends_with(']'))
}

/// Bytes of a unit in a cell. Single letters are powers of 1024, as in `top`, `ls -h` and `free -h`.
pub fn cell_unit(unit: &str, kibi: bool) -> Option<f64> {
    match unit {
        "K" | "k" => Some(1024.0),
        "M" | "m" => Some(1024.0 * 1024.0),
        "G" | "g" => Some(1024.0f64.powi(3)),
        "T" | "t" => Some(1024.0f64.powi(4)),
        "Ki" | "Mi" | "Gi" | "Ti" => cell_unit(&unit[..1], kibi),
        "kB" | "KB" if kibi => Some(1024.0),
        _ => bytes_of(&unit.to_ascii_lowercase()),
    }
}

/// Unit and limit behind a number.
pub struct Tail<'a> {
    /// Unit of a size or `%`, which may stand behind the limit: `20.5/80.0 GiB`.
    pub unit: &'a str,
    /// True if nothing is between number and unit.
    pub is_attached: bool,
    /// True if a limit follows: `1.2GiB / 31.1GiB`, `10/200`, `5 of 16 GB`.
    pub has_limit: bool,
    pub rest: &'a str,
}

/// Reads what follows a number.
pub fn tail(text: &str) -> Tail<'_> {
    let unit_of = |text: &'_ str| -> (usize, usize) {
        let begin = text.len() - text.trim_start().len();
        let is_unit = |letter: char| letter.is_ascii_alphabetic() || letter == '%';
        let length = text[begin..].find(|letter| !is_unit(letter)).unwrap_or(text.len() - begin);
        let unit = &text[begin..begin + length];
        let is_size = (unit == "%" || cell_unit(unit, false).is_some()) && !text[begin + length..].starts_with('_');
        if is_size { (begin, begin + length) } else { (begin, begin) }
    };
    let (begin, end) = unit_of(text);
    let (unit, after) = (&text[begin..end], text[end..].trim_start());
    let limit = after.strip_prefix('/').or(after.strip_prefix("of ")).map(str::trim_start);
    let Some(limit) = limit.filter(|limit| limit.starts_with(|letter: char| letter.is_ascii_digit())) else {
        return Tail { unit, is_attached: begin == 0, has_limit: false, rest: after };
    };
    let limit = &limit[numeric_prefix(limit).len()..];
    let (of_limit, end) = unit_of(limit);
    let unit = if unit.is_empty() { &limit[of_limit..end] } else { unit };
    Tail { unit, is_attached: true, has_limit: true, rest: limit[end..].trim_start() }
}

/// Beginning of a cell that may be a number: digits and separators of groups.
fn numeric_prefix(cell: &str) -> &str {
    let bytes = cell.as_bytes();
    let mut end = usize::from(cell.starts_with(['-', '+']));
    for (at, letter) in cell.char_indices().skip(end) {
        let next_is_digit = || cell[at + letter.len_utf8()..].starts_with(|next: char| next.is_ascii_digit());
        let is_exponent = matches!(letter, 'e' | 'E')
            && at > 0
            && bytes[at - 1].is_ascii_digit()
            && bytes.get(at + 1).is_some_and(|next| next.is_ascii_digit() || matches!(next, b'+' | b'-'));
        let is_sign = matches!(letter, '+' | '-') && at > 0 && matches!(bytes[at - 1], b'e' | b'E');
        match letter {
            '0'..='9' => {}
            '.' | ',' => {}
            '\'' | '_' | '\u{a0}' | '\u{202f}' | ' ' if next_is_digit() => {}
            _ if is_exponent || is_sign => {}
            _ => break,
        }
        end = at + letter.len_utf8();
    }
    &cell[..end]
}

/// Returns whether digits are in groups of three, the first of one to three digits: `1,234,567`.
fn is_grouped(digits: &str, separator: char) -> bool {
    let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let mut groups = digits.split(separator);
    let first = groups.next().unwrap_or_default();
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&first.len()) && is_digits(first) && groups.all(|group| group.len() == 3 && is_digits(group))
}
