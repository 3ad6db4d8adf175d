//! Start of a command, and the readers of its output.

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use super::output;
use super::pty::{self, Pty, SizeMirror};
use super::reports::{self, Reports};
use super::steps::{self, StepEvent, StepParser, Steps, Tail};
use super::{StepSource, WatchError, WatchRequest};
use crate::explain::Explainer;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_results::secrets;
use xrun_run::child::end_with_parent;
use xrun_run::memory::own_cgroup::OwnCgroup;

/// Environment variable that has Python write its output without buffering.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";
/// Environment variable with the directories in which Python looks for modules first.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Finds the file of a program like a shell; a path with a directory is relative to the working directory of the command.
///
/// # Errors
/// There is no such file.
pub fn find(request: &WatchRequest) -> Result<PathBuf, WatchError> {
    let path = Path::new(&request.command[0]);
    let directory = request.working_directory.clone().unwrap_or_default();
    let is_program = |path: &Path| path.is_file();
    let found = match path.components().count() {
        0 | 1 if !path.is_absolute() => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|directory| directory.join(path))
            .find(|path| is_program(path)),
        _ => std::path::absolute(directory.join(path)).ok().filter(|path| is_program(path)),
    };
    let name = xrun_core::printable::line(&path.display().to_string(), 200);
    found.ok_or_else(|| {
        WatchError::Input(format!(
            "there is no program `{name}`; {}",
            if request.own_exit_code {
                "put the command after `--`, such as `-- python train.py`"
            } else {
                "check the key `program`; a relative path starts at `working_directory`"
            }
        ))
    })
}

/// Command line as one would type it, with masked secrets.
pub fn command_line(request: &WatchRequest) -> String {
    let words = masked_words(request);
    words.iter().map(|word| xrun_core::printable::shell_word(word)).collect::<Vec<String>>().join(" ")
}

/// Program and arguments of the command, with masked secrets.
pub fn masked_words(request: &WatchRequest) -> Vec<String> {
    let words: Vec<String> = request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut masked = secrets::mask_arguments(&words);
    for secret in &request.secrets {
        masked.iter_mut().for_each(|word| *word = secrets::mask_known(word, secret));
    }
    masked
}

/// Readers of the output and the reports of a running command.
pub struct OutputReaders {
    pub steps: Arc<Steps>,
    pub step_events: Receiver<StepEvent>,
    /// File that it writes its steps to.
    pub file: Option<Tail>,
    /// Reports of the command itself; `None` where no pipe could be made.
    pub reports: Option<Reports>,
    /// Threads that copy its output.
    pub copies: Vec<JoinHandle<()>>,
    /// Pseudo-terminals that it writes to.
    pub mirrors: Vec<SizeMirror>,
    /// Ledger entries of the readers' buffer and of the steps that wait.
    _reader: Option<Registration>,
    _steps: Registration,
}

impl OutputReaders {
    /// Returns whether the cursor of a terminal is within a line of the command.
    pub fn is_within_line(&self) -> bool {
        !self.mirrors.is_empty() && self.steps.is_within_line()
    }
}

