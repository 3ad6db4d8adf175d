//! Files that are written whole or line by line: what do a failure and a kill leave?

use super::*;

#[test]
#[cfg(unix)]
fn a_folder_that_is_a_link_is_not_written_to() {
    let place = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (place.path().join("predictions"), place.path().join("elsewhere"));
    own_folder(&folder).unwrap();
    own_folder(&folder).unwrap();
    std::fs::remove_dir(&folder).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    assert!(own_folder(&folder).unwrap_err().to_string().contains("is a link"));
}

#[test]
fn a_file_is_replaced_as_a_whole_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    replace(&path, b"old").unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn appending_goes_on_behind_the_last_complete_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    replace(&path, b"{\"step\":1}\n{\"st").unwrap();
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("{\"step\":2}".into()).unwrap();
    writer.flush().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
}

/// Takes so many bytes, some at a time, and is full then.
struct Small {
    room: usize,
    bytes: Vec<u8>,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room).min(3);
        self.room -= taken;
        self.bytes.extend_from_slice(&bytes[..taken]);
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_write_that_fails_half_way_says_how_far_it_came() {
    for room in 0..12 {
        let mut small = Small { room, bytes: Vec::new() };
        let (count, written) = write_whole(&mut small, b"0123456789");
        assert_eq!((count, &small.bytes[..]), (room.min(10), &b"0123456789"[..room.min(10)]));
        assert_eq!(
            written.map_err(|error| error.kind()),
            if room < 10 { Err(io::ErrorKind::StorageFull) } else { Ok(()) }
        );
    }
}

#[test]
fn part_of_a_line_that_could_not_be_cut_off_is_cut_off_before_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.flush().unwrap();
    // As after a write of which a part arrived, and which could not be taken back.
    (&writer.file).write_all(b"2, and no mo").unwrap();
    writer.torn = Some(2);
    writer.line("3".into()).unwrap();
    writer.flush().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n3\n");
}

/// A file that takes no more writes: opened to be read.
#[test]
fn lines_that_are_lost_are_counted_and_those_after_them_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 2), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.flush().unwrap();
    let file = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
    for line in ["2", "3"] {
        writer.line(line.into()).unwrap();
    }
    assert!(writer.line("4".into()).unwrap_err().to_string().contains("metrics.jsonl"));
    assert_eq!(writer.lost(), 2, "the third waits");
    writer.file = file;
    writer.flush().unwrap();
    assert_eq!((writer.lost(), std::fs::read_to_string(&path).unwrap().as_str()), (2, "1\n4\n"));
}

#[test]
fn at_most_the_buffer_waits_to_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let ledger = Ledger::default();
    let mut writer = LineWriter::open(&ledger, &lines("metrics_lines", 4), &path).unwrap();
    for step in 0..11 {
        writer.line(format!("{step}")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 8);
    assert!(!ledger.read()[0].exceeded());
}

#[test]
fn a_file_written_in_pieces_takes_its_place_only_when_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("detections.json");
    replace(&path, b"old").unwrap();
    let mut file = Replacement::begin(&path, 4).unwrap();
    file.write(b"new, and longer than the buffer ").unwrap();
    file.write_json(&[1.5, 2.0]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    file.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new, and longer than the buffer [1.5,2.0]");
    Replacement::begin(&path, 4).unwrap().write(b"given up").unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 41);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn errors_name_the_file_and_not_the_temporary_one() {
    let error = replace(Path::new("/no/such/folder/summary.json"), b"").unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/summary.json"));
    assert!(!error.to_string().contains(WRITING), "{error}");
}

#[test]
fn a_file_that_was_removed_takes_no_more_lines_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/metrics.jsonl");
    std::fs::create_dir(folder.path().join("run")).unwrap();
    let mut writer = LineWriter::open(&Ledger::default(), &lines("metrics_lines", 4), &path).unwrap();
    writer.line("1".into()).unwrap();
    writer.sync().unwrap();
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    assert!(writer.sync().unwrap_err().to_string().contains("was removed"));
    writer.line("2".into()).unwrap();
    assert!(writer.flush().unwrap_err().to_string().contains("metrics.jsonl"));
}

#[test]
fn only_what_a_kill_left_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".writing-abc123", "summary.json"] {
        replace(&folder.path().join(name), b"{}").unwrap();
    }
    remove_unfinished(folder.path()).unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["summary.json"]);
}
