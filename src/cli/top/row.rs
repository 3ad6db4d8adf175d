//! Row of `xrun top`: the current state of a run, read from its files.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::directory::{WRITTEN, age};
use crate::files::layout;
use crate::files::write::WRITING;
use crate::judge::{LiveVerdict, add_metrics, training_context};
use crate::killed;
use crate::report::formatting::number;
use crate::results::format::{MemoryLine, MetricsLine, PlanFile, SamplePoint};
use crate::results::loss::{self, KindLoss};
use crate::results::run_state::RunState;
use crate::results::tail::RecordTail;
use crate::results::verdict::{TrainingVerdictWord, Verdict, VerdictWord};
use crate::results::view::RunView;
use crate::results::{read, run_name};
use crate::units::{Bytes, Span, seconds};
use crate::verdict::training::TrainingJudge;
use crate::{host, printable};

/// Largest number of bytes of the metrics read at a time.
const METRICS_BYTES_MAX: u64 = 64 * 1024;
/// Largest number of owners that are named.
const OWNERS_MAX: usize = 3;
const NAME_CHARACTERS_MAX: usize = 40;
const MESSAGE_CHARACTERS_MAX: usize = 400;
/// Time without changed files after which a run on another machine counts as ended.
pub(super) const INACTIVE_AFTER: Duration = Duration::from_secs(600);
/// Smallest age of the files that is shown.
const AGE_SHOWN_MIN: Duration = Duration::from_secs(10);

/// Row of the table, with escaped text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Name of the run that all subcommands accept.
    pub name: String,
    pub experiment: String,
    pub run: String,
    pub state: String,
    /// `310/1000  31 %`.
    pub progress: String,
    /// Loss, or else the first metric.
    pub loss: String,
    pub memory: String,
    pub verdict: String,
    /// Time until the run is done or reaches its time limit.
    pub left: String,
    /// Owners of the memory, largest first.
    pub owners: Vec<String>,
    /// Host if it is another one, and age of the files if they are old.
    pub host_and_age: String,
    /// Message about growth, a kill or damaged files.
    pub message: String,
}

impl Row {
    /// Row with the names of a run.
    pub fn new(run: &Path) -> Self {
        let entry_name = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name).map_or(String::new(), |name| name.to_string_lossy().into_owned());
            printable::line(&name, NAME_CHARACTERS_MAX)
        };
        let absolute = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
        let of_sweep = absolute.parent().is_some_and(|parent| parent.ends_with(layout::TRIALS));
        let above = absolute.ancestors().nth(if of_sweep { 4 } else { 1 });
        let of_reproduction = above.is_some_and(|above| above.ends_with(layout::REPRODUCTIONS));
        let above = if of_reproduction { absolute.ancestors().nth(2) } else { above };
        let experiment =
            above.and_then(Path::file_name).map_or(String::new(), |name| name.to_string_lossy().into_owned());
        Self {
            name: printable::line(&run_name::run(run, &experiment), 2 * NAME_CHARACTERS_MAX),
            experiment: entry_name(above),
            run: entry_name(Some(&absolute)),
            ..Self::default()
        }
    }

    fn set_verdict(&mut self, verdict: Option<&Verdict>) {
        let Some(verdict) = verdict else { return };
        self.verdict = verdict.verdict.words().into();
        if verdict.verdict >= VerdictWord::Suspect {
            self.message = printable::line(&verdict.message, MESSAGE_CHARACTERS_MAX);
        }
    }

    fn set_progress(&mut self, step: Option<u64>, planned: Option<u64>) {
        self.progress = match (step, planned.filter(|planned| *planned > 0)) {
            (Some(step), Some(planned)) => {
                let percent = (100.0 * step as f64 / planned as f64).min(100.0);
                format!("{step}/{planned} {percent:3.0} %")
            }
            (Some(step), None) => step.to_string(),
            (None, _) => "-".into(),
        };
    }
}

