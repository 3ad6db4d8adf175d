//! How does a command still see a terminal while its output is read? By one of ours, through which its bytes pass unchanged.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The two ends of a terminal of ours.
#[derive(Debug)]
pub struct Pair {
    /// What the command writes is read here.
    pub ours: File,
    /// What the command has for a terminal.
    pub theirs: OwnedFd,
}

/// A terminal of the size of another one.
///
/// # Errors
/// The system has no more of them.
pub fn pair(like: BorrowedFd<'_>) -> io::Result<Pair> {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both places live until the call returns; where it fails, nothing is opened.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, null, std::ptr::null(), std::ptr::null()) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were opened just now, and nobody else has them.
    let pair = unsafe { Pair { ours: File::from_raw_fd(ours), theirs: OwnedFd::from_raw_fd(theirs) } };
    for end in [pair.ours.as_raw_fd(), pair.theirs.as_raw_fd()] {
        // SAFETY: takes numbers. Other programs that are started must not hold it open.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    passes_unchanged(pair.theirs.as_fd())?;
    copy_size(like, pair.ours.as_fd());
    Ok(pair)
}

/// The terminal that people look at makes of a line break what it needs; ours adds nothing to it.
fn passes_unchanged(terminal: BorrowedFd<'_>) -> io::Result<()> {
    let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the place lives until the call returns, and is read only where it was filled.
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

/// Gives one terminal the size of another. The command is told by the system that its terminal has another size.
pub fn copy_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the place lives until both calls return. A terminal without a size leaves it as it is.
    unsafe {
        if libc::ioctl(from.as_raw_fd(), libc::TIOCGWINSZ, &mut size) == 0 {
            libc::ioctl(to.as_raw_fd(), libc::TIOCSWINSZ, &size);
        }
    }
}

/// Whether two are the same terminal: then what comes from both stays in its order.
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let device = |fd: BorrowedFd<'_>| {
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the place lives until the call returns, and is read only where it was filled.
        unsafe { (libc::fstat(fd.as_raw_fd(), found.as_mut_ptr()) == 0).then(|| found.assume_init().st_rdev) }
    };
    device(one).is_some() && device(one) == device(other)
}

/// A terminal of ours that has the size of the one that people look at.
#[derive(Debug)]
pub struct Mirror {
    pub shown: File,
    pub ours: File,
}

impl Mirror {
    /// To be called when the one that people look at may have another size.
    pub fn follow(&self) {
        copy_size(self.shown.as_fd(), self.ours.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IsTerminal, Read, Write};

    #[test]
    fn bytes_pass_unchanged_through_a_terminal_of_the_same_size() {
        let outer = pair(std::io::stdin().as_fd()).unwrap();
        let size = libc::winsize { ws_row: 24, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the place lives until the call returns.
        assert_eq!(unsafe { libc::ioctl(outer.ours.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
        let mut inner = pair(outer.theirs.as_fd()).unwrap();
        assert!(inner.theirs.is_terminal());
        let mut seen = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ioctl(inner.theirs.as_raw_fd(), libc::TIOCGWINSZ, &mut seen) }, 0);
        assert_eq!((seen.ws_row, seen.ws_col), (24, 77));
        File::from(inner.theirs).write_all(b"a\nb\rc\t\x1b[0m\n").unwrap();
        let mut bytes = [0; 64];
        let count = inner.ours.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"a\nb\rc\t\x1b[0m\n");
        assert!(is_same(outer.theirs.as_fd(), outer.theirs.as_fd()));
    }
}
