//! How is a run watched, and ended, while its device compiles the first kernels?
//!
//! On a GPU the first steps compile hundreds of kernels, for minutes, in one call that nothing can interrupt. So a thread
//! beside it says how far that is. After a signal, or at the time limit, it writes down the ending that the training thread
//! would have, as of the step before, and ends the process: nothing of a step that has only compiled is lost, and what was
//! compiled is kept.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::manifest;
use super::stop::{Ending, StopSignal};
use crate::device::kernels::Kernels;
use crate::results::format::{Outcome, Summary};
use crate::results::verdict::Verdict;
use crate::results::write;
use crate::results::{file, layout};

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often is said how far it is.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// A step that ends by itself within this time after a signal ends the run as always, with a checkpoint.
const GRACE: Duration = Duration::from_secs(1);
/// Without a new kernel for so long, what takes time is the step and not its kernels.
const STILL_COMPILING: Duration = Duration::from_secs(10);

/// What the thread tells.
#[derive(Clone, Debug)]
pub enum Aside<'a> {
    /// So many kernels were compiled, in that time.
    Compiling {
        /// How many, since the process began.
        kernels: u64,
        /// How long that took.
        time: Duration,
    },
    /// The process ends now.
    Ended {
        /// How the run ends.
        ending: &'a Ending,
        /// The run's folder.
        run: &'a std::path::Path,
    },
}

/// Says it to whoever watches; called on a thread of its own.
pub type Teller = Arc<dyn Fn(Aside<'_>) + Send + Sync>;

/// What is written if the process ends now. Made before the work that may take long.
#[derive(Clone, Debug)]
pub struct AsOfNow {
    /// The folder of the results.
    pub run: PathBuf,
    /// What `summary.json` would say.
    pub summary: Summary,
    /// What `verdict.json` would say.
    pub verdict: Verdict,
}

/// What ends the wait.
#[derive(Clone, Debug)]
pub struct Until {
    /// Whether it was asked to stop.
    pub stop: StopSignal,
    /// When the time limit is reached, and its ending.
    pub limit: Option<(Instant, Ending)>,
}

#[derive(Default)]
struct Done(Mutex<bool>, Condvar);

/// Watches until it is dropped.
pub struct Watched {
    done: Arc<Done>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watched {
    /// Begins to watch. Without a thread for it nothing is watched.
    pub fn new(kernels: Kernels, now: AsOfNow, until: Until, tell: Teller) -> Self {
        let done = Arc::new(Done::default());
        let watched = done.clone();
        let thread = std::thread::Builder::new().name("xrun start".into());
        Self { done, thread: thread.spawn(move || watch(&watched, &kernels, &now, &until, &tell)).ok() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Waits where the thread is about to end the process.
        *self.done.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.done.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(done: &Done, kernels: &Kernels, now: &AsOfNow, until: &Until, tell: &Teller) {
    let begun = Instant::now();
    let at_begin = kernels.new_ones();
    let (mut count, mut changed, mut said) = (at_begin, None, begun);
    let mut asked: Option<(Instant, Ending)> = None;
    let mut is_done = done.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_done {
        is_done = done.1.wait_timeout(is_done, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        if *is_done {
            return;
        }
        let newest = kernels.new_ones();
        if newest != count {
            count = newest;
            changed = Some(Instant::now());
        }
        let compiling = changed.is_some_and(|at| at.elapsed() < STILL_COMPILING);
        if compiling && said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            tell(Aside::Compiling { kernels: count - at_begin, time: begun.elapsed() });
        }
        if asked.is_none() {
            asked = until.asked(count - at_begin).map(|ending| (Instant::now(), ending));
        }
        if let Some((_, ending)) = asked.as_ref().filter(|(at, _)| compiling && at.elapsed() >= GRACE) {
            end(now, ending, tell);
        }
    }
}

impl Until {
    fn asked(&self, kernels: u64) -> Option<Ending> {
        let compiling =
            |message: &str| format!("{message}, while kernels were compiled: {kernels} so far, which are kept");
        if self.stop.raised() {
            return Some(Ending::new(Outcome::Interrupted, compiling("stopped by a signal")));
        }
        let (_, ending) = self.limit.as_ref().filter(|(at, _)| Instant::now() >= *at)?;
        Some(Ending { message: compiling(&ending.message), ..ending.clone() })
    }
}

/// Writes the ending down, says it, and ends the process at once: the training thread cannot be asked to.
fn end(now: &AsOfNow, ending: &Ending, tell: &Teller) -> ! {
    let _ = std::fs::remove_file(now.run.join(layout::RESERVE));
    let line = format!("{} {}: {}\n", manifest::now(), ending.outcome.words(), ending.message);
    let log = file::open_own(&now.run.join(layout::LOG), std::fs::OpenOptions::new().append(true));
    // What cannot be written is missing, as after a kill; the directory reads either way.
    let _ = log.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    let _ = write::replace_json(&now.run.join(layout::VERDICT), &now.verdict);
    let summary = Summary {
        outcome: ending.outcome,
        message: ending.message.clone(),
        exit_code: ending.exit_code(),
        finished: manifest::now(),
        ..now.summary.clone()
    };
    let _ = write::replace_json(&now.run.join(layout::SUMMARY), &summary);
    tell(Aside::Ended { ending, run: &now.run });
    // Not `exit`: what is run there may wait for the thread that compiles.
    // SAFETY: ends the process; nothing is read after it.
    unsafe { libc::_exit(libc::c_int::from(ending.exit_code())) }
}