/// Row of a run that has ended, was killed or is damaged.
pub fn ended(run: &Path) -> Row {
    let view = RunView::open(run);
    let mut row = Row::new(run);
    row.state = view.state().label().into();
    row.set_progress(view.steps(), view.steps_planned());
    row.loss = view.loss().map_or("-".into(), |(_, loss)| number(loss));
    row.memory = view.rss_peak().map_or("-".into(), |bytes| Bytes(bytes).to_string());
    row.set_verdict(view.verdict());
    let problem = match view.state() {
        RunState::Unreadable(why) => Some(why.clone()),
        RunState::Killed => Some(killed::killer(run).message()),
        RunState::Running | RunState::Ended(_) => view.verdict_error().map(ToString::to_string),
    };
    row.message = problem.map_or(row.message, |problem| printable::line(&problem, MESSAGE_CHARACTERS_MAX));
    row
}

/// Active run, with what was read of it so far. The size does not depend on the length of the run.
#[derive(Debug)]
pub struct ActiveRun {
    view: RunView,
    row: Row,
    /// Modification time of the manifest, which a resume changes.
    manifest: Option<SystemTime>,
    time_limit: Option<Duration>,
    /// Host, if it is another one.
    host: Option<String>,
    so_far: LiveVerdict,
    metrics: RecordTail,
    losses: Vec<KindLoss>,
    training: TrainingJudge,
    last_step: Option<u64>,
    /// First metric of the newest validation.
    metric: Option<(String, f64)>,
}

impl ActiveRun {
    /// Starts to follow a run.
    pub fn new(run: &Path) -> Self {
        let view = RunView::open(run);
        let limited = || {
            let text = view.values().ok()?.get("training.time_limit")?.as_str()?;
            Some(text.parse::<Span>().ok()?.0)
        };
        let time_limit = match view.watched() {
            Some(watched) => watched.time_limit_seconds.and_then(|limit| Duration::try_from_secs_f64(limit).ok()),
            None => limited(),
        };
        let host = read::process(run).ok().flatten().map(|note| note.host);
        let host = host.or_else(|| view.manifest().map(|manifest| manifest.host.name.clone()));
        Self {
            row: Row::new(run),
            manifest: modified(&run.join(layout::MANIFEST)),
            training: TrainingJudge::new(training_context(view.plan())),
            time_limit,
            host: host.filter(|host| *host != host::name()),
            so_far: LiveVerdict::new(&view),
            metrics: RecordTail::new(&run.join(layout::METRICS), METRICS_BYTES_MAX),
            losses: Vec::new(),
            last_step: None,
            metric: None,
            view,
        }
    }

    /// Reads what is new and returns the current row.
    pub fn update(&mut self) -> Row {
        if modified(&self.view.path.join(layout::MANIFEST)) != self.manifest {
            *self = Self::new(&self.view.path.clone());
        }
        self.so_far.update();
        self.read_metrics();
        let newest = self.so_far.newest();
        let mut row = self.row.clone();
        row.state = self.state(newest).into();
        let step = self.last_step.max(newest.map(|line| line.step));
        let planned = self.view.plan().and_then(PlanFile::known_steps);
        row.set_progress(step, planned);
        row.loss = match (loss::dominant(&self.losses), &self.metric) {
            (Some(loss), _) => number(loss.last),
            (None, Some((name, value))) => format!("{} {}", printable::line(name, 14), number(*value)),
            (None, None) => "-".into(),
        };
        let age = age(&self.view.path, &WRITTEN);
        row.memory = newest.map_or("-".into(), memory);
        row.owners = newest.map(owners).unwrap_or_default();
        row.set_verdict(self.so_far.verdict());
        row.left = self.time_left(newest, step.zip(planned));
        let host = self.host.as_ref().map(|host| format!("on {}", printable::line(host, NAME_CHARACTERS_MAX)));
        let old = age.filter(|age| *age >= AGE_SHOWN_MIN);
        let age = old.map(|age| format!("updated {} ago", seconds(age.as_secs_f64())));
        row.host_and_age = [host, age].into_iter().flatten().collect::<Vec<_>>().join(", ");
        row
    }

    /// Verdict so far on its memory.
    pub fn verdict(&self) -> Option<VerdictWord> {
        self.so_far.verdict().map(|verdict| verdict.verdict)
    }

