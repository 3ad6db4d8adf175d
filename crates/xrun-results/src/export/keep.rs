//! Copy of a run that can be committed or published: without names of the machine, the user and directories, arguments of watched
//! commands and changes of the checkout.
//!
//! `xrun reproduce` can run it again. Checkpoints, images and, unless they are asked for, the lines of the memory trace are left
//! out; the report has the curves.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;

use crate::format::{DESCRIPTION_CHARACTERS_MAX, Manifest};
use crate::proof;
use crate::read::{self, ReadError};
use crate::report::{self, ReportError};
use crate::resolved;
use crate::secrets::{self, MASK};
use xrun_core::files::checksum::LineSum;
use xrun_core::files::scratch::Scratch;
use xrun_core::files::{checksum, file, layout, sums, write};
use xrun_core::printable;

const RECORDS: &[&str] = &[layout::PLAN, layout::VERDICT, layout::POST_MORTEM, layout::SUMMARY];
/// Texts, which are copied unless a program that is not xrun's wrote into them.
const TEXTS: &[&str] = &[layout::EXPERIMENT, layout::LOG];
const LINES: &[&str] = &[layout::METRICS, layout::MEMORY];
/// Other files of a copy; the last one of copies that were made before the page had memory by epoch.
const OTHERS: &[&str] = &[layout::MANIFEST, layout::REPORT, layout::RESOLVED, "memory_epochs.csv"];
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const LINE_BYTES_MAX: u64 = 64 * 1024;
const HOST: &str = "<host>";
const DIRECTORY: &str = "<directory>";
/// Directory in the copy in which the command was called.
const PROJECT: &str = "<project>";
/// Directory of the public data sets (`XRUN_REAL_DATA`) in the copy.
const DATA: &str = "<data>";
/// Home directory of the user in the copy.
const HOME: &str = "<home>";

/// Place of a copy, and what it has beyond the small files.
#[derive(Clone, Copy, Debug)]
pub struct KeepOptions<'a> {
    /// Directory of the copy, such as `results/reference/stage2`.
    pub path: &'a Path,
    /// An older copy is replaced.
    pub replace: bool,
    /// Include the lines of the memory trace.
    pub with_trace: bool,
}

/// Error of keeping a run.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] write::WriteError),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The run cannot be kept, or what is there may not be replaced: a message.
    #[error("{0}")]
    Refused(String),
}

impl KeepError {
    fn refused(path: &Path, why: &str) -> Self {
        Self::Refused(format!("{} {why}", path.display()))
    }
}

/// Writes the copy; returns its directory and the number of damaged lines left out.
///
/// # Errors
/// The run has not ended, a record is damaged, the copy exists, or it cannot be written.
pub fn keep(run: &Path, options: KeepOptions<'_>) -> Result<(PathBuf, u64), KeepError> {
    let refuse = |why: &str| Err(KeepError::Refused(format!("{}: {why}", run.display())));
    if read::summary(run)?.is_none() {
        return refuse("the run has not ended");
    }
    if !run.join(layout::MEMORY).is_file() {
        return refuse("the run has no memory trace, from which the report is drawn; a kept result is not kept again");
    }
    let path = options.path.to_path_buf();
    let mut lines_left_out = 0;
    install(&path, options.replace, is_kept_run, |copy| {
        lines_left_out = copy_files(run, copy)?;
        report::write(copy)?;
        name_final_place(copy, &path)?;
        let superfluous = [Some(sums::SUMS), Some(layout::MEMORY).filter(|_| !options.with_trace)];
        for name in superfluous.into_iter().flatten().map(|name| copy.join(name)) {
            if name.exists() {
                write::with_path(&name, std::fs::remove_file(&name))?;
            }
        }
        Ok(())
    })?;
    Ok((path, lines_left_out))
}

