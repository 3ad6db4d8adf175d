//! Formatting of numbers, sizes, durations and times.

use xrun_core::units;
use xrun_core::units::UNITS;

/// Formats a number of epochs: `1 epoch`, `2.5 epochs`.
pub fn epochs(count: f64) -> String {
    format!("{} epoch{}", number(count), if count == 1.0 { "" } else { "s" })
}

/// Formats a number with about four significant digits: `0.4312`, `12.5`, `2e-5`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".into();
    }
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&size) {
        scientific(value)
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 4) as usize;
        trimmed(value, decimals)
    }
}

/// Percentage of a fraction: `0.8 %`, `75.1 %`, `1794 %`; one decimal below 100 %.
pub fn percent(fraction: f64) -> String {
    let percentage = 100.0 * fraction;
    if !percentage.is_finite() {
        return "-".into();
    }
    // -0.04 is 0.0, without a sign.
    let rounded = (10.0 * percentage).round() / 10.0 + 0.0;
    let decimals = usize::from(rounded.abs() < 100.0);
    format!("{rounded:.decimals$} %")
}

/// Percentage of a difference, with its sign: `+3.2 %`, `-12.0 %`, `0.0 %`.
pub fn signed_percent(fraction: f64) -> String {
    let text = percent(fraction);
    let is_positive = (10.0 * 100.0 * fraction).round() > 0.0;
    if is_positive { format!("+{text}") } else { text }
}

/// Formats a number in scientific notation with up to three digits: `2.5e-4`.
pub(super) fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, power)) => format!("{}e{power}", trim_zeros(digits)),
        None => text,
    }
}

/// Formats a number with at most this many decimals, without trailing zeros.
pub(super) fn trimmed(value: f64, decimals: usize) -> String {
    trim_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Formats a size: `1.5 GiB`, `512 MiB`, `0 B`.
pub fn bytes(value: f64) -> String {
    let (size, at) = scaled(value);
    let decimals = if size >= 100.0 || at == 0 { 0 } else { 1 };
    format!("{} {}", trimmed(size, decimals), UNITS[at])
}

/// Formats a size that may be negative: `-1.5 KiB`.
pub fn signed_bytes(value: f64) -> String {
    if value < 0.0 { format!("-{}", bytes(-value)) } else { bytes(value) }
}

/// Formats a size with enough decimals to distinguish it from one that is `step` bytes away.
pub(super) fn bytes_to(value: f64, step: f64) -> String {
    let (size, at) = scaled(value);
    let relative_step = step / 1024f64.powi(at as i32);
    let decimals = (-relative_step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{} {}", trimmed(size, decimals), UNITS[at])
}

/// Value in the largest unit of which it is at least one, and the index of that unit.
fn scaled(value: f64) -> (f64, usize) {
    let mut size = value.max(0.0);
    let mut at = 0;
    // A value that would print as 1024 of a unit is one of the next.
    while size >= 1023.5 && at + 1 < UNITS.len() {
        size /= 1024.0;
        at += 1;
    }
    (size, at)
}

/// Formats a duration like `units::seconds`, below a second in milliseconds or microseconds.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds <= 0.0 || !seconds.is_finite() => "0 s".into(),
        _ if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{} ms", trimmed(seconds * 1e3, if seconds < 0.01 { 1 } else { 0 })),
        _ => units::seconds(seconds),
    }
}

/// Formats an RFC 3339 time as `2026-11-21 07:14:35 UTC`; other text is returned unchanged.
pub fn utc_time(text: &str) -> String {
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(time) => time.with_timezone(&chrono::Utc).format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

/// Formats a line of CSV (RFC 4180) without formulas.
pub fn csv_line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and text stays valid UTF-8.
    let _ = line.write_record(cells.into_iter().map(|cell| without_formula(cell).into_bytes()));
    String::from_utf8(line.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Marks a text that a spreadsheet would execute as a text, by an apostrophe. Numbers stay.
fn without_formula(cell: String) -> String {
    match cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err() {
        true => format!("'{cell}"),
        false => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_significant_digits() {
        let shown = [0.0, 0.431_24, 12.5, 2e-5, 1234.6, 1.0, 0.05].map(number);
        assert_eq!(shown, ["0", "0.4312", "12.5", "2e-5", "1235", "1", "0.05"]);
        assert_eq!([1.0, 2.5, 4.0].map(epochs), ["1 epoch", "2.5 epochs", "4 epochs"]);
        assert_eq!([0.0, 1023.0, 1536.0, 3e8].map(bytes), ["0 B", "1023 B", "1.5 KiB", "286 MiB"]);
        assert_eq!([0.000_21, 0.0042, 0.43, 185.0].map(duration), ["210 µs", "4.2 ms", "430 ms", "3 min 05 s"]);
    }

    #[test]
    fn no_cell_is_a_formula() {
        let cells = ["=HYPERLINK(\"x\")", "-1.5", "-rf", "a=b", "@x", "+1e3"].map(str::to_owned);
        assert_eq!(csv_line(cells), "\"'=HYPERLINK(\"\"x\"\")\",-1.5,'-rf,a=b,'@x,+1e3\n");
    }
}
