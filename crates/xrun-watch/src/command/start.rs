//! How is a command started, and what is read of it?

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use super::events::{self, Events};
use super::output;
use super::steps::{self, Finder, Steps, Tail};
use super::terminal::{self, Mirror};
use super::{Request, StepsFrom, WatchError};
use crate::memory::own_cgroup::OwnCgroup;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_results::format::MetricsLine;
use xrun_results::secrets;

/// What Python is told, so that lines come when they are printed; only where they are read.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

/// The file of a program, as the shell would find it. One that is named with a folder is meant from the folder that it is run in.
///
/// # Errors
/// There is none.
pub fn find(request: &Request) -> Result<PathBuf, WatchError> {
    let path = Path::new(&request.words[0]);
    let folder = request.folder.clone().unwrap_or_default();
    let runs = |path: &Path| path.is_file();
    let found = match path.components().count() {
        0 | 1 if !path.is_absolute() => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join(path))
            .find(|path| runs(path)),
        _ => std::path::absolute(folder.join(path)).ok().filter(|path| runs(path)),
    };
    let name = xrun_core::printable::line(&path.display().to_string(), 200);
    found.ok_or_else(|| {
        WatchError::Asked(format!(
            "there is no program `{name}`; {}",
            if request.own_exit_code {
                "a command was expected behind `--`, such as `-- python train.py`"
            } else {
                "`program` names it, and a relative one with a folder is meant from `folder`"
            }
        ))
    })
}

/// The command as one would type it, without secrets.
pub fn shown(request: &Request) -> String {
    let words = words(request);
    words.iter().map(|word| xrun_core::printable::shell_word(word)).collect::<Vec<String>>().join(" ")
}

/// The words of the command, without secrets.
pub fn words(request: &Request) -> Vec<String> {
    let words: Vec<String> = request.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut masked = secrets::words(&words);
    for secret in &request.secrets {
        masked.iter_mut().for_each(|word| *word = secrets::without_value(word, secret));
    }
    masked
}

/// What is read of a command while it runs.
pub struct Output {
    pub steps: Arc<Steps>,
    pub numbers: Receiver<MetricsLine>,
    pub tail: Option<Tail>,
    pub events: Option<Events>,
    pub copying: Vec<JoinHandle<()>>,
    /// Terminals of ours that it writes to.
    pub mirrors: Vec<Mirror>,
    _held: Option<Holding>,
    _waiting: Holding,
}

