//! Programs that are told how a run goes: started without a shell, with a document on standard input and a time limit.
//!
//! Whoever runs an experiment file runs its hooks. A result from elsewhere starts no program unless it is asked for.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use xrun_core::files::layout;
use xrun_core::printable;
use xrun_core::settings::sections::Hooks;
use xrun_results::format::{Outcome, Summary, VERSION};
use xrun_results::hook::{HookDocument, HookName, HookVerdict};
use xrun_results::read;
use xrun_results::verdict::{Judgement, Verdict};
use xrun_results::{log, timestamp};
use xrun_watch::child;
use xrun_watch::child::ParentDeathSignal;
use xrun_watch::host;
use xrun_watch::memory::processes;
use xrun_watch::stop::RunOutcome;

/// Of what a hook says on standard error, the end is kept.
const SAID_BYTES_MAX: usize = 4096;
/// How often is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What a hook has said may arrive a moment after it ended.
const SAID_GRACE: Duration = Duration::from_millis(200);

/// The hooks of one process of a run.
#[derive(Debug)]
pub struct Told {
    hooks: Hooks,
    /// One that was started while the run goes on, and not yet waited for.
    growing: Option<Started>,
    growing_told: bool,
    /// Hooks that failed, for people.
    failures: Vec<String>,
}

impl Told {
    /// Tells nobody where the hooks are not to be run.
    pub fn new(hooks: &Hooks, asked: bool) -> Self {
        let hooks = if asked { hooks.clone() } else { Hooks::default() };
        Self { hooks, growing: None, growing_told: false, failures: Vec::new() }
    }

    /// Memory grows, and the run goes on. Does not wait for the hook.
    pub fn growing(&mut self, run: &Path, step: u64, steps_planned: u64, verdict: &Verdict) {
        if self.growing_told || self.hooks.on_growing.is_empty() {
            return;
        }
        self.growing_told = true;
        let document = HookDocument {
            step,
            steps_planned,
            message: verdict.message.clone(),
            verdict: Some(in_short(verdict)),
            ..document(HookName::OnGrowing, run)
        };
        match start(&self.hooks.on_growing, &document) {
            Ok(started) => self.growing = Some(started),
            Err(error) => self.failed(HookName::OnGrowing, &error),
        }
    }

    /// The run has ended, and its directory says so. Returns the hooks that failed, a sentence each; they stand in the log,
    /// too.
    pub fn ended(mut self, run: &Path, of: &RunOutcome, exit_code: u8) -> Vec<String> {
        let RunOutcome { ending, summary, verdict, .. } = of;
        let outcome = ending.outcome;
        if let Some(started) = self.growing.take() {
            self.wait(HookName::OnGrowing, started);
        }
        let grows = verdict.as_ref().is_some_and(|verdict| verdict.verdict >= Judgement::Growing);
        let failed = matches!(outcome, Outcome::Failed | Outcome::Panicked | Outcome::Diverged);
        let hooks = self.hooks.clone();
        let due = [
            (HookName::OnGrowing, &hooks.on_growing, grows && !self.growing_told),
            (HookName::OnLimit, &hooks.on_limit, outcome == Outcome::MemoryLimit),
            (HookName::OnFailed, &hooks.on_failed, failed),
            (HookName::OnEnd, &hooks.on_end, true),
        ];
        for (name, words, _) in due.into_iter().filter(|(_, words, due)| *due && !words.is_empty()) {
            let ended = HookDocument {
                outcome: Some(outcome),
                exit_code: Some(exit_code),
                message: ending.message.clone(),
                verdict: verdict.as_ref().map(in_short),
                ..of_summary(document(name, run), summary.as_ref())
            };
            match start(words, &ended) {
                Ok(started) => self.wait(name, started),
                Err(error) => self.failed(name, &error),
            }
        }
        log::append(run, &self.failures);
        self.failures
    }

    fn wait(&mut self, name: HookName, started: Started) {
        if let Err(error) = started.wait(self.hooks.time_limit.0) {
            self.failed(name, &error);
        }
    }

