//! Explanation of growth in Python programs: an agent in each process answers questions through a socket.
//!
//! The agent is pure Python (`agent/`), written into a directory that only this user can open, and found by Python through
//! PYTHONPATH. It is asked once growth is suspected: for a window of some steps, at whose end it says what was born in the
//! window, lives, and is held by whom. [`conclusion`] turns its answer into a record.

mod answer;
mod conclusion;
mod source;

pub use conclusion::unanswered;

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use answer::{Answer, Reply};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::scratch::Scratch;
use xrun_core::files::write::{WriteError, replace, with_path};
use xrun_core::printable;
use xrun_results::explanation::Explanation;

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
/// Name of the socket in the agent's directory.
const SOCKET: &str = "socket";
/// Cap on the processes that are asked at a time.
pub const PROCESSES_MAX: usize = 16;
/// Cap on the bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Windows, one after another until the cause is certain. A later one is longer, as growth may come with each validation only.
const WINDOWS: [Extent; 3] = [
    Extent { steps: 20, time: Duration::from_secs(4), time_max: Duration::from_secs(10) },
    Extent { steps: 80, time: Duration::from_secs(6), time_max: Duration::from_secs(10) },
    Extent { steps: 200, time: Duration::from_secs(15), time_max: Duration::from_secs(30) },
];
/// Number of steps after which the time of a window may end it.
const WINDOW_STEPS_MIN: u64 = 5;
/// Cap on the time for a process to begin its window: agents look for a request twice a second.
const BEGIN_MAX: Duration = Duration::from_secs(5);
/// Cap on the time of an answer after the end of the window.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const REASON_CHARACTERS_MAX: usize = 200;
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

/// Extent of a window: it ends after these steps or this time, but at most after `time_max` where steps are few.
#[derive(Clone, Copy, Debug)]
struct Extent {
    steps: u64,
    time: Duration,
    time_max: Duration,
}

/// Directory with the agent, and the socket to which agents connect.
#[derive(Debug)]
pub struct Explainer {
    directory: Scratch,
    listener: UnixListener,
    windows: Vec<Window>,
    /// Processes that were asked, and the time, while an answer is awaited.
    asked: Option<(Instant, Vec<u32>)>,
    /// Number of windows that were asked for.
    asked_before: usize,
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
    extent: Extent,
    /// Bytes that the agent needs and has left; `None` during a census.
    needs: Option<u64>,
    answer: Option<WindowAnswer>,
    /// Why it has no answer.
    failed: Option<String>,
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
        let temporary = std::env::temp_dir();
        let directory = with_path(&temporary, Scratch::create(&temporary, "xrun-watch-"))?;
        for (name, text) in AGENT {
            replace(&directory.path().join(name), text.as_bytes())?;
        }
        let socket = directory.path().join(SOCKET);
        let listener = UnixListener::bind(&socket).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Ok(Self {
            listener: with_path(&socket, listener)?,
            directory,
            windows: Vec::new(),
            asked: None,
            asked_before: 0,
        })
    }

    /// Returns whether an answer is awaited.
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Processes with the bytes that the agent needs and has left in them in their windows; `None` during a census, which it does not
    /// measure.
    pub fn needs(&self) -> Option<Vec<(u32, u64)>> {
        let needs = |window: &Window| match (window.stage, &window.answer) {
            (Stage::Asked | Stage::Ending { .. }, _) => None,
            (Stage::Begun { .. }, _) => window.needs.map(|needs| (window.process, needs)),
            (Stage::Ended, answer) => Some(answer.as_ref().map_or((window.process, 0), WindowAnswer::left)),
        };
        self.windows.iter().map(needs).collect()
    }

    /// Returns whether a further window may be asked for.
    pub fn may_ask(&self) -> bool {
        self.asked.is_none() && self.asked_before < WINDOWS.len()
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
        if !self.may_ask() {
            return;
        }
        self.asked_before += 1;
        // Without the file the process does not answer.
        let asked = |process: &u32| replace(&self.request(*process), &[]).is_ok();
        let processes = processes.iter().copied().filter(asked).take(PROCESSES_MAX).collect();
        self.asked = Some((Instant::now(), processes));
    }

    fn request(&self, process: u32) -> PathBuf {
        self.directory.path().join(format!("request-{process}"))
    }

    /// Exchanges messages with the agents. Returns all answers once the last has come, or why there is none.
    pub fn poll(&mut self, newest_step: u64) -> Option<Result<Vec<WindowAnswer>, String>> {
        let (asked, processes) = self.asked.as_ref()?;
        // A process that waits, as the tracker of resources of `multiprocessing` does, delays no answer.
        let may_begin = asked.elapsed() < BEGIN_MAX;
        let expected = processes.len();
        while let Ok((stream, _)) = self.listener.accept() {
            if self.windows.len() < PROCESSES_MAX
                && let Some(process) = process_of_same_user(&stream)
            {
                self.windows.extend(Window::begin(stream, process, WINDOWS[self.asked_before - 1]));
            }
        }
        self.windows.iter_mut().for_each(|window| window.advance(newest_step));
        let all = self.windows.iter().all(|window| window.stage == Stage::Ended);
        if !all || (may_begin && self.windows.len() < expected) {
            return None;
        }
        let (_, processes) = self.asked.take()?;
        for process in processes {
            // That of a process which has not begun.
            let _ = std::fs::remove_file(self.request(process));
        }
        let mut why =
            "no Python process answered: it began before, or with -I, -E or -S, or runs native code".to_owned();
        let mut answers = Vec::new();
        for window in self.windows.drain(..) {
            if let Some(failed) = window.failed {
                why = failed;
            }
            answers.extend(window.answer);
        }
        Some(if answers.is_empty() { Err(why) } else { Ok(answers) })
    }
}

