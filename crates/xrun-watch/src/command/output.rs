//! How does the output of a command pass through us, byte for byte, while its lines are read?

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::steps::Steps;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};

/// Of a longer line the beginning is looked at.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Is read at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// What is held of the output: a block and a line of each of its two streams.
pub fn buffer() -> Buffer {
    let cap = Cap { items: 2, bytes: 2 * (LINE_BYTES_MAX + BLOCK_BYTES) as u64 };
    Buffer::new("command_output", Policy::Block, cap).because("the command waits while its output is not taken")
}

/// Cuts bytes into lines. The carriage return of a progress bar ends a line, too.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Adds bytes, and hands each line that ends in them on.
    pub fn add(&mut self, bytes: &[u8], mut with: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.keep(&rest[..at]);
            self.end(&mut with);
            rest = &rest[at + 1..];
        }
        self.keep(rest);
    }

    /// What is left when there are no more bytes.
    pub fn end(&mut self, mut with: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            with(&self.line);
        }
        self.line.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Copies until the end, on a thread of its own. Where nobody takes the output any more the command is told as without
/// us: its next write fails.
///
/// # Errors
/// There is no thread to be had.
pub fn copy(mut from: impl Read + Send + 'static, mut to: File, steps: Arc<Steps>) -> std::io::Result<JoinHandle<()>> {
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
                // The terminal is gone. A command that was sent SIGHUP saves and says so, and must not fail in that.
                Err(Some(libc::EIO)) => shown = false,
                Err(_) => break,
                Ok(()) => {}
            }
            lines.add(&block[..count], |line| steps.output(line));
        }
        lines.end(|line| steps.output(line));
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
