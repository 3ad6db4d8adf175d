//! Shared memory of a command that need not be mapped: files in `/dev/shm`, and files without a name (`memfd_create`).
//!
//! The kernel charges it to the cgroup of the command, where it has one of its own. Otherwise files count that one of its
//! processes has or had open or mapped, or that bear the id of one in their names: those of a neighbour never do.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;

use super::cgroup::Cgroup;

/// Directory of POSIX shared memory.
pub const DIRECTORY: &str = "/dev/shm";
/// Beginning of the targets of descriptors without a name.
const MEMFD: &str = "/memfd:";
/// Cap on the files and on the process ids that are remembered, and on the files that are counted.
const FILES_MAX: usize = 4096;
/// Cap on the descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// Device and inode of a file.
type FileId = (u64, u64);

/// Files of shared memory that belong to a command.
#[derive(Clone, Debug, Default)]
pub struct SharedFiles {
    /// Files in `/dev/shm` that one of its processes has or had open or mapped.
    known: BTreeSet<FileId>,
    /// Files of others, as of the last look at what is mapped.
    others: BTreeSet<FileId>,
    /// Ids that its processes have or had.
    processes: BTreeSet<u32>,
}

impl SharedFiles {
    /// Bytes of the shared memory of a command with these processes, mapped or not; `None` where nothing can be read.
    pub fn bytes(&mut self, processes: &[u32], own: Option<&Cgroup>) -> Option<u64> {
        if let Some(charged) = own.filter(|own| own.has_processes()).and_then(Cgroup::shared) {
            return Some(charged);
        }
        let mut counted = BTreeSet::new();
        let mut bytes = 0;
        let mut count = |file: &Metadata| {
            if counted.len() < FILES_MAX && counted.insert(id(file)) {
                bytes += file.blocks() * 512;
            }
        };
        for file in processes.iter().flat_map(|process| open_files(*process)) {
            self.remember(id(&file));
            count(&file);
        }
        let room = FILES_MAX.saturating_sub(self.processes.len());
        self.processes.extend(processes.iter().take(room));
        let entries = fs::read_dir(DIRECTORY).ok()?.flatten().take(FILES_MAX);
        let listed: Vec<(String, Metadata)> = entries
            .filter_map(|entry| Some((entry.file_name().to_string_lossy().into_owned(), entry.metadata().ok()?)))
            .filter(|(_, file)| file.is_file())
            .collect();
        self.look_at_mapped(processes, &listed);
        for (_, file) in listed.iter().filter(|(name, file)| self.known.contains(&id(file)) || self.names_process(name))
        {
            count(file);
        }
        // A later file may have the inode of one that is gone.
        let listed: BTreeSet<FileId> = listed.iter().map(|(_, file)| id(file)).collect();
        self.known.retain(|file| listed.contains(file));
        self.others.retain(|file| listed.contains(file));
        Some(bytes)
    }

    /// Remembers files that are mapped, once there are files that nobody is known to have.
    fn look_at_mapped(&mut self, processes: &[u32], listed: &[(String, Metadata)]) {
        let known = |file: &FileId| self.known.contains(file) || self.others.contains(file);
        let unknown: Vec<FileId> = listed.iter().map(|(_, file)| id(file)).filter(|file| !known(file)).collect();
        if unknown.is_empty() {
            return;
        }
        let inodes: BTreeSet<u64> = processes.iter().flat_map(|process| mapped_inodes(*process)).collect();
        for file in unknown {
            match inodes.contains(&file.1) {
                true => self.remember(file),
                false => drop(self.others.insert(file)),
            }
        }
    }

    fn remember(&mut self, file: FileId) {
        self.others.remove(&file);
        if self.known.len() < FILES_MAX {
            self.known.insert(file);
        }
    }

    /// Returns whether a name has the id of a process in it, as those of PyTorch: `torch_4711_1234_0`.
    fn names_process(&self, name: &str) -> bool {
        let numbers = name.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).any(|number| self.processes.contains(&number))
    }
}

fn id(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

/// Files of shared memory that a process has open, deleted ones included.
fn open_files(process: u32) -> Vec<Metadata> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let is_shared = |target: &str| target.starts_with(MEMFD) || target.starts_with("/dev/shm/");
    let paths = entries.map(|entry| entry.path());
    let shared = paths.filter(|path| fs::read_link(path).is_ok_and(|target| target.to_str().is_some_and(is_shared)));
    shared.filter_map(|path| fs::metadata(path).ok()).filter(Metadata::is_file).collect()
}

/// Inodes of the files in `/dev/shm` that a process has mapped.
fn mapped_inodes(process: u32) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let shared = maps.lines().filter(|line| line.contains("/dev/shm/"));
    shared.filter_map(|line| line.split_ascii_whitespace().nth(4)?.parse().ok()).take(FILES_MAX).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    const MIB: u64 = 1 << 20;

    /// Both tests count what this process has open.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn files_that_the_command_opened_count_and_those_of_neighbours_do_not() {
        let _alone = ALONE.lock();
        let processes = [std::process::id()];
        let mut shared = SharedFiles::default();
        let path = |name: &str| std::path::Path::new(DIRECTORY).join(format!("xrun-test-{name}"));
        let path = path(&format!("{:x}", u64::from(processes[0]) << 8 | 0xa));
        let before = shared.bytes(&processes, None).unwrap();
        // A neighbour's: nobody of ours has it open.
        xrun_core::files::write::replace(&path, &vec![1; 3 * MIB as usize]).unwrap();
        let beside = shared.bytes(&processes, None).unwrap();
        let opened = fs::File::open(&path).unwrap();
        let open = shared.bytes(&processes, None).unwrap();
        drop(opened);
        let closed = shared.bytes(&processes, None).unwrap();
        fs::remove_file(&path).unwrap();
        let removed = shared.bytes(&processes, None).unwrap();
        assert_eq!([beside, open, closed, removed].map(|bytes| bytes - before), [0, 3 * MIB, 3 * MIB, 0]);
    }

    #[test]
    fn files_without_a_name_count_while_they_are_open() {
        let _alone = ALONE.lock();
        // SAFETY: the name ends with a zero.
        let descriptor = unsafe { libc::memfd_create(c"xrun-test".as_ptr(), 0) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor is ours, and open.
        let mut file = unsafe { fs::File::from_raw_fd(descriptor) };
        file.write_all(&vec![1; 5 * MIB as usize]).unwrap();
        let found: Vec<u64> = open_files(std::process::id()).iter().map(|file| file.blocks() * 512).collect();
        assert!(found.contains(&(5 * MIB)), "{found:?}");
        drop(file);
    }

    #[test]
    fn a_file_with_the_id_of_a_process_in_its_name_is_its() {
        let shared = SharedFiles { processes: [4711].into(), ..SharedFiles::default() };
        assert!(shared.names_process("torch_4711_1234_0") && !shared.names_process("torch_47110_1"));
    }
}
