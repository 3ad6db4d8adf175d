//! Remote execution (PEP 768): Python 3.14 and later makes another process of the same version execute a file.
//!
//! The executable of the process does so, in the root directory and the namespaces of the process, as only it knows its own
//! version's memory. The process executes the file in its main thread, between two lines of the program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xrun_core::printable;

const EXECUTE: &str = include_str!("agent/execute.py");
/// File without a line, which tests whether a process executes files, and replaces one that it has not executed yet.
pub const NOTHING: &str = "/dev/null";
/// Cap on the time of the executable.
const EXECUTE_MAX: Duration = Duration::from_secs(20);
/// Cap on the bytes of its answer.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Interval of looks whether it has ended.
const TICK: Duration = Duration::from_millis(5);
const START_INSTEAD: &str = "start it with `xrun watch --explain -- …` instead";

/// Reason why a running process cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("process {process} cannot be asked for the cause of growth: {reason}")]
pub struct RemoteError {
    process: u32,
    reason: String,
}

/// Running process of Python.
#[derive(Debug)]
pub struct RunningPython {
    process: u32,
    /// Path of its executable, as it sees it.
    executable: PathBuf,
    /// Its namespaces and root directory; `None` if they are ours.
    place: Option<Place>,
}

/// Namespaces and root directory of a process.
#[derive(Debug)]
struct Place {
    mounts: OwnedFd,
    /// `None` if it is ours.
    processes: Option<OwnedFd>,
    root: OwnedFd,
    /// Process id within its namespace.
    process: u32,
}

impl RunningPython {
    /// Finds the Python of a process of this user.
    ///
    /// # Errors
    /// It is not Python, or of another user, or cannot be read.
    pub fn find(process: u32) -> Result<Self, RemoteError> {
        let error = |reason: String| RemoteError { process, reason };
        let path = format!("/proc/{process}");
        let status = std::fs::read_to_string(format!("{path}/status"));
        let status = status.map_err(|source| error(format!("cannot read {path}/status: {source}")))?;
        // SAFETY: returns a number.
        let own = unsafe { libc::geteuid() };
        let users = numbers(&status, "Uid:");
        if let Some(other) = users.iter().find(|user| **user != own) {
            return Err(error(format!("it belongs to user {other}; run xrun as that user")));
        }
        let link = std::fs::read_link(format!("{path}/exe"));
        let link = link.map_err(|source| error(format!("cannot read {path}/exe: {source}; {START_INSTEAD}")))?;
        // The kernel says so of a program that was replaced while it runs.
        let link = link.into_os_string().into_vec();
        let link = link.strip_suffix(b" (deleted)").unwrap_or(&link).to_vec();
        let executable = PathBuf::from(OsString::from_vec(link));
        let name = executable.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("python") {
            let name = printable::line(&name, 100);
            return Err(error(format!("it runs `{name}`, not Python")));
        }
        let place = Place::find(process, &status).map_err(|source| {
            error(format!("cannot open its namespaces: {source}; run xrun in the container of the process"))
        })?;
        Ok(Self { process, executable, place })
    }

    /// Its root directory, by a path of ours; `None` if it is ours.
    pub fn root(&self) -> Option<PathBuf> {
        self.place.as_ref().map(|_| PathBuf::from(format!("/proc/{}/root", self.process)))
    }

