//! A temporary directory with experiment files and results.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use xrun::experiment::pipeline::Pipeline;
use xrun::experiment::shape;

/// Says that a test cannot run here and why, past the capture of `cargo test`, so that `.ci/run` can count it.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let mut terminal = std::io::stderr().lock();
    writeln!(terminal, "SKIPPED: {}: {why}", thread.name().unwrap_or("a test")).unwrap();
}

pub struct Workplace {
    pub directory: tempfile::TempDir,
}

/// Exit code and output of a command; -1 after a signal.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Output {
    /// Stdout of a command with `--json`.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Workplace {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A new one with an experiment file.
    pub fn with(name: &str, text: &str) -> Self {
        let workplace = Self::new();
        workplace.file(name, text);
        workplace
    }

    /// A new one with a finished run of an experiment.
    #[track_caller]
    pub fn ran(name: &str, text: &str) -> Self {
        let workplace = Self::new();
        workplace.finished(name, text);
        workplace
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes an experiment file.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = std::fs::OpenOptions::new().create_new(true).write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        path
    }

    /// Writes a file, or writes it anew.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes a program into `bin`, which comes first in the path of each command.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.file(&format!("bin/{name}"), script);
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.in_place(env!("CARGO_BIN_EXE_xrun"), arguments)
    }

    /// Another program with the directory and the environment of [`Self::command`].
    pub fn in_place(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory.path());
        command.env("XRUN_CACHE", cache()).env("XDG_STATE_HOME", state()).env_remove("XRUN_REAL_DATA");
        command.env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap()));
        command
    }

    /// As [`Self::xrun`]; it must end with this code.
    #[track_caller]
    pub fn exits(&self, code: i32, arguments: &[&str]) -> Output {
        let output = self.xrun(arguments);
        assert_eq!(output.code, code, "{arguments:?}: {output:?}");
        output
    }

    /// Messages of commands that fail with their codes, each after its arguments.
    #[track_caller]
    pub fn refusals(&self, commands: &[(i32, &[&str])]) -> String {
        commands
            .iter()
            .map(|(code, arguments)| format!("{}\n{}\n", arguments.join(" "), self.exits(*code, arguments).err))
            .collect()
    }

    /// Writes an experiment file, and runs it; the run's directory. It must finish.
    #[track_caller]
    pub fn finished(&self, name: &str, text: &str) -> PathBuf {
        let file = format!("{name}.toml");
        self.file(&file, text);
        self.exits(0, &[&file, "-q"]);
        self.latest(name)
    }

    pub fn xrun(&self, arguments: &[&str]) -> Output {
        Output::from(self.command(arguments).output().unwrap())
    }

    /// As [`Workplace::xrun`], for a terminal of so many characters.
    pub fn xrun_within(&self, columns: usize, arguments: &[&str]) -> Output {
        Output::from(self.command(arguments).env("COLUMNS", columns.to_string()).output().unwrap())
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The newest run of an experiment.
    pub fn latest(&self, experiment: &str) -> PathBuf {
        std::fs::canonicalize(self.path("results").join(experiment).join("latest")).unwrap()
    }

    /// The newest sweep of an experiment.
    pub fn latest_sweep(&self, experiment: &str) -> PathBuf {
        std::fs::canonicalize(self.path("results").join(experiment).join("sweeps/latest")).unwrap()
    }

    /// Newest reproduction of an experiment.
    pub fn reproduction(&self, experiment: &str) -> PathBuf {
        std::fs::canonicalize(self.path("results").join(experiment).join("reproductions/latest")).unwrap()
    }
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Text for a snapshot, whose sizes and durations are placeholders in addition to those of [`redacted_names`].
pub fn redacted(text: &str) -> String {
    let patterns = [
        (r"\d+(\.\d+)? ([KMGT]i)?B\b", "SIZE"),
        // A duration has one or two units, depending on its length.
        (r"\d+(\.\d+)? (s|ms|µs|min|h|d)\b( \d\d (s|min|h)\b)?", "DURATION"),
    ];
    replaced(redacted_names(text), &patterns)
}

/// Text for a snapshot: lists of all pipelines are a placeholder, so a new one changes no snapshot.
pub fn without_pipelines(text: &str) -> String {
    crate::schemas::known();
    let names: Vec<&str> = Pipeline::names().collect();
    let tables: Vec<String> = names.iter().map(|name| format!("[pipeline.{name}]")).collect();
    text.replace(&shape::list(tables.iter().map(String::as_str), "or"), "PIPELINES")
        .replace(&shape::list(names.iter().copied(), "or"), "PIPELINES")
        .replace(&names.join(", "), "PIPELINES")
}

/// Text for a snapshot: temporary directories, run names and times are placeholders, other numbers stay.
pub fn redacted_names(text: &str) -> String {
    let patterns = [
        (r#"[^\s`'"(=,:]*/\.tmp\w{6}"#, "TEMP"),
        (r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d_[0-9a-f]{6}(-\d+)?\b", "RUN"),
        // A digest in the name of generated data, a line of the source.
        (r"-[0-9a-f]{16}\b", "-HASH"),
        (r"\.rs:\d+", ".rs:LINE"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z|[+-]\d\d:\d\d)?", "TIME"),
    ];
    let text = text.replace(env!("CARGO_BIN_EXE_xrun"), "xrun").replace(env!("CARGO_MANIFEST_DIR"), "ROOT");
    replaced(text, &patterns)
}

fn replaced(text: String, patterns: &[(&str, &str)]) -> String {
    patterns.iter().fold(text, |text, (pattern, placeholder)| {
        regex_lite::Regex::new(pattern).unwrap().replace_all(&text, *placeholder).into_owned()
    })
}

/// Returns the lines that contain a part, redacted for a snapshot.
pub fn lines_with(text: &str, part: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(part)).collect();
    redacted(&lines.join("\n"))
}

/// The command of another user than the one who runs the tests, under these limits of the shell, such as `ulimit -u 1`; `None` where
/// only the superuser could start it.
pub fn as_another(command: &Command, limits: &str) -> Option<Command> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let directory = command.get_current_dir().unwrap();
    if std::fs::metadata(directory).unwrap().uid() != 0 {
        skipped("only the superuser can be another user");
        return None;
    }
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    // Where the tests are built, another user may not look.
    let program = directory.join("xrun");
    if !program.exists() {
        std::fs::copy(command.get_program(), &program).unwrap();
    }
    let mut other = Command::new("sh");
    other.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]).arg(program).args(command.get_args());
    other.current_dir(directory).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    other.uid(NOBODY).gid(NOBODY);
    Some(other)
}

