//! Tests of crash-safe writing: failures and kills.

use super::*;

#[test]
#[cfg(unix)]
fn a_symlink_in_place_of_a_directory_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let (directory, elsewhere) = (root.path().join("predictions"), root.path().join("elsewhere"));
    create_directory(&directory).unwrap();
    create_directory(&directory).unwrap();
    std::fs::remove_dir(&directory).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
    assert_eq!(create_directory(&directory).unwrap_err().source.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn a_file_is_replaced_without_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("summary.json");
    replace(&path, b"old").unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn appending_continues_after_the_last_complete_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    replace(&path, b"{\"step\":1}\n{\"st").unwrap();
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("{\"step\":2}".into()).unwrap();
    writer.flush().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
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
fn an_error_names_the_file_and_not_the_temporary_one() {
    let error = replace(Path::new("/no/such/directory/summary.json"), b"").unwrap_err();
    assert_eq!(error.path, Path::new("/no/such/directory/summary.json"));
    assert!(!error.to_string().contains(WRITING), "{error}");
}

#[test]
fn writing_to_a_removed_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/metrics.jsonl");
    std::fs::create_dir(directory.path().join("run")).unwrap();
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.sync().unwrap();
    std::fs::remove_dir_all(directory.path().join("run")).unwrap();
    assert_eq!(change(&writer.sync()), Some(FileChange::Removed));
    writer.line("2".into()).unwrap();
    assert_eq!(change(&writer.flush()), Some(FileChange::Removed));
}

fn change(written: &Result<(), WriteError>) -> Option<FileChange> {
    let error = written.as_ref().unwrap_err();
    assert!(error.is_change());
    error.source.get_ref()?.downcast_ref().copied()
}

#[test]
#[cfg(unix)]
fn writing_to_a_file_that_another_program_changed_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let written = |name: &str| {
        let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &at(name)).unwrap();
        writer.line("1".into()).unwrap();
        writer.sync().unwrap();
        writer
    };
    let mut writer = written("replaced");
    replace(&at("replaced"), b"1\n").unwrap();
    assert_eq!(change(&writer.sync()), Some(FileChange::Replaced), "with the same bytes");
    let mut writer = written("linked");
    std::fs::rename(at("linked"), at("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", at("linked")).unwrap();
    assert_eq!(change(&writer.sync()), Some(FileChange::Replaced));
    let mut writer = written("cut");
    OpenOptions::new().write(true).open(at("cut")).unwrap().set_len(0).unwrap();
    writer.line("2".into()).unwrap();
    assert_eq!(change(&writer.flush()), Some(FileChange::Resized { found: 2, own: 4 }));
    let mut writer = written("extended");
    OpenOptions::new().append(true).open(at("extended")).unwrap().write_all(b"2\n").unwrap();
    assert_eq!(change(&writer.sync()), Some(FileChange::Resized { found: 4, own: 2 }));
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

#[test]
fn only_temporary_files_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    for name in [".writing-abc123", "summary.json"] {
        replace(&directory.path().join(name), b"{}").unwrap();
    }
    remove_unfinished(directory.path()).unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["summary.json"]);
}
