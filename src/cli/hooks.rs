//! Hooks of a run that the command line starts: whether they are run, and their connection to the run's events.

use std::path::{Path, PathBuf};

use super::terminal::Terminal;
use crate::run::hooks::HookDispatcher;
use crate::run::observer::{Event, Observer};
use crate::settings::sections::Hooks;
use crate::stop::RunOutcome;

/// Returns whether the hooks of an experiment from an existing result are run: only if `requested`, as it may be another user's.
/// Reports hooks that are skipped.
pub fn of_result(requested: bool, hooks: &Hooks, terminal: Terminal) -> bool {
    if !requested && *hooks != Hooks::default() {
        terminal.info("hooks of this result are not run; use --hooks to run them");
    }
    requested
}

/// Observer that starts the hook for growth and passes all events on.
pub struct HookObserver {
    inner: Box<dyn Observer>,
    dispatcher: HookDispatcher,
    run: PathBuf,
    steps: u64,
}

impl HookObserver {
    /// Creates the observer of a run with `steps` planned steps.
    pub fn new(inner: Box<dyn Observer>, dispatcher: HookDispatcher, run: &Path, steps: u64) -> Self {
        Self { inner, dispatcher, run: run.to_path_buf(), steps }
    }

    /// Drops the inner observer and returns the dispatcher.
    pub fn into_dispatcher(self) -> HookDispatcher {
        self.dispatcher
    }
}

impl Observer for HookObserver {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Growing { step, verdict } = event {
            self.dispatcher.growing(&self.run, step, self.steps, verdict);
        }
        self.inner.event(event);
    }
}

/// Runs the hooks at the end of a run, and reports those that failed.
pub fn run_end_hooks(dispatcher: HookDispatcher, outcome: &RunOutcome, exit_code: u8, terminal: Terminal) {
    for failure in dispatcher.ended(outcome, exit_code) {
        // Also with --quiet, since it is a failure.
        Terminal { quiet: false, ..terminal }.info(&format!("warning: {failure}"));
    }
}
