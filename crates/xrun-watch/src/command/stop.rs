//! How is a command stopped: a signal that lets it save, time to do so, then the end?

use std::time::{Duration, Instant, SystemTime};

use xrun_core::settings::signal::Signal;
use xrun_results::format::Outcome;

/// After SIGTERM, before SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Its number in this system.
fn number(signal: Signal) -> i32 {
    match signal {
        Signal::Term => libc::SIGTERM,
        Signal::Int => libc::SIGINT,
        Signal::Hup => libc::SIGHUP,
        Signal::Usr1 => libc::SIGUSR1,
        Signal::Usr2 => libc::SIGUSR2,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// It was sent the signal.
    Asked(Instant),
    /// It was told to end.
    Told(Instant),
    Killed,
}

/// The end of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HangUp {
    None,
    Heard,
    /// By the command's first process, as under `nohup`.
    Ignored,
}

/// Stops a command in order.
#[derive(Debug)]
pub struct Stopper {
    main: u32,
    signal: Signal,
    grace: Duration,
    stage: Stage,
    because: Option<(Outcome, String)>,
    /// By the clock of files.
    asked_at: Option<SystemTime>,
    passed_on: u32,
    hang_up: HangUp,
}

/// Whether a process ignores a signal; `false` where the system does not say.
fn ignores(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

impl Stopper {
    /// `main` leads a group of processes of its own.
    pub fn new(main: u32, signal: Signal, grace: Duration) -> Self {
        Self {
            main,
            signal,
            grace,
            stage: Stage::Running,
            because: None,
            asked_at: None,
            passed_on: 0,
            hang_up: HangUp::None,
        }
    }

    /// Whether nobody has ended it: limits hold. SIGHUP alone ends nobody who ignores it, as under `nohup`.
    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running && self.passed_on == 0
    }

    /// Why it was stopped; `None` where it was not, or was by a signal from outside.
    pub fn because(&self) -> Option<&(Outcome, String)> {
        self.because.as_ref()
    }

    /// Whether a signal that asks for an end was passed on, and the command does not ignore it.
    pub fn interrupted(&self) -> bool {
        self.passed_on > 0 || self.hang_up == HangUp::Heard
    }

    /// Whether it was killed here.
    pub fn killed(&self) -> bool {
        self.stage == Stage::Killed
    }

    /// Sends the signal to its first process, and no other: a worker that does not know it would end.
    pub fn stop(&mut self, outcome: Outcome, message: String) -> String {
        self.because = Some((outcome, message.clone()));
        self.stage = Stage::Asked(Instant::now());
        self.asked_at = Some(SystemTime::now());
        send(self.main, number(self.signal));
        let grace = xrun_core::units::Span(self.grace);
        format!("{message}; it was sent SIG{} and has {grace} to save", self.signal.word())
    }

    /// When it was asked to save.
    pub fn asked_at(&self) -> Option<SystemTime> {
        self.asked_at
    }

    /// Ends it at once: nobody wants what it would save.
    pub fn end(&mut self, outcome: Outcome, message: String, members: Vec<u32>) {
        self.because = Some((outcome, message));
        self.kill(members);
    }

    /// A signal from outside. The first one that asks for an end goes to the whole group, as a terminal would send it; the second
    /// kills. SIGHUP may come twice, of the shell and of the kernel, and kills nobody. SIGUSR1 and SIGUSR2 go to the first
    /// process, which goes on.
    pub fn pass_on(&mut self, signal: i32, members: impl FnOnce() -> Vec<u32>) -> Option<&'static str> {
        if [libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
            send(self.main, signal);
            let is_first = signal == libc::SIGUSR1;
            return Some(if is_first {
                "SIGUSR1 was passed on to the command"
            } else {
                "SIGUSR2 was passed on to the command"
            });
        }
        self.asked_at.get_or_insert_with(SystemTime::now);
        if signal == libc::SIGHUP {
            if self.hang_up != HangUp::None {
                return None;
            }
            self.hang_up = if ignores(self.main, signal) { HangUp::Ignored } else { HangUp::Heard };
            send_to_group(self.main, signal);
            return Some("SIGHUP was passed on to the command, which is waited for");
        }
        self.passed_on += 1;
        if self.passed_on == 1 {
            send_to_group(self.main, signal);
            return Some("the signal was passed on to the command; a second one kills it");
        }
        self.kill(members());
        Some("the command was killed")
    }

    /// Goes on with what time has come for; `members` are all its processes. Gives what there is to say.
    pub fn advance(&mut self, members: impl FnOnce() -> Vec<u32>) -> Option<&'static str> {
        match self.stage {
            Stage::Asked(since) if since.elapsed() >= self.grace => {
                self.stage = Stage::Told(Instant::now());
                members().into_iter().for_each(|member| send(member, libc::SIGTERM));
                Some("the command did not end by itself, and was sent SIGTERM")
            }
            Stage::Told(since) if since.elapsed() >= LAST_GRACE => {
                self.kill(members());
                Some("the command did not end by SIGTERM either, and was killed")
            }
            _ => None,
        }
    }

    /// Ends what is left of a command that was stopped here: its first process is gone.
    pub fn end_rest(&mut self, members: Vec<u32>) {
        if self.because.is_some() || self.killed() {
            self.kill(members);
        }
    }

    fn kill(&mut self, members: Vec<u32>) {
        self.stage = Stage::Killed;
        send_to_group(self.main, libc::SIGKILL);
        members.into_iter().for_each(|member| send(member, libc::SIGKILL));
    }
}

fn send(process: u32, signal: i32) {
    if let Ok(process) = i32::try_from(process) {
        // SAFETY: takes numbers. A process that is gone is an error that changes nothing.
        unsafe { libc::kill(process, signal) };
    }
}

fn send_to_group(leader: u32, signal: i32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: as above.
        unsafe { libc::kill(-leader, signal) };
    }
}