/// Fills a temporary directory and puts it at `path`: half a copy would look like a result. An older copy is exchanged for
/// it, so that at each instant one of them is there.
fn install(
    path: &Path,
    replace: bool,
    is_own: impl Fn(&Path) -> Result<(), String>,
    fill: impl FnOnce(&Path) -> Result<(), KeepError>,
) -> Result<(), KeepError> {
    let exists = path.symlink_metadata().is_ok();
    let check = |found: &Path| {
        let is_not_proven = |reason: String| {
            format!(
                "is not replaced, because it is not proven to be a kept result: {}; move it away, or choose a name with --name NAME",
                printable::line(&reason, 400)
            )
        };
        is_own(found).map_err(|reason| KeepError::refused(path, &is_not_proven(reason)))
    };
    if exists && !replace {
        let why = "exists already; replace it with --replace, or choose a name with --name NAME";
        return Err(KeepError::refused(path, why));
    }
    if exists {
        check(path)?;
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    write::create_directories(parent)?;
    let unfinished = write::with_path(parent, Scratch::create(parent, write::WRITING))?;
    let copy = unfinished.path().join(path.file_name().unwrap_or_default());
    write::with_path(&copy, std::fs::create_dir(&copy))?;
    fill(&copy)?;
    write::with_path(&copy, write::sync_directory(&copy))?;
    if exists {
        write::exchange(&copy, path)?;
        // Another process may have changed it since the check.
        if let Err(error) = check(&copy) {
            write::exchange(&copy, path)?;
            return Err(error);
        }
    } else {
        write::with_path(path, std::fs::rename(&copy, path))?;
    }
    Ok(write::with_path(parent, write::sync_directory(parent))?)
}

fn is_kept_run(copy: &Path) -> Result<(), String> {
    proof::manifest_of(copy, &[layout::SUMMARY]).map_err(|error| error.to_string())?;
    proof::has_only(copy, &[RECORDS, TEXTS, LINES, OTHERS].concat(), &[layout::CHECKPOINTS])
}

fn is_kept_table(copy: &Path) -> Result<(), String> {
    proof::has_only(copy, &[layout::TABLE_JSON], &[])?;
    let table = read_record(&copy.join(layout::TABLE_JSON)).map_err(|error| error.to_string())?;
    let is_table = ["experiment", "sweep", "rows"].iter().all(|key| table.get(key).is_some());
    if is_table { Ok(()) } else { Err(format!("{} is not the table of a sweep", layout::TABLE_JSON)) }
}

/// Writes the table of a sweep; returns the directory.
///
/// # Errors
/// The sweep has no table, a file is damaged, the copy exists, or it cannot be written.
pub fn keep_table(sweep: &Path, options: KeepOptions<'_>) -> Result<PathBuf, KeepError> {
    if !sweep.join(layout::TABLE_JSON).is_file() {
        let why = "the sweep has no table yet; `xrun sweep --collect` writes it";
        return Err(KeepError::Refused(format!("{}: {why}", sweep.display())));
    }
    let path = options.path.to_path_buf();
    install(&path, options.replace, is_kept_table, |copy| {
        let mut table = read_record(&sweep.join(layout::TABLE_JSON))?;
        let here = std::env::current_dir().map_or_else(|_| String::new(), |path| path.display().to_string());
        Anonymizer::new(&[(here, PROJECT)], "").anonymize(&mut table);
        Ok(write::replace(&copy.join(layout::TABLE_JSON), table.to_string().as_bytes())?)
    })?;
    Ok(path)
}

/// Writes the files of the copy; returns the number of damaged lines, which are left out.
fn copy_files(run: &Path, copy: &Path) -> Result<u64, KeepError> {
    let mut manifest = read::manifest(run)?;
    let text = if run.join(layout::RESOLVED).exists() { resolved::read_text(run)? } else { String::new() };
    let mut experiment: Value = toml::from_str(checksum::without_checksum(&text)).unwrap_or_default();
    let is_own = manifest.watched.is_none() && experiment.pointer("/pipeline/command").is_none();
    let mut anonymizer = Anonymizer::of(run, &manifest);
    anonymizer.rename_watched(&mut manifest);
    let (mut lines_left_out, mut sums) = (0, Vec::new());
    for name in LINES.iter().filter(|name| run.join(name).exists()) {
        let (left_out, before, after) = copy_lines(&run.join(name), &copy.join(name), &anonymizer)?;
        lines_left_out += left_out;
        sums.push((name.trim_end_matches(".jsonl"), serde_json::json!(before), serde_json::json!(after)));
    }
    if !text.is_empty() {
        let text = if is_own {
            anonymizer.lines(&secrets::mask_experiment(checksum::without_checksum(&text)))
        } else {
            mask_command(&mut experiment);
            anonymizer.anonymize(&mut experiment);
            toml::to_string(&experiment).unwrap_or_default()
        };
        write::replace(&copy.join(layout::RESOLVED), &checksum::text(&text))?;
    }
    write::replace_json(&copy.join(layout::MANIFEST), &anonymizer.manifest(manifest))?;
    for name in RECORDS.iter().filter(|name| run.join(name).exists()) {
        let mut value = read_record(&run.join(name))?;
        anonymizer.anonymize(&mut value);
        for (file, before, after) in &sums {
            // Where lines are missing, the old sum says so in the copy, too.
            if let Some(sum) = value.pointer_mut(&format!("/lines/{file}")).filter(|sum| *sum == before) {
                sum.clone_from(after);
            }
        }
        write::replace_json(&copy.join(name), &value)?;
    }
    for name in TEXTS.iter().filter(|name| is_own && run.join(name).exists()) {
        let path = run.join(name);
        let bytes = write::with_path(&path, file::bytes(&path, TEXT_BYTES_MAX))?;
        let text = anonymizer.lines(&secrets::mask_experiment(&String::from_utf8_lossy(&bytes)));
        write::replace(&copy.join(name), text.as_bytes())?;
    }
    Ok(lines_left_out)
}

/// Replaces the temporary directory in the report by that of the copy.
fn name_final_place(copy: &Path, path: &Path) -> Result<(), KeepError> {
    let page = copy.join(layout::REPORT);
    let bytes = write::with_path(&page, file::bytes(&page, TEXT_BYTES_MAX))?;
    let shown = |path: &Path| printable::line(&path.display().to_string(), 400);
    let text = String::from_utf8_lossy(&bytes).replace(&shown(copy), &shown(path));
    Ok(write::replace(&page, text.as_bytes())?)
}

/// Reads a record and removes its checksum.
fn read_record(path: &Path) -> Result<Value, ReadError> {
    let mut value = read::value(path)?;
    if let Value::Object(members) = &mut value {
        members.shift_remove("sha256");
    }
    Ok(value)
}

/// Copies a `.jsonl` file; returns the number of damaged lines, and the sums of the original and of the copy.
fn copy_lines(from: &Path, to: &Path, anonymizer: &Anonymizer) -> Result<(u64, LineSum, LineSum), KeepError> {
    let unreadable = |source| ReadError::File { path: from.to_path_buf(), source };
    let mut reader = io::BufReader::new(file::open(from).map_err(unreadable)?);
    let (mut left_out, mut before, mut after) = (0, LineSum::default(), LineSum::default());
    write::replace_with(to, |out| {
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            before.add(&line);
            let bytes = line.trim_ascii_end();
            let sound = checksum::check_line(bytes).is_ok();
            let value = Some(bytes).filter(|_| sound).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
            let Some(mut value) = value else {
                left_out += 1;
                continue;
            };
            if let Value::Object(members) = &mut value {
                members.shift_remove("crc32");
            }
            anonymizer.anonymize(&mut value);
            let copy = checksum::line(value.to_string()) + "\n";
            after.add(copy.as_bytes());
            out.write_all(copy.as_bytes())?;
        }
    })?;
    Ok((left_out, before, after))
}

