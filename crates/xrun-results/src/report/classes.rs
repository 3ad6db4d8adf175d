//! Results by class: a confusion matrix if there are few classes, otherwise a row for each of the worst.

use super::summary::Section;
use super::table::Table;
use crate::read;
use crate::view::RunView;
use xrun_core::printable;
use xrun_core::task::confusion::ClassResult;
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

/// A row for each class, a column for each prediction.
fn matrix(classes: &[ClassResult]) -> (Table, Vec<String>) {
    let row = |result: &ClassResult| {
        let counted = |other: &ClassResult| match other.class == result.class {
            true => Some(result.correct),
            false => result.taken_for.iter().find(|(class, _)| *class == other.class).map(|(_, count)| *count),
        };
        let count =
            |other| counted(other).filter(|count| *count > 0).map_or_else(|| "·".into(), |count| count.to_string());
        [name(&result.class)].into_iter().chain(classes.iter().map(count)).chain([accuracy(result)]).collect()
    };
    let predicted = classes.iter().map(|other| format!(">{}", name(&other.class)));
    let header = ["class".to_owned()].into_iter().chain(predicted).chain([">correct".to_owned()]).collect();
    let table = Table { header, rows: classes.iter().map(row).collect() };
    (table, vec!["A row has the images of a class, a column those that were predicted to be of it".into()])
}

/// The classes with the lowest accuracy.
pub(super) fn list(classes: &[ClassResult]) -> (Table, Vec<String>) {
    let mut worst: Vec<&ClassResult> = classes.iter().filter(|result| result.items > 0).collect();
    worst.sort_by(|a, b| a.accuracy().unwrap_or(1.0).total_cmp(&b.accuracy().unwrap_or(1.0)));
    let more = worst.len().saturating_sub(LISTED_MAX);
    worst.truncate(LISTED_MAX);
    let row = |result: &&ClassResult| {
        let others = result.taken_for.iter().take(3).map(|(other, count)| format!("{} ({count})", name(other)));
        vec![name(&result.class), accuracy(result), result.items.to_string(), others.collect::<Vec<_>>().join(", ")]
    };
    let table = Table::new(&["class", ">correct", ">images", "taken for"], worst.iter().map(row).collect());
    let note = format!("The lowest first; {} with more correct images not listed", pluralize(more as u64, "class"));
    (table, if more > 0 { vec![note] } else { Vec::new() })
}