    /// Verdict so far on its training; `None` without a loss and a validation.
    pub fn training(&self) -> Option<TrainingVerdictWord> {
        (!self.training.is_empty()).then(|| self.training.verdict(None).verdict)
    }

    fn read_metrics(&mut self) {
        let news = self.metrics.read_new::<MetricsLine>();
        if news.restarted {
            (self.last_step, self.metric) = (None, None);
            self.losses.clear();
            self.training = self.training.without_steps();
        }
        let over = loss::averaging_window(self.view.plan().and_then(PlanFile::known_steps));
        for line in &news.records {
            // Not the maximum: a resume repeats some steps.
            self.last_step = Some(line.step());
            add_metrics(&mut self.training, line);
            match line {
                MetricsLine::Train { batch, loss, .. } => loss::add(&mut self.losses, batch, *loss, over),
                MetricsLine::Validation { metrics, .. } => {
                    let planned =
                        self.view.plan().into_iter().flat_map(|plan| &plan.metrics).map(|metric| &metric.name);
                    let mut names = planned.chain(metrics.keys());
                    self.metric = names.find_map(|name| Some((name.clone(), (*metrics.get(name)?)?)));
                }
            }
        }
    }

    fn state(&self, newest: Option<&MemoryLine>) -> &'static str {
        match newest {
            _ if is_saving(&self.view.path) => "saving",
            None => "starting",
            Some(line) if line.point == SamplePoint::BeforeValidation => "validating",
            Some(line) if line.point == SamplePoint::End => "ending",
            Some(_) if self.view.watched().is_some() => "running",
            Some(_) => "training",
        }
    }

    /// Time until the run is done by its own estimate, or at the current speed of a command, or until the time limit if it is
    /// reached first.
    fn time_left(&self, newest: Option<&MemoryLine>, steps: Option<(u64, u64)>) -> String {
        let age = age(&self.view.path, &[layout::MEMORY]).unwrap_or_default().as_secs_f64();
        let estimate = newest.and_then(|line| line.seconds_left).map(|left| (left - age).max(0.0));
        let at_speed = || {
            let ((step, planned), speed) = steps.zip(self.so_far.steps_per_second())?;
            Some(planned.saturating_sub(step) as f64 / speed)
        };
        let done = estimate.or_else(at_speed);
        let spent = newest.map(|line| line.time_us as f64 / 1e6 + age);
        let limit = self.time_limit.zip(spent).map(|(limit, spent)| (limit.as_secs_f64() - spent).max(0.0));
        match (done, limit) {
            (Some(done), Some(limit)) if limit < done => format!("limit in {}", seconds(limit)),
            (None, Some(limit)) => format!("limit in {}", seconds(limit)),
            (Some(done), _) => seconds(done),
            (None, None) => "-".into(),
        }
    }
}

/// Memory of a run on the host and on devices.
fn memory(line: &MemoryLine) -> String {
    let host = Bytes(line.host.rss.unwrap_or(line.host.heap));
    let on_gpus = line.processes.iter().flat_map(|processes| processes.groups.values()).filter_map(|group| group.gpu);
    let on_gpus = on_gpus.reduce(|one, other| one.saturating_add(other));
    match line.device.map(|pool| pool.reserved).or(on_gpus) {
        Some(device) => format!("{host} + {} GPU", Bytes(device)),
        None => host.to_string(),
    }
}

/// Largest owners; for a command, its groups of processes.
fn owners(line: &MemoryLine) -> Vec<String> {
    let mut owners: Vec<(&String, u64)> = line.owners.iter().map(|(name, bytes)| (name, *bytes)).collect();
    owners.retain(|(_, bytes)| *bytes > 0);
    owners.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    owners.truncate(OWNERS_MAX);
    owners
        .into_iter()
        .map(|(name, bytes)| format!("{} {}", printable::line(name, NAME_CHARACTERS_MAX), Bytes(bytes)))
        .collect()
}

/// Returns true if a checkpoint is being written, which has a temporary name.
fn is_saving(run: &Path) -> bool {
    let entries = std::fs::read_dir(run.join(layout::CHECKPOINTS)).into_iter().flatten().flatten();
    entries.take(1000).any(|entry| entry.file_name().to_string_lossy().starts_with(WRITING))
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}
