//! View of a run: its records and what follows from them, each read when it is first asked for.
//!
//! A listing reads a few records of many runs, a report all of one. Nothing here is formatted.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::explanation::Explanation;
use crate::format::{
    Best, Manifest, MemoryLine, MemorySummary, MetricsLine, Parent, Peaks, PlanFile, PostMortem, Summary,
};
use crate::loss::{self, KindLoss};
use crate::notes::Notes;
use crate::read::{self, ReadError};
use crate::report::curves::Curves;
use crate::report::trace::MemoryTrace;
use crate::run_state::{self, RunState};
use crate::tail::{Appended, RecordTail};
use crate::verdict::{LineDamage, TrainingVerdict, Verdict};
use crate::watched::WatchSettings;
use crate::{judge, resolved, run_name};
use xrun_core::files::{layout, sums};
use xrun_core::task::metric::Direction;
use xrun_core::units::{Bytes, pluralize};
use xrun_verdict::table::TableOptions;
use xrun_verdict::training::TrainingEnd;

/// Maximum number of bytes read from the end of a file of a run without a summary.
const TAIL_BYTES_MAX: u64 = 64 * 1024;
/// Largest metrics file that a listing judges, in bytes.
const LISTED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Record that is read once.
type Record<T> = OnceCell<Result<T, ReadError>>;

/// A run's directory and what was read of it so far.
#[derive(Debug, Default)]
pub struct RunView {
    /// The run's directory.
    pub path: PathBuf,
    /// Name of the experiment's directory.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    manifest: Record<Manifest>,
    plan: Record<PlanFile>,
    summary: Record<Option<Summary>>,
    verdict: Record<Option<Verdict>>,
    post_mortem: Record<Option<PostMortem>>,
    explanation: Record<Option<Explanation>>,
    values: Record<BTreeMap<String, Value>>,
    notes: Record<Notes>,
    state: OnceCell<RunState>,
    newest: OnceCell<Newest>,
    training: OnceCell<Option<TrainingVerdict>>,
    checkpoints: OnceCell<(Vec<u64>, Option<String>)>,
    curves: OnceCell<Curves>,
    trace: OnceCell<MemoryTrace>,
    damage: OnceCell<Vec<String>>,
}

/// Records that the last process of a run holds when it has written them.
#[derive(Clone, Debug)]
pub struct EndRecords {
    /// `manifest.json`.
    pub manifest: Manifest,
    /// `plan.json`; `None` for a watched command.
    pub plan: Option<PlanFile>,
    /// `summary.json`.
    pub summary: Summary,
    /// `verdict.json`.
    pub verdict: Verdict,
    /// `post_mortem.json`.
    pub post_mortem: Option<PostMortem>,
    /// `explanation.json`.
    pub explanation: Option<Explanation>,
}

/// Facts from the last lines of a run without a summary.
#[derive(Debug, Default)]
struct Newest {
    step: Option<u64>,
    losses: Vec<KindLoss>,
    peaks: Peaks,
    best: Option<Best>,
    /// Message about a damaged line.
    damage: Option<String>,
}

impl RunView {
    /// View of the run in a directory with these names.
    pub(crate) fn new(path: PathBuf, experiment: String, run: String) -> Self {
        Self { path, experiment, run, ..Self::default() }
    }

    /// View of the run in a directory. Reads nothing.
    pub fn open(run: &Path) -> Self {
        let absolute = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
        let name = |path: Option<&Path>| {
            path.and_then(Path::file_name).map_or(String::new(), |name| name.to_string_lossy().into_owned())
        };
        Self::new(run.to_path_buf(), name(absolute.parent()), name(Some(&absolute)))
    }

    /// View of a run that has just ended, with the records that its process has written.
    pub fn ended(run: &Path, records: EndRecords) -> Self {
        let EndRecords { manifest, plan, summary, verdict, post_mortem, explanation } = records;
        Self {
            manifest: OnceCell::from(Ok(without_patch(manifest))),
            plan: plan.map_or_else(OnceCell::new, |plan| OnceCell::from(Ok(plan))),
            summary: OnceCell::from(Ok(Some(summary))),
            verdict: OnceCell::from(Ok(Some(verdict))),
            post_mortem: OnceCell::from(Ok(post_mortem)),
            explanation: OnceCell::from(Ok(explanation)),
            ..Self::open(run)
        }
    }

