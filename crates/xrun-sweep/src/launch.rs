//! How is a run of a sweep started? As a process of its own, so that one that is killed takes nobody with it.
//!
//! [`Launcher`] is the seam: [`Local`] starts processes on this machine. A cluster starts them itself: [`super::slurm`].

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::course::Job;
use super::needs::packing::Packing;
use super::points::RunId;
use super::record::run_folder;
use crate::records::sweep::Record;
use xrun_core::files::{file, layout};
use xrun_core::printable;
use xrun_watch::child;
use xrun_watch::child::Farewell;

/// The option by which programs are started that a folder names, whoever created it.
pub const ALLOW_COMMAND: &str = "--allow-command";

/// A run about to be started.
#[derive(Clone, Debug)]
pub struct Start {
    pub job: Job,
    /// What stands behind `xrun` on the command line.
    pub words: Vec<OsString>,
    /// Where the process says what is wrong.
    pub said: PathBuf,
    /// It resumes a run that an earlier process began.
    pub resumes: bool,
}

/// A process that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub start: Start,
    pub seconds: f64,
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// The last thing it said, if it said anything.
    pub message: Option<String>,
}

/// Starts runs, and says which have ended.
pub trait Launcher {
    /// How many may run at once.
    fn jobs(&self) -> usize;
    /// Those that were started and have not ended.
    fn running(&self) -> usize;
    fn start(&mut self, start: Start) -> io::Result<()>;
    /// Whether there is room for a run beside those that run now. Where nothing runs, there is.
    fn fits(&self, _: RunId) -> bool {
        true
    }
    /// A run had too little memory beside others: whether it is tried once more by itself.
    fn try_alone(&mut self, _: RunId) -> bool {
        false
    }
    /// Whether the run is one that is tried once more.
    fn is_tried_again(&self, _: RunId) -> bool {
        false
    }
    /// Those that have ended since the last call; waits a moment when there are none.
    fn ended(&mut self) -> Vec<Ended>;
    /// Asks all that run to stop in good order.
    fn interrupt(&mut self);
    /// Asks all that run to save a checkpoint and go on.
    fn save(&mut self);
}

impl Start {
    /// The first process of a run.
    pub fn new(sweep: &Path, record: &Record, job: Job) -> Self {
        let mut words: Vec<OsString> = vec!["run".into(), sweep.join(layout::BASE).into()];
        words.extend(record.overrides(job.run).into_iter().flat_map(|text| ["-s".into(), text.into()]));
        words.extend(["--directory".into(), run_folder(sweep, job.run).into()]);
        // Sixty points would tell somebody sixty times; and a sweep that is resumed may be somebody else's.
        words.push("--no-hooks".into());
        Self::quiet(sweep, job, words, false)
    }

    /// A process that goes on where another one was stopped or killed. `allowed`: it starts the programs that the run names,
    /// whoever created its folder.
    pub fn resume(sweep: &Path, job: Job, allowed: bool) -> Self {
        let mut words: Vec<OsString> = vec!["resume".into(), run_folder(sweep, job.run).into()];
        words.extend(allowed.then(|| ALLOW_COMMAND.into()));
        Self::quiet(sweep, job, words, true)
    }

    /// The process, not yet started.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        let said = file::open_own(&self.said, OpenOptions::new().create(true).append(true))?;
        let mut command = child::of(program);
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        // The base says everything; a variable that has changed since must not change half of the points.
        let names = std::env::vars_os().map(|(name, _)| name);
        names.filter(|name| name.to_string_lossy().starts_with("XRUN__")).for_each(|name| {
            command.env_remove(name);
        });
        Ok(command)
    }

    fn quiet(sweep: &Path, job: Job, mut words: Vec<OsString>, resumes: bool) -> Self {
        words.extend(job.until.into_iter().flat_map(|step| ["--until".into(), step.to_string().into()]));
        words.extend(["--quiet", "--progress", "none"].map(OsString::from));
        Self { job, words, said: run_folder(sweep, job.run).with_extension("txt"), resumes }
    }
}

/// Processes on this machine.
#[derive(Debug)]
pub struct Local {
    program: PathBuf,
    jobs: usize,
    running: Vec<Running>,
    /// Waits get longer while nothing ends.
    idle: u32,
}

