//! Full-screen terminal of `xrun top`, which is restored whatever happens.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Escape sequences of the alternate screen, without cursor and line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Period at which keys, signals and the size are polled.
const POLL_EVERY: Duration = Duration::from_millis(100);
const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Columns and rows of a terminal whose size is unknown.
const SIZE_UNKNOWN: (usize, usize) = (80, 24);

/// Reason why the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A key was pressed.
    Key,
    /// A signal arrived, or the terminal was closed.
    Signal,
}

/// Action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Up,
    Down,
    Other,
}

/// Terminal in full-screen mode. Its drop, also by a panic, restores the terminal.
#[derive(Debug)]
pub struct Screen {
    before: libc::termios,
    signalled: Arc<AtomicBool>,
    signal_ids: Vec<SigId>,
}

impl Screen {
    /// Enters full-screen mode on stdout, with keys from stdin.
    ///
    /// # Errors
    /// They are not a terminal.
    pub fn open() -> io::Result<Self> {
        let signalled = Arc::new(AtomicBool::new(false));
        let ids = SIGNALS.iter().map(|number| signal_hook::flag::register(*number, signalled.clone()));
        let signal_ids = ids.collect::<io::Result<Vec<SigId>>>()?;
        let before = settings()?;
        let mut keys = before;
        // Unbuffered keys without echo. Ctrl-C and Ctrl-Z are keys, because a suspended process could not restore the screen.
        keys.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        (keys.c_cc[libc::VMIN], keys.c_cc[libc::VTIME]) = (0, 0);
        // From here on, the drop restores the terminal.
        let screen = Self { before, signalled, signal_ids };
        set(&keys)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws the lines that `render` returns for a number of columns, until a key or a signal ends it.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn show(&mut self, every: Duration, mut render: impl FnMut(usize) -> Vec<String>) -> io::Result<Exit> {
        let mut top = 0;
        let mut rendered: Option<(Instant, (usize, usize), Vec<String>)> = None;
        loop {
            let size = size();
            let due = rendered.as_ref().is_none_or(|(at, before, _)| at.elapsed() >= every || *before != size);
            if due {
                let lines = render(size.0);
                top = top.min(last_top(&lines, size.1));
                write(&frame(&lines, size, top))?;
                rendered = Some((Instant::now(), size, lines));
            }
            if self.signalled.load(Relaxed) {
                return Ok(Exit::Signal);
            }
            let Some(keys) = poll_keys(POLL_EVERY)? else { return Ok(Exit::Signal) };
            let lines = rendered.as_ref().map(|(_, _, lines)| lines.as_slice()).unwrap_or_default();
            let last_top = last_top(lines, size.1);
            for key in &keys {
                match key {
                    Key::Quit => return Ok(Exit::Key),
                    Key::Up => top = top.saturating_sub(1),
                    Key::Down => top = (top + 1).min(last_top),
                    Key::Other => {}
                }
            }
            if !keys.is_empty() {
                write(&frame(lines, size, top))?;
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may be closed.
        let _ = write(LEAVE);
        let _ = set(&self.before);
        for id in self.signal_ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Index of the first visible line when scrolled to the end. The last row is reserved for the help line.
fn last_top(lines: &[String], height: usize) -> usize {
    lines.len().saturating_sub(height.saturating_sub(1))
}

/// Escape sequences and text of a frame: the lines from `top` on that fit, and the help line at the bottom.
fn frame(lines: &[String], (width, height): (usize, usize), top: usize) -> String {
    let mut text = String::from(HOME);
    let shown = lines.iter().skip(top).take(height.saturating_sub(1));
    let count = shown.len();
    for (number, line) in shown.enumerate() {
        let (start, end) = if number == 0 && top == 0 { (BOLD, PLAIN) } else { ("", "") };
        let _ = write!(text, "{start}{line}{end}{REST_OF_LINE}\r\n");
    }
    text.push_str(REST_OF_SCREEN);
    let below = lines.len().saturating_sub(top + count);
    let help = match below + top {
        0 => "q: quit".to_owned(),
        _ => format!("q: quit, arrows: scroll ({top} lines above, {below} below)"),
    };
    let help: String = help.chars().take(width).collect();
    // Without a line break, which would scroll.
    let _ = write!(text, "\x1b[{height};1H{help}{REST_OF_LINE}");
    text
}

/// Waits for keys, at most `timeout`; `None` if stdin is closed.
fn poll_keys(timeout: Duration) -> io::Result<Option<Vec<Key>>> {
    let input = io::stdin().as_raw_fd();
    let mut wanted = libc::pollfd { fd: input, events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, which outlives the call.
    let ready = unsafe { libc::poll(&mut wanted, 1, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // The caller handles signals.
        return if error.kind() == io::ErrorKind::Interrupted { Ok(Some(Vec::new())) } else { Err(error) };
    }
    if ready == 0 {
        return Ok(Some(Vec::new()));
    }
    let mut bytes = [0_u8; 64];
    // SAFETY: the length is that of the buffer.
    let count = unsafe { libc::read(input, bytes.as_mut_ptr().cast(), bytes.len()) };
    match usize::try_from(count) {
        Ok(0) | Err(_) => Ok(None),
        Ok(count) => Ok(Some(parse_keys(&bytes[..count]))),
    }
}

/// Parses the bytes of a terminal. Keys without a character are escape sequences.
fn parse_keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        keys.push(match first {
            b'q' | b'Q' | 3 => Key::Quit,
            b'k' => Key::Up,
            b'j' => Key::Down,
            0x1b => match after {
                [b'[' | b'O', code, behind @ ..] => {
                    // A sequence ends with a letter or `~`.
                    let ends = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'~';
                    let end = after.iter().skip(1).position(ends).map_or(after.len(), |at| at + 2);
                    rest = after.get(end..).unwrap_or(behind);
                    match code {
                        b'A' => Key::Up,
                        b'B' => Key::Down,
                        _ => Key::Other,
                    }
                }
                [] => Key::Quit,
                _ => Key::Other,
            },
            _ => Key::Other,
        });
    }
    keys
}

/// Columns and rows of the terminal, at least one of each.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or(SIZE_UNKNOWN, |(width, height)| (usize::from(width.0).max(1), usize::from(height.0).max(1)))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn settings() -> io::Result<libc::termios> {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the buffer outlives the call and is read only if it was filled.
    unsafe {
        match libc::tcgetattr(io::stdin().as_raw_fd(), settings.as_mut_ptr()) {
            0 => Ok(settings.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the settings outlive the call.
    match unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSADRAIN, settings) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_key_differs_from_escape_sequences() {
        assert_eq!(parse_keys(b"q"), [Key::Quit]);
        assert_eq!(parse_keys(b"\x03"), [Key::Quit]);
        assert_eq!(parse_keys(b"\x1b"), [Key::Quit]);
        assert_eq!(parse_keys(b"\x1b[A\x1bOBj"), [Key::Up, Key::Down, Key::Down]);
        assert_eq!(parse_keys(b"\x1b[15~k"), [Key::Other, Key::Up]);
        assert_eq!(parse_keys(b"\x1b["), [Key::Other, Key::Other], "an incomplete sequence");
        assert_eq!(parse_keys(b"x"), [Key::Other]);
    }

    #[test]
    fn a_frame_fits_the_screen_and_counts_the_hidden_lines() {
        let lines: Vec<String> = (0..10).map(|number| format!("line {number}")).collect();
        let text = frame(&lines, (60, 5), 2);
        assert_eq!(text.matches("\r\n").count(), 4);
        assert!(text.contains("line 2") && text.contains("line 5") && !text.contains("line 6"), "{text:?}");
        let (_, help) = text.trim_end_matches(REST_OF_LINE).rsplit_once('H').unwrap();
        insta::assert_snapshot!(help, @"q: quit, arrows: scroll (2 lines above, 4 below)");
        assert!(frame(&lines, (60, 24), 0).contains("q: quit\x1b[K"));
        assert!(frame(&lines, (1, 1), 0).ends_with("q\x1b[K"));
    }
}
