//! Results by class: a confusion matrix if there are few classes, otherwise a row for each of the worst.

use super::summary::Section;
use super::table::Table;
use crate::read;
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::task::confusion::{ClassResult, NOT_FOUND};
use xrun_core::units::pluralize;

/// Maximum number of classes of a matrix.
const MATRIX_MAX: usize = 12;
/// Maximum number of classes in a list.
const LISTED_MAX: usize = 20;

/// Classes of a run's last validation; empty if its pipeline has none.
pub(super) fn section(report: &RunView) -> Section {
    // Read errors are listed in a section of their own.
    let classes = read::classes(&report.path).unwrap_or_default();
    let (table, notes) = if classes.len() <= MATRIX_MAX { matrix(&classes) } else { list(&classes) };
    Section { title: "Classes of the last validation", table, notes }
}

fn name(text: &str) -> String {
    printable::line(text, 40)
}

fn accuracy(result: &ClassResult) -> String {
    result.accuracy().map_or_else(String::new, super::formatting::percent)
}

/// Value of a class.
type Value = fn(&ClassResult) -> Option<f64>;

/// Columns of the average precisions of a detection, with their values for each class.
const PRECISIONS: [(&str, Value); 2] = [(">AP50", |class| class.ap50), (">AP", |class| class.ap)];

/// The columns that any of the classes has.
fn precisions(classes: &[ClassResult]) -> impl Iterator<Item = (&'static str, Value)> {
    let measured = classes.iter().any(|class| class.ap50.is_some());
    PRECISIONS.into_iter().filter(move |_| measured)
}

/// Items of the classes.
fn noun(classes: &[ClassResult]) -> &'static str {
    if precisions(classes).next().is_some() { "objects" } else { "images" }
}

/// Values of these columns.
fn values(classes: &[ClassResult], result: &ClassResult) -> impl Iterator<Item = String> {
    precisions(classes).map(|(_, value)| value(result).map_or_else(String::new, |value| format!("{value:.4}")))
}

/// A row for each class, a column for each prediction.
fn matrix(classes: &[ClassResult]) -> (Table, Vec<String>) {
    let not_found = |result: &ClassResult| result.taken_for.iter().any(|(other, _)| other == NOT_FOUND);
    let others = classes.iter().any(not_found).then_some(NOT_FOUND);
    let columns: Vec<&str> = classes.iter().map(|class| class.class.as_str()).chain(others).collect();
    let row = |result: &ClassResult| {
        let count = |other: &&str| {
            let taken = result.taken_for.iter().find(|(class, _)| class == other).map_or(0, |(_, count)| *count);
            match if *other == result.class { result.correct } else { taken } {
                0 => "·".into(),
                count => count.to_string(),
            }
        };
        let counts = [name(&result.class)].into_iter().chain(columns.iter().map(count));
        counts.chain([accuracy(result)]).chain(values(classes, result)).collect()
    };
    let header = ["class".to_owned()].into_iter().chain(columns.iter().map(|other| format!(">{}", name(other))));
    let header = header.chain([">correct".to_owned()]).chain(precisions(classes).map(|(name, _)| name.to_owned()));
    let table = Table { header: header.collect(), rows: classes.iter().map(row).collect() };
    (table, vec![format!("A row has the {} of a class, a column those that were predicted to be of it", noun(classes))])
}

/// The classes with the lowest accuracy.
pub(super) fn list(classes: &[ClassResult]) -> (Table, Vec<String>) {
    let mut worst: Vec<&ClassResult> = classes.iter().filter(|result| result.items > 0).collect();
    worst.sort_by(|a, b| a.accuracy().unwrap_or(1.0).total_cmp(&b.accuracy().unwrap_or(1.0)));
    let more = worst.len().saturating_sub(LISTED_MAX);
    worst.truncate(LISTED_MAX);
    let row = |result: &&ClassResult| {
        let others = result.taken_for.iter().take(3).map(|(other, count)| format!("{} ({count})", name(other)));
        let cells = [name(&result.class), accuracy(result), result.items.to_string()].into_iter();
        cells.chain(values(classes, result)).chain([others.collect::<Vec<_>>().join(", ")]).collect()
    };
    let items = format!(">{}", noun(classes));
    let mut header = vec!["class", ">correct", &items];
    header.extend(precisions(classes).map(|(name, _)| name).chain(["taken for"]));
    let table = Table::new(&header, worst.iter().map(row).collect());
    let more_classes = pluralize(more as u64, "class");
    let note = format!("The lowest first; {more_classes} with more correct {} not listed", noun(classes));
    (table, if more > 0 { vec![note] } else { Vec::new() })
}
