//! Output of `xrun reproduce`.

use std::fmt::Write;

use super::formatting::number;
use super::listing::columns;
use crate::reproduction::{Agreement, EnvironmentChange, Reproduction};
use xrun_core::printable;

/// Maximum number of series listed.
const SERIES_SHOWN: usize = 12;
/// Maximum length of a changed value; the beginnings of digests suffice.
const VALUE_CHARACTERS_MAX: usize = 60;

/// Conclusion and evidence. Ends with a line break.
pub fn text(reproduction: &Reproduction) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:<14}{}", printable::line(value, 400));
    };
    line("run", &reproduction.original);
    line("reproduction", &reproduction.reproduction);
    line("result", &format!("{}: {}", reproduction.agreement.label(), reproduction.message));
    match reproduction.tolerance {
        0.0 => line("tolerance", "none (compared bit for bit)"),
        share => {
            line("tolerance", &format!("mean difference of each number at most {} of its mean size", number(share)))
        }
    }
    for note in &reproduction.notes {
        line("note", note);
    }
    for change in &reproduction.changes {
        line("changed", &self::change(change));
    }
    for reason in &reproduction.not_deterministic {
        line("not exact", reason);
    }
    if reproduction.agreement != Agreement::Identical && reproduction.values_different > 0 {
        text.push('\n');
        text.push_str(&series(reproduction));
    }
    text
}

/// Formats a change: `code: lock file: 57d022… became 9c2b77…`.
pub fn change(change: &EnvironmentChange) -> String {
    let short = |value: &str| {
        let is_digest = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest { format!("{}…", &value[..12]) } else { printable::line(value, VALUE_CHARACTERS_MAX) }
    };
    format!("{}: {} became {}", change.what, short(&change.then), short(&change.now))
}

fn series(reproduction: &Reproduction) -> String {
    let all: Vec<_> = reproduction.series.iter().filter(|one| one.different > 0).collect();
    let rows: Vec<Vec<String>> = (all.iter().take(SERIES_SHOWN))
        .map(|one| {
            vec![
                printable::line(&one.name, 44),
                format!("{}/{}", one.different, one.values),
                number(one.mean_size),
                number(one.mean_difference),
                one.share.map_or("-".into(), number),
                one.largest_at.map_or("-".into(), |step| format!("{} at step {step}", number(one.largest_difference))),
            ]
        })
        .collect();
    let mut text =
        columns(&["number", ">differ", ">mean size", ">mean difference", ">relative", ">largest difference"], &rows);
    if all.len() > rows.len() {
        let _ = writeln!(text, "and {} more", all.len() - rows.len());
    }
    text
}