/// Removes arguments, string values and environment of a command; hyperparameters stay.
fn mask_command(experiment: &mut Value) {
    if let Some(command) = experiment.pointer_mut("/pipeline/command").and_then(Value::as_object_mut) {
        for name in ["program", "resume"] {
            if let Some(Value::Array(words)) = command.get_mut(name) {
                let texts: Vec<String> = words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
                *words = without_argument_values(&texts).into_iter().map(Value::String).collect();
            }
        }
        for name in ["values", "environment"] {
            let values = command.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten();
            values.filter(|(_, value)| value.is_string()).for_each(|(_, value)| *value = MASK.into());
        }
    }
    secrets::mask_table(experiment);
}

/// Arguments without values: the program's name, names of options and placeholders stay. After a single dash a value
/// may follow its option without a space, so only one-letter options stay.
fn without_argument_values(words: &[String]) -> Vec<String> {
    let plain = |text: &str| text.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one));
    let is_option = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| plain(rest) && (rest.starts_with('-') || rest.chars().count() <= 1))
    };
    let mask = |(at, word): (usize, &String)| {
        let placeholder = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match word.split_once('=') {
            _ if at == 0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            _ if placeholder.is_some_and(plain) => word.clone(),
            Some((name, _)) if is_option(name) => format!("{name}={MASK}"),
            None if is_option(word) => word.clone(),
            _ => MASK.to_owned(),
        }
    };
    words.iter().enumerate().map(mask).collect()
}

