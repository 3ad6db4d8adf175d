//! How is a whole terminal drawn on, and left as it was whatever happens?

use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Another screen, without a cursor, on which nothing wraps.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// How soon a key, a signal or another size is noticed.
const PATIENCE: Duration = Duration::from_millis(100);
const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Of a terminal that does not tell.
const SIZE_UNKNOWN: (usize, usize) = (80, 24);

/// Why it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By a key.
    Asked,
    /// By a signal, or the terminal is gone.
    Signal,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Leave,
    Up,
    Down,
    Other,
}

/// A terminal that is drawn on as a whole. Dropped, also by a panic, it is as before.
#[derive(Debug)]
pub struct Screen {
    before: libc::termios,
    asked: Arc<AtomicBool>,
    heard_by: Vec<SigId>,
}

impl Screen {
    /// Takes standard input for keys, and standard output to draw on.
    ///
    /// # Errors
    /// They are no terminal.
    pub fn open() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let heard = SIGNALS.iter().map(|number| signal_hook::flag::register(*number, asked.clone()));
        let heard_by = heard.collect::<io::Result<Vec<SigId>>>()?;
        let before = settings()?;
        let mut keys = before;
        // Keys one by one, unseen; Ctrl-C and Ctrl-Z are keys, for a process that is stopped could not give the screen back.
        keys.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        (keys.c_cc[libc::VMIN], keys.c_cc[libc::VTIME]) = (0, 0);
        // From here on it is given back.
        let screen = Self { before, asked, heard_by };
        set(&keys)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws what `look` sees in a terminal of so many columns, until it is to be left.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn show(&mut self, every: Duration, mut look: impl FnMut(usize) -> Vec<String>) -> io::Result<Left> {
        let mut top = 0;
        let mut looked: Option<(Instant, (usize, usize), Vec<String>)> = None;
        loop {
            let size = size();
            let due = looked.as_ref().is_none_or(|(at, before, _)| at.elapsed() >= every || *before != size);
            if due {
                let lines = look(size.0);
                top = top.min(lowest(&lines, size.1));
                write(&drawn(&lines, size, top))?;
                looked = Some((Instant::now(), size, lines));
            }
            if self.asked.load(Relaxed) {
                return Ok(Left::Signal);
            }
            let Some(keys) = keys(PATIENCE)? else { return Ok(Left::Signal) };
            let lines = looked.as_ref().map(|(_, _, lines)| lines.as_slice()).unwrap_or_default();
            let lowest = lowest(lines, size.1);
            for key in &keys {
                match key {
                    Key::Leave => return Ok(Left::Asked),
                    Key::Up => top = top.saturating_sub(1),
                    Key::Down => top = (top + 1).min(lowest),
                    Key::Other => {}
                }
            }
            if !keys.is_empty() {
                write(&drawn(lines, size, top))?;
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(LEAVE);
        let _ = set(&self.before);
        for id in self.heard_by.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// The first line of the lowest view: its last line is left for what keys there are.
fn lowest(lines: &[String], height: usize) -> usize {
    lines.len().saturating_sub(height.saturating_sub(1))
}

/// The lines from `top` on that fit, and at the bottom what keys there are.
fn drawn(lines: &[String], (width, height): (usize, usize), top: usize) -> String {
    let room = height.saturating_sub(1);
    let mut text = String::from(HOME);
    let shown = lines.iter().skip(top).take(room);
    let count = shown.len();
    for (number, line) in shown.enumerate() {
        let (start, end) = if number == 0 && top == 0 { (BOLD, PLAIN) } else { ("", "") };
        let _ = write!(text, "{start}{line}{end}{REST_OF_LINE}\r\n");
    }
    text.push_str(REST_OF_SCREEN);
    let below = lines.len().saturating_sub(top + count);
    let keys = match below + top {
        0 => "q leaves".to_owned(),
        _ => format!("q leaves; {top} lines above, {below} below: arrows scroll"),
    };
    let keys: String = keys.chars().take(width).collect();
    // The last line stands at the bottom, without a line break that would scroll.
    let _ = write!(text, "\x1b[{height};1H{keys}{REST_OF_LINE}");
    text
}

/// What was typed, within so much time; `None` where nothing can be typed any more.
fn keys(patience: Duration) -> io::Result<Option<Vec<Key>>> {
    let input = io::stdin().as_raw_fd();
    let mut wanted = libc::pollfd { fd: input, events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one place, which lives until the call returns.
    let ready = unsafe { libc::poll(&mut wanted, 1, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // A signal: whoever called looks at it.
        return if error.kind() == io::ErrorKind::Interrupted { Ok(Some(Vec::new())) } else { Err(error) };
    }
    if ready == 0 {
        return Ok(Some(Vec::new()));
    }
    let mut bytes = [0_u8; 64];
    // SAFETY: as many bytes as there is room for.
    let count = unsafe { libc::read(input, bytes.as_mut_ptr().cast(), bytes.len()) };
    match usize::try_from(count) {
        Ok(0) | Err(_) => Ok(None),
        Ok(count) => Ok(Some(meant(&bytes[..count]))),
    }
}

/// What bytes of a terminal mean. A key that has no character comes as several bytes at once, behind that of Esc.
fn meant(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        keys.push(match first {
            b'q' | b'Q' | 3 => Key::Leave,
            b'k' => Key::Up,
            b'j' => Key::Down,
            0x1b => match after {
                [b'[' | b'O', code, behind @ ..] => {
                    // Numbers end with a letter or `~`.
                    let ends = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'~';
                    let end = after.iter().skip(1).position(ends).map_or(after.len(), |at| at + 2);
                    rest = after.get(end..).unwrap_or(behind);
                    match code {
                        b'A' => Key::Up,
                        b'B' => Key::Down,
                        _ => Key::Other,
                    }
                }
                [] => Key::Leave,
                _ => Key::Other,
            },
            _ => Key::Other,
        });
    }
    keys
}

/// Columns and rows, at least one of each.
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
    // SAFETY: the place lives until the call returns, and is read only where it was filled.
    unsafe {
        match libc::tcgetattr(io::stdin().as_raw_fd(), settings.as_mut_ptr()) {
            0 => Ok(settings.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the place lives until the call returns.
    match unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSADRAIN, settings) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_leave_are_told_from_those_that_begin_with_the_same_byte() {
        assert_eq!(meant(b"q"), [Key::Leave]);
        assert_eq!(meant(b"\x03"), [Key::Leave]);
        assert_eq!(meant(b"\x1b"), [Key::Leave]);
        assert_eq!(meant(b"\x1b[A\x1bOBj"), [Key::Up, Key::Down, Key::Down]);
        assert_eq!(meant(b"\x1b[15~k"), [Key::Other, Key::Up]);
        assert_eq!(meant(b"\x1b["), [Key::Other, Key::Other], "the rest of it is still to come");
        assert_eq!(meant(b"x"), [Key::Other]);
    }

    #[test]
    fn a_frame_fits_the_screen_and_says_what_is_not_seen() {
        let lines: Vec<String> = (0..10).map(|number| format!("line {number}")).collect();
        let text = drawn(&lines, (60, 5), 2);
        assert_eq!(text.matches("\r\n").count(), 4);
        assert!(text.contains("line 2") && text.contains("line 5") && !text.contains("line 6"), "{text:?}");
        assert!(text.contains("2 lines above, 4 below"), "{text:?}");
        assert!(drawn(&lines, (60, 24), 0).contains("q leaves\x1b[K"));
        assert!(drawn(&lines, (1, 1), 0).ends_with("q\x1b[K"));
    }
}
