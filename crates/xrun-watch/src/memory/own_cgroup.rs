//! A memory cgroup of one's own for a command, below that of this process, where the system allows one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::cgroup::Cgroup;

/// Processes are moved into a group by this file of it.
const PROCESSES: &str = "cgroup.procs";
/// What a group of version 2 lets those below it have.
const GIVEN_BELOW: &str = "cgroup.subtree_control";
const NAME: &str = "xrun-";

/// A cgroup for a command. It is taken away again when it is dropped, if nobody is left in it.
#[derive(Debug)]
pub struct OwnCgroup {
    cgroup: Cgroup,
    /// Says to others that its xrun lives, also to those that do not see this process.
    _held: Option<File>,
    /// Where this process went, so that its group could give memory to those below it; version 2 gives none from a group that
    /// has processes.
    aside: Option<Cgroup>,
    parent: Cgroup,
    limited: bool,
}

impl OwnCgroup {
    /// Makes one. With a limit its processes hold so many bytes at most: beyond that the kernel kills one of them.
    ///
    /// # Errors
    /// Why this system does not allow it.
    pub fn new(limit: Option<u64>) -> Result<Self, String> {
        let parent = Cgroup::of_self().ok_or("there is no memory cgroup here")?;
        remove_left(&parent.folder);
        let cgroup = parent.below(&format!("{NAME}{}", std::process::id()));
        fs::create_dir(&cgroup.folder).map_err(|error| format!("{}: {error}", cgroup.folder.display()))?;
        let lock = held(&cgroup.folder);
        let mut made = Self { cgroup, _held: lock, aside: None, parent, limited: limit.is_some() };
        if !made.cgroup.folder.join(made.cgroup.files.limit).is_file() {
            made.step_aside()?;
        }
        let Cgroup { folder, files, .. } = &made.cgroup;
        if !folder.join(files.limit).is_file() {
            return Err(format!("{}: memory is not delegated to it", folder.display()));
        }
        if let Some(bytes) = limit {
            set(&folder.join(files.limit), bytes)?;
            // Where the kernel does not limit swap, memory of the group may go there.
            let (swap, with_memory) = files.swap_limit;
            let _ = set(&folder.join(swap), if with_memory { bytes } else { 0 });
        }
        Ok(made)
    }

    /// Has this process leave its group for one below, as long as it is alone there, so that the group can give memory to those
    /// below it.
    fn step_aside(&mut self) -> Result<(), String> {
        let folder = &self.parent.folder;
        let own = std::process::id();
        let processes = fs::read_to_string(folder.join(PROCESSES)).unwrap_or_default();
        if processes.trim() != own.to_string() {
            return Err(format!("{}: other processes are in it, and memory is not delegated", folder.display()));
        }
        let aside = self.parent.below(&format!("{NAME}{own}-itself"));
        fs::create_dir(&aside.folder).map_err(|error| format!("{}: {error}", aside.folder.display()))?;
        self.aside = Some(aside.clone());
        set(&aside.folder.join(PROCESSES), own)?;
        set(&folder.join(GIVEN_BELOW), "+memory")
    }

    /// Whether the command may begin outside of it, since nothing is to be limited.
    pub fn is_optional(&self) -> bool {
        !self.limited
    }

    /// The group whose memory the command must fit into: itself where it has the limit, else the one that this process was in.
    fn container(&self, limited: bool) -> &Cgroup {
        if limited { &self.cgroup } else { &self.parent }
    }

    /// A process that writes `0` here moves itself, and all that it starts, into the group.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn door(&self) -> io::Result<File> {
        File::options().write(true).open(self.cgroup.folder.join(PROCESSES))
    }
}

/// Where a command's memory is charged.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// What the command must fit into, with all else that is in it.
    pub container: Option<Cgroup>,
    /// The command's own, where it has one.
    pub own: Option<Cgroup>,
}

impl Cgroups {
    /// Those of a command that is run; `limited` says that its own group has the limit.
    pub fn of_command(own: Option<&OwnCgroup>, limited: bool) -> Self {
        let Some(group) = own else { return Self::of_self() };
        Self { container: Some(group.container(limited).clone()), own: Some(group.cgroup.clone()) }
    }

    /// That of this process, which is taken to be the one of others, too.
    pub fn of_self() -> Self {
        Self { container: Cgroup::of_self(), own: None }
    }

    /// The one that says most of the command alone.
    pub fn nearest(&self) -> Option<&Cgroup> {
        self.own.as_ref().or(self.container.as_ref())
    }

    /// Processes that the kernel killed there for want of memory.
    pub fn oom_kills(&self) -> Option<u64> {
        self.nearest()?.oom_kills()
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // One in which processes were left behind stays: they are still limited by it, as long as it has the memory.
        let removed = fs::remove_dir(&self.cgroup.folder).is_ok();
        if let Some(aside) = self.aside.as_ref().filter(|_| removed) {
            let _ = set(&self.parent.folder.join(GIVEN_BELOW), "-memory");
            let _ = set(&self.parent.folder.join(PROCESSES), std::process::id());
            let _ = fs::remove_dir(&aside.folder);
        }
    }
}

/// The folder of a group with a lock, which ends with this process; `None` where another one has it.
fn held(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.try_lock().is_ok().then_some(folder)
}

/// Takes away groups whose xrun was killed. The kernel removes none in which there are processes.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        let own = std::process::id();
        let alive = |process: u32| process != own && Path::new("/proc").join(process.to_string()).exists();
        // Its number says nothing of an xrun that this process does not see; its lock does.
        if process.is_some_and(|process| !alive(process)) && held(&entry.path()).is_some() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn set(path: &Path, value: impl std::fmt::Display) -> Result<(), String> {
    // In one write: the kernel takes each for a value.
    let text = value.to_string();
    let written = File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_whose_xrun_is_gone_are_taken_away_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        // No process has these numbers: the kernel gives none above 4,194,304.
        let (gone, seen_by_nobody) = (made("xrun-99999999"), made("xrun-99999998"));
        let (alive, foreign) = (made(&format!("xrun-{}", std::os::unix::process::parent_id())), made("other-99999999"));
        let with_processes = made("xrun-99999997");
        fs::create_dir(with_processes.join("below")).unwrap();
        let lock = held(&seen_by_nobody).unwrap();
        remove_left(parent.path());
        assert!(!gone.exists());
        assert!([&seen_by_nobody, &alive, &foreign, &with_processes].iter().all(|folder| folder.exists()));
        drop(lock);
        remove_left(parent.path());
        assert!(!seen_by_nobody.exists());
    }
}
