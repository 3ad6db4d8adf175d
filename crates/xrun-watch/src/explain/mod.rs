//! Explanation of growth in Python programs: an agent in each process answers questions through a socket.
//!
//! The agent is pure Python (`agent/`), written into a directory that only this user can open, and found by Python through
//! PYTHONPATH. It is asked once growth is suspected: for a window of some steps, at whose end it says what was born in the
//! window, lives, and is held by whom. [`conclusion`] turns its answer into a record. A process that runs already executes the
//! agent by [`remote`] execution once it is asked.

mod answer;
mod conclusion;
pub mod remote;
mod source;

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use answer::{Answer, Reply};
use remote::{RemoteError, RunningPython};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::scratch::Scratch;
use xrun_core::files::write::{WriteError, replace, with_path};
use xrun_results::explanation::Explanation;
use xrun_run::memory::processes::age;

/// Files of the agent.
const AGENT: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("agent/sitecustomize.py")),
    ("agent.py", include_str!("agent/agent.py")),
    ("window.py", include_str!("agent/window.py")),
    ("sources.py", include_str!("agent/sources.py")),
    ("births.py", include_str!("agent/births.py")),
    ("tensors.py", include_str!("agent/tensors.py")),
    ("cuda.py", include_str!("agent/cuda.py")),
    ("census.py", include_str!("agent/census.py")),
    ("paths.py", include_str!("agent/paths.py")),
    ("encode.py", include_str!("agent/encode.py")),
];
/// Entry of the agent by remote execution.
const ATTACH: &str = include_str!("agent/attach.py");
/// Its name in the agent's directory.
const ATTACH_FILE: &str = "attach.py";
/// Name of the socket in the agent's directory.
const SOCKET: &str = "socket";
/// Cap on the processes that are asked at a time.
pub const PROCESSES_MAX: usize = 16;
/// Cap on the bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Number of steps of a window.
const WINDOW_STEPS: u64 = 20;
/// Number of steps after which the time of a window may end it.
const WINDOW_STEPS_MIN: u64 = 5;
/// Duration of a window where steps are unknown or slow.
const WINDOW: Duration = Duration::from_secs(5);
/// Cap on the duration of a window.
const WINDOW_MAX: Duration = Duration::from_secs(30);
/// Cap on the time for a process to begin its window: agents look for a request twice a second.
const BEGIN_MAX: Duration = Duration::from_secs(5);
/// Cap on the time for a process to begin that executes the agent first: its main thread may be in a library for long.
const ATTACH_MAX: Duration = Duration::from_secs(30);
/// Age of a process until which it may not be Python yet.
const START_MAX: Duration = Duration::from_secs(2);
/// Cap on the time for an agent to leave a process whose answer is not awaited any more.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Cap on the time of an answer after the end of the window.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Frames that are recorded of each allocation: calls of TensorFlow are deep.
const FRAMES: u32 = 24;
/// Cap on the memory of `tracemalloc` in a process.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Buffer of the answers.
pub fn buffer() -> Buffer {
    let items = PROCESSES_MAX as u64;
    let cap = Cap { items, bytes: items * ANSWER_BYTES_MAX as u64 };
    Buffer::new("agent_answers", Policy::Refuse, cap)
        .because("further processes are not asked; a longer answer is dropped")
}

/// Directory with the agent, and the socket to which agents connect.
#[derive(Debug)]
pub struct Explainer {
    directory: Scratch,
    listener: UnixListener,
    entry: Entry,
    windows: Vec<Window>,
    /// Processes that were asked, and the time, while an answer is awaited.
    asked: Option<(Instant, Vec<u32>)>,
}

/// Error of an agent that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// A file of it cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The process cannot be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// Way of the agent into a process.
#[derive(Debug)]
enum Entry {
    /// Python imports it at its start.
    Start,
    /// The process executes it when it is asked. Its root directory, by a path of ours; `None` if it is ours.
    Remote { root: Option<PathBuf> },
}

/// State of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request was sent.
    Asked,
    /// It began at this step.
    Begun { step: u64, since: Instant, middle: bool },
    /// Its end was requested.
    Ending { step: u64, steps: u64, since: Instant },
    /// It answered, failed or has gone.
    Ended,
}

/// Window of one process.
#[derive(Debug)]
struct Window {
    stream: UnixStream,
    /// Process at the other end.
    process: u32,
    received: Vec<u8>,
    stage: Stage,
    answer: Option<WindowAnswer>,
}

/// Answer of a process, and the steps of its window.
#[derive(Debug)]
pub struct WindowAnswer {
    answer: Answer,
    step: u64,
    steps: u64,
}

