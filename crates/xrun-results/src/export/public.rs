//! Public copy of a run: without host, user, directories, command arguments and changes of the checkout.
//!
//! Only records with known fields are copied; each text is anonymised and each record sealed again. Files that cannot
//! be anonymised (the log, the author's file, images, weights) are left out and listed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;

use super::ExportError;
use crate::format::{DESCRIPTION_CHARACTERS_MAX, Manifest};
use crate::read;
use crate::read::ReadError;
use crate::resolved;
use crate::secrets;
use crate::secrets::MASK;
use xrun_core::files::checksum::LineSum;
use xrun_core::files::scratch::Scratch;
use xrun_core::files::{checksum, file, layout, write};
use xrun_core::printable;

const RECORDS: &[&str] = &[layout::PLAN, layout::VERDICT, layout::POST_MORTEM, layout::SUMMARY];
const LINES: &[&str] = &[layout::METRICS, layout::MEMORY];
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Files that the report generates again from the copy.
const REGENERATED: &[&str] = &[layout::REPORT, layout::MEMORY_EPOCHS, xrun_core::files::sums::SUMS];
const HOST: &str = "<host>";
const DIRECTORY: &str = "<directory>";

/// A public copy that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicCopy {
    /// Directory of the copy: `<output>/<experiment>/<run>`.
    pub path: PathBuf,
    /// Names of the files and directories left out.
    pub left_out: Vec<String>,
    /// Number of damaged lines left out.
    pub lines_left_out: u64,
}

/// Writes the copy below `output`, laid out as a results directory.
///
/// # Errors
/// A record is damaged, the copy already exists, or it cannot be written.
pub fn export(run: &Path, output: &Path, with_checkpoints: bool) -> Result<PublicCopy, ExportError> {
    let mut manifest = read::manifest(run)?;
    let mut anonymizer = Anonymizer::new(run, &manifest);
    anonymizer.rename_watched(&mut manifest);
    let parent = output.join(&manifest.experiment);
    let path = parent.join(&manifest.run);
    if path.symlink_metadata().is_ok() {
        let message = "this copy exists already; remove it, or choose another directory with --output DIR";
        write::with_path(&path, Err(io::Error::new(io::ErrorKind::AlreadyExists, message)))?;
    }
    write::create_directories(&parent)?;
    let copy = || {
        // Written to a temporary directory first: half a copy would look like a run. The inner directory gets the
        // mode of the user's umask.
        let unfinished = write::with_path(&parent, Scratch::create(&parent, write::WRITING))?;
        let copy = unfinished.path().join("run");
        let (left_out, lines_left_out) = copy_files(run, &copy, &anonymizer, manifest, with_checkpoints)?;
        write::with_path(&path, std::fs::rename(&copy, &path))?;
        write::with_path(&parent, write::sync_directory(&parent))?;
        Ok(PublicCopy { path, left_out, lines_left_out })
    };
    let copied = copy();
    if copied.is_err() {
        // Fails, as intended, if it contains other copies.
        let _ = std::fs::remove_dir(&parent);
    }
    copied
}

/// Writes the files of the copy; returns the names left out and the number of damaged lines.
fn copy_files(
    run: &Path,
    path: &Path,
    anonymizer: &Anonymizer,
    manifest: Manifest,
    with_checkpoints: bool,
) -> Result<(Vec<String>, u64), ExportError> {
    write::create_new_directory(path)?;
    let lock = path.join(layout::LOCK);
    write::replace(&lock, &[])?;
    let mut lines_left_out = 0;
    let mut sums = Vec::new();
    for name in LINES.iter().filter(|name| run.join(name).exists()) {
        let (left_out, before, after) = copy_lines(&run.join(name), &path.join(name), anonymizer)?;
        lines_left_out += left_out;
        sums.push((name.trim_end_matches(".jsonl"), serde_json::json!(before), serde_json::json!(after)));
    }
    if run.join(layout::RESOLVED).exists() {
        let text = experiment(&resolved::read_text(run)?, anonymizer);
        write::replace(&path.join(layout::RESOLVED), &checksum::text(&text))?;
    }
    if with_checkpoints && run.join(layout::CHECKPOINTS).is_dir() {
        copy_directory(&run.join(layout::CHECKPOINTS), &path.join(layout::CHECKPOINTS))?;
    }
    write::replace_json(&path.join(layout::MANIFEST), &anonymizer.manifest(manifest))?;
    for name in RECORDS.iter().filter(|name| run.join(name).exists()) {
        let mut value = read_record(&run.join(name))?;
        anonymizer.anonymize(&mut value);
        for (file, before, after) in &sums {
            // Where lines are missing, the old sum says so in the copy, too.
            if let Some(sum) = value.pointer_mut(&format!("/lines/{file}")).filter(|sum| *sum == before) {
                sum.clone_from(after);
            }
        }
        write::replace_json(&path.join(name), &value)?;
    }
    let originals: BTreeSet<String> = entry_names(run)?;
    let copies = entry_names(path)?;
    let left_out = originals.into_iter().filter(|name| !copies.contains(name) && !REGENERATED.contains(&name.as_str()));
    let left_out = left_out.filter(|name| !name.starts_with('.')).map(|name| printable::line(&name, 100)).collect();
    Ok((left_out, lines_left_out))
}

