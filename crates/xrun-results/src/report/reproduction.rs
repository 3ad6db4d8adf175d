//! Output of `xrun reproduce`.

use std::fmt::Write;

use super::formatting::number;
use super::summary::labelled;
use super::table::Table;
use crate::reproduction::{Agreement, EnvironmentChange, Reproduction};
use xrun_core::printable;

/// Maximum number of series listed.
const SERIES_SHOWN: usize = 12;
/// Maximum length of a changed value; the beginnings of digests suffice.
const VALUE_CHARACTERS_MAX: usize = 60;

/// Conclusion and evidence. Ends with a line break.
pub fn text(reproduction: &Reproduction) -> String {
    let tolerance = match reproduction.tolerance {
        0.0 => "none (compared bit for bit)".to_owned(),
        share => format!("mean difference of each number at most {} of its mean size", number(share)),
    };
    let mut lines = vec![
        ("run", reproduction.original.clone()),
        ("reproduction", reproduction.reproduction.clone()),
        ("result", format!("{}: {}", reproduction.agreement.label(), reproduction.message)),
        ("tolerance", tolerance),
    ];
    lines.extend(reproduction.notes.iter().map(|note| ("note", note.clone())));
    lines.extend(reproduction.changes.iter().map(|change| ("changed", self::change(change))));
    lines.extend(reproduction.not_deterministic.iter().map(|reason| ("not exact", reason.clone())));
    let mut text = labelled(&lines, None);
    if reproduction.agreement != Agreement::Identical && reproduction.compared.values_different > 0 {
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
    let all: Vec<_> = reproduction.compared.series.iter().filter(|one| one.different > 0).collect();
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
    let header = ["number", ">differ", ">mean size", ">mean difference", ">relative", ">largest difference"];
    let more = all.len() - rows.len();
    let mut text = Table::new(&header, rows).text(None);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}
