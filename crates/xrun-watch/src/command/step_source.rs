//! Choice among the bars and lines of a command: the one that counts the steps of its training is followed.

use std::fmt;

use super::step_counter::StepNumber;
use super::step_formats::{LOSSES, LineReader, Progress, is_training_title};
use super::step_suggestion::RisingNumbers;
use super::steps::StepValues;
use xrun_core::units::pluralize;

/// Cap on the bars and kinds of lines that are distinguished; further ones are ignored.
const SOURCES_MAX: usize = 16;
/// Cap on those of them whose lines have no number.
const COUNTED_MAX: usize = 4;
/// Numbers in a row, without one of another source between them, by which a source counts steps.
const RUN_MIN: u64 = 3;
/// Lines by which a bar after one that ended is followed, however many that had.
const NEXT_MIN: u64 = 24;
/// Lines in a row by which a bar that has not reached its total counts as ended.
const SILENT_MIN: u64 = 8;

/// Bars and lines so far, and the one that is followed.
#[derive(Clone, Debug, Default)]
pub struct SourceSelector {
    reader: LineReader,
    sources: Vec<Source>,
    followed: Option<usize>,
    /// Source of the newest line, and its numbers in a row.
    run: Option<(usize, u64)>,
    /// Changes of the bars around the one that is followed: epochs.
    outer: u64,
    /// True if the total of the source that is followed is that of an epoch.
    has_epochs: bool,
    /// Numbers of the lines that show no progress, before the first that does.
    pub rising: RisingNumbers,
}

/// Bar, or kind of lines.
#[derive(Clone, Debug, Default)]
struct Source {
    format: &'static str,
    is_bar: bool,
    title: String,
    /// Total of a bar without a title, by which it is known.
    key_total: Option<u64>,
    total: Option<u64>,
    is_training: bool,
    newest: Option<u64>,
    /// Numbers since it began at last.
    lines: u64,
    longest_run: u64,
    /// True if lines with a loss belong to it.
    has_log: bool,
    /// True if its number changed after such a line.
    runs_with_log: bool,
    /// Source that was followed in its place.
    replaced_by: Option<usize>,
    /// True if it was followed by mistake.
    is_barred: bool,
}

impl Source {
    fn has_ended(&self) -> bool {
        self.is_bar && self.newest.zip(self.total).is_some_and(|(newest, total)| newest >= total)
    }

    /// Returns whether its lines have no number.
    fn is_counted(&self) -> bool {
        self.format == LOSSES
    }

    /// Returns whether it is around other bars: its number changes once while they run.
    fn is_outer(&self) -> bool {
        self.longest_run < RUN_MIN
    }
}

/// Source of the steps, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNote {
    /// Name of the bar or of the lines.
    pub name: String,
    /// Number of steps that it counts to; changes from epoch to epoch.
    pub total: Option<String>,
}

impl fmt::Display for SourceNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        self.total.iter().try_for_each(|total| write!(formatter, " ({total})"))
    }
}

/// Values of a line, for the steps of the command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectedStep {
    pub values: StepValues,
    /// True if the steps so far were not those of the training: they begin anew.
    pub is_anew: bool,
}

impl SourceSelector {
    /// Reads a line; `None` where it adds nothing to the steps.
    pub fn read(&mut self, line: &str) -> Option<SelectedStep> {
        let progress = self.reader.read(line);
        if progress.is_none() && self.followed.is_none() {
            self.rising.add(line);
        }
        let progress = progress?;
        let at = self.source(&progress)?;
        let step = progress.step.unwrap_or(self.sources[at].lines + 1);
        self.advance(at, step, &progress);
        let is_anew = match self.followed {
            // A single line may be that of a setting.
            None if self.sources[at].is_counted() && self.sources[at].lines < RUN_MIN => return None,
            None => false,
            Some(followed) if followed == at => false,
            Some(followed) => match self.takes_over(at, followed) {
                Some(is_anew) => {
                    self.sources[followed].replaced_by = Some(at);
                    is_anew
                }
                None if !progress.is_bar => return self.attach(&progress),
                None => return None,
            },
        };
        let starts_pass = self.followed.is_some_and(|followed| followed != at) && !is_anew;
        self.followed = Some(at);
        self.has_epochs = progress.epoch.is_some() || self.outer > 0;
        let number = StepNumber {
            step,
            total: progress.total,
            epoch: progress.epoch.or_else(|| (self.outer > 0).then_some(self.outer)),
            is_completed: progress.is_bar || progress.step.is_none(),
            starts_pass,
        };
        let Progress { loss, learning_rate, .. } = progress;
        Some(SelectedStep { values: StepValues { number, loss, learning_rate, ..StepValues::default() }, is_anew })
    }