    fn failed(&mut self, name: HookName, error: &str) {
        self.failures
            .push(format!("the hook `hooks.{}` failed, which changes nothing of the run: {error}", name.key()));
    }
}

fn in_short(verdict: &Verdict) -> HookVerdict {
    HookVerdict { verdict: verdict.verdict, message: verdict.message.clone(), owner: verdict.owner.clone() }
}

fn document(hook: HookName, run: &Path) -> HookDocument {
    let folder = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
    let there = |name: &str| {
        let path = folder.join(name);
        path.is_file().then(|| path.display().to_string())
    };
    let manifest = read::manifest(run).ok();
    let (experiment, name) = manifest.map(|manifest| (manifest.experiment, manifest.run)).unwrap_or_default();
    HookDocument {
        version: VERSION,
        hook,
        experiment,
        run: name,
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
        post_mortem: there(layout::POST_MORTEM),
        report: there(layout::REPORT),
        folder: folder.display().to_string(),
    }
}

fn of_summary(document: HookDocument, summary: Option<&Summary>) -> HookDocument {
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

/// A hook that works.
#[derive(Debug)]
struct Started {
    program: String,
    child: Child,
    mark: Mark,
    begun: Instant,
    said: Arc<Mutex<Said>>,
}

#[derive(Debug, Default)]
struct Said {
    /// The end of it, at most [`SAID_BYTES_MAX`].
    bytes: Vec<u8>,
    ended: bool,
}

fn start(words: &[String], document: &HookDocument) -> Result<Started, String> {
    let (program, arguments) = words.split_first().ok_or("it names no program")?;
    let wrong = |error: io::Error| format!("`{program}` cannot be started: {error}");
    let no_document = |error: io::Error| {
        let folder = std::env::temp_dir();
        let folder = printable::line(&folder.display().to_string(), 200);
        format!(
            "`{program}` was not started: the temporary file of its document cannot be written in {folder}: {error}; `TMPDIR` says \
             where temporary files go"
        )
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(given(document).map_err(no_document)?).stdout(Stdio::null()).stderr(Stdio::piped());
    let mark = Mark::new();
    command.env(Mark::VARIABLE, &mark.0);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    child::end_with_parent(&mut command, ParentDeathSignal::Terminate);
    let mut child = command.spawn().map_err(wrong)?;
    let said = Arc::new(Mutex::new(Said::default()));
    if let Some(mut pipe) = child.stderr.take() {
        let kept = said.clone();
        // Not joined: a process that the hook left behind may hold the pipe open. It reads into a few kilobytes.
        let reader = std::thread::Builder::new().name("xrun hook".into());
        let _ = reader.spawn(move || keep_end(&mut pipe, &kept));
    }
    Ok(Started { program: program.clone(), child, mark, begun: Instant::now(), said })
}

/// The document as a file without a name, which no hook can fill or block.
fn given(document: &HookDocument) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    serde_json::to_writer_pretty(&mut file, document)?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

fn keep_end(pipe: &mut impl Read, kept: &Mutex<Said>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        let mut said = kept.lock().unwrap_or_else(PoisonError::into_inner);
        said.bytes.extend_from_slice(&buffer[..count]);
        let more = said.bytes.len().saturating_sub(SAID_BYTES_MAX);
        said.bytes.drain(..more);
    }
    kept.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
}

impl Started {
    /// Waits until it has ended, at most so long since it began.
    fn wait(mut self, limit: Duration) -> Result<(), String> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.begun.elapsed() >= limit => {
                    self.kill();
                    let limit = humantime::format_duration(limit);
                    return Err(format!("`{}` was ended after {limit}, its `hooks.time_limit`", self.program));
                }
                Ok(None) => std::thread::sleep(LOOK_EVERY),
                Err(error) => return Err(format!("`{}`: {error}", self.program)),
            }
        };
        if status.success() {
            return Ok(());
        }
        let ended = match (status.code(), child::signal_of(status)) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".into(),
        };
        let last = self.last_words().map_or_else(String::new, |line| format!(": {line}"));
        Err(format!("`{}`: {ended}{last}", self.program))
    }

    fn last_words(&self) -> Option<String> {
        let begun = Instant::now();
        loop {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.ended || begun.elapsed() >= SAID_GRACE {
                let text = String::from_utf8_lossy(&said.bytes);
                return Some(printable::line(text.lines().rev().find(|line| !line.trim().is_empty())?, 300));
            }
            drop(said);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// With all processes that it started, also those that left its group or whose parents are gone.
    fn kill(&mut self) {
        let own = self.child.id();
        // One that is killed starts no other, and others may be started while these are looked for.
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

/// Processes that are started while others are killed are looked for as often as this.
const KILL_ROUNDS: usize = 20;

#[cfg(unix)]
fn send_kill(process: i32) -> bool {
    // SAFETY: takes numbers. A process that is gone is an error that changes nothing.
    unsafe { libc::kill(process, libc::SIGKILL) == 0 }
}

#[cfg(not(unix))]
fn send_kill(_: i32) -> bool {
    false
}

/// Mark of the processes of a hook: a variable of their environment, which they inherit.
#[derive(Debug)]
struct Mark(String);

impl Mark {
    const VARIABLE: &str = "XRUN_HOOK";

    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // With the time: a number of a process is given again.
        let now = timestamp::time().timestamp_micros();
        Self(format!("{}-{}-{now}", std::process::id(), COUNT.fetch_add(1, Relaxed)))
    }

    /// Those that live and have it. None where there is no `/proc`, and none of other users.
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

    fn run(words: &[&str], limit: Duration) -> Result<(), String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        start(&words, &document(HookName::OnEnd, Path::new("/nowhere"))).and_then(|started| started.wait(limit))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_hook_reads_its_document_and_what_it_says_last_is_told_when_it_fails() {
        assert_eq!(run(&["grep", "-q", "\"hook\": \"on_end\""], LONG), Ok(()));
        let error = run(&["sh", "-c", "echo first >&2; echo \u{1b}last >&2; exit 3"], LONG).unwrap_err();
        assert_eq!(error, "`sh`: exit code 3: \\u{1b}last");
        assert!(run(&["/no/such/program"], LONG).unwrap_err().contains("cannot be started"));
    }

    #[test]
    fn a_hook_that_says_much_or_reads_nothing_blocks_nobody() {
        assert_eq!(run(&["sh", "-c", "yes | head -c 3000000 >&2"], LONG), Ok(()));
        assert_eq!(run(&["true"], LONG), Ok(()));
    }

    /// Waits until a script has written the number of a process.
    fn number_in(file: &Path, begun: Instant) -> i32 {
        while !file.exists() {
            assert!(begun.elapsed() < LONG, "the hook does not start");
            std::thread::sleep(LOOK_EVERY);
        }
        std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_hook_that_takes_too_long_is_ended_with_what_it_started() {
        // A child; one that leads a session of its own; one whose parent is gone, too.
        for inner in
            ["sleep 600", "setsid sleep 600", "(setsid sh -c 'sleep 600 & echo $! > FILE.new; mv FILE.new FILE' &)"]
        {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("number");
            let place = file.display().to_string();
            let script = match inner.contains("FILE") {
                true => format!("{}; sleep 600", inner.replace("FILE", &place)),
                false => format!("{inner} & echo $! > {place}.new; mv {place}.new {place}; wait"),
            };
            let begun = Instant::now();
            let words = ["sh".to_owned(), "-c".to_owned(), script];
            let started = start(&words, &document(HookName::OnEnd, Path::new("/nowhere"))).unwrap();
            let inner = number_in(&file, begun);
            let error = started.wait(Duration::from_millis(1)).unwrap_err();
            assert!(error.contains("1ms, its `hooks.time_limit`"), "{error}");
            // A process that nobody has reaped yet is a zombie, and gone all the same.
            let alive = || {
                let state = std::fs::read_to_string(format!("/proc/{inner}/stat")).unwrap_or_default();
                state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
            };
            while cfg!(target_os = "linux") && alive() {
                assert!(begun.elapsed() < LONG, "its process lives on");
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}
