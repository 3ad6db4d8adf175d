//! Tests of crash-safe writing: failures and kills.

use super::*;

#[test]
fn a_file_is_replaced_without_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("summary.json");
    replace(&path, b"old").unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Writer with space for a few bytes, which takes at most three at a time.
struct AlmostFull {
    free: usize,
    bytes: Vec<u8>,
}

impl Write for AlmostFull {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.free).min(3);
        self.free -= taken;
        self.bytes.extend_from_slice(&bytes[..taken]);
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_returns_the_number_of_bytes_written() {
    for free in 0..12 {
        let mut disk = AlmostFull { free, bytes: Vec::new() };
        let (count, written) = write_whole(&mut disk, b"0123456789");
        assert_eq!((count, &disk.bytes[..]), (free.min(10), &b"0123456789"[..free.min(10)]));
        assert_eq!(
            written.map_err(|error| error.kind()),
            if free < 10 { Err(io::ErrorKind::StorageFull) } else { Ok(()) }
        );
    }
}

#[test]
fn a_partial_line_is_truncated_before_the_next_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.flush().unwrap();
    // The state after a partial write that could not be truncated.
    (&writer.file).write_all(b"2, and no mo").unwrap();
    writer.torn = 12;
    writer.line("3".into()).unwrap();
    writer.flush().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n3\n");
}

#[test]
fn lost_lines_are_counted_and_later_ones_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 2), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.flush().unwrap();
    // A file opened for reading rejects writes.
    let file = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
    for line in ["2", "3"] {
        writer.line(line.into()).unwrap();
    }
    assert_eq!(writer.line("4".into()).unwrap_err().path, path);
    assert_eq!(writer.lost(), 2, "the third is buffered");
    writer.file = file;
    writer.flush().unwrap();
    assert_eq!((writer.lost(), std::fs::read_to_string(&path).unwrap().as_str()), (2, "1\n4\n"));
}

#[test]
fn the_writer_buffers_at_most_its_cap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    let ledger = Ledger::default();
    let mut writer = LineWriter::open(&ledger, &lines("metrics_lines", 4), &path).unwrap();
    for step in 0..11 {
        writer.line(format!("{step}")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 8);
    assert!(!ledger.read()[0].exceeds_cap());
}

#[test]
fn a_replacement_takes_effect_when_it_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("detections.json");
    replace(&path, b"old").unwrap();
    let mut file = Replacement::begin(&path, 4).unwrap();
    file.write(b"new, and longer than the buffer ").unwrap();
    file.write_json(&[1.5, 2.0]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    file.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new, and longer than the buffer [1.5,2.0]");
    Replacement::begin(&path, 4).unwrap().write(b"given up").unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 41);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn the_sum_of_a_writer_is_that_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    replace(&path, b"1\n2\n3, and no mo").unwrap();
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    let sum = |writer: &LineWriter| {
        assert_eq!(LineSum::read(File::open(&path).unwrap()).unwrap().0, writer.sum());
        writer.sum().lines
    };
    assert_eq!(sum(&writer), 2);
    (3..12).for_each(|line| writer.line(line.to_string()).unwrap());
    writer.flush().unwrap();
    assert_eq!(sum(&writer), 11);
    writer.rewrite(|line| (line == "5").then(|| "{\"five\":5}".into())).unwrap();
    assert_eq!(sum(&writer), 11);
    writer.keep_first_lines(|line| line != "7").unwrap();
    assert_eq!(sum(&writer), 6);
    writer.line("8".into()).unwrap();
    writer.sync().unwrap();
    assert_eq!(sum(&writer), 7);
}