impl Explainer {
    /// Writes the agent and opens the socket.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn create() -> Result<Self, WriteError> {
        Self::create_in(&std::env::temp_dir(), Entry::Start)
    }

    /// Prepares the agent for a process that runs already, and tests whether it can be asked.
    ///
    /// # Errors
    /// The process cannot be asked, or the agent cannot be written.
    pub fn attach(process: u32) -> Result<Self, ExplainError> {
        let find = || {
            let python = RunningPython::find(process)?;
            python.execute(Path::new(remote::NOTHING)).map(|()| python)
        };
        let mut found = find();
        // Python may be about to start, also by a script that is replaced by it.
        while found.is_err() && age(process).is_some_and(|age| age < START_MAX) {
            std::thread::sleep(START_MAX / 10);
            found = find();
        }
        let python = found?;
        let (root, temporary) = (python.root(), std::env::temp_dir());
        let within = root.as_ref().map_or_else(|| temporary.clone(), |root| below(root, &temporary));
        let other = || root.as_ref().map(|root| root.join("tmp"));
        let temporary = if within.is_dir() { within } else { other().unwrap_or(within) };
        let explainer = Self::create_in(&temporary, Entry::Remote { root })?;
        let here = explainer.path_of_process(explainer.directory.path());
        let text = format!("HERE = {}\n{ATTACH}", serde_json::Value::from(here.display().to_string()));
        replace(&explainer.directory.path().join(ATTACH_FILE), text.as_bytes())?;
        Ok(explainer)
    }

    fn create_in(temporary: &Path, entry: Entry) -> Result<Self, WriteError> {
        let directory = with_path(temporary, Scratch::create(temporary, "xrun-watch-"))?;
        for (name, text) in AGENT {
            replace(&directory.path().join(name), text.as_bytes())?;
        }
        let socket = directory.path().join(SOCKET);
        let listener = UnixListener::bind(&socket).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Ok(Self { listener: with_path(&socket, listener)?, directory, entry, windows: Vec::new(), asked: None })
    }

    /// Path of a file, as the processes see it.
    fn path_of_process(&self, path: &Path) -> PathBuf {
        match &self.entry {
            Entry::Remote { root: Some(root) } => {
                path.strip_prefix(root).map_or_else(|_| path.to_owned(), |path| Path::new("/").join(path))
            }
            _ => path.to_owned(),
        }
    }

    /// Returns whether an answer is awaited.
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Value of PYTHONPATH by which Python finds the agent, before the directories that it has already.
    pub fn python_path(&self, before: Option<OsString>) -> OsString {
        let mut path = self.directory.path().as_os_str().to_owned();
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        path
    }

    /// Asks these processes for a window, unless an answer is awaited already. A process without an agent does not notice.
    pub fn ask(&mut self, processes: &[u32]) {
        if self.asked.is_some() {
            return;
        }
        let asked = |process: &u32| match &self.entry {
            // Without the file the process does not answer.
            Entry::Start => replace(&self.request(*process), &[]).is_ok(),
            Entry::Remote { .. } => self.execute(*process, &self.directory.path().join(ATTACH_FILE)).is_ok(),
        };
        let processes = processes.iter().copied().filter(asked).take(PROCESSES_MAX).collect();
        self.asked = Some((Instant::now(), processes));
    }

    /// Makes a process execute a file of ours, if it sees the agent's directory.
    fn execute(&self, process: u32, file: &Path) -> Result<(), RemoteError> {
        let python = RunningPython::find(process)?;
        python.execute(&self.path_of_process(file))
    }

    /// Takes back the request of processes that have not begun.
    fn withdraw(&self, processes: &[u32]) {
        for process in processes {
            match &self.entry {
                Entry::Start => {
                    let _ = std::fs::remove_file(self.request(*process));
                }
                Entry::Remote { .. } if self.windows.iter().any(|window| window.process == *process) => {}
                // A process that has ended needs nothing.
                Entry::Remote { .. } => {
                    let _ = self.execute(*process, Path::new(remote::NOTHING));
                }
            }
        }
    }

    fn request(&self, process: u32) -> PathBuf {
        self.directory.path().join(format!("request-{process}"))
    }

    /// Exchanges messages with the agents. Returns all answers once the last has come; an empty list if there is none.
    pub fn poll(&mut self, newest_step: u64) -> Option<Vec<WindowAnswer>> {
        let (asked, processes) = self.asked.as_ref()?;
        // A process that waits, as the tracker of resources of `multiprocessing` does, delays no answer.
        let waits_long = matches!(self.entry, Entry::Remote { .. }) && self.windows.is_empty();
        let may_begin = asked.elapsed() < if waits_long { ATTACH_MAX } else { BEGIN_MAX };
        let expected = processes.len();
        while let Ok((stream, _)) = self.listener.accept() {
            if self.windows.len() < PROCESSES_MAX
                && let Some(process) = process_of_same_user(&stream)
            {
                self.windows.extend(Window::begin(stream, process));
            }
        }
        self.windows.iter_mut().for_each(|window| window.advance(newest_step));
        let all = self.windows.iter().all(|window| window.stage == Stage::Ended);
        if !all || (may_begin && self.windows.len() < expected) {
            return None;
        }
        let (_, processes) = self.asked.take()?;
        self.withdraw(&processes);
        let mut answers: Vec<WindowAnswer> = self.windows.drain(..).filter_map(|window| window.answer).collect();
        if let Entry::Remote { root: Some(root) } = &self.entry {
            answers.iter_mut().for_each(|one| one.answer.move_below(root));
        }
        Some(answers)
    }
}

