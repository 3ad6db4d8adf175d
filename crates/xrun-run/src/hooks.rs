//! Hooks: programs that are notified of a run's events. They are started without a shell, with a JSON document on stdin and a
//! time limit.
//!
//! Running an experiment file runs its hooks. The experiment of an existing result starts its hooks only on request.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::child;
use crate::child::ParentDeathSignal;
use crate::host;
use crate::memory::processes;
use crate::stop::RunOutcome;
use xrun_core::files::layout;
use xrun_core::printable;
use xrun_core::settings::sections::Hooks;
use xrun_results::format::{Manifest, Outcome, Summary, VERSION};
use xrun_results::hook::{HookDocument, HookName, HookVerdict};
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_results::{log, timestamp};

/// Largest number of bytes kept of a hook's stderr; the last ones.
const STDERR_BYTES_MAX: usize = 4096;
/// Period at which an active hook is polled.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Time that the end of stderr may take to arrive after the hook has exited.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// Dispatcher of the hooks of one process of a run.
#[derive(Debug)]
pub struct HookDispatcher {
    hooks: Hooks,
    /// Names of the experiment and of the run.
    names: (String, String),
    /// Hook `on_growing` that was started during the run and not waited for yet.
    growing: Option<RunningHook>,
    growth_reported: bool,
    /// Messages of the hooks that failed.
    failures: Vec<String>,
}

impl HookDispatcher {
    /// Creates a dispatcher, which does nothing unless `enabled`.
    pub fn new(hooks: &Hooks, enabled: bool, manifest: &Manifest) -> Self {
        let hooks = if enabled { hooks.clone() } else { Hooks::default() };
        let names = (manifest.experiment.clone(), manifest.run.clone());
        Self { hooks, names, growing: None, growth_reported: false, failures: Vec::new() }
    }

    /// Starts the hook `on_growing` once, and does not wait for it.
    pub fn growing(&mut self, run: &Path, step: u64, steps_planned: u64, verdict: &Verdict) {
        if self.growth_reported || self.hooks.on_growing.is_empty() {
            return;
        }
        self.growth_reported = true;
        let document = HookDocument {
            step,
            steps_planned,
            message: verdict.message.clone(),
            verdict: Some(hook_verdict(verdict)),
            ..document(HookName::OnGrowing, run, &self.names)
        };
        match start(&self.hooks.on_growing, &document) {
            Ok(started) => self.growing = Some(started),
            Err(error) => self.record_failure(HookName::OnGrowing, &error),
        }
    }

    /// Runs the hooks that are due at the end of a run, after its records are written. Returns a message for each hook that
    /// failed, which the log has as well.
    pub fn ended(mut self, outcome: &RunOutcome, exit_code: u8) -> Vec<String> {
        let RunOutcome { ending, run } = outcome;
        let (run, summary, verdict) = (run.path.as_path(), run.summary(), run.verdict());
        let outcome = ending.outcome;
        if let Some(started) = self.growing.take() {
            self.wait(HookName::OnGrowing, started);
        }
        let grows = verdict.is_some_and(|verdict| verdict.verdict >= VerdictWord::Growing);
        let failed = matches!(outcome, Outcome::Failed | Outcome::Panicked | Outcome::Diverged);
        let hooks = self.hooks.clone();
        let due = [
            (HookName::OnGrowing, &hooks.on_growing, grows && !self.growth_reported),
            (HookName::OnLimit, &hooks.on_limit, outcome == Outcome::MemoryLimit),
            (HookName::OnFailed, &hooks.on_failed, failed),
            (HookName::OnEnd, &hooks.on_end, true),
        ];
        for (name, command, _) in due.into_iter().filter(|(_, command, due)| *due && !command.is_empty()) {
            let document = HookDocument {
                outcome: Some(outcome),
                exit_code: Some(exit_code),
                message: ending.message.clone(),
                verdict: verdict.map(hook_verdict),
                ..with_summary(document(name, run, &self.names), summary)
            };
            match start(command, &document) {
                Ok(started) => self.wait(name, started),
                Err(error) => self.record_failure(name, &error),
            }
        }
        log::append(run, &self.failures);
        self.failures
    }

    fn wait(&mut self, name: HookName, hook: RunningHook) {
        if let Err(error) = hook.wait(self.hooks.time_limit.0) {
            self.record_failure(name, &error);
        }
    }

    fn record_failure(&mut self, name: HookName, error: &HookError) {
        self.failures.push(format!("hook `hooks.{}` failed (the run is not affected): {error}", name.key()));
    }
}

