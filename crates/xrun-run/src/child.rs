//! Child processes that run this program again: how they are recognised, and how they end with their parent.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Environment variable with the process id of the parent that gave this process its command line. A program with its own
/// `main` has its own command line, so an option would not do.
const STARTED_BY: &str = "XRUN_STARTED_BY";

/// Command that runs this program again. Its arguments are xrun's, also where the program has its own command line:
/// `Program::register` of the facade handles them there.
///
/// # Errors
/// The path of this program is unknown.
pub fn command() -> io::Result<Command> {
    program_path().map(|program| command_of(&program))
}

/// Path of this program.
///
/// # Errors
/// The system does not report it.
pub fn program_path() -> io::Result<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let mount = if cfg!(target_os = "linux") { " (`mount -t proc proc /proc`)" } else { "" };
        io::Error::new(
            error.kind(),
            format!("cannot find the path of this program, which is needed to start a child process: {error}{mount}"),
        )
    })
}

/// Command that runs a program that is known to be this one.
pub fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(STARTED_BY, std::process::id().to_string());
    ignore_checkpoint_signal(&mut command);
    command
}

/// Has a child ignore SIGUSR1 until it handles it. The signal requests a checkpoint and may be sent to all processes of a
/// job.
#[cfg(unix)]
fn ignore_checkpoint_signal(command: &mut Command) {
    let in_child = || {
        // SAFETY: a plain system call, which may be made between fork and exec.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, in_child) };
}

#[cfg(not(unix))]
fn ignore_checkpoint_signal(_: &mut Command) {}

/// Returns whether [`command`] started this process; a variable inherited from an earlier ancestor does not count.
#[cfg(unix)]
pub fn is_child_of_this_program() -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    std::env::var_os(STARTED_BY).is_some_and(|process| *process == *parent)
}

/// Returns whether [`command`] started this process.
#[cfg(not(unix))]
pub fn is_child_of_this_program() -> bool {
    std::env::var_os(STARTED_BY).is_some()
}

/// Signal that the kernel sends to a child whose parent has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentDeathSignal {
    /// SIGTERM: the child stops and saves.
    Terminate,
    /// SIGKILL: the child has nothing to save.
    Kill,
}

/// Has the child end when this process ends. On Linux only; elsewhere the child continues.
#[cfg(target_os = "linux")]
pub fn end_with_parent(command: &mut Command, death_signal: ParentDeathSignal) {
    use std::os::unix::process::CommandExt;
    let signal = match death_signal {
        ParentDeathSignal::Terminate => libc::SIGTERM,
        ParentDeathSignal::Kill => libc::SIGKILL,
    };
    let parent = std::process::id();
    let in_child = move || {
        // SAFETY: both are plain system calls, which may be made between fork and exec.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) };
        // SAFETY: as above.
        let orphan = unsafe { libc::getppid() } as u32 != parent;
        match (set, orphan) {
            (0, false) => Ok(()),
            // "No such process"; a message of our own would be allocated.
            (0, true) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(in_child) };
}

/// Does nothing: other systems have no such signal.
#[cfg(not(target_os = "linux"))]
pub fn end_with_parent(_: &mut Command, _: ParentDeathSignal) {}

/// Signal that ended a process, if one did.
#[cfg(unix)]
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// `None`: other systems have no signals.
#[cfg(not(unix))]
pub fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