    fn manifest_record(&self) -> &Result<Manifest, ReadError> {
        self.manifest.get_or_init(|| read::manifest(&self.path).map(without_patch))
    }

    fn plan_record(&self) -> &Result<PlanFile, ReadError> {
        self.plan.get_or_init(|| read::plan(&self.path))
    }

    fn summary_record(&self) -> &Result<Option<Summary>, ReadError> {
        self.summary.get_or_init(|| read::summary(&self.path))
    }

    fn verdict_record(&self) -> &Result<Option<Verdict>, ReadError> {
        self.verdict.get_or_init(|| read::verdict(&self.path))
    }

    fn post_mortem_record(&self) -> &Result<Option<PostMortem>, ReadError> {
        self.post_mortem.get_or_init(|| read::post_mortem(&self.path))
    }

    fn explanation_record(&self) -> &Result<Option<Explanation>, ReadError> {
        self.explanation.get_or_init(|| read::explanation(&self.path))
    }

    /// Values of `resolved.toml` by dotted key, with secrets masked.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub fn values(&self) -> Result<&BTreeMap<String, Value>, &ReadError> {
        self.values.get_or_init(|| resolved::values(&self.path)).as_ref()
    }

    /// `manifest.json`, without the patch.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest_record().as_ref().ok()
    }

    /// Error of the manifest.
    pub fn manifest_error(&self) -> Option<&ReadError> {
        self.manifest_record().as_ref().err()
    }

    /// `plan.json`.
    pub fn plan(&self) -> Option<&PlanFile> {
        self.plan_record().as_ref().ok()
    }

    /// `summary.json`; with the state running it is that of an earlier process.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary_record().as_ref().ok()?.as_ref()
    }

    /// The summary, unless the run was resumed and is still running.
    pub fn final_summary(&self) -> Option<&Summary> {
        self.summary().filter(|_| *self.state() != RunState::Running)
    }

    /// `verdict.json`.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict_record().as_ref().ok()?.as_ref()
    }

    /// Error of the verdict.
    pub fn verdict_error(&self) -> Option<&ReadError> {
        self.verdict_record().as_ref().err()
    }

    /// Judges the samples so far if the run has written no verdict, as while it is running or after a kill.
    pub fn judge_if_missing(&mut self) {
        if matches!(self.verdict_record(), Ok(None)) {
            let judged = judge::judge_path(&self.path, &TableOptions::default()).ok().map(|judged| judged.verdict);
            self.verdict = OnceCell::from(Ok(judged));
        }
    }

    /// `post_mortem.json`.
    pub fn post_mortem(&self) -> Option<&PostMortem> {
        self.post_mortem_record().as_ref().ok()?.as_ref()
    }

    /// `explanation.json`.
    pub fn explanation(&self) -> Option<&Explanation> {
        self.explanation_record().as_ref().ok()?.as_ref()
    }

    /// Notes and tags.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn notes(&self) -> Result<&Notes, &ReadError> {
        self.notes.get_or_init(|| read::notes(&self.path)).as_ref()
    }

    /// Tags; empty if they cannot be read.
    pub fn tags(&self) -> &[String] {
        self.notes().map_or(&[], |notes| &notes.tags)
    }

    /// State of the run.
    pub fn state(&self) -> &RunState {
        self.state.get_or_init(|| match (self.manifest_record(), self.summary_record()) {
            // The summary is written last and removed first by a resume. The lock may still be held while the report is
            // written.
            (Ok(_), Ok(Some(summary))) => RunState::Ended(summary.outcome),
            _ if run_state::is_locked(&self.path) => RunState::Running,
            (Err(error), _) | (_, Err(error)) => RunState::Unreadable(error.to_string()),
            (Ok(_), Ok(None)) => match (&self.newest().damage, self.plan_record()) {
                (Some(why), _) => RunState::Unreadable(why.clone()),
                (None, Err(error)) if !error.is_missing() => RunState::Unreadable(error.to_string()),
                (None, _) => RunState::Killed,
            },
        })
    }

    fn newest(&self) -> &Newest {
        self.newest.get_or_init(|| {
            let (metrics, metrics_damaged) = read_tail::<MetricsLine>(&self.path.join(layout::METRICS));
            let (memory, memory_damaged) = read_tail::<MemoryLine>(&self.path.join(layout::MEMORY));
            let damaged = [(layout::MEMORY, memory_damaged), (layout::METRICS, metrics_damaged)];
            let damaged = damaged.into_iter().find(|(_, damaged)| *damaged);
            let mut newest = Newest {
                best: best_so_far(&self.path, &metrics, self.plan()),
                damage: damaged.map(|(name, _)| format!("a line of {} is damaged", self.path.join(name).display())),
                ..Newest::default()
            };
            let over = loss::averaging_window(self.plan().and_then(PlanFile::known_steps));
            for line in metrics {
                newest.step = newest.step.max(Some(line.step()));
                if let MetricsLine::Train { batch, loss, .. } = &line {
                    loss::add(&mut newest.losses, batch, *loss, over);
                }
            }
            let last_sample = memory.last().map(|line| line.step).filter(|step| *step > 0);
            newest.step = newest.step.or(last_sample);
            memory.iter().for_each(|line| newest.peaks.add(line));
            newest
        })
    }

    /// Name of the experiment by the manifest, or otherwise of its directory.
    pub fn experiment_name(&self) -> &str {
        self.manifest().map_or(&self.experiment, |manifest| &manifest.experiment)
    }

    /// Name by which commands find the run.
    pub fn name(&self) -> String {
        run_name::run(&self.path, self.experiment_name())
    }

    /// Start time (RFC 3339, UTC).
    pub fn started(&self) -> Option<&str> {
        self.manifest().map(|manifest| manifest.started.as_str())
    }

    /// Checkpoint of another run from which this one started.
    pub fn parent(&self) -> Option<&Parent> {
        self.manifest()?.parent.as_ref()
    }

    /// Settings of `xrun watch`; `None` for an experiment.
    pub fn watched(&self) -> Option<&WatchSettings> {
        self.manifest()?.watched.as_ref()
    }

    /// Number of processes of the run: one, and one for each resume.
    pub fn processes(&self) -> usize {
        self.manifest().map_or(1, |manifest| manifest.resumed.len() + 1)
    }

    /// Number of optimiser steps done, from the summary or from the last lines.
    pub fn steps(&self) -> Option<u64> {
        self.final_summary().map_or_else(|| self.newest().step, |summary| Some(summary.steps))
    }

    /// Number of optimiser steps planned; `None` if unknown or unreadable.
    pub fn steps_planned(&self) -> Option<u64> {
        let summed = || self.plan().and_then(PlanFile::known_steps);
        self.summary().map(|summary| summary.steps_planned).or_else(summed)
    }

    /// Number of steps done, and of those planned where it is another: `200`, `56/200`; `-` if it is unknown.
    pub fn steps_text(&self) -> String {
        match (self.steps(), self.steps_planned()) {
            (Some(step), Some(planned)) if step != planned => format!("{step}/{planned}"),
            (Some(step), _) => step.to_string(),
            (None, _) => "-".into(),
        }
    }

    /// Kind of step and moving average of its loss, for the kind with the most steps; the kind is empty if there is
    /// only one. Without a summary it is computed from the last lines of the metrics.
    pub fn loss(&self) -> Option<(&str, f64)> {
        let losses = self.final_summary().map_or_else(|| &self.newest().losses, |summary| &summary.losses);
        loss::dominant(losses).map(|loss| (if losses.len() > 1 { loss.kind.as_str() } else { "" }, loss.last))
    }

    /// Peak RSS in bytes, from the summary or from the last lines of the trace.
    pub fn rss_peak(&self) -> Option<u64> {
        self.final_summary().map_or_else(|| self.newest().peaks.rss, |summary| summary.memory.rss_peak)
    }

    /// Best validation after a step, from the summary or from what was written so far.
    pub fn best(&self) -> Option<&Best> {
        self.final_summary().map_or_else(|| &self.newest().best, |summary| &summary.best).as_ref()
    }

    /// Better direction of a metric, from the plan.
    pub fn direction(&self, metric: &str) -> Option<Direction> {
        self.plan()?.metrics.iter().find(|planned| planned.name == metric)?.direction
    }

    /// A memory limit of the experiment in bytes, such as `limits.host_memory`; `None` if it has none.
    pub fn limit(&self, key: &str) -> Option<u64> {
        let value = self.values().ok()?.get(key)?;
        let bytes = value.as_u64().or_else(|| Some(value.as_str()?.parse::<Bytes>().ok()?.0))?;
        (bytes > 0).then_some(bytes)
    }

    /// Memory peaks, from the summary or from the trace.
    pub fn memory(&self) -> &MemorySummary {
        self.final_summary().map_or_else(|| &self.trace().peaks, |summary| &summary.memory)
    }

    /// Working time in seconds.
    pub fn seconds(&self) -> f64 {
        self.final_summary().map_or_else(|| self.trace().seconds, |summary| summary.seconds)
    }

    /// How the training ended; `None` while it is running.
    fn training_end(&self) -> Option<TrainingEnd> {
        match self.state() {
            RunState::Running => None,
            RunState::Ended(outcome) => Some(judge::training_end(*outcome)),
            RunState::Killed | RunState::Unreadable(_) => Some(TrainingEnd::Interrupted),
        }
    }

    fn recorded_training(&self) -> Option<&TrainingVerdict> {
        self.final_summary()?.training.as_ref()
    }

    /// Verdict on training, as recorded or judged now.
    pub fn training(&self) -> Option<&TrainingVerdict> {
        let judged = || self.curves().training(self.training_end());
        self.training.get_or_init(|| self.recorded_training().cloned().or_else(judged)).as_ref()
    }

    /// Verdict on training as recorded, or judged if the metrics are not long.
    pub fn listed_training(&self) -> Option<&TrainingVerdict> {
        let is_short = || self.path.join(layout::METRICS).metadata().is_ok_and(|file| file.len() <= LISTED_BYTES_MAX);
        if self.recorded_training().is_none() && !is_short() {
            return None;
        }
        // Without the curves, which are large for a list.
        let judged = || judge::judge_training(read::metrics(&self.path).ok()?, self.plan(), self.training_end());
        self.training.get_or_init(|| self.recorded_training().cloned().or_else(judged)).as_ref()
    }

    /// Steps that have a complete checkpoint.
    pub fn checkpoints(&self) -> &[u64] {
        &self.checkpoint_steps().0
    }

    fn checkpoint_steps(&self) -> &(Vec<u64>, Option<String>) {
        self.checkpoints.get_or_init(|| match read::checkpoints(&self.path) {
            Ok(found) => (found.into_iter().map(|(step, _)| step).collect(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        })
    }

    /// Curves of `metrics.jsonl`, read in one pass.
    pub fn curves(&self) -> &Curves {
        self.curves.get_or_init(|| Curves::read(self))
    }

    /// Memory over time, by epoch and by stage, from one pass over `memory.jsonl`.
    pub fn trace(&self) -> &MemoryTrace {
        self.trace.get_or_init(|| MemoryTrace::read(self))
    }

    /// Files whose lines are not those that were written.
    pub fn line_damage(&self) -> impl Iterator<Item = &LineDamage> {
        [&self.curves().skipped.damage, &self.trace().skipped.damage].into_iter().flatten()
    }

    /// Files or lines that could not be read, for people. All records are read.
    pub fn damage(&self) -> &[String] {
        self.damage.get_or_init(|| {
            let missing_plan = |error: &&ReadError| self.watched().is_some() && error.is_missing();
            // A missing file is no damage: results are often shared without some files.
            let content = |error: &ReadError| matches!(error, ReadError::Content { .. });
            let files = [
                resolved::read_text(&self.path).map(drop),
                read::images(&self.path).map(drop),
                read::classes(&self.path).map(drop),
            ];
            let records = [
                self.manifest_record().as_ref().err(),
                self.summary_record().as_ref().err(),
                self.plan_record().as_ref().err().filter(|error| !missing_plan(error)),
                self.verdict_record().as_ref().err(),
                self.post_mortem_record().as_ref().err(),
                self.explanation_record().as_ref().err(),
            ];
            let files = files.iter().filter_map(|file| file.as_ref().err().filter(|error| content(error)));
            let mut damage: Vec<String> = records.into_iter().flatten().chain(files).map(ToString::to_string).collect();
            let lines = [(layout::METRICS, &self.curves().skipped), (layout::MEMORY, &self.trace().skipped)];
            for (name, skipped) in lines.iter().filter(|(_, skipped)| skipped.lines > 0) {
                damage.push(format!("skipped {} of {name}", pluralize(skipped.lines, "damaged line")));
            }
            damage.extend(self.line_damage().map(ToString::to_string));
            damage.extend(lines.iter().filter_map(|(_, skipped)| skipped.error.as_ref()).map(ToString::to_string));
            damage
                .extend([&self.path, &self.path.join(layout::EXPORT)].into_iter().flat_map(|path| sums::damaged(path)));
            damage.extend(self.checkpoint_steps().1.clone());
            damage
        })
    }
}

/// The manifest without its patch, which may have 1 MiB: a list holds many manifests.
fn without_patch(mut manifest: Manifest) -> Manifest {
    manifest.code.git_patch = None;
    manifest
}

/// Best validation of a run without a summary. The newest checkpoint records it, and a better one is saved at once,
/// so only the validation after that checkpoint, at the end of the metrics, can be missing from it.
fn best_so_far(run: &Path, newest: &[MetricsLine], plan: Option<&PlanFile>) -> Option<Best> {
    let checkpoints = read::checkpoints(run).unwrap_or_default().into_iter().rev();
    let saved = checkpoints.filter_map(|(_, path)| read::loop_state(&path).ok()).next().and_then(|state| state.best);
    let metric = plan.and_then(|plan| {
        let name = plan.best_by.as_ref()?;
        let direction = plan.metrics.iter().find(|metric| metric.name == *name)?.direction?;
        Some((name, direction))
    });
    let Some((name, direction)) = metric else { return saved };
    let better_of = |best: Option<Best>, line: &MetricsLine| match line {
        MetricsLine::Validation { step, metrics, .. } if *step > 0 => {
            let value = metrics.get(name).copied().flatten();
            let value = value.filter(|value| best.as_ref().is_none_or(|best| direction.replaces(*value, best.value)));
            value.map(|value| Best { metric: name.clone(), value, step: *step }).or(best)
        }
        _ => best,
    };
    let is_long = || std::fs::metadata(run.join(layout::METRICS)).is_ok_and(|found| found.len() > TAIL_BYTES_MAX);
    let before = match saved {
        // A command has no checkpoint that records its best, so a long file is read from the start.
        None if is_long() => {
            let lines = read::metrics(run).into_iter().flatten().flatten();
            lines.fold(None, |best, line| better_of(best, &line))
        }
        saved => saved,
    };
    newest.iter().fold(before, better_of)
}

/// Records at the end of a file of lines, and whether one of them is damaged.
fn read_tail<T: DeserializeOwned>(path: &Path) -> (Vec<T>, bool) {
    let Appended { records, damaged, .. } = RecordTail::new(path, TAIL_BYTES_MAX).read_new();
    (records, damaged)
}

#[cfg(test)]
mod tests {
    use xrun_core::files::write;

    use super::*;
    use crate::format::Outcome;
    use crate::report::sample::{PLAIN, finished};
    use crate::report::{page, summary};

    #[test]
    fn what_a_process_holds_or_has_read_is_not_read_again() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let verdict = crate::judge::judge_path(&run, &xrun_verdict::table::TableOptions::default()).unwrap().verdict;
        write::replace_json(&run.join(layout::VERDICT), &verdict).unwrap();
        let before = RunView::open(&run);
        let (page_before, table) = (page::html(&before), before.trace().epochs.text(None));
        let records = EndRecords {
            manifest: read::manifest(&run).unwrap(),
            plan: read::plan(&run).ok(),
            summary: read::summary(&run).unwrap().unwrap(),
            verdict,
            post_mortem: None,
            explanation: None,
        };
        for name in [layout::MANIFEST, layout::PLAN, layout::SUMMARY, layout::VERDICT] {
            std::fs::remove_file(run.join(name)).unwrap();
        }
        assert_eq!(page::html(&before), page_before);
        let view = RunView::ended(&run, records);
        assert_eq!(*view.state(), RunState::Ended(Outcome::Finished));
        assert_eq!(page::html(&view), page_before);
        let text = summary::text(&view, None);
        for name in [layout::METRICS, layout::MEMORY] {
            write::replace(&run.join(name), b"").unwrap();
        }
        assert_eq!(summary::text(&view, None), text);
        assert_eq!(view.trace().epochs.text(None), table);
    }
}