/// Reason why a hook failed.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("the command is empty")]
    NoProgram,
    #[error("cannot start `{program}`: {source}")]
    Start { program: String, source: io::Error },
    #[error(
        "cannot write the document for `{program}` to a temporary file in {directory}: {source}; set `TMPDIR` to another directory"
    )]
    Document { program: String, directory: String, source: io::Error },
    #[error("`{program}` exceeded `hooks.time_limit` = {} and was killed", humantime::format_duration(*limit))]
    TimeLimit { program: String, limit: Duration },
    #[error("cannot wait for `{program}`: {source}")]
    Wait { program: String, source: io::Error },
    #[error("`{program}`: {status}{}", stderr.as_ref().map_or_else(String::new, |line| format!(": {line}")))]
    Exit { program: String, status: String, stderr: Option<String> },
}

fn hook_verdict(verdict: &Verdict) -> HookVerdict {
    HookVerdict { verdict: verdict.verdict, message: verdict.message.clone(), owner: verdict.owner.clone() }
}

fn document(hook: HookName, run: &Path, (experiment, name): &(String, String)) -> HookDocument {
    let directory = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
    let existing = |name: &str| {
        let path = directory.join(name);
        path.is_file().then(|| path.display().to_string())
    };
    HookDocument {
        version: VERSION,
        hook,
        experiment: experiment.clone(),
        run: name.clone(),
        host: host::name(),
        time: timestamp::now(),
        step: 0,
        steps_planned: 0,
        outcome: None,
        exit_code: None,
        message: String::new(),
        seconds: None,
        verdict: None,
        metrics_last: [].into(),
        best: None,
        post_mortem: existing(layout::POST_MORTEM),
        report: existing(layout::REPORT),
        directory: directory.display().to_string(),
    }
}

fn with_summary(document: HookDocument, summary: Option<&Summary>) -> HookDocument {
    let Some(summary) = summary else { return document };
    HookDocument {
        step: summary.steps,
        steps_planned: summary.steps_planned,
        seconds: Some(summary.seconds),
        metrics_last: summary.metrics_last.clone(),
        best: summary.best.clone(),
        ..document
    }
}

/// Hook whose process has been started.
#[derive(Debug)]
struct RunningHook {
    program: String,
    child: Child,
    mark: Mark,
    start_time: Instant,
    stderr: Arc<Mutex<StderrTail>>,
}

/// Last bytes of a hook's stderr, at most [`STDERR_BYTES_MAX`].
#[derive(Debug, Default)]
struct StderrTail {
    bytes: Vec<u8>,
    ended: bool,
}

fn start(command: &[String], document: &HookDocument) -> Result<RunningHook, HookError> {
    let (program, arguments) = command.split_first().ok_or(HookError::NoProgram)?;
    let stdin = document_file(document).map_err(|source| HookError::Document {
        program: program.clone(),
        directory: printable::line(&std::env::temp_dir().display().to_string(), 200),
        source,
    })?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped());
    let mark = Mark::new();
    command.env(Mark::VARIABLE, &mark.0);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    child::end_with_parent(&mut command, ParentDeathSignal::Terminate);
    let mut child = command.spawn().map_err(|source| HookError::Start { program: program.clone(), source })?;
    let stderr = Arc::new(Mutex::new(StderrTail::default()));
    if let Some(mut pipe) = child.stderr.take() {
        let tail = stderr.clone();
        // Not joined: a process that the hook left behind may hold the pipe open. The tail is bounded.
        let reader = std::thread::Builder::new().name("xrun hook".into());
        let _ = reader.spawn(move || read_tail(&mut pipe, &tail));
    }
    Ok(RunningHook { program: program.clone(), child, mark, start_time: Instant::now(), stderr })
}

/// Writes the document to an unnamed file: unlike with a pipe, a hook that does not read cannot block the run.
fn document_file(document: &HookDocument) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    serde_json::to_writer_pretty(&mut file, document)?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

fn read_tail(pipe: &mut impl Read, tail: &Mutex<StderrTail>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.bytes.extend_from_slice(&buffer[..count]);
        let excess = tail.bytes.len().saturating_sub(STDERR_BYTES_MAX);
        tail.bytes.drain(..excess);
    }
    tail.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
}