    /// Gives the loss of a line to the bar that is followed, while that runs.
    fn attach(&mut self, progress: &Progress) -> Option<SelectedStep> {
        let followed = &mut self.sources[self.followed?];
        let runs = followed.is_bar && (!followed.has_ended() || followed.has_log) && !followed.is_outer();
        let number = followed.newest.filter(|_| runs)?;
        (followed.has_log, followed.is_training) = (true, true);
        let number = StepNumber { step: number, total: followed.total, is_completed: true, ..StepNumber::default() };
        let Progress { loss, learning_rate, .. } = *progress;
        let values = StepValues { number, loss, learning_rate, is_log: true, ..StepValues::default() };
        Some(SelectedStep { values, is_anew: false })
    }

    /// Index of the source of a line; `None` beyond the cap.
    fn source(&mut self, progress: &Progress) -> Option<usize> {
        let key_total = progress.total.filter(|_| progress.is_bar && !is_training_title(&progress.title));
        let is_same = |source: &Source| {
            source.is_bar == progress.is_bar && source.title == progress.title && source.key_total == key_total
        };
        if let Some(at) = self.sources.iter().position(is_same) {
            return Some(at);
        }
        let counted = self.sources.iter().filter(|source| source.is_counted()).count();
        if self.sources.len() == SOURCES_MAX || (progress.format == LOSSES && counted == COUNTED_MAX) {
            return None;
        }
        self.sources.push(Source {
            format: progress.format,
            is_bar: progress.is_bar,
            title: progress.title.clone(),
            key_total,
            ..Source::default()
        });
        Some(self.sources.len() - 1)
    }

    fn advance(&mut self, at: usize, step: u64, progress: &Progress) {
        let source = &mut self.sources[at];
        source.is_training |= progress.is_training;
        source.total = progress.total;
        if progress.format != source.format && progress.is_bar {
            source.format = progress.format;
        }
        let before = source.newest.replace(step);
        if before == Some(step) {
            return;
        }
        source.runs_with_log |= source.has_log;
        source.lines = if before.is_none_or(|before| step < before) { 1 } else { source.lines + 1 };
        let run = match self.run {
            Some((last, run)) if last == at => run + 1,
            _ => 1,
        };
        self.run = Some((at, run));
        source.longest_run = source.longest_run.max(run);
        let is_around = source.replaced_by.is_some_and(|by| Some(by) == self.followed);
        if before.is_some() && source.is_bar && source.is_outer() && is_around {
            self.outer += 1;
        }
    }

    /// Returns whether a source is followed from now on in place of another, and if it is, whether the steps of the other
    /// are forgotten.
    fn takes_over(&mut self, at: usize, followed: usize) -> Option<bool> {
        let (source, other) = (&self.sources[at], &self.sources[followed]);
        let run = self.run.filter(|(last, _)| *last == at).map_or(0, |(_, run)| run);
        // What is around the source that is followed stays there, also with a loss.
        let is_around = source.replaced_by == Some(followed) && source.is_outer();
        if source.is_barred || is_around {
            return None;
        }
        if source.is_counted() != other.is_counted() && !other.is_bar {
            return (other.is_counted() && (!source.is_bar || run >= RUN_MIN)).then_some(true);
        }
        // A bar that runs has a line of its loss now and then; many in a row show that it has stopped.
        let is_log = !source.is_bar && other.is_bar && !other.has_ended() && !other.is_outer();
        if is_log {
            return (run >= SILENT_MIN && !other.runs_with_log).then_some(true);
        }
        if source.is_training && !other.is_training {
            return Some(true);
        }
        let is_inner = other.is_outer() && source.longest_run >= RUN_MIN;
        if is_inner {
            return Some(true);
        }
        if other.is_training && !source.is_training {
            return None;
        }
        if source.replaced_by == Some(followed) && !other.is_training {
            // It returns: what replaced it was an evaluation.
            self.sources[followed].is_barred = true;
            return Some(true);
        }
        // Another bar after one that ended; an evaluation is shorter than the epoch before it, or is given up when that returns.
        let is_next = other.has_ended() && source.is_bar && source.lines > other.lines.min(NEXT_MIN);
        // Two bars of a training without different titles are its epochs and evaluations.
        (is_next && (!other.is_training || source.title != other.title)).then_some(!other.is_training)
    }

    /// Note on the source that is followed, for people; `None` without one.
    pub fn note(&self) -> Option<SourceNote> {
        let source = &self.sources[self.followed?];
        let name = match (source.is_bar, source.has_log && source.format == "tqdm") {
            (true, true) => "a progress bar of tqdm with logged losses, as of Hugging Face's Trainer".to_owned(),
            (true, false) => format!("a progress bar of {}", source.format),
            (false, _) if source.format.ends_with("a loss") => format!("lines with `{}` and a loss", source.title),
            (false, _) => source.format.to_owned(),
        };
        let total = source.total.map(|total| pluralize(total, "step"));
        let total = total.map(|total| format!("{total}{}", if self.has_epochs { " an epoch" } else { "" }));
        Some(SourceNote { name, total })
    }
}

#[cfg(test)]
#[path = "step_source_tests.rs"]
mod tests;