/// Starts it in a group of processes of its own; gives the first of them.
///
/// # Errors
/// It does not start.
pub fn start(
    request: &Request,
    program: &Path,
    own: Option<&OwnCgroup>,
    ledger: &Ledger,
) -> Result<(u32, Output), WatchError> {
    let mut command = std::process::Command::new(program);
    command.arg0(&request.words[0]).args(&request.words[1..]).process_group(0);
    command.envs(&request.environment);
    if let Some(folder) = &request.folder {
        command.current_dir(folder);
    }
    if let Some(own) = own {
        enter(&mut command, own)?;
    }
    if std::io::stdin().is_terminal() {
        // A group in the background that reads from the terminal would be stopped without a word.
        command.stdin(Stdio::null());
    }
    let (mut tail, mut events) = (None, None);
    let finder = match &request.steps {
        Some(StepsFrom::Output(pattern)) => Some(Finder::Pattern(pattern.clone())),
        Some(StepsFrom::Recognised { .. }) => Some(Finder::recogniser()),
        Some(StepsFrom::File(path)) => {
            tail = Some(Tail::new(path));
            None
        }
        Some(StepsFrom::Events(folder)) => {
            events = Some(Events::new(folder));
            None
        }
        None => None,
    };
    let reads_output = finder.is_some();
    if reads_output && std::env::var_os(UNBUFFERED).is_none() && !request.environment.contains_key(UNBUFFERED) {
        command.env(UNBUFFERED, "1");
    }
    let (steps, numbers) = Steps::new(finder, request.metrics.keys().cloned().collect());
    let steps = Arc::new(steps);
    let system = |what: &str, error: std::io::Error| WatchError::System(format!("{what}: {error}"));
    let name = xrun_core::printable::line(&request.words[0].to_string_lossy(), 200);
    let cannot = |error| system("its output cannot be passed on", error);
    let shown = Shown::new(request).map_err(cannot)?;
    let mut terminals = Vec::new();
    let mut mirrors = Vec::new();
    if reads_output {
        let streams = shown.read(&mut command).map_err(cannot)?;
        (terminals, mirrors) = (streams.terminals, streams.mirrors);
    } else if request.output_aside {
        command.stdout(shown.out.try_clone().map_err(cannot)?);
    }
    let mut child = command.spawn().map_err(|error| system(&format!("cannot start `{name}`"), error))?;
    // The command alone holds the other ends now: when it ends, so does what is read.
    drop(command);
    let mut copying = Vec::new();
    let mut copies = |from: File, to: File| -> Result<(), WatchError> {
        copying.push(output::copy(from, to, steps.clone()).map_err(cannot)?);
        Ok(())
    };
    if let Some(from) = child.stdout.take() {
        copies(File::from(OwnedFd::from(from)), shown.out)?;
    }
    if let Some(from) = child.stderr.take() {
        copies(File::from(OwnedFd::from(from)), shown.err)?;
    }
    for (from, to) in terminals {
        copies(from, to)?;
    }
    let read = if events.is_some() { Some(events::buffer()) } else { reads_output.then(output::buffer) };
    let held = read.map(|buffer| {
        let holding = buffer.register(ledger);
        holding.set(holding.cap().items, holding.cap().bytes);
        holding
    });
    let waiting = steps::buffer().register(ledger);
    Ok((child.id(), Output { steps, numbers, tail, events, copying, mirrors, _held: held, _waiting: waiting }))
}

/// Has the command begin in a cgroup, before it is itself: so all of it is there.
fn enter(command: &mut std::process::Command, own: &OwnCgroup) -> Result<(), WatchError> {
    let optional = own.is_optional();
    let door = match own.door() {
        Err(_) if optional => return Ok(()),
        door => door.map_err(|error| WatchError::System(format!("its cgroup cannot be entered: {error}")))?,
    };
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(move || match libc::write(door.as_raw_fd(), b"0".as_ptr().cast(), 1) {
            1 => Ok(()),
            _ if optional => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    Ok(())
}

/// Where output is shown.
struct Shown {
    out: File,
    err: File,
}

/// Terminals that are read, each with where what comes from it is shown.
#[derive(Default)]
struct Streams {
    terminals: Vec<(File, File)>,
    mirrors: Vec<Mirror>,
}

impl Shown {
    fn new(request: &Request) -> std::io::Result<Self> {
        let err = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
        let out = match request.output_aside {
            true => err.try_clone()?,
            false => File::from(std::io::stdout().as_fd().try_clone_to_owned()?),
        };
        Ok(Self { out, err })
    }

    /// Has the command's output go through us. Where it would be shown on a terminal the command gets one, since programs
    /// draw otherwise, or not at all, where they see none.
    fn read(&self, command: &mut std::process::Command) -> std::io::Result<Streams> {
        let mut streams = Streams::default();
        let mut terminal = |shown: &File| -> std::io::Result<OwnedFd> {
            let pair = terminal::pair(shown.as_fd())?;
            streams.mirrors.push(Mirror { shown: shown.try_clone()?, ours: pair.ours.try_clone()? });
            streams.terminals.push((pair.ours, shown.try_clone()?));
            Ok(pair.theirs)
        };
        let out = if self.out.is_terminal() { Some(terminal(&self.out)?) } else { None };
        let err = match (&out, self.err.is_terminal()) {
            (Some(out), true) if terminal::is_same(self.out.as_fd(), self.err.as_fd()) => Some(out.try_clone()?),
            (_, true) => Some(terminal(&self.err)?),
            (_, false) => None,
        };
        command.stdout(out.map_or_else(Stdio::piped, Stdio::from)).stderr(err.map_or_else(Stdio::piped, Stdio::from));
        Ok(streams)
    }
}
