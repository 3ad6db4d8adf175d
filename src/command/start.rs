//! How is a command started, and what is read of it?

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use super::output;
use super::steps::{self, Finder, Steps, Tail};
use super::{Request, StepsFrom, WatchError};
use crate::bounded::ledger::{Holding, Ledger};
use crate::results::format::MetricsLine;

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
    let name = crate::results::printable::line(&path.display().to_string(), 200);
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

/// The command as one would type it.
pub fn shown(request: &Request) -> String {
    let words = request.words.iter().map(|word| crate::results::printable::shell_word(&word.to_string_lossy()));
    words.collect::<Vec<String>>().join(" ")
}

/// What is read of a command while it runs.
pub struct Output {
    pub steps: Arc<Steps>,
    pub numbers: Receiver<MetricsLine>,
    pub tail: Option<Tail>,
    pub copying: Vec<JoinHandle<()>>,
    _held: Option<Holding>,
    _waiting: Holding,
}

/// Starts it in a group of processes of its own; gives the first of them.
///
/// # Errors
/// It does not start.
pub fn start(request: &Request, program: &Path, ledger: &Ledger) -> Result<(u32, Output), WatchError> {
    let mut command = std::process::Command::new(program);
    command.arg0(&request.words[0]).args(&request.words[1..]).process_group(0);
    command.envs(&request.environment);
    if let Some(folder) = &request.folder {
        command.current_dir(folder);
    }
    if std::io::stdin().is_terminal() {
        // A group in the background that reads from the terminal would be stopped without a word.
        command.stdin(Stdio::null());
    }
    let (finder, tail) = match &request.steps {
        Some(StepsFrom::Output(pattern)) => (Some(Finder::Pattern(pattern.clone())), None),
        Some(StepsFrom::Recognised) => (Some(Finder::recogniser()), None),
        Some(StepsFrom::File(path)) => (None, Some(Tail::new(path))),
        None => (None, None),
    };
    let reads_output = finder.is_some();
    if reads_output {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if std::env::var_os(UNBUFFERED).is_none() && !request.environment.contains_key(UNBUFFERED) {
            command.env(UNBUFFERED, "1");
        }
    }
    let (steps, numbers) = Steps::new(finder, request.metrics.keys().cloned().collect());
    let steps = Arc::new(steps);
    let system = |what: &str, error: std::io::Error| WatchError::System(format!("{what}: {error}"));
    let name = crate::results::printable::line(&program.display().to_string(), 200);
    let own = |fd: std::io::Result<OwnedFd>| fd.map(File::from);
    let err = || own(std::io::stderr().as_fd().try_clone_to_owned());
    let out = || if request.output_aside { err() } else { own(std::io::stdout().as_fd().try_clone_to_owned()) };
    let cannot = |error| system("its output cannot be copied", error);
    if request.output_aside && !reads_output {
        command.stdout(out().map_err(cannot)?);
    }
    let mut child = command.spawn().map_err(|error| system(&format!("cannot start `{name}`"), error))?;
    let mut copying = Vec::new();
    if let Some(from) = child.stdout.take() {
        copying.push(output::copy(from, out().map_err(cannot)?, steps.clone()).map_err(cannot)?);
    }
    if let Some(from) = child.stderr.take() {
        copying.push(output::copy(from, err().map_err(cannot)?, steps.clone()).map_err(cannot)?);
    }
    let held = reads_output.then(|| {
        let holding = output::buffer().register(ledger);
        holding.set(2, holding.cap().bytes);
        holding
    });
    let waiting = steps::buffer().register(ledger);
    Ok((child.id(), Output { steps, numbers, tail, copying, _held: held, _waiting: waiting }))
}
