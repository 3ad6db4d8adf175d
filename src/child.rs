//! How does a process of ours end when we do?

use std::process::{Command, ExitStatus};

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
            (0, true) => Err(std::io::Error::other("the process that started this one is gone")),
            _ => Err(std::io::Error::last_os_error()),
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
