//! Stop of a command: a signal that lets it save, a grace period, then SIGTERM and SIGKILL.

use std::time::{Duration, Instant, SystemTime};

use super::exit::signal_name;
use xrun_core::settings::signal::Signal;
use xrun_results::format::Outcome;
use xrun_run::stop::{is_same_request, repeated_signals};

/// Time from SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// Number of a signal on this system.
fn number(signal: Signal) -> i32 {
    match signal {
        Signal::Term => libc::SIGTERM,
        Signal::Int => libc::SIGINT,
        Signal::Hup => libc::SIGHUP,
        Signal::Usr1 => libc::SIGUSR1,
        Signal::Usr2 => libc::SIGUSR2,
    }
}

/// Stage of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// The first signal was sent.
    Signalled(Instant),
    /// SIGTERM was sent.
    Terminated(Instant),
    /// SIGKILL was sent.
    Killed,
}

/// Stops a command in stages, and forwards signals to it.
#[derive(Debug)]
pub struct Stopper {
    main: u32,
    signal: Signal,
    grace: Duration,
    stage: Stage,
    /// Reason of a stop by xrun; `None` where there was none, or the stop was requested by a signal from outside.
    pub reason: Option<(Outcome, String)>,
    /// Time of the first signal, by the clock of files.
    pub signalled_at: Option<SystemTime>,
    /// Number of forwarded signals that request an end, and the time of the first.
    forwarded: u32,
    forwarded_at: Option<Instant>,
    /// True if a signal of [`repeated_signals`] was sent and not ignored.
    hung_up: bool,
}

/// Returns whether a process ignores a signal; `false` where the system does not report it.
fn ignores(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

impl Stopper {
    /// Stopper of a running command; `main` is the leader of its process group.
    pub fn new(main: u32, signal: Signal, grace: Duration) -> Self {
        Self {
            main,
            signal,
            grace,
            stage: Stage::Running,
            reason: None,
            signalled_at: None,
            forwarded: 0,
            forwarded_at: None,
            hung_up: false,
        }
    }

    /// Returns whether no stop was requested, which means that limits apply. SIGHUP does not count, as a command under
    /// `nohup` ignores it.
    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running && self.forwarded == 0
    }

    /// Returns whether a signal that requests an end was forwarded and not ignored.
    pub fn interrupted(&self) -> bool {
        self.forwarded > 0 || self.hung_up
    }

    /// Notes that Ctrl-C ended the command, which had the terminal.
    pub fn note_interrupt(&mut self) {
        self.forwarded += 1;
    }

    /// Returns whether xrun sent SIGKILL.
    pub fn killed(&self) -> bool {
        self.stage == Stage::Killed
    }

    /// Sends the first signal, to the main process only: a worker without a handler would end.
    pub fn stop(&mut self, outcome: Outcome, message: String) -> String {
        self.reason = Some((outcome, message.clone()));
        self.stage = Stage::Signalled(Instant::now());
        self.signalled_at = Some(SystemTime::now());
        send(self.main, number(self.signal));
        let grace = xrun_core::units::Span(self.grace);
        format!("{message}; sent SIG{} to the command, which has {grace} to save", self.signal.as_str())
    }

    /// Kills the command immediately, without a chance to save.
    pub fn end(&mut self, outcome: Outcome, message: String, members: Vec<u32>) {
        self.reason = Some((outcome, message));
        self.kill(members);
    }

    /// Forwards a signal from outside, and returns a message. The first one that requests an end goes to the whole group, as
    /// from a terminal; the second one kills. Those that may come repeatedly ([`repeated_signals`]) do not kill. SIGUSR1 and
    /// SIGUSR2 go to the main process.
    pub fn forward(&mut self, signal: i32, members: impl FnOnce() -> Vec<u32>) -> Option<String> {
        let name = signal_name(signal);
        if [libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
            send(self.main, signal);
            return Some(format!("forwarded {name} to the command"));
        }
        self.signalled_at.get_or_insert_with(SystemTime::now);
        if repeated_signals().any(|repeated| repeated == signal) {
            if self.hung_up {
                return None;
            }
            self.hung_up = !ignores(self.main, signal);
            send_to_group(self.main, signal);
            return Some(format!("forwarded {name} to the command, and waiting for its end"));
        }
        let first = *self.forwarded_at.get_or_insert_with(Instant::now);
        if self.forwarded > 0 && is_same_request(signal, first.elapsed()) {
            return None;
        }
        self.forwarded += 1;
        if self.forwarded == 1 {
            send_to_group(self.main, signal);
            return Some(format!("forwarded {name} to the command; a second signal kills it"));
        }
        self.kill(members());
        Some("killed the command".into())
    }

    /// Stops the command as Ctrl-Z does, until [`Self::resume`].
    pub fn suspend(&self) {
        kill(self.main, -1, libc::SIGTSTP);
    }

    /// Continues the command after a stop.
    pub fn resume(&self) {
        kill(self.main, -1, libc::SIGCONT);
    }

    /// Advances to the next stage when its time has come, and returns a message; `members` are all its processes.
    pub fn advance(&mut self, members: impl FnOnce() -> Vec<u32>) -> Option<&'static str> {
        match self.stage {
            Stage::Signalled(since) if since.elapsed() >= self.grace => {
                self.stage = Stage::Terminated(Instant::now());
                members().into_iter().for_each(|member| send(member, libc::SIGTERM));
                Some("the command did not end within the grace period; sent SIGTERM")
            }
            Stage::Terminated(since) if since.elapsed() >= TERM_GRACE => {
                self.kill(members());
                Some("the command did not end after SIGTERM; killed it")
            }
            _ => None,
        }
    }

    /// Kills the remaining processes of a command that xrun has stopped, after its main process has ended.
    pub fn kill_remaining(&mut self, members: Vec<u32>) {
        if self.reason.is_some() || self.killed() {
            self.kill(members);
        }
    }

    fn kill(&mut self, members: Vec<u32>) {
        self.stage = Stage::Killed;
        send_to_group(self.main, libc::SIGKILL);
        members.into_iter().for_each(|member| send(member, libc::SIGKILL));
    }
}

/// Sends a signal to a process, and continues it: a process that is stopped would not receive the signal.
fn send(process: u32, signal: i32) {
    [signal, libc::SIGCONT].into_iter().for_each(|signal| kill(process, 1, signal));
}

/// As [`send`], to a process group.
fn send_to_group(leader: u32, signal: i32) {
    [signal, libc::SIGCONT].into_iter().for_each(|signal| kill(leader, -1, signal));
}

/// Sends a signal; `sign` is -1 for the process group, and 1 for the process.
fn kill(process: u32, sign: i32, signal: i32) {
    if let Ok(process) = i32::try_from(process) {
        // SAFETY: takes numbers. For a process that has ended it returns an error.
        unsafe { libc::kill(sign * process, signal) };
    }
}
