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

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xrun"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("XRUN_CACHE", cache())
            .env_remove("XRUN_REAL_DATA");
        command.env("XDG_STATE_HOME", state());
        command
    }

    pub fn xrun(&self, arguments: &[&str]) -> Output {
        said(self.command(arguments).output().unwrap())
    }

    /// As [`Workplace::xrun`], for a terminal of so many characters.
    pub fn xrun_within(&self, columns: usize, arguments: &[&str]) -> Output {
        said(self.command(arguments).env("COLUMNS", columns.to_string()).output().unwrap())
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

pub fn said(output: std::process::Output) -> Output {
    Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
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

/// Returns a series of a verdict.
pub fn series<'a>(verdict: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let all = verdict["series"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no series {name}: {verdict}"))
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