impl RunningHook {
    /// Waits for the process to exit, and kills it when `limit` has passed since its start.
    fn wait(mut self, limit: Duration) -> Result<(), HookError> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.start_time.elapsed() >= limit => {
                    self.kill();
                    return Err(HookError::TimeLimit { program: self.program, limit });
                }
                Ok(None) => std::thread::sleep(POLL_EVERY),
                Err(source) => return Err(HookError::Wait { program: self.program, source }),
            }
        };
        if status.success() {
            return Ok(());
        }
        let status = match (status.code(), child::signal_of(status)) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".into(),
        };
        let stderr = self.last_stderr_line();
        Err(HookError::Exit { program: self.program, status, stderr })
    }

    fn last_stderr_line(&self) -> Option<String> {
        let start_time = Instant::now();
        loop {
            let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            if tail.ended || start_time.elapsed() >= STDERR_GRACE {
                let text = String::from_utf8_lossy(&tail.bytes);
                return Some(printable::line(text.lines().rev().find(|line| !line.trim().is_empty())?, 300));
            }
            drop(tail);
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Kills the hook and all processes that it started, including those that left its process group or were orphaned.
    fn kill(&mut self) {
        let own = self.child.id();
        // A killed process starts no other, but new ones may be started during the search.
        for _ in 0..KILL_ROUNDS {
            let found = self
                .mark
                .processes()
                .into_iter()
                .chain(processes::descendants(own).into_iter().map(|member| member.id));
            let mut any = false;
            for process in found.filter(|process| *process != own) {
                any |= send_kill(process as i32);
            }
            send_kill(-(own as i32));
            if !any {
                break;
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Largest number of searches for processes that were started while others were killed.
const KILL_ROUNDS: usize = 20;

#[cfg(unix)]
fn send_kill(process: i32) -> bool {
    // SAFETY: takes numbers only. A process that has exited gives an error without effect.
    unsafe { libc::kill(process, libc::SIGKILL) == 0 }
}

#[cfg(not(unix))]
fn send_kill(_: i32) -> bool {
    false
}

/// Mark of a hook's processes: an environment variable, which they inherit.
#[derive(Debug)]
struct Mark(String);

impl Mark {
    const VARIABLE: &str = "XRUN_HOOK";

    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // With the time, because process ids are reused.
        let now = timestamp::time().timestamp_micros();
        Self(format!("{}-{}-{now}", std::process::id(), COUNT.fetch_add(1, Relaxed)))
    }

    /// Ids of the processes of this user that have the mark; empty without `/proc`.
    fn processes(&self) -> Vec<u32> {
        let entry = format!("{}={}", Self::VARIABLE, self.0);
        let has = |process: &u32| {
            let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|one| one == entry.as_bytes())
        };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str], limit: Duration) -> Result<(), HookError> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        start(&command, &document(HookName::OnEnd, Path::new("/nowhere"), &Default::default()))
            .and_then(|started| started.wait(limit))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_hook_reads_its_document_and_a_failure_has_its_last_line_of_stderr() {
        run(&["grep", "-q", "\"hook\": \"on_end\""], LONG).unwrap();
        let error = run(&["sh", "-c", "echo first >&2; echo \u{1b}last >&2; exit 3"], LONG).unwrap_err();
        insta::assert_snapshot!(error, @r"`sh`: exit code 3: \u{1b}last");
        assert!(matches!(run(&["/no/such/program"], LONG), Err(HookError::Start { .. })));
    }

    #[test]
    fn a_hook_that_writes_much_or_reads_nothing_does_not_block() {
        run(&["sh", "-c", "yes | head -c 3000000 >&2"], LONG).unwrap();
        run(&["true"], LONG).unwrap();
    }

    /// Waits until a script has written a process id.
    fn process_id_in(file: &Path, start_time: Instant) -> i32 {
        while !file.exists() {
            assert!(start_time.elapsed() < LONG, "the hook does not start");
            std::thread::sleep(POLL_EVERY);
        }
        std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_hook_that_exceeds_its_time_limit_is_killed_with_its_descendants() {
        // A child, a session leader, and an orphaned session leader.
        for inner in
            ["sleep 600", "setsid sleep 600", "(setsid sh -c 'sleep 600 & echo $! > FILE.new; mv FILE.new FILE' &)"]
        {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("process");
            let path = file.display().to_string();
            let script = match inner.contains("FILE") {
                true => format!("{}; sleep 600", inner.replace("FILE", &path)),
                false => format!("{inner} & echo $! > {path}.new; mv {path}.new {path}; wait"),
            };
            let start_time = Instant::now();
            let command = ["sh".to_owned(), "-c".to_owned(), script];
            let started =
                start(&command, &document(HookName::OnEnd, Path::new("/nowhere"), &Default::default())).unwrap();
            let inner = process_id_in(&file, start_time);
            let error = started.wait(Duration::from_millis(1)).unwrap_err();
            assert!(matches!(error, HookError::TimeLimit { .. }), "{error}");
            // A zombie, which was not reaped yet, counts as dead.
            let alive = || {
                let state = std::fs::read_to_string(format!("/proc/{inner}/stat")).unwrap_or_default();
                state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
            };
            while cfg!(target_os = "linux") && alive() {
                assert!(start_time.elapsed() < LONG, "its process is still alive");
                std::thread::sleep(POLL_EVERY);
            }
        }
    }
}
