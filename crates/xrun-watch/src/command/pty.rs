//! Pseudo-terminal between a command and the user's terminal, through which xrun reads the output; bytes pass unchanged.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Two ends of a pseudo-terminal.
#[derive(Debug)]
pub struct Pty {
    /// End from which we read the output of the command.
    pub controller: File,
    /// End that is the terminal of the command.
    pub replica: OwnedFd,
}

impl Pty {
    /// Opens a pseudo-terminal with the size of another terminal.
    ///
    /// # Errors
    /// The system has none left.
    pub fn open(like: BorrowedFd<'_>) -> io::Result<Self> {
        let (mut controller, mut replica) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both variables outlive the call; where it fails, nothing is opened.
        let result = unsafe { libc::openpty(&mut controller, &mut replica, null, std::ptr::null(), std::ptr::null()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were opened just now and have no other owner.
        let pty = unsafe { Self { controller: File::from_raw_fd(controller), replica: OwnedFd::from_raw_fd(replica) } };
        for end in [pty.controller.as_raw_fd(), pty.replica.as_raw_fd()] {
            // SAFETY: takes descriptors by value. Other child processes must not inherit them.
            unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        disable_processing(pty.replica.as_fd())?;
        copy_size(like, pty.controller.as_fd());
        Ok(pty)
    }
}

/// Disables output processing and echo; the user's terminal does both.
fn disable_processing(terminal: BorrowedFd<'_>) -> io::Result<()> {
    let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `settings` outlives the call, and is read only where it was filled.
    let mut settings = unsafe {
        if libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        settings.assume_init()
    };
    settings.c_oflag &= !libc::OPOST;
    settings.c_lflag &= !libc::ECHO;
    // SAFETY: as above.
    match unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &settings) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Copies the size of one terminal to another; the kernel sends SIGWINCH to the command.
pub fn copy_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` outlives both calls. A file that is no terminal leaves it unchanged.
    unsafe {
        if libc::ioctl(from.as_raw_fd(), libc::TIOCGWINSZ, &mut size) == 0 {
            libc::ioctl(to.as_raw_fd(), libc::TIOCSWINSZ, &size);
        }
    }
}

/// Returns whether two files are the same terminal. Stdout and stderr then share one pseudo-terminal, which keeps their order.
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let device = |fd: BorrowedFd<'_>| {
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `found` outlives the call, and is read only where it was filled.
        unsafe { (libc::fstat(fd.as_raw_fd(), found.as_mut_ptr()) == 0).then(|| found.assume_init().st_rdev) }
    };
    device(one).is_some() && device(one) == device(other)
}

/// Pseudo-terminal that follows the size of the user's terminal.
#[derive(Debug)]
pub struct SizeMirror {
    /// The user's terminal.
    pub user_terminal: File,
    /// End of the pseudo-terminal whose size follows.
    pub controller: File,
}

impl SizeMirror {
    /// Copies the size of the user's terminal.
    pub fn resize(&self) {
        copy_size(self.user_terminal.as_fd(), self.controller.as_fd());
    }
}

/// Returns whether this process is in the foreground of its terminal.
pub fn is_foreground() -> bool {
    // SAFETY: takes a descriptor by value, and returns numbers.
    File::open(TERMINAL).is_ok_and(|terminal| unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() })
}

/// Controlling terminal of a process.
const TERMINAL: &str = "/dev/tty";

/// Foreground of the user's terminal, which a command in a process group of its own has while it is lent.
#[derive(Debug)]
pub struct Foreground {
    command: libc::pid_t,
    is_lent: bool,
}

impl Foreground {
    /// Foreground that is xrun's; `command` is a process group.
    pub fn new(command: u32) -> Self {
        Self { command: libc::pid_t::try_from(command).unwrap_or_default(), is_lent: false }
    }

    /// Returns whether the command has it.
    pub fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Puts the command into the foreground, unless xrun itself is not there. Returns whether it did.
    pub fn lend(&mut self) -> bool {
        // SAFETY: returns a number.
        self.is_lent = self.pass(unsafe { libc::getpgrp() }, self.command);
        self.is_lent
    }

    /// Puts xrun into the foreground again, unless a shell has it meanwhile. Returns whether it was lent.
    pub fn take_back(&mut self) -> bool {
        if self.is_lent {
            // SAFETY: returns a number.
            self.pass(self.command, unsafe { libc::getpgrp() });
        }
        std::mem::take(&mut self.is_lent)
    }

    /// Passes the foreground from one process group to another. While the command has it, xrun ignores SIGTTOU, which would
    /// stop a background group at this call, and after `stty tostop` at each message.
    fn pass(&self, from: libc::pid_t, to: libc::pid_t) -> bool {
        let Ok(terminal) = File::open(TERMINAL) else { return false };
        let descriptor = terminal.as_raw_fd();
        // SAFETY: takes numbers.
        unsafe {
            if libc::tcgetpgrp(descriptor) != from {
                return false;
            }
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            let passed = libc::tcsetpgrp(descriptor, to) == 0;
            if !passed || to != self.command {
                libc::signal(libc::SIGTTOU, libc::SIG_DFL);
            }
            passed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IsTerminal, Read, Write};

    #[test]
    fn bytes_pass_unchanged_through_a_pseudo_terminal_of_the_same_size() {
        let outer = Pty::open(std::io::stdin().as_fd()).unwrap();
        let size = libc::winsize { ws_row: 24, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: `size` outlives the call.
        assert_eq!(unsafe { libc::ioctl(outer.controller.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
        let mut inner = Pty::open(outer.replica.as_fd()).unwrap();
        assert!(inner.replica.is_terminal());
        let mut found = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ioctl(inner.replica.as_raw_fd(), libc::TIOCGWINSZ, &mut found) }, 0);
        assert_eq!((found.ws_row, found.ws_col), (24, 77));
        File::from(inner.replica).write_all(b"a\nb\rc\t\x1b[0m\n").unwrap();
        let mut bytes = [0; 64];
        let count = inner.controller.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"a\nb\rc\t\x1b[0m\n");
        assert!(is_same(outer.replica.as_fd(), outer.replica.as_fd()));
    }
}