/// Groups: a URL (1), a path below a directory already replaced (2), a quoted absolute path (3), or any other
/// absolute path with the character before it (4), which is neither part of a relative path nor follows a one-letter
/// option.
static PATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let pattern = r#"([A-Za-z][A-Za-z0-9+.-]*)://[^\s"'`,;)\]}|]*|((?:<(?:directory|project|data|home)>|\$\{\w+\})[^\s"'`:,;)\]]*)|("/[^"\n]*"|'/[^'\n]*'|`/[^`\n]*`)|((?:^|[^A-Za-z0-9])-[A-Za-z]|^|[^A-Za-z0-9./])/+(?:\\.|[^\s/"'`:,;)\]}|<>\\])(?:\\.|[^\s"'`:,;)\]}|<>\\])*"#;
    Regex::new(pattern).ok()
});

/// Replacement for a match of [`PATH`].
fn without_path(found: &Captures<'_>) -> String {
    match (found.get(1), found.get(2), found.get(3)) {
        (Some(scheme), ..) => format!("{}://{MASK}", scheme.as_str()),
        (_, Some(below), _) => below.as_str().to_owned(),
        (.., Some(quoted)) => {
            let quote = &quoted.as_str()[..1];
            format!("{quote}{DIRECTORY}{quote}")
        }
        _ => format!("{}{DIRECTORY}", found.get(4).map_or("", |before| before.as_str())),
    }
}

/// Replacement for a text that is as a whole an absolute path or a URL, which may contain spaces.
fn path_or_url(text: &str) -> Option<String> {
    let text = Some(text).filter(|text| !text.contains('\n'))?;
    if (text.starts_with('/') && text.len() > 1) || text.starts_with("~/") {
        return Some(DIRECTORY.into());
    }
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = scheme.chars().all(|one| one.is_ascii_alphanumeric() || "+.-".contains(one));
    is_scheme.then(|| format!("{scheme}://{MASK}"))
}

