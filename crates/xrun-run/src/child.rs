//! Child processes that run this program again: how they are recognised, and how they end with their parent.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::{Duration, Instant};

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
    command
}

/// Returns whether [`command`] started this process; a variable inherited from an earlier ancestor does not count.
pub fn is_child_of_this_program() -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    std::env::var_os(STARTED_BY).is_some_and(|process| *process == *parent)
}

/// Has the kernel send a signal to the child when this process ends: SIGTERM lets it stop and save. On Linux only; elsewhere the
/// child continues.
#[cfg(target_os = "linux")]
pub fn end_with_parent(command: &mut Command, signal: i32) {
    use std::os::unix::process::CommandExt;
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
pub fn end_with_parent(_: &mut Command, _: i32) {}

/// Signal that ended a process, if one did.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// Period at which a child is polled.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Largest number of bytes read of its output.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Runs the command and returns its output; `None` if it was killed after `limit`, or because `stopped` returns true. The output
/// goes to files, because a full pipe would block the process.
///
/// # Errors
/// The process cannot be started, or a temporary file not be made.
pub fn output(command: &mut Command, stopped: &dyn Fn() -> bool, limit: Duration) -> io::Result<Option<Output>> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).spawn()?;
    let since = Instant::now();
    let status = loop {
        if stopped() || since.elapsed() >= limit {
            // It may have exited already, since a signal reached it as well.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(POLL_EVERY);
    };
    let read = |mut file: File| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    Ok(Some(Output { status, stdout: read(stdout)?, stderr: read(stderr)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_exceeds_its_time_is_killed() {
        let within = |script: &str, limit| output(Command::new("sh").args(["-c", script]), &|| false, limit).unwrap();
        let start_time = Instant::now();
        // `exec`, because only the process itself is killed.
        let ended = within("exec sleep 60", Duration::from_millis(200));
        assert!(ended.is_none() && start_time.elapsed() < Duration::from_secs(20), "{ended:?}");
        let whole = within("echo done", Duration::from_secs(60)).unwrap();
        assert_eq!((whole.status.code(), whole.stdout.as_slice()), (Some(0), b"done\n".as_slice()));
    }
}