impl Drop for Explainer {
    /// Waits until the agents have left processes that xrun did not start.
    fn drop(&mut self) {
        if matches!(self.entry, Entry::Remote { .. }) {
            if let Some((_, processes)) = self.asked.take() {
                self.withdraw(&processes);
            }
            self.windows.drain(..).for_each(Window::leave);
        }
    }
}

/// A path of another root directory, by a path of ours.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Concludes from the answers: that of the process that grew most. `main` is the first process of the command; `unmapped`
/// says that the growth is that of files in /dev/shm.
pub fn conclude(answers: &[WindowAnswer], main: u32, unmapped: bool) -> Option<Explanation> {
    let most = answers.iter().max_by_key(|one| one.answer.resident_growth)?;
    conclusion::conclude(&most.answer, most.step, most.steps, main, unmapped)
}

impl Window {
    /// Sends the request; `None` where the process has gone.
    fn begin(mut stream: UnixStream, process: u32) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let request = format!("window {} {FRAMES} {TRACE_BYTES_MAX}\n", WINDOW_MAX.as_secs());
        stream.write_all(request.as_bytes()).ok()?;
        Some(Self { stream, process, received: Vec::new(), stage: Stage::Asked, answer: None })
    }

    fn advance(&mut self, newest_step: u64) {
        self.receive(newest_step);
        match self.stage {
            Stage::Begun { step, since, middle } => {
                let (steps, time) = (newest_step.saturating_sub(step), since.elapsed());
                if !middle && (steps >= WINDOW_STEPS / 2 || time >= WINDOW / 2) {
                    self.stage = Stage::Begun { step, since, middle: true };
                    self.send("middle\n");
                }
                let by_time = time >= WINDOW && (newest_step == 0 || steps >= WINDOW_STEPS_MIN);
                if steps >= WINDOW_STEPS || by_time || time >= WINDOW_MAX {
                    self.stage = Stage::Ending { step, steps, since: Instant::now() };
                    self.send("end\n");
                }
            }
            Stage::Ending { since, .. } if since.elapsed() >= ANSWER_MAX => self.stage = Stage::Ended,
            _ => {}
        }
    }

    fn send(&mut self, message: &str) {
        if self.stream.write_all(message.as_bytes()).is_err() {
            self.stage = Stage::Ended;
        }
    }

    /// Reads what the agent has sent so far.
    fn receive(&mut self, newest_step: u64) {
        let mut bytes = [0; 16 * 1024];
        while self.stage != Stage::Ended {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.stage = Stage::Ended,
                Ok(count) if self.received.len() + count > ANSWER_BYTES_MAX => self.stage = Stage::Ended,
                Ok(count) => {
                    self.received.extend_from_slice(&bytes[..count]);
                    while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = self.received.drain(..=end).collect();
                        self.handle(&line, newest_step);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.stage = Stage::Ended,
            }
        }
    }

    /// Ends the window without an answer, and waits until the agent has closed the connection.
    fn leave(self) {
        let stream = &self.stream;
        let ended = stream.shutdown(std::net::Shutdown::Write).and_then(|()| stream.set_nonblocking(false));
        if ended.and_then(|()| stream.set_read_timeout(Some(LEAVE_MAX))).is_ok() {
            let _ = std::io::copy(&mut (&self.stream).take(ANSWER_BYTES_MAX as u64), &mut std::io::sink());
        }
    }

    fn handle(&mut self, line: &[u8], newest_step: u64) {
        let (step, steps) = match self.stage {
            Stage::Ending { step, steps, .. } => (step, steps),
            Stage::Begun { step, .. } => (step, newest_step.saturating_sub(step)),
            Stage::Asked | Stage::Ended => (newest_step, 0),
        };
        self.stage = match serde_json::from_slice::<Reply>(line) {
            Ok(Reply::Begun { .. }) => Stage::Begun { step: newest_step, since: Instant::now(), middle: false },
            Ok(Reply::Answer(mut answer)) => {
                answer.process = self.process;
                self.answer = Some(WindowAnswer { answer: *answer, step, steps });
                Stage::Ended
            }
            Ok(Reply::Failed { .. }) | Err(_) => Stage::Ended,
        };
    }
}

/// Returns the process at the other end as the kernel says, if it belongs to this user.
fn process_of_same_user(stream: &UnixStream) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both outlive the call, and `length` is the size of `peer`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    // SAFETY: takes and returns numbers.
    let is_same = result == 0 && peer.uid == unsafe { libc::geteuid() };
    u32::try_from(peer.pid).ok().filter(|_| is_same)
}

#[cfg(test)]
mod tests;
