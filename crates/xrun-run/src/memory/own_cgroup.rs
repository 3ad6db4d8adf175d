//! Separate memory cgroup for a command, below that of this process, where the system allows one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::cgroup::Cgroup;

/// File that lists the processes of a group, and moves one into it.
const PROCESSES: &str = "cgroup.procs";
/// File with the controllers that a group of version 2 delegates to its children.
const DELEGATED: &str = "cgroup.subtree_control";
/// Prefix of the names of such groups.
const NAME: &str = "xrun-";

/// Cgroup of a command. Removed when dropped, unless processes are left in it.
#[derive(Debug)]
pub struct OwnCgroup {
    cgroup: Cgroup,
    /// Lock that shows to other processes, also in other containers, that this process is alive.
    _lock: Option<File>,
    /// Group that this process moved to: version 2 delegates memory only from a group without processes.
    moved_to: Option<Cgroup>,
    parent: Cgroup,
    limited: bool,
}

impl OwnCgroup {
    /// Creates a cgroup. Beyond the `limit` in bytes the kernel kills one of its processes.
    ///
    /// # Errors
    /// Reason why the system does not allow it.
    pub fn new(limit: Option<u64>) -> Result<Self, String> {
        let parent = Cgroup::of_self().ok_or("there is no memory cgroup here")?;
        remove_stale(&parent.directory);
        let cgroup = parent.below(&format!("{NAME}{}", std::process::id()));
        fs::create_dir(&cgroup.directory).map_err(|error| format!("{}: {error}", cgroup.directory.display()))?;
        let lock = lock(&cgroup.directory);
        let mut own = Self { cgroup, _lock: lock, moved_to: None, parent, limited: limit.is_some() };
        if !own.cgroup.directory.join(own.cgroup.files.limit).is_file() {
            own.delegate_memory()?;
        }
        let Cgroup { directory, files, .. } = &own.cgroup;
        if !directory.join(files.limit).is_file() {
            return Err(format!("{}: memory is not delegated to it", directory.display()));
        }
        if let Some(bytes) = limit {
            set(&directory.join(files.limit), bytes)?;
            // Not every kernel limits swap.
            let (swap, with_memory) = files.swap_limit;
            let _ = set(&directory.join(swap), if with_memory { bytes } else { 0 });
        }
        Ok(own)
    }

    /// Moves this process from its group into a new one below it, if it is alone there, and delegates memory from the group.
    fn delegate_memory(&mut self) -> Result<(), String> {
        let directory = &self.parent.directory;
        let own = std::process::id();
        let processes = fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
        if processes.trim() != own.to_string() {
            return Err(format!("{}: it has other processes, and memory is not delegated", directory.display()));
        }
        let subgroup = self.parent.below(&format!("{NAME}{own}-itself"));
        fs::create_dir(&subgroup.directory).map_err(|error| format!("{}: {error}", subgroup.directory.display()))?;
        self.moved_to = Some(subgroup.clone());
        set(&subgroup.directory.join(PROCESSES), own)?;
        set(&directory.join(DELEGATED), "+memory")
    }

    /// Returns whether the command may run outside of it, because it has no limit.
    pub fn is_optional(&self) -> bool {
        !self.limited
    }

    /// Group whose limit applies to the command: this one if `limited`, otherwise its parent.
    fn container(&self, limited: bool) -> &Cgroup {
        if limited { &self.cgroup } else { &self.parent }
    }

    /// Opens the file through which a process moves itself and its later children into the group, by writing `0`.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn open_procs(&self) -> io::Result<File> {
        File::options().write(true).open(self.cgroup.directory.join(PROCESSES))
    }
}

/// Cgroups that a command's memory is charged to.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// Group whose limit applies to the command, together with its other processes.
    pub container: Option<Cgroup>,
    /// Group of the command alone, where it has one.
    pub own: Option<Cgroup>,
}

impl Cgroups {
    /// Cgroups of a command; `limited` says that its own group has the limit.
    pub fn of_command(own: Option<&OwnCgroup>, limited: bool) -> Self {
        let Some(group) = own else { return Self::of_self() };
        Self { container: Some(group.container(limited).clone()), own: Some(group.cgroup.clone()) }
    }

    /// Cgroup of this process, which is assumed to be that of the observed process, too.
    pub fn of_self() -> Self {
        Self { container: Cgroup::of_self(), own: None }
    }

    /// Smallest group that contains the command.
    pub fn nearest(&self) -> Option<&Cgroup> {
        self.own.as_ref().or(self.container.as_ref())
    }

    /// OOM kills in the smallest group that contains the command.
    pub fn oom_kills(&self) -> Option<u64> {
        self.nearest()?.oom_kills()
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // A group with processes left in it stays, and still limits them.
        let removed = fs::remove_dir(&self.cgroup.directory).is_ok();
        if let Some(moved_to) = self.moved_to.as_ref().filter(|_| removed) {
            let _ = set(&self.parent.directory.join(DELEGATED), "-memory");
            let _ = set(&self.parent.directory.join(PROCESSES), std::process::id());
            let _ = fs::remove_dir(&moved_to.directory);
        }
    }
}

/// Locks the directory of a group until the file is closed; `None` where another process has the lock.
fn lock(directory: &Path) -> Option<File> {
    let directory = File::open(directory).ok()?;
    directory.try_lock().is_ok().then_some(directory)
}

/// Removes groups whose xrun was killed. The kernel keeps those with processes.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        let own = std::process::id();
        let alive = |process: u32| process != own && Path::new("/proc").join(process.to_string()).exists();
        // A process in another container is not visible by its id, but by its lock.
        if process.is_some_and(|process| !alive(process)) && lock(&entry.path()).is_some() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn set(path: &Path, value: impl std::fmt::Display) -> Result<(), String> {
    // In one write, because the kernel parses each write as a value.
    let text = value.to_string();
    let written = File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_a_live_xrun_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let directory = parent.path().join(name);
            fs::create_dir(&directory).unwrap();
            directory
        };
        // No process has these ids: the kernel assigns none above 4,194,304.
        let (gone, in_other_container) = (create("xrun-99999999"), create("xrun-99999998"));
        let (alive, foreign) =
            (create(&format!("xrun-{}", std::os::unix::process::parent_id())), create("other-99999999"));
        let with_processes = create("xrun-99999997");
        fs::create_dir(with_processes.join("below")).unwrap();
        let lock = lock(&in_other_container).unwrap();
        remove_stale(parent.path());
        assert!(!gone.exists());
        assert!([&in_other_container, &alive, &foreign, &with_processes].iter().all(|directory| directory.exists()));
        drop(lock);
        // A process that another test starts has the lock until it runs its program.
        let begun = std::time::Instant::now();
        while in_other_container.exists() && begun.elapsed() < std::time::Duration::from_secs(20) {
            remove_stale(parent.path());
            std::thread::yield_now();
        }
        assert!(!in_other_container.exists());
    }
}