/// The user `nobody` of Linux, or one that is not there.
const NOBODY: u32 = 65_534;

/// Generated data is shared by the tests: writing it once is part of what they test.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// Holds the key by which directories are known to be made by the user of the tests.
pub fn state() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("state")
}

/// A record, without the check of its bytes.
pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&unsealed(&text(path))).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A record, lines or a TOML file of a result without the checks of its bytes, so that a test may change what is in it, or
/// compare it with what a command prints.
pub fn unsealed(text: &str) -> String {
    if let Some((record, _)) = text.rsplit_once(",\n  \"sha256\": \"") {
        return format!("{record}\n}}\n");
    }
    text.lines()
        .filter(|line| !line.starts_with("# sha256 of the lines above"))
        .map(|line| line.rsplit_once(",\"crc32\":\"").map_or(format!("{line}\n"), |(line, _)| format!("{line}}}\n")))
        .collect()
}

/// Records of a file of lines.
pub fn lines(path: &Path) -> Vec<serde_json::Value> {
    unsealed(&text(path)).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records of the metrics of a run.
pub fn metrics(run: &Path) -> Vec<serde_json::Value> {
    lines(&run.join("metrics.jsonl"))
}

/// Waits until a run has written so many lines of metrics.
pub fn wait_for_lines(run: &Path, count: usize) {
    let written = || std::fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count();
    wait_until("metrics are written", || written() >= count);
}

/// A WAV file of so many 16-bit samples of a tone at 16 kHz.
pub fn wav(samples: u32, pitch: u32) -> Vec<u8> {
    let mut bytes =
        b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data".to_vec();
    bytes.extend((2 * samples).to_le_bytes());
    bytes.extend((0..samples).flat_map(|at| ((at * pitch % 200) as i16 * 50).to_le_bytes()));
    bytes
}

/// Python that has modules: the one that a variable names, or else `python3`.
pub fn python(variable: &str, modules: &str) -> Option<String> {
    let python = std::env::var(variable).unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    skipped(&format!("this Python has no {modules}; {variable} names one that has"));
    None
}

/// Sends a signal to a process that is not yet waited for.
pub fn send(child: &Child, signal: i32) {
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Kills a process as nobody can refuse.
pub fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The names of the buffers of a plan or summary, sorted.
fn owners(record: &serde_json::Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        record["owners"].as_array().unwrap().iter().map(|owner| owner["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Holds a finished run against its plan: the same buffers with the same caps, and none above them.
pub fn is_bounded(run: &Path) {
    let (plan, summary) = (json(&run.join("plan.json")), json(&run.join("summary.json")));
    assert_eq!(owners(&plan), owners(&summary), "planned and registered buffers are the same");
    for owner in summary["owners"].as_array().unwrap() {
        assert!(owner["peak_items"].as_u64() <= owner["cap_items"].as_u64(), "{owner}");
        assert!(owner["peak_bytes"].as_u64() <= owner["cap_bytes"].as_u64(), "{owner}");
        let planned = plan["owners"].as_array().unwrap().iter().find(|planned| planned["name"] == owner["name"]);
        assert_eq!(planned.unwrap()["bytes"], owner["cap_bytes"], "{owner}");
    }
}

/// Returns a series of a verdict.
pub fn series<'a>(verdict: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let all = verdict["series"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no series {name}: {verdict}"))
}

/// All TOML files below a directory.
pub fn toml_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => toml_files(&path, found),
            false if path.extension().is_some_and(|end| end == "toml") => found.push(path),
            false => {}
        }
    }
}

pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Waits until something is true; fails after a minute.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
