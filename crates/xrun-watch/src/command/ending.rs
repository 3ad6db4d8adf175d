//! How did a command end, and whom did it leave behind?

use crate::memory::own_cgroup::Cgroups;
use xrun_core::units::Bytes;
use xrun_results::format::MemoryLine;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// As a shell has it: 128 and the signal's number, where a signal ended it.
    pub code: u8,
    pub signal: Option<i32>,
}

/// Takes note of all processes that have ended; gives the end of `main`. Those that the command left behind are children
/// of this process, and nobody else would ever ask how they ended.
pub fn reap(main: u32) -> Option<Exit> {
    let mut found = None;
    loop {
        let mut status: libc::c_int = 0;
        // SAFETY: the place lives until the call returns.
        let ended = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if ended <= 0 {
            return found;
        }
        if u32::try_from(ended) == Ok(main) {
            let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
            let code = signal.map_or_else(|| libc::WEXITSTATUS(status), |signal| 128 + signal);
            found = Some(Exit { code: u8::try_from(code).unwrap_or(u8::MAX), signal });
        }
    }
}

/// What became of those that the command left behind is the system's business; without this, they would not even be seen.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes numbers. Where the kernel refuses, they are not seen.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong);
    }
}

/// The name of a signal, where it is one that ends programs.
fn name(signal: i32) -> String {
    let names = [
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGUSR1, "SIGUSR1"),
    ];
    let known = names.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// What memory was like when it ended.
#[derive(Clone, Debug, Default)]
pub struct Last {
    /// The newest sample.
    pub line: Option<MemoryLine>,
    /// Kills in the container before the start.
    pub kills_before: Option<u64>,
    pub host_memory: Option<u64>,
    /// Where it is run.
    pub cgroups: Cgroups,
}

impl Last {
    /// Kills in the container since the start, where the kernel counts them.
    fn kills(&self) -> Option<u64> {
        Some(self.cgroups.oom_kills()?.saturating_sub(self.kills_before?))
    }

    /// `it held 3.1 GiB of 4.0 GiB 0.4 s before`.
    fn held(&self, now_us: u64) -> String {
        let Some(line) = &self.line else { return "no sample was taken of it".into() };
        let limit = line.container.and_then(|container| container.limit).into_iter().chain(self.host_memory).min();
        let of = limit.map_or_else(String::new, |limit| format!(" of {}", Bytes(limit)));
        let before = xrun_core::units::seconds(now_us.saturating_sub(line.time_us) as f64 / 1e6);
        format!("it held {}{of} {before} before", Bytes(line.host.heap))
    }
}

/// For people: how it ended by itself. `killed` says that this process killed it.
pub fn sentence(exit: &Exit, killed: bool, last: &Last, now_us: u64) -> String {
    let kills = last.kills().filter(|kills| *kills > 0);
    let by_kernel = |kills: u64| {
        let processes = if kills == 1 { "process" } else { "processes" };
        format!("the kernel killed {kills} {processes} of this container for want of memory (oom_kill)")
    };
    match (exit.signal, kills) {
        (Some(libc::SIGKILL), Some(kills)) if !killed => {
            format!("{}, the command among them: {}", by_kernel(kills), last.held(now_us))
        }
        (Some(libc::SIGKILL), None) if !killed => {
            let counted = if last.kills().is_some() {
                "the kernel counted no kill for want of memory here"
            } else {
                "whether the kernel did, for want of memory, cannot be read here"
            };
            format!("the command was killed from outside (SIGKILL; {counted}): {}", last.held(now_us))
        }
        (Some(signal), kills) => {
            let also = kills.map_or_else(String::new, |kills| format!("; {}", by_kernel(kills)));
            format!("the command was ended by {}{also}", name(signal))
        }
        (None, Some(kills)) => {
            format!("the command ended with exit code {}; {}: {}", exit.code, by_kernel(kills), last.held(now_us))
        }
        (None, None) if exit.code == 0 => "the command ended".to_owned(),
        (None, None) => format!("the command ended with exit code {}", exit.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_by_what_caused_it() {
        let told = |code, signal| sentence(&Exit { code, signal }, false, &Last::default(), 0);
        assert_eq!(told(0, None), "the command ended");
        assert_eq!(told(3, None), "the command ended with exit code 3");
        assert_eq!(told(139, Some(libc::SIGSEGV)), "the command was ended by SIGSEGV");
        assert!(told(137, Some(libc::SIGKILL)).starts_with("the command was killed from outside (SIGKILL; "));
        let killed = sentence(&Exit { code: 137, signal: Some(libc::SIGKILL) }, true, &Last::default(), 0);
        assert_eq!(killed, "the command was ended by SIGKILL");
    }
}