/// Removes from texts everything that identifies the machine or the user.
struct Anonymizer {
    /// Directories with their replacements, longest first.
    directories: Vec<(String, &'static str)>,
    /// Names of the machine and of the user, each with its replacement.
    names: Vec<(String, &'static str)>,
    /// Arguments of a watched command that may identify something.
    words: Vec<String>,
    /// Name of the run, and its name in the copy.
    run: Option<(String, String)>,
}

/// A short argument may equal a name used in records, such as `train`. Only arguments with punctuation and long ones
/// are replaced.
const WORD_BYTES_MIN: usize = 4;
const LONG_WORD_BYTES: usize = 16;

impl Anonymizer {
    /// Anonymizer of these directories, of those of the environment, of its user, and of a host.
    fn new(directories: &[(String, &'static str)], host: &str) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let canonical = |path: String| std::fs::canonicalize(&path).map_or(path, |found| found.display().to_string());
        let of_environment = [
            variable("XRUN_REAL_DATA").map(|data| (canonical(data), DATA)),
            variable("HOME").map(|home| (home, HOME)),
            std::env::current_dir().ok().map(|path| (path.display().to_string(), PROJECT)),
        ];
        let all = directories.iter().cloned().chain(of_environment.into_iter().flatten());
        let mut directories: Vec<(String, &str)> = all.filter(|(path, _)| path.len() > 1).collect();
        directories.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let user_of = |(path, _): &(String, &str)| {
            let rest = path.strip_prefix("/home/").or_else(|| path.strip_prefix("/Users/"))?;
            rest.split('/').next().map(str::to_owned)
        };
        let users = directories.iter().filter_map(user_of).chain(variable("USER")).chain(variable("LOGNAME"));
        // `root` exists on every machine.
        let users = users.filter(|name| name != "root").map(|name| (name, "<user>"));
        let hosts = [host].into_iter().filter(|name| !name.is_empty() && *name != "localhost");
        let names: BTreeSet<(String, &str)> = hosts.map(|name| (name.to_owned(), HOST)).chain(users).collect();
        Self { directories, names: names.into_iter().collect(), words: Vec::new(), run: None }
    }

    /// Anonymizer of a run.
    fn of(run: &Path, manifest: &Manifest) -> Self {
        let run = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
        let directories = [(run.display().to_string(), DIRECTORY), (manifest.working_directory.clone(), PROJECT)];
        let watched = manifest.watched.as_ref().map_or(&[][..], |watched| &watched.command);
        let words = watched.iter().skip(1).filter_map(|word| {
            let value = if word.starts_with('-') { word.split_once('=')?.1 } else { word.as_str() };
            let has_punctuation =
                value.contains(['/', '.', '=', '@', ':', ' ']) && value.chars().any(char::is_alphabetic);
            (value.len() >= LONG_WORD_BYTES || (has_punctuation && value.len() >= WORD_BYTES_MIN))
                .then(|| value.to_owned())
        });
        let words: BTreeSet<String> = words.filter(|word| *word != manifest.experiment && word != MASK).collect();
        Self { words: words.into_iter().collect(), ..Self::new(&directories, &manifest.host.name) }
    }

    /// Renames the copy of a watched command: its fingerprint, the end of the run's name, is a digest over directory
    /// and arguments, against which guesses could be checked.
    fn rename_watched(&mut self, manifest: &mut Manifest) {
        let Some(watched) = &manifest.watched else { return };
        manifest.fingerprint =
            xrun_core::dataset::digest::digest(without_argument_values(&watched.command).join("\0").as_bytes());
        let Some((time, rest)) = manifest.run.rsplit_once('_') else { return };
        let attempt = rest.split_once('-').map_or_else(String::new, |(_, attempt)| format!("-{attempt}"));
        let run = format!("{time}_{}{attempt}", &manifest.fingerprint[..6]);
        self.run = Some((std::mem::replace(&mut manifest.run, run.clone()), run));
    }

    fn manifest(&self, mut manifest: Manifest) -> Value {
        if let Some(watched) = &mut manifest.watched {
            // The description that `xrun watch` writes by default.
            if manifest.description == printable::line(&watched.command.join(" "), DESCRIPTION_CHARACTERS_MAX) {
                manifest.description = without_argument_values(&watched.command).join(" ");
            }
            watched.command = without_argument_values(&watched.command);
        }
        if manifest.watched.is_some() {
            manifest.command = without_argument_values(&manifest.command);
        }
        if let Some(program) = manifest.command.first_mut() {
            *program = program.rsplit('/').next().unwrap_or_default().to_owned();
        }
        manifest.host.name = HOST.into();
        manifest.slurm = None;
        manifest.code.git_left_out =
            manifest.code.git_patch.take().map(|_| "all changes: this copy is for others".into());
        let mut value = serde_json::to_value(&manifest).unwrap_or_default();
        self.anonymize(&mut value);
        value
    }

    /// Anonymises all texts of a record, including keys such as names of process groups.
    fn anonymize(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.anonymize(one)),
            Value::Object(members) => {
                let taken = std::mem::take(members);
                members.extend(taken.into_iter().map(|(name, mut inner)| {
                    self.anonymize(&mut inner);
                    (self.text(&name), inner)
                }));
            }
            _ => {}
        }
    }

    /// Lines of a text.
    fn lines(&self, text: &str) -> String {
        let lines: Vec<String> = text.split('\n').map(|line| self.text(line)).collect();
        lines.join("\n")
    }

    fn text(&self, text: &str) -> String {
        let (whole_text, mut text) = (text, text.to_owned());
        if let Some((run, renamed)) = &self.run {
            text = text.replace(run, renamed);
        }
        for (directory, by) in &self.directories {
            text = replace_directory(&text, directory, by);
        }
        if let Some(whole) = path_or_url(&text) {
            return whole;
        }
        for word in &self.words {
            text = replace_word(&text, word, MASK);
        }
        if let Some(path) = PATH.as_ref() {
            text = path.replace_all(&text, without_path).into_owned();
        }
        // Not if the whole text is the name: a machine may be called `train` or `heap`.
        for (name, mark) in self.names.iter().filter(|(name, _)| *name != whole_text) {
            text = replace_word(&text, name, mark);
        }
        secrets::mask_text(&text)
    }
}

/// Replaces a directory where it is not the beginning of another name.
fn replace_directory(text: &str, path: &str, by: &str) -> String {
    let continues = |next: char| next.is_alphanumeric() || "_-".contains(next);
    secrets::replace_where(text, path, by, |_, after| !after.starts_with(continues))
}

/// Replaces `word` where it is not part of a longer word.
fn replace_word(text: &str, word: &str, mark: &str) -> String {
    let is_inside =
        |before: &str, after: &str| before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
    secrets::replace_where(text, word, mark, |before, after| !is_inside(before, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{PLAIN, finished};

    fn options(path: &Path) -> KeepOptions<'_> {
        KeepOptions { path, replace: false, with_trace: false }
    }

    #[test]
    fn paths_names_and_arguments_are_replaced() {
        let anonymizer = Anonymizer {
            directories: vec![("/home/ada/work".into(), PROJECT), ("/home/ada".into(), HOME)],
            names: vec![("ada".into(), "<user>"), ("box1".into(), HOST)],
            words: vec!["train.py".into()],
            run: None,
        };
        for (given, cleaned) in [
            ("wrote /home/ada/work/last.pt", "wrote <project>/last.pt"),
            ("/home/ada/work/data set/a", "<project>/data set/a"),
            ("at /scratch/x/y: none", "at <directory>: none"),
            ("see https://example.org/a", "see https://***"),
            ("s3://bucket/my team", "s3://***"),
            ("from s3://bucket/team, hf://team/model", "from s3://***, hf://***"),
            ("file:///mnt/x", "file://***"),
            ("/tmp/odd dir/secret proj/x", "<directory>"),
            ("no '/tmp/odd dir/x' there", "no '<directory>' there"),
            (r"no /tmp/odd\ dir/x there", "no <directory> there"),
            (
                "cc -I/mnt/x //mnt/y {/mnt/z} a|/mnt/v </mnt/w> at /single",
                "cc -I<directory> <directory> {<directory>} a|<directory> <<directory>> at <directory>",
            ),
            ("steps/s, ./a/b and ../c", "steps/s, ./a/b and ../c"),
            ("ada on box1, adagrad", "<user> on <host>, adagrad"),
            ("workers of python3 train.py", "workers of python3 ***"),
            ("1/2 of it", "1/2 of it"),
            (r#"path = "${DATA}/cards""#, r#"path = "${DATA}/cards""#),
        ] {
            assert_eq!(anonymizer.text(given), cleaned);
        }
    }

    #[test]
    fn names_of_options_are_kept_and_directories_are_replaced_as_a_whole() {
        let words = ["/usr/bin/python3", "train.py", "--lr", "3", "--data=/x", "{seed}"].map(str::to_owned);
        assert_eq!(without_argument_values(&words), ["python3", "***", "--lr", "***", "--data=***", "{seed}"]);
        let replaced = |text: &str| replace_directory(text, "/home/ada/work", PROJECT);
        assert_eq!(replaced("/home/ada/work/a.toml, \"/home/ada/work\""), "<project>/a.toml, \"<project>\"");
        assert_eq!(replaced("/home/ada/work2/a and /home/ada/work-b"), "/home/ada/work2/a and /home/ada/work-b");
    }

    #[test]
    fn a_result_is_replaced_only_on_request() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        let parent = results.path().join("reference");
        let (copy, again) = (parent.join("trial"), parent.join("again"));
        let once = options(&copy);
        let kept = keep(&run, once).unwrap().0;
        for name in [layout::MEMORY, layout::CHECKPOINTS, layout::LOCK] {
            assert!(!kept.join(name).exists(), "{name}");
        }
        let page = std::fs::read_to_string(kept.join(layout::REPORT)).unwrap();
        assert!(page.contains("/trial") && !page.contains(write::WRITING), "{page}");
        assert!(page.contains("<svg"), "the curves are drawn from the trace, which is left out");
        assert!(matches!(keep(&run, once), Err(KeepError::Refused(_))));
        assert_eq!(keep(&run, KeepOptions { replace: true, ..once }).unwrap().0, kept);
        assert!(matches!(keep(&kept, KeepOptions { path: &again, ..once }), Err(KeepError::Refused(_))));
        let names = || std::fs::read_dir(&parent).unwrap().count();
        assert_eq!(names(), 1, "no temporary directory is left");
        // At each place where a kill could fall, there is a whole copy.
        let whole = || read::summary(&kept).unwrap().unwrap();
        let checked = std::cell::Cell::new(0);
        let is_own = |copy: &Path| {
            whole();
            checked.set(checked.get() + 1);
            is_kept_run(copy)
        };
        let files = |copy: &Path| {
            copy_files(&run, copy)
                .and_then(|_| Ok(write::with_path(copy, std::fs::remove_file(copy.join(layout::MEMORY)))?))
        };
        let fill = |copy: &Path| {
            whole();
            files(copy)
        };
        install(&kept, true, is_own, fill).unwrap();
        assert_eq!((checked.get(), names(), kept.join(layout::REPORT).exists()), (2, 1, false), "this is the new one");
        // A file that was added while the copy was written.
        let add = |copy: &Path| {
            write::replace(&kept.join("README.md"), b"mine").unwrap();
            files(copy)
        };
        assert!(matches!(install(&kept, true, is_kept_run, add), Err(KeepError::Refused(_))));
        assert!(kept.join("README.md").exists() && names() == 1);
    }
}
