//! Processes of this program that this program starts: what makes them ours, and how they end when we do.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The number of the process that started this one, and so the command line that this one was given. A variable, as a
/// program with a `main` of its own has a command line of its own.
const STARTED_BY: &str = "XRUN_STARTED_BY";

/// This program once more. What follows is xrun's command line, also where the program has one of its own:
/// [`Program::register`](crate::Program::register) answers it there.
///
/// # Errors
/// The system does not say which program this is.
pub fn of_this_program() -> io::Result<Command> {
    this_program().map(|program| of(&program))
}

/// Where this program is.
///
/// # Errors
/// The system does not say it.
pub fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let mount = if cfg!(target_os = "linux") { " (`mount -t proc proc /proc`)" } else { "" };
        io::Error::new(
            error.kind(),
            format!("this program must start itself once more and cannot find itself: {error}{mount}"),
        )
    })
}

/// The same where it is known which program this is.
pub fn of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(STARTED_BY, std::process::id().to_string());
    ignores_saves(&mut command);
    command
}

/// SIGUSR1 asks for a checkpoint. Sent to all processes of a job, it must not end one that does not listen yet.
#[cfg(unix)]
fn ignores_saves(command: &mut Command) {
    let in_child = || {
        // SAFETY: a plain system call, which may be made between fork and exec.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, in_child) };
}

#[cfg(not(unix))]
fn ignores_saves(_: &mut Command) {}

/// Whether [`of_this_program`] started this process. What was inherited from a process before that one does not count.
#[cfg(unix)]
pub fn is_of_this_program() -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    std::env::var_os(STARTED_BY).is_some_and(|process| *process == *parent)
}

/// Whether [`of_this_program`] started this process.
#[cfg(not(unix))]
pub fn is_of_this_program() -> bool {
    std::env::var_os(STARTED_BY).is_some()
}

/// What the system sends to a child whose parent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// SIGTERM: it stops in good order.
    Stop,
    /// SIGKILL: nothing of it is worth keeping.
    Kill,
}

/// Makes the child end when this process does. On Linux only; elsewhere it goes on by itself.
#[cfg(target_os = "linux")]
pub fn ends_with_us(command: &mut Command, farewell: Farewell) {
    use std::os::unix::process::CommandExt;
    let signal = match farewell {
        Farewell::Stop => libc::SIGTERM,
        Farewell::Kill => libc::SIGKILL,
    };
    let parent = std::process::id();
    let in_child = move || {
        // SAFETY: both are plain system calls, which may be made between fork and exec.
        let bound = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) };
        // SAFETY: as above.
        let orphan = unsafe { libc::getppid() } as u32 != parent;
        match (bound, orphan) {
            (0, false) => Ok(()),
            // "No such process"; words of our own would be allocated.
            (0, true) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(not(target_os = "linux"))]
pub fn ends_with_us(_: &mut Command, _: Farewell) {}

/// The signal that ended a process, if one did.
#[cfg(unix)]
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
pub fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}