fn entry_names(directory: &Path) -> Result<BTreeSet<String>, ExportError> {
    let entries = write::with_path(directory, std::fs::read_dir(directory))?.flatten();
    Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Reads a record and removes its checksum.
pub(super) fn read_record(path: &Path) -> Result<Value, ReadError> {
    let bytes =
        file::bytes(path, RECORD_BYTES_MAX).map_err(|source| ReadError::File { path: path.to_path_buf(), source })?;
    checksum::check_record(&bytes).map_err(|_| ReadError::content(path, checksum::DAMAGED))?;
    let mut value: Value =
        serde_json::from_slice(&bytes).map_err(|error| ReadError::content(path, &error.to_string()))?;
    if let Value::Object(members) = &mut value {
        members.shift_remove("sha256");
    }
    Ok(value)
}

/// Copies a `.jsonl` file; returns the number of damaged lines, and the sums of the original and of the copy.
fn copy_lines(from: &Path, to: &Path, anonymizer: &Anonymizer) -> Result<(u64, LineSum, LineSum), ExportError> {
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

fn copy_directory(from: &Path, to: &Path) -> Result<(), ExportError> {
    write::create_new_directory(to)?;
    for entry in write::with_path(from, std::fs::read_dir(from))?.flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        match write::with_path(&path, entry.file_type())? {
            kind if kind.is_dir() => copy_directory(&path, &copy)?,
            kind if kind.is_file() => {
                let mut file = write::with_path(&path, file::open(&path))?;
                write::replace_with(&copy, |out| io::copy(&mut file, out).map(drop))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Anonymised experiment: hyperparameters stay; arguments, string values and environment of a command, and hooks, are
/// removed.
fn experiment(text: &str, anonymizer: &Anonymizer) -> String {
    let Ok(mut value) = toml::from_str::<Value>(text) else { return String::new() };
    if let Some(hooks) = value.get_mut("hooks").and_then(Value::as_object_mut) {
        hooks.retain(|_, words| !words.is_array());
    }
    if let Some(command) = value.pointer_mut("/pipeline/command").and_then(Value::as_object_mut) {
        for name in ["program", "resume"] {
            if let Some(Value::Array(words)) = command.get_mut(name) {
                let texts: Vec<String> = words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
                *words = without_argument_values(&texts).into_iter().map(Value::String).collect();
            }
        }
        for name in ["values", "environment"] {
            let values = command.get_mut(name).and_then(Value::as_object_mut);
            values
                .into_iter()
                .flatten()
                .filter(|(_, value)| value.is_string())
                .for_each(|(_, value)| *value = MASK.into());
        }
    }
    secrets::mask_table(&mut value);
    anonymizer.anonymize(&mut value);
    toml::to_string(&value).unwrap_or_default()
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
    let pattern = r#"([A-Za-z][A-Za-z0-9+.-]*)://[^\s"'`,;)\]}|]*|(<directory>[^\s"'`:,;)\]]*)|("/[^"\n]*"|'/[^'\n]*'|`/[^`\n]*`)|((?:^|[^A-Za-z0-9])-[A-Za-z]|^|[^A-Za-z0-9./])/+(?:\\.|[^\s/"'`:,;)\]}|<>\\])(?:\\.|[^\s"'`:,;)\]}|<>\\])*"#;
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
    /// Directories to replace, longest first.
    directories: Vec<String>,
    /// Names of the machine and of the user, each with its replacement.
    names: Vec<(String, &'static str)>,
    /// Command arguments that may identify something.
    words: Vec<String>,
    /// Name of the run, and its name in the copy.
    run: Option<(String, String)>,
}

/// A short argument may equal a name used in records, such as `train`. Only arguments with punctuation and long ones
/// are replaced.
const WORD_BYTES_MIN: usize = 4;
const LONG_WORD_BYTES: usize = 16;

impl Anonymizer {
    fn new(run: &Path, manifest: &Manifest) -> Self {
        let run = std::fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mut directories: Vec<String> = [Some(run.display().to_string()), Some(manifest.working_directory.clone())]
            .into_iter()
            .chain([variable("HOME"), std::env::current_dir().ok().map(|path| path.display().to_string())])
            .flatten()
            .filter(|path| path.len() > 1)
            .collect();
        directories.sort_by_key(|path| std::cmp::Reverse(path.len()));
        let user_of = |path: &String| {
            let rest = path.strip_prefix("/home/").or_else(|| path.strip_prefix("/Users/"))?;
            rest.split('/').next().map(str::to_owned)
        };
        let users = directories.iter().filter_map(user_of).chain(variable("USER")).chain(variable("LOGNAME"));
        // `root` exists on every machine.
        let users = users.filter(|name| name != "root").map(|name| (name, "<user>"));
        let hosts = [manifest.host.name.clone()].into_iter().filter(|name| !name.is_empty() && name != "localhost");
        let names: BTreeSet<(String, &str)> = hosts.map(|name| (name, HOST)).chain(users).collect();
        let commands = manifest.resume_commands.iter().chain([&manifest.command]);
        let commands = commands.chain(manifest.watched.as_ref().map(|watched| &watched.command));
        let words = commands.flat_map(|command| command.iter().skip(1)).filter_map(|word| {
            let value = if word.starts_with('-') { word.split_once('=')?.1 } else { word.as_str() };
            let has_punctuation =
                value.contains(['/', '.', '=', '@', ':', ' ']) && value.chars().any(char::is_alphabetic);
            (value.len() >= LONG_WORD_BYTES || (has_punctuation && value.len() >= WORD_BYTES_MIN))
                .then(|| value.to_owned())
        });
        let words: BTreeSet<String> = words.filter(|word| *word != manifest.experiment && word != MASK).collect();
        Self { directories, names: names.into_iter().collect(), words: words.into_iter().collect(), run: None }
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
        manifest.command = without_argument_values(&manifest.command);
        manifest.resume_commands.iter_mut().for_each(|command| *command = without_argument_values(command));
        manifest.host.name = HOST.into();
        manifest.working_directory = DIRECTORY.into();
        manifest.slurm = None;
        manifest.code.git_left_out =
            manifest.code.git_patch.take().map(|_| "all changes: this is a public copy".into());
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

    fn text(&self, text: &str) -> String {
        if let Some(whole) = path_or_url(text) {
            return whole;
        }
        let (whole_text, mut text) = (text, text.to_owned());
        if let Some((run, renamed)) = &self.run {
            text = text.replace(run, renamed);
        }
        for directory in &self.directories {
            text = text.replace(directory, DIRECTORY);
        }
        for word in &self.words {
            text = replace_word(&text, word, MASK).into_owned();
        }
        if let Some(path) = PATH.as_ref() {
            text = path.replace_all(&text, without_path).into_owned();
        }
        // Not if the whole text is the name: a machine may be called `train` or `heap`.
        for (name, mark) in self.names.iter().filter(|(name, _)| *name != whole_text) {
            text = replace_word(&text, name, mark).into_owned();
        }
        secrets::mask_text(&text)
    }
}

/// Replaces `word` where it is not part of a longer word.
fn replace_word<'a>(text: &'a str, word: &str, mark: &str) -> Cow<'a, str> {
    let mut rest = text;
    let mut cleaned = String::new();
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_whole_word = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        cleaned.push_str(before);
        cleaned.push_str(if is_whole_word { mark } else { word });
        rest = after;
    }
    if cleaned.is_empty() { text.into() } else { (cleaned + rest).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_names_and_arguments_are_replaced() {
        let anonymizer = Anonymizer {
            directories: vec!["/home/ada/work".into(), "/home/ada".into()],
            names: vec![("ada".into(), "<user>"), ("box1".into(), HOST)],
            words: vec!["train.py".into()],
            run: None,
        };
        for (given, cleaned) in [
            ("wrote /home/ada/work/last.pt", "wrote <directory>/last.pt"),
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
        ] {
            assert_eq!(anonymizer.text(given), cleaned);
        }
    }

    #[test]
    fn names_of_options_are_kept() {
        let words = ["/usr/bin/python3", "train.py", "--lr", "3", "--data=/x", "{seed}"].map(str::to_owned);
        assert_eq!(without_argument_values(&words), ["python3", "***", "--lr", "***", "--data=***", "{seed}"]);
    }
}
