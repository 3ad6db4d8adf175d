//! Copying of a command's output, unchanged, while its lines are read.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::steps::Steps;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};

/// Cap on a line; of a longer one only the beginning is read.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// Buffer of the output: a block and a line of each of its two streams.
pub fn buffer() -> Buffer {
    let cap = Cap { items: 2, bytes: 2 * (LINE_BYTES_MAX + BLOCK_BYTES) as u64 };
    Buffer::new("command_output", Policy::Block, cap).because("the command waits until its output is read")
}

/// Splitter of bytes into lines. The carriage return of a progress bar ends a line, too.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Adds bytes, and calls `read` with each line that they complete.
    pub fn add(&mut self, bytes: &[u8], mut read: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.append(&rest[..at]);
            self.end(&mut read);
            rest = &rest[at + 1..];
        }
        self.append(rest);
    }

    /// Calls `read` with the unfinished line, if there is one.
    pub fn end(&mut self, mut read: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            read(&self.line);
        }
        self.line.clear();
    }

    fn append(&mut self, bytes: &[u8]) {
        let remaining = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(remaining)]);
    }
}

/// Copies output to its end on a separate thread. If the reader of our output closes it, the command's next write fails,
/// as it would without us.
///
/// # Errors
/// The thread cannot be started.
pub fn spawn_copy(
    mut from: impl Read + Send + 'static,
    mut to: File,
    steps: Arc<Steps>,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let mut lines = Lines::default();
        let mut block = vec![0; BLOCK_BYTES];
        let mut shown = true;
        loop {
            let count = match from.read(&mut block) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            match to.write_all(&block[..count]).map_err(|error| error.raw_os_error()) {
                Err(_) if !shown => {}
                // The terminal has closed. A command that saves on SIGHUP must not fail when it writes a message.
                Err(Some(libc::EIO)) => shown = false,
                Err(_) => break,
                Ok(()) => {}
            }
            steps.set_within_line(block[..count].last() != Some(&b'\n'));
            lines.add(&block[..count], |line| steps.read_output(line));
        }
        lines.end(|line| steps.read_output(line));
    };
    std::thread::Builder::new().name("xrun output".into()).spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_line_breaks_and_carriage_returns_and_are_cut_when_long() {
        let mut lines = Lines::default();
        let mut found: Vec<Vec<u8>> = Vec::new();
        for piece in [&b"on"[..], b"e\rtwo\r\n", b"\n", b"thr"] {
            lines.add(piece, |line| found.push(line.to_vec()));
        }
        lines.add(&vec![b'x'; 1 << 20], |line| found.push(line.to_vec()));
        lines.end(|line| found.push(line.to_vec()));
        assert_eq!(found[..2], [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!((found.len(), found[2].len()), (3, LINE_BYTES_MAX));
        assert!(lines.line.capacity() <= 2 * LINE_BYTES_MAX);
    }
}
