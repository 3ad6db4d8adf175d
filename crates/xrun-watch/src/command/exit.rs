//! Exit of a command: its status, OOM kills, and the message about it.

use xrun_core::units::{Bytes, pluralize};
use xrun_results::format::MemoryLine;
use xrun_run::memory::own_cgroup::Cgroups;

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code as in a shell: 128 plus the number of the signal that ended it.
    pub code: u8,
    pub signal: Option<i32>,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// Stopped by a signal, as by Ctrl-Z, or because it reads from the terminal in the background.
    Stopped(i32),
    Exited(Exit),
}

/// Reaps all children that have ended and returns the state of `main`, which was `before`. Orphans of the command are children
/// of this process, and would stay zombies.
pub fn reap(main: u32, before: State) -> State {
    let mut found = before;
    loop {
        let mut status: libc::c_int = 0;
        // SAFETY: `status` outlives the call.
        let changed = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
        if changed <= 0 {
            return found;
        }
        if u32::try_from(changed) == Ok(main) {
            let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
            let code = signal.map_or_else(|| libc::WEXITSTATUS(status), |signal| 128 + signal);
            found = match () {
                () if libc::WIFSTOPPED(status) => State::Stopped(libc::WSTOPSIG(status)),
                () if libc::WIFCONTINUED(status) => State::Running,
                () => State::Exited(Exit { code: u8::try_from(code).unwrap_or(u8::MAX), signal }),
            };
        }
    }
}

/// Makes orphans of the command children of this process, which keeps them among its descendants.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes numbers. Where the kernel refuses, orphans are not sampled.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong);
    }
}

/// Name of a signal, or `signal 40`.
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// Memory before the end of a command.
#[derive(Clone, Debug, Default)]
pub struct LastMemory {
    /// Newest sample.
    pub line: Option<MemoryLine>,
    /// OOM kills in the container before the start.
    pub kills_before: Option<u64>,
    /// Limit of `--host-memory`.
    pub host_memory: Option<u64>,
    /// Cgroups of the command.
    pub cgroups: Cgroups,
}

impl LastMemory {
    /// OOM kills in the container since the start, where the kernel counts them.
    fn oom_kills(&self) -> Option<u64> {
        Some(self.cgroups.oom_kills()?.saturating_sub(self.kills_before?))
    }

    /// `3.1 GiB of 4.0 GiB in use 0.4 s before`.
    fn memory_before(&self, now_us: u64) -> String {
        let Some(line) = &self.line else { return "no sample was taken".into() };
        let limit = line.container.and_then(|container| container.limit).into_iter().chain(self.host_memory).min();
        let of_limit = limit.map_or_else(String::new, |limit| format!(" of {}", Bytes(limit)));
        let before = xrun_core::units::seconds(now_us.saturating_sub(line.time_us) as f64 / 1e6);
        format!("{}{of_limit} in use {before} before", Bytes(line.host.heap))
    }
}

/// Message on the exit of a command. `killed` says that xrun killed it.
pub fn exit_message(exit: &Exit, killed: bool, last: &LastMemory, now_us: u64) -> String {
    let kills = last.oom_kills().filter(|kills| *kills > 0);
    let by_kernel = |kills: u64| format!("{} in this container", pluralize(kills, "OOM kill"));
    match (exit.signal, kills) {
        (Some(libc::SIGKILL), Some(kills)) if !killed => {
            format!("the command was OOM-killed ({}): {}", by_kernel(kills), last.memory_before(now_us))
        }
        (Some(libc::SIGKILL), None) if !killed => {
            let oom = match last.oom_kills() {
                Some(_) => "no OOM kill was counted",
                None => "possibly an OOM kill: the kernel's count cannot be read",
            };
            format!("the command was killed from outside (SIGKILL; {oom}): {}", last.memory_before(now_us))
        }
        (Some(signal), kills) => {
            let also = kills.map_or_else(String::new, |kills| format!("; {}", by_kernel(kills)));
            format!("the command was ended by {}{also}", signal_name(signal))
        }
        (None, Some(kills)) => {
            let (kills, memory) = (by_kernel(kills), last.memory_before(now_us));
            format!("the command ended with exit code {}; {kills}: {memory}", exit.code)
        }
        (None, None) if exit.code == 0 => "the command ended".to_owned(),
        (None, None) => format!("the command ended with exit code {}", exit.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_message_names_the_cause() {
        let kill = Some(libc::SIGKILL);
        let exits = [
            (0, None, false),
            (3, None, false),
            (139, Some(libc::SIGSEGV), false),
            (137, kill, false),
            (137, kill, true),
        ];
        let messages =
            exits.map(|(code, signal, killed)| exit_message(&Exit { code, signal }, killed, &LastMemory::default(), 0));
        insta::assert_snapshot!(messages.join("\n"));
    }
}