/// Concludes from the answers: that of the process that grew most. `main` is the first process of the command; `unmapped`
/// says that the growth is that of files in /dev/shm; `rate` is the growth by the verdict in a window of these steps and
/// seconds.
pub fn conclude(
    answers: &[WindowAnswer],
    main: u32,
    unmapped: bool,
    rate: impl Fn(u64, f64) -> f64,
) -> Option<Explanation> {
    let most = answers.iter().max_by_key(|one| one.answer.resident_growth)?;
    // Several workers grow alike.
    let expected = (rate(most.steps, most.answer.seconds) / answers.len() as f64) as u64;
    let observed = conclusion::Observed { step: most.step, steps: most.steps, expected, main, unmapped };
    Some(conclusion::conclude(&most.answer, observed))
}

impl WindowAnswer {
    /// Cap on the bytes that count as left by the agent: the program may have allocated the rest at the same moment.
    const LEFT_MAX: u64 = 8 << 20;

    /// Process, and the bytes that the agent has left in it.
    pub fn left(&self) -> (u32, u64) {
        let left = u64::try_from(self.answer.left).unwrap_or_default();
        (self.answer.process, left.min(Self::LEFT_MAX))
    }
}

impl Window {
    /// Sends the request; `None` where the process has gone.
    fn begin(mut stream: UnixStream, process: u32, extent: Extent) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let request = format!("window {} {FRAMES} {TRACE_BYTES_MAX}\n", extent.time_max.as_secs());
        stream.write_all(request.as_bytes()).ok()?;
        let (received, stage) = (Vec::new(), Stage::Asked);
        Some(Self { stream, process, received, stage, extent, needs: None, answer: None, failed: None })
    }

    fn advance(&mut self, newest_step: u64) {
        self.receive(newest_step);
        match self.stage {
            Stage::Begun { step, since, middle } => {
                let (steps, time) = (newest_step.saturating_sub(step), since.elapsed());
                let Extent { steps: steps_max, time: time_needed, time_max } = self.extent;
                if !middle && (steps >= steps_max / 2 || time >= time_needed / 2) {
                    (self.stage, self.needs) = (Stage::Begun { step, since, middle: true }, None);
                    self.send("middle\n");
                }
                let by_time = time >= time_needed && (newest_step == 0 || steps >= WINDOW_STEPS_MIN);
                if steps >= steps_max || by_time || time >= time_max {
                    self.stage = Stage::Ending { step, steps, since: Instant::now() };
                    self.send("end\n");
                }
            }
            Stage::Ending { since, .. } if since.elapsed() >= ANSWER_MAX => {
                self.failed = Some(format!("process {} did not answer within {ANSWER_MAX:.0?}", self.process));
                self.stage = Stage::Ended;
            }
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

    fn handle(&mut self, line: &[u8], newest_step: u64) {
        let (step, steps) = match self.stage {
            Stage::Ending { step, steps, .. } => (step, steps),
            Stage::Begun { step, .. } => (step, newest_step.saturating_sub(step)),
            Stage::Asked | Stage::Ended => (newest_step, 0),
        };
        self.stage = match serde_json::from_slice::<Reply>(line) {
            Ok(Reply::Needs { needs }) => {
                self.needs = u64::try_from(needs).ok();
                self.stage
            }
            Ok(Reply::Begun { .. }) => Stage::Begun { step: newest_step, since: Instant::now(), middle: false },
            Ok(Reply::Answer(mut answer)) => {
                answer.process = self.process;
                self.answer = Some(WindowAnswer { answer: *answer, step, steps });
                Stage::Ended
            }
            Ok(Reply::Failed { why }) => {
                self.failed = Some(format!("the agent failed: {}", printable::line(&why, REASON_CHARACTERS_MAX)));
                Stage::Ended
            }
            Err(_) => Stage::Ended,
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