/// Starts the command in a new process group and returns the id of its first process.
///
/// # Errors
/// It cannot be started.
pub fn start(
    request: &WatchRequest,
    program: &Path,
    own_cgroup: Option<&OwnCgroup>,
    explainer: Option<&Explainer>,
    ledger: &Ledger,
) -> Result<(u32, OutputReaders), WatchError> {
    let mut command = std::process::Command::new(program);
    command.arg0(&request.command[0]).args(&request.command[1..]).process_group(0);
    end_with_parent(&mut command, libc::SIGTERM);
    command.envs(&request.environment);
    if let Some(explainer) = explainer {
        let set = request.environment.get(PYTHON_PATH).map(OsString::from);
        command.env(PYTHON_PATH, explainer.python_path(set.or_else(|| std::env::var_os(PYTHON_PATH))));
    }
    if let Some(directory) = &request.working_directory {
        command.current_dir(directory);
    }
    if let Some(own_cgroup) = own_cgroup {
        enter_cgroup(&mut command, own_cgroup)?;
    }
    if std::io::stdin().is_terminal() && !pty::is_foreground() {
        command.stdin(Stdio::null());
    }
    let (parser, file) = match &request.steps {
        Some(StepSource::Output(pattern)) => (Some(StepParser::Pattern(pattern.clone())), None),
        Some(StepSource::Recognised) => (Some(StepParser::recognised()), None),
        Some(StepSource::File(path)) => (None, Some(Tail::new(path))),
        None => (None, None),
    };
    let reads_output = parser.is_some();
    if reads_output && std::env::var_os(UNBUFFERED).is_none() && !request.environment.contains_key(UNBUFFERED) {
        command.env(UNBUFFERED, "1");
    }
    let takes_steps = matches!(request.steps, None | Some(StepSource::Recognised));
    let reports = Reports::open(takes_steps, ledger).ok();
    match &reports {
        Some(reports) => command.env(reports::VARIABLE, reports.path()),
        // A pipe of a watcher around this one.
        None => command.env_remove(reports::VARIABLE),
    };
    let (steps, step_events) = Steps::new(parser, request.metrics.keys().cloned().collect());
    let steps = Arc::new(steps);
    let system = |what: &str, error: std::io::Error| WatchError::System(format!("cannot {what}: {error}"));
    let name = xrun_core::printable::line(&request.command[0].to_string_lossy(), 200);
    let copy_error = |error| system("copy the output of the command", error);
    let targets = OutputTargets::new(request).map_err(copy_error)?;
    let (mut terminals, mut mirrors) = Terminals::default();
    if reads_output {
        (terminals, mirrors) = targets.redirect(&mut command).map_err(copy_error)?;
    } else if request.stdout_to_stderr {
        command.stdout(targets.out.try_clone().map_err(copy_error)?);
    }
    let mut child = command.spawn().map_err(|error| system(&format!("start `{name}`"), error))?;
    // Closes our copies of the command's ends: the output then ends with the command.
    drop(command);
    let mut copies = Vec::new();
    let mut copy = |from: File, to: File| -> Result<(), WatchError> {
        copies.push(output::spawn_copy(from, to, steps.clone()).map_err(copy_error)?);
        Ok(())
    };
    if let Some(from) = child.stdout.take() {
        copy(File::from(OwnedFd::from(from)), targets.out)?;
    }
    if let Some(from) = child.stderr.take() {
        copy(File::from(OwnedFd::from(from)), targets.err)?;
    }
    for (from, to) in terminals {
        copy(from, to)?;
    }
    let reader = reads_output.then(|| {
        let registration = output::buffer().register(ledger);
        registration.set(registration.cap().items, registration.cap().bytes);
        registration
    });
    let waiting_steps = steps::buffer().register(ledger);
    Ok((
        child.id(),
        OutputReaders { steps, step_events, file, reports, copies, mirrors, _reader: reader, _steps: waiting_steps },
    ))
}

/// Has the child enter a cgroup before `exec`, which puts all processes of the command into it.
fn enter_cgroup(command: &mut std::process::Command, own: &OwnCgroup) -> Result<(), WatchError> {
    let optional = own.is_optional();
    let procs = match own.open_procs() {
        Err(_) if optional => return Ok(()),
        procs => {
            procs.map_err(|error| WatchError::System(format!("cannot enter the cgroup of the command: {error}")))?
        }
    };
    // SAFETY: only a system call is made between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) {
            1 => Ok(()),
            _ if optional => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    Ok(())
}

/// Files that the output of the command is copied to.
struct OutputTargets {
    out: File,
    err: File,
}

/// Pseudo-terminals of the command, each with the file that its output is copied to, and those whose size follows the user's.
type Terminals = (Vec<(File, File)>, Vec<SizeMirror>);

impl OutputTargets {
    fn new(request: &WatchRequest) -> std::io::Result<Self> {
        let err = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
        let out = match request.stdout_to_stderr {
            true => err.try_clone()?,
            false => File::from(std::io::stdout().as_fd().try_clone_to_owned()?),
        };
        Ok(Self { out, err })
    }

    /// Redirects the output of the command to us. Where it would go to a terminal, the command gets a pseudo-terminal, because
    /// programs draw progress bars differently, or not at all, without a terminal.
    fn redirect(&self, command: &mut std::process::Command) -> std::io::Result<Terminals> {
        let (mut terminals, mut mirrors) = Terminals::default();
        let mut terminal = |target: &File| -> std::io::Result<OwnedFd> {
            let pty = Pty::open(target.as_fd())?;
            mirrors.push(SizeMirror { user_terminal: target.try_clone()?, controller: pty.controller.try_clone()? });
            terminals.push((pty.controller, target.try_clone()?));
            Ok(pty.replica)
        };
        let out = if self.out.is_terminal() { Some(terminal(&self.out)?) } else { None };
        let err = match (&out, self.err.is_terminal()) {
            (Some(out), true) if pty::is_same(self.out.as_fd(), self.err.as_fd()) => Some(out.try_clone()?),
            (_, true) => Some(terminal(&self.err)?),
            (_, false) => None,
        };
        command.stdout(out.map_or_else(Stdio::piped, Stdio::from)).stderr(err.map_or_else(Stdio::piped, Stdio::from));
        Ok((terminals, mirrors))
    }
}
