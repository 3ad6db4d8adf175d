//! What happens around the loop? A folder before it, a summary after it, and no panic out of it.

use std::path::Path;
use std::time::Instant;

use super::observer::{Event, Observer};
use super::recorder::Recorder;
use super::session::Session;
use super::{RunError, train};
use crate::plan::Plan;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::seal;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::invocation;
use xrun_core::panics;
use xrun_core::panics::Panic;
use xrun_core::panics::words::Cause;
use xrun_core::settings::sections::FailOn;
use xrun_core::task::{Task, TaskError};
use xrun_results::format::{LoopState, Manifest, Outcome, Summary};
use xrun_results::judge::fails;
use xrun_results::resolved;
use xrun_results::verdict::Verdict;
use xrun_watch::directory::RunDirectory;
use xrun_watch::memory::sources::GpuInUse;
use xrun_watch::stop::{Ending, RunOutcome, StopSignal};

/// A task about to be trained, and where its results go.
pub struct Launch<'a> {
    /// What is to be done.
    pub plan: &'a Plan,
    /// The ledger that the task's buffers are in.
    pub ledger: &'a Ledger,
    /// Where the results go.
    pub directory: &'a RunDirectory,
    /// Where the loop stands: at its beginning, or at the checkpoint that was loaded.
    pub state: LoopState,
    /// Counts the processes that wrote into the directory before this one.
    pub segment: u32,
    /// The GPU in use, where its driver tells of it.
    pub gpu: Option<GpuInUse>,
    /// When the program began: `training.time_limit` counts from there.
    pub started: Instant,
    /// Ends the run after this many steps, with the plan of all of them: a probe. `None` does them all.
    pub stop_after: Option<u64>,
    /// Stops the run after this step, with a checkpoint and the plan of all steps. A run that goes on from there has the
    /// numbers of one that never stopped.
    pub until: Option<u64>,
}

/// Writes what is known before the first step: the author's file, the resolved one, the manifest and the plan.
pub fn describe(
    run: &Path,
    author: &[u8],
    all: &str,
    manifest: &Manifest,
    plan: &Plan,
    parameters: u64,
) -> Result<(), WriteError> {
    resolved::keep(&run.join(layout::EXPERIMENT), author)?;
    resolved::keep(&run.join(layout::RESOLVED), &seal::text(all))?;
    write::replace_json(&run.join(layout::PLAN), &plan.to_file(parameters))?;
    write::replace_json(&run.join(layout::MANIFEST), manifest)
}

impl Launch<'_> {
    /// Trains to an ending, and writes it down. The outcome of the run comes back even when it could not be written;
    /// then it says so.
    pub fn train(self, mut task: Box<dyn Task>, stop: &StopSignal, observer: &mut dyn Observer) -> RunOutcome {
        let opened = Recorder::open(&self.directory.path, self.plan, self.ledger, self.segment, self.gpu);
        let opened = opened.and_then(|mut recorder| {
            if self.plan.experiment.experiment.tensorboard {
                recorder.with_events(self.segment, self.state.step + u64::from(self.state.validated))?;
            }
            Ok(recorder)
        });
        let recorder = match opened {
            Ok(recorder) => recorder,
            Err(error) => return RunOutcome::unrecorded(Ending::new(Outcome::Failed, error.of_run())),
        };
        self.directory.note_process(self.segment);
        // That of a process before this one: its limit may be another now.
        let _ = std::fs::remove_file(self.directory.path.join(layout::POST_MORTEM));
        let mut session = Session::new(self.plan, self.state, recorder, observer, stop, self.started);
        session.until = self.until;
        session.stops_after(self.stop_after);
        let mut ending = match panics::caught(|| train::train(task.as_mut(), &mut session)) {
            Ok(Ok(ending)) => judged(ending, &session),
            Ok(Err(RunError::Task(TaskError::Device(said)))) => {
                broken(&Panic::told(said), Outcome::Failed, &mut session, task.as_ref())
            }
            Ok(Err(RunError::Task(TaskError::Data(said)))) => Ending::data_error(said),
            Ok(Err(RunError::Device(panic))) => broken(&panic, Outcome::Failed, &mut session, task.as_ref()),
            Ok(Err(error)) => Ending::new(Outcome::Failed, error.to_string()),
            Err(panic) => broken(&panic, Outcome::Panicked, &mut session, task.as_ref()),
        };
        let (written, summary, verdict) = finish(task.as_ref(), &mut session, &ending, self.directory);
        if let Err(error) = written {
            // The first cause is the one to tell; a full disk fails the summary, too.
            if ending.outcome != Outcome::Failed {
                ending = Ending::new(Outcome::Failed, error.of_run());
            }
        }
        session.observer.event(Event::Ended { ending: &ending, step: session.state.step });
        let plan = Some(self.plan.to_file(task.parameters()));
        let post_mortem = session.post_mortem.take();
        // A backend that panicked may panic again while it is taken down.
        let _ = panics::caught(move || drop(task));
        RunOutcome { ending, summary: Some(summary), verdict: Some(verdict), plan, post_mortem }
    }
}

