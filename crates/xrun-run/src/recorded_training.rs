//! Training of a run that is recorded: opens its records, trains, catches panics, and writes verdict and summary.

use super::launch::Launch;
use super::observer::{Event, Observer};
use super::recorder::Recorder;
use super::session::Session;
use super::{RunError, ladder, train};
use crate::directory::RunDirectory;
use crate::stop::{Ending, RunOutcome, StopSignal};
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::panics;
use xrun_core::panics::Panic;
use xrun_core::panics::messages::Cause;
use xrun_core::settings::sections::FailOn;
use xrun_core::task::{Task, TaskError};
use xrun_results::format::{Outcome, Summary};
use xrun_results::judge::{memory_fails, training_end, training_fails};
use xrun_results::verdict::Verdict;
use xrun_results::view::{EndRecords, RunView};

impl Launch<'_> {
    /// Trains and records how the run ended. The outcome is returned even if it cannot be written; then it is a failure.
    pub fn train(self, mut task: Box<dyn Task>, stop: &StopSignal, observer: &mut dyn Observer) -> RunOutcome {
        let path = &self.directory.path;
        let opened = Recorder::open(path, self.plan, self.ledger, self.segment, self.gpu, &self.state);
        let recorder = match opened {
            Ok(recorder) => recorder,
            Err(error) => {
                let ending = Ending::new(Outcome::Failed, error.message_for_run());
                return RunOutcome { ending, run: RunView::open(&self.directory.path) };
            }
        };
        // The post-mortem of an earlier process no longer applies.
        let _ = std::fs::remove_file(self.directory.path.join(layout::POST_MORTEM));
        let mut session = Session::new(&self, recorder, observer, stop);
        let mut ending = match panics::caught(|| train::train(task.as_mut(), &mut session)) {
            Ok(Ok(ending)) => apply_fail_on(ending, &session),
            Ok(Err(RunError::Task(TaskError::Device(message)))) => {
                device_failure(&Panic::from_message(message), Outcome::Failed, &mut session, task.as_mut())
            }
            Ok(Err(RunError::Task(TaskError::Data(message)))) => Ending::data_error(message),
            Ok(Err(RunError::Device(panic))) => device_failure(&panic, Outcome::Failed, &mut session, task.as_mut()),
            Ok(Err(error)) => Ending::new(Outcome::Failed, error.to_string()),
            Err(panic) => device_failure(&panic, Outcome::Panicked, &mut session, task.as_mut()),
        };
        let (written, summary, verdict) = finish(task.as_ref(), &mut session, &ending, self.directory);
        if let Err(error) = written {
            // The first error is the cause; a full disk makes the summary fail as well.
            if ending.outcome != Outcome::Failed {
                ending = Ending::new(Outcome::Failed, error.message_for_run());
            }
        }
        session.observer.event(Event::Ended { ending: &ending, step: session.state.step });
        let records = EndRecords {
            manifest: self.manifest.clone(),
            plan: Some(self.plan.to_file(task.parameters())),
            summary,
            verdict,
            post_mortem: session.post_mortem.take(),
            explanation: None,
        };
        // A backend that panicked may panic again when it is dropped.
        let _ = panics::caught(move || drop(task));
        RunOutcome { ending, run: RunView::ended(&self.directory.path, records) }
    }
}

/// Ending of a run whose device or backend failed. The full message goes to the log.
fn device_failure(panic: &Panic, outcome: Outcome, session: &mut Session<'_>, task: &mut dyn Task) -> Ending {
    let step = session.state.step + 1;
    for line in panic.in_full().flat_map(str::lines).take(LOGGED_LINES_MAX) {
        // A full disk is reported by the records that are written after this.
        let _ = session.recorder.log(&format!("step {step}: {line}"));
    }
    let ended = match panic.cause() {
        Cause::OutOfMemory { asked } => ladder::retry(task, session, asked)
            .transpose()
            .unwrap_or_else(|| session.device_out_of_memory(asked, task.parameters()))
            .ok(),
        _ => None,
    };
    ended.unwrap_or_else(|| {
        let (what, bug) = match (outcome, panic.cause()) {
            (_, Cause::Cuda(_)) => ("failed on the device", ""),
            (Outcome::Panicked, _) => ("panicked", "; this is a bug in the program or its backend"),
            _ => ("failed on the device", ""),
        };
        Ending::new(outcome, format!("step {step} {what}: {panic}{bug}; the last checkpoint is intact"))
    })
}

/// Largest number of lines of a backend's message in the log. The source of a kernel has some hundred lines.
const LOGGED_LINES_MAX: usize = 1000;

/// Makes a finished run fail if a verdict is one of `memory.fail_on` or `training.fail_on`.
fn apply_fail_on(ending: Ending, session: &Session<'_>) -> Ending {
    let experiment = &session.plan.experiment;
    if !matches!(ending.outcome, Outcome::Finished | Outcome::StoppedEarly) {
        return ending;
    }
    let (on_memory, on_training) = (experiment.memory.fail_on, experiment.training.fail_on);
    let memory = (on_memory != FailOn::Never).then(|| session.recorder.verdict());
    if let Some(verdict) = memory.filter(|verdict| memory_fails(on_memory, verdict.verdict)) {
        return Ending::new(Outcome::MemoryGrew, format!("{}, but {}", ending.message, verdict.message));
    }
    let training = session.recorder.training_verdict(Some(training_end(ending.outcome)));
    match training.filter(|training| training_fails(on_training, training.verdict)) {
        Some(training) => {
            let message = format!("{}, but {}: {}", ending.message, training.verdict.words(), training.message);
            Ending::new(Outcome::DidNotLearn, message)
        }
        None => ending,
    }
}

/// Writes the buffered lines, the verdict, and last the summary, which marks the run as ended.
fn finish(
    task: &dyn Task,
    session: &mut Session<'_>,
    ending: &Ending,
    directory: &RunDirectory,
) -> (Result<(), WriteError>, Summary, Verdict) {
    let held = directory.check_held();
    if held.is_err() {
        // The records are those of another process now.
        return (held, session.summary(task, ending, &directory.id), session.recorder.verdict());
    }
    directory.free_reserve();
    // All are attempted, even if the disk is too full for one.
    let logged = session.recorder.log(&format!("{}: {}", ending.outcome.label(), ending.message));
    let synced = session.recorder.sync();
    let verdict = session.recorder.verdict();
    let judged = write::replace_json(&directory.path.join(layout::VERDICT), &verdict);
    let summary = session.summary(task, ending, &directory.id);
    let summed = write::replace_json(&directory.path.join(layout::SUMMARY), &summary);
    (logged.and(synced).and(judged).and(summed), summary, verdict)
}
