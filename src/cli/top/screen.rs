//! Full screen of `xrun top`, which is left whatever happens.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Escape sequences of the alternate screen, without cursor and line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Period at which signals and the size are polled.
const POLL_EVERY: Duration = Duration::from_millis(100);
const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Columns and rows of a terminal whose size is unknown.
const SIZE_UNKNOWN: (usize, usize) = (80, 24);

/// Alternate screen of stdout; its drop, also by a panic, returns to the other one.
struct Screen;

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be closed.
        let _ = write(LEAVE);
    }
}

/// Draws the lines that `render` returns for a number of columns, until a signal ends it. Returns whether that was Ctrl-C.
///
/// # Errors
/// The terminal cannot be written to.
pub fn show(every: Duration, mut render: impl FnMut(usize) -> Vec<String>) -> io::Result<bool> {
    let ended = Arc::new(AtomicUsize::new(0));
    for signal in SIGNALS {
        signal_hook::flag::register_usize(signal, ended.clone(), signal as usize)?;
    }
    let _screen = Screen;
    write(ENTER)?;
    loop {
        let size = size();
        write(&frame(&render(size.0), size))?;
        let drawn = Instant::now();
        while drawn.elapsed() < every && self::size() == size {
            match ended.load(Relaxed) {
                0 => std::thread::sleep(POLL_EVERY),
                signal => return Ok(signal == SIGINT as usize),
            }
        }
    }
}

/// Escape sequences and text of a frame: the first lines, and the help line at the bottom.
fn frame(lines: &[String], (width, height): (usize, usize)) -> String {
    let mut text = String::from(HOME);
    let shown = height.saturating_sub(1).min(lines.len());
    for (number, line) in lines[..shown].iter().enumerate() {
        let (start, end) = if number == 0 { (BOLD, PLAIN) } else { ("", "") };
        // Erased first: behind a full line the cursor is on its last character.
        let _ = write!(text, "{REST_OF_LINE}{start}{line}{end}\r\n");
    }
    text.push_str(REST_OF_SCREEN);
    let help = match lines.len() - shown {
        0 => "Ctrl-C: quit".to_owned(),
        below => format!("Ctrl-C: quit ({below} more lines; --once prints all)"),
    };
    let help: String = help.chars().take(width).collect();
    // Without a line break, which would scroll.
    let _ = write!(text, "\x1b[{height};1H{REST_OF_LINE}{help}");
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_screen_and_counts_the_hidden_lines() {
        let lines: Vec<String> = (0..10).map(|number| format!("line {number}")).collect();
        let text = frame(&lines, (80, 5));
        assert_eq!(text.matches("\r\n").count(), 4, "the help line is the fifth");
        assert!(text.contains("line 3") && !text.contains("line 4") && text.contains("6 more lines"), "{text}");
        assert!(frame(&lines, (80, 20)).contains("line 9") && !frame(&lines, (80, 20)).contains("more lines"));
        assert!(!frame(&lines, (6, 1)).contains("quit"), "no room");
        let full = frame(&["a full line".to_owned()], (11, 2));
        let drawn = full.split("\r\n").next().unwrap();
        assert!(drawn.find(REST_OF_LINE) < drawn.find("a full line"), "{drawn:?}: nothing is erased behind it");
    }
}