/// The ending of a run whose device or backend failed, by what was said. The log has it in full.
fn broken(panic: &Panic, outcome: Outcome, session: &mut Session<'_>, task: &dyn Task) -> Ending {
    let step = session.state.step + 1;
    for line in panic.in_full().flat_map(str::lines).take(LOGGED_LINES_MAX) {
        // A disk that is full is told by what is written after this.
        let _ = session.recorder.log(&format!("step {step}: {line}"));
    }
    let ended = match panic.cause() {
        Cause::OutOfMemory { asked } => session.device_is_full(asked, task.parameters()).ok(),
        Cause::Tuned => {
            let (program, run) = (invocation::program(), &session.state.run);
            let message = format!(
                "step {step} failed on the device: an operation was tuned for one size, and the kernel that was fastest \
                 cannot do another size that counts as the same; `{program} resume {run} -s device.autotune=\"full\"` tunes \
                 each size by itself; the last checkpoint is whole"
            );
            Some(Ending::new(Outcome::Failed, message))
        }
        _ => None,
    };
    ended.unwrap_or_else(|| {
        let (what, bug) = match (outcome, panic.cause()) {
            (_, Cause::Cuda(_)) => ("failed on the device", ""),
            (Outcome::Panicked, _) => ("panicked", "; this is a bug of the program or of its backend"),
            _ => ("failed on the device", ""),
        };
        Ending::new(outcome, format!("step {step} {what}: {panic}{bug}; the last checkpoint is whole"))
    })
}

/// Of what a backend said. The source of a kernel has some hundred lines.
const LOGGED_LINES_MAX: usize = 1000;

/// A run that came to its end may still fail by its verdict.
fn judged(ending: Ending, session: &Session<'_>) -> Ending {
    let fail_on = session.plan.experiment.memory.fail_on;
    if !matches!(ending.outcome, Outcome::Finished | Outcome::StoppedEarly) || fail_on == FailOn::Never {
        return ending;
    }
    let verdict = session.recorder.verdict();
    match fails(fail_on, verdict.verdict) {
        true => Ending::new(Outcome::MemoryGrew, format!("{}, but {}", ending.message, verdict.message)),
        false => ending,
    }
}

/// Writes lines, then the summary, which says that the run has ended.
fn finish(
    task: &dyn Task,
    session: &mut Session<'_>,
    ending: &Ending,
    directory: &RunDirectory,
) -> (Result<(), WriteError>, Summary, Verdict) {
    directory.free_reserve();
    // All of them, also when the disk has no room for one.
    let logged = session.recorder.log(&format!("{}: {}", ending.outcome.words(), ending.message));
    let synced = session.recorder.sync();
    let verdict = session.recorder.verdict();
    let judged = write::replace_json(&directory.path.join(layout::VERDICT), &verdict);
    let summary = session.summary(task, ending, &directory.id);
    let summed = write::replace_json(&directory.path.join(layout::SUMMARY), &summary);
    (logged.and(synced).and(judged).and(summed), summary, verdict)
}
