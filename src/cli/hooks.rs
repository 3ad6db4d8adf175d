//! Who is told how a run goes, besides the person at the terminal: programs that the experiment names.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::terminal::Terminal;
use crate::run::hooks::Told;
use crate::run::observer::{Event, Observer};
use crate::settings::sections::Hooks;
use crate::stop::RunOutcome;

/// Whether the hooks of an experiment are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Run,
    Leave,
}

impl Ask {
    /// Of an experiment that comes from a result: it may be somebody else's, so its programs are run only where that is asked
    /// for. Says that there are some.
    pub fn of_result(asked: bool, hooks: &Hooks, terminal: Terminal) -> Self {
        if asked {
            return Self::Run;
        }
        if !hooks.is_default() {
            terminal.say("the experiment of this result has hooks, which are not run; --hooks runs them");
        }
        Self::Leave
    }
}

/// Watches a run for its hooks, and passes on what happens.
pub struct Observing {
    inner: Box<dyn Observer>,
    told: Rc<RefCell<Option<Told>>>,
    run: PathBuf,
    steps: u64,
}

impl Observing {
    pub fn new(inner: Box<dyn Observer>, told: Rc<RefCell<Option<Told>>>, run: &Path, steps: u64) -> Self {
        Self { inner, told, run: run.to_path_buf(), steps }
    }
}

impl Observer for Observing {
    fn event(&mut self, event: Event<'_>) {
        if let (Event::Growing { step, verdict }, Some(told)) = (event, self.told.borrow_mut().as_mut()) {
            told.growing(&self.run, step, self.steps, verdict);
        }
        self.inner.event(event);
    }
}

/// The run has ended: tells its hooks, and the person which of them failed.
pub fn tell(told: Told, run: &Path, outcome: &RunOutcome, exit_code: u8, terminal: Terminal) {
    for failure in told.ended(run, outcome, exit_code) {
        // Also with --quiet: it is something wrong.
        Terminal { quiet: false, ..terminal }.say(&format!("warning: {failure}"));
    }
}