    /// Makes the process execute a file at its next line. The path is one of the process.
    ///
    /// # Errors
    /// Python is older, or the process or the system forbids it.
    pub fn execute(&self, file: &Path) -> Result<(), RemoteError> {
        let error = |reason: String| RemoteError { process: self.process, reason };
        let process = self.place.as_ref().map_or(self.process, |place| place.process);
        let mut command = Command::new(format!("/proc/{process}/exe"));
        command.arg0(&self.executable).args(["-I", "-S", "-c", EXECUTE]).arg(process.to_string()).arg(file);
        command.current_dir("/").env_clear().envs(self.library_path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(place) = &self.place {
            place.enter(&mut command);
        }
        let output = output(command).map_err(|source| {
            let executable = printable::line(&self.executable.display().to_string(), 200);
            error(format!("cannot run its {executable}: {source}"))
        })?;
        let (word, reason) = output.split_once(' ').unwrap_or((&output, ""));
        let reason = printable::line(reason, 300);
        Err(error(match word {
            "done" => return Ok(()),
            "older" => format!(
                "it runs Python {reason}, and only Python 3.14 and later can be asked while it runs; {START_INSTEAD}"
            ),
            "forbidden" => format!(
                "the system does not let it be changed ({reason}{}); run xrun as root, or {START_INSTEAD}",
                ptrace_scope()
            ),
            "failed" => format!("{reason}{}; {START_INSTEAD}", self.disabled_by()),
            _ => format!("its Python says: {}", printable::line(&output, 300)),
        }))
    }

    /// Where its libraries are, which its executable may need.
    fn library_path(&self) -> Option<(&'static str, OsString)> {
        let name = "LD_LIBRARY_PATH";
        let all = std::fs::read(format!("/proc/{}/environ", self.process)).ok()?;
        let set = all.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some((name, OsString::from_vec(set.to_vec())))
    }

    /// Name of the setting by which the process forbids remote execution.
    fn disabled_by(&self) -> &'static str {
        let has = |file: &str, start: &str| {
            let all = std::fs::read(format!("/proc/{}/{file}", self.process)).unwrap_or_default();
            all.split(|byte| *byte == 0).any(|one| one.starts_with(start.as_bytes()))
        };
        match () {
            () if has("environ", "PYTHON_DISABLE_REMOTE_DEBUG=") => " (PYTHON_DISABLE_REMOTE_DEBUG is set)",
            () if has("cmdline", "disable-remote-debug") || has("cmdline", "-Xdisable-remote-debug") => {
                " (it was started with `-X disable-remote-debug`)"
            }
            () => "",
        }
    }
}

impl Place {
    /// Finds the place of a process; `None` if it is ours.
    fn find(process: u32, status: &str) -> io::Result<Option<Self>> {
        let namespace = |id: &str, name: &str| std::fs::read_link(format!("/proc/{id}/ns/{name}"));
        let id = process.to_string();
        let differs = |name: &str| io::Result::Ok(namespace(&id, name)? != namespace("self", name)?);
        let root = format!("/proc/{process}/root");
        let (its, own) = (std::fs::metadata(format!("{root}/."))?, std::fs::metadata("/")?);
        if !differs("mnt")? && (its.dev(), its.ino()) == (own.dev(), own.ino()) {
            return Ok(None);
        }
        let open = |path: &str| Ok::<OwnedFd, io::Error>(File::open(path)?.into());
        let processes = if differs("pid")? { Some(open(&format!("/proc/{process}/ns/pid"))?) } else { None };
        let within = numbers(status, "NSpid:").last().copied().filter(|_| processes.is_some());
        Ok(Some(Self {
            mounts: open(&format!("/proc/{process}/ns/mnt"))?,
            processes,
            root: open(&root)?,
            process: within.unwrap_or(process),
        }))
    }

    /// Lets a command start there.
    fn enter(&self, command: &mut Command) {
        let (mounts, root) = (self.mounts.as_raw_fd(), self.root.as_raw_fd());
        let processes = self.processes.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec it makes system calls alone; `self` keeps the descriptors open until the command has
        // started.
        unsafe {
            command.pre_exec(move || {
                if let Some(processes) = processes {
                    done(libc::setns(processes, libc::CLONE_NEWPID))?;
                }
                done(libc::setns(mounts, libc::CLONE_NEWNS))?;
                done(libc::fchdir(root))?;
                done(libc::chroot(c".".as_ptr()))?;
                if processes.is_some() {
                    // Only a child is in the namespace of processes.
                    let child = libc::fork();
                    done(child)?;
                    if child > 0 {
                        let mut status = 0;
                        libc::waitpid(child, &raw mut status, 0);
                        libc::_exit(libc::WEXITSTATUS(status));
                    }
                }
                Ok(())
            });
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Numbers of a line of `/proc/<pid>/status`.
fn numbers(status: &str, key: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Setting of the Linux Security Module Yama, where it restricts ptrace.
fn ptrace_scope() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => String::new(),
        scope => format!("; kernel.yama.ptrace_scope is {}", printable::line(scope, 10)),
    }
}

/// Runs a command to its end and returns what it says on standard output, or else on standard error.
fn output(mut command: Command) -> io::Result<String> {
    let mut child = command.spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() >= EXECUTE_MAX {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other(format!("it has not ended after {} s", EXECUTE_MAX.as_secs())));
        }
        std::thread::sleep(TICK);
    }
    let read = |source: Option<&mut dyn Read>| {
        let mut text = Vec::new();
        source.map_or(Ok(0), |source| source.take(OUTPUT_BYTES_MAX).read_to_end(&mut text))?;
        io::Result::Ok(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let output = read(child.stdout.as_mut().map(|source| source as &mut dyn Read))?;
    match output.is_empty() {
        false => Ok(output),
        true => read(child.stderr.as_mut().map(|source| source as &mut dyn Read)),
    }
}