/// Processes on this machine, as many side by side as their forecasts fit.
pub struct Packed<'a> {
    local: Local,
    packing: Packing<'a>,
}

impl<'a> Packed<'a> {
    pub fn new(packing: Packing<'a>) -> io::Result<Self> {
        Ok(Self { local: Local::new(packing.room().processors)?, packing })
    }
}

impl Launcher for Packed<'_> {
    fn jobs(&self) -> usize {
        self.local.jobs()
    }

    fn running(&self) -> usize {
        self.local.running()
    }

    fn start(&mut self, start: Start) -> io::Result<()> {
        let run = start.job.run;
        self.local.start(start)?;
        self.packing.begin(run);
        Ok(())
    }

    fn fits(&self, run: RunId) -> bool {
        self.packing.fits(run)
    }

    fn try_alone(&mut self, run: RunId) -> bool {
        self.packing.alone(run)
    }

    fn is_tried_again(&self, run: RunId) -> bool {
        self.packing.is_alone(run)
    }

    fn ended(&mut self) -> Vec<Ended> {
        let ended = self.local.ended();
        ended.iter().for_each(|ended| self.packing.end(ended.start.job.run));
        ended
    }

    fn interrupt(&mut self) {
        self.local.interrupt();
    }

    fn save(&mut self) {
        self.local.save();
    }
}

#[derive(Debug)]
struct Running {
    start: Start,
    child: Child,
    begun: Instant,
}

impl Local {
    pub fn new(jobs: usize) -> io::Result<Self> {
        Ok(Self { program: child::this_program()?, jobs, running: Vec::with_capacity(jobs), idle: 0 })
    }
}

impl Launcher for Local {
    fn jobs(&self) -> usize {
        self.jobs
    }

    fn running(&self) -> usize {
        self.running.len()
    }

    fn start(&mut self, start: Start) -> io::Result<()> {
        let mut command = start.command(&self.program)?;
        bind(&mut command);
        let child = command.spawn()?;
        self.idle = 0;
        self.running.push(Running { start, child, begun: Instant::now() });
        Ok(())
    }

    fn ended(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].child.try_wait() {
                Ok(None) => at += 1,
                Ok(Some(status)) => {
                    let Running { start, begun, .. } = self.running.remove(at);
                    ended.push(Ended {
                        seconds: begun.elapsed().as_secs_f64(),
                        exit_code: status.code(),
                        signal: child::signal_of(status),
                        message: last_words(&start.said),
                        start,
                    });
                }
                Err(error) => {
                    let Running { start, begun, .. } = self.running.remove(at);
                    let seconds = begun.elapsed().as_secs_f64();
                    let message = Some(error.to_string());
                    ended.push(Ended { start, seconds, exit_code: None, signal: None, message });
                }
            }
        }
        if ended.is_empty() && !self.running.is_empty() {
            // 1 ms at first, so that short runs follow one another; 20 ms later, so that long ones are left alone.
            std::thread::sleep(Duration::from_millis(u64::from(1 + self.idle / 10).min(20)));
            self.idle = self.idle.saturating_add(1);
        }
        ended
    }

    fn interrupt(&mut self) {
        self.running.iter().for_each(|running| send(&running.child, Asked::Stop));
    }

    fn save(&mut self) {
        self.running.iter().for_each(|running| send(&running.child, Asked::Save));
    }
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Stop,
    Save,
}

#[cfg(unix)]
fn send(child: &Child, asked: Asked) {
    let signal = match asked {
        Asked::Stop => libc::SIGINT,
        Asked::Save => libc::SIGUSR1,
    };
    // SAFETY: a signal to a child that is not yet waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

#[cfg(not(unix))]
fn send(_: &Child, _: Asked) {}

/// Ctrl-C reaches the sweep only, which tells its runs once; and when the sweep is killed, its runs stop in good order.
fn bind(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    child::ends_with_us(command, Farewell::Stop);
}

/// More of the end of what a process said is not looked at.
const SAID_BYTES_MAX: u64 = 64 * 1024;

/// The last line that a process said; a file that says nothing goes.
pub fn last_words(path: &Path) -> Option<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = file::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    if length == 0 {
        let _ = std::fs::remove_file(path);
        return None;
    }
    file.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(SAID_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let line = line.strip_prefix("error: ").unwrap_or(line);
    Some(printable::line(line, 400))
}
