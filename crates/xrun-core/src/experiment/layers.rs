//! Reading of an experiment file and the files that it extends, as layers.
//!
//! Layers in ascending precedence: defaults, the files in `extends` (in order, each after its own `extends`), the file, the
//! environment, the command line. Tables are merged key by key; arrays are replaced. A kind in a later layer replaces
//! another kind in earlier ones with all its keys.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::template;
use super::tree::join;
use super::tree::{self, Entry, Tree};
use crate::files::file;
use crate::problem::{Location, Problem, Problems, Source, nearest};

/// Maximum size of a file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum depth of `extends`.
pub const EXTENDS_DEPTH_MAX: usize = 16;
/// Maximum number of files of an experiment.
pub const FILES_MAX: usize = 64;

/// Values from one source.
#[derive(Clone, Debug)]
pub struct Layer {
    pub source: Arc<Source>,
    pub entries: Vec<Entry>,
    /// Directory of the file; `None` for the environment and the command line.
    pub directory: Option<PathBuf>,
}

impl Layer {
    /// Origin of a value as text: `experiments/x.toml:12`, or the name of the layer.
    pub fn origin(&self, location: Option<&Location>) -> String {
        match (location, &self.directory) {
            (Some(location), Some(_)) => format!("{}:{}", self.source.name, location.line_and_column().0),
            _ => self.source.name.clone(),
        }
    }
}

/// Files of an experiment.
#[derive(Debug, Default)]
pub struct Files {
    /// Layers in ascending precedence; the experiment's own file is the last.
    pub layers: Vec<Layer>,
    /// Paths of all files read.
    pub paths: Vec<PathBuf>,
    /// Content of the experiment's own file.
    pub text: Vec<u8>,
    /// Start of the experiment's own file, if it is readable.
    pub start: Option<Location>,
    pub problems: Problems,
    /// `true` if a file is unreadable or unparsable, so that a missing key may be in it.
    pub incomplete: bool,
}

/// Reads a file and all files that it extends.
pub fn load(path: &Path) -> Files {
    let mut files = Files::default();
    load_into(path, None, &mut Vec::new(), &mut files);
    files
}

/// Chain of `extends` from the experiment's file: displayed name and canonical path of each file.
type Chain = Vec<(String, PathBuf)>;

fn load_into(path: &Path, named_at: Option<&Location>, chain: &mut Chain, files: &mut Files) {
    let name = path.display().to_string();
    let key = if named_at.is_some() { "extends" } else { "" };
    let refuse = |files: &mut Files, message: String, help: Option<String>| {
        let mut problem = Problem::new(key, message).at(named_at.cloned());
        problem.help = help.map(Into::into);
        files.problems.add(problem);
        files.incomplete = true;
    };
    let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let describe = |chain: &Chain| {
        chain.iter().map(|(name, _)| name.as_str()).chain([name.as_str()]).collect::<Vec<_>>().join(" -> ")
    };
    if chain.iter().any(|(_, before)| *before == identity) {
        let itself = chain.last().is_some_and(|(_, before)| *before == identity);
        let (message, help) = match itself {
            true => (format!("{name} extends itself"), "remove its own name from `extends`"),
            false => (format!("cyclic `extends`: {}", describe(chain)), "remove one of these `extends`"),
        };
        return refuse(files, message, Some(help.to_owned()));
    }
    if chain.len() > EXTENDS_DEPTH_MAX {
        let message = format!("`extends` is nested deeper than {EXTENDS_DEPTH_MAX} files: {}", describe(chain));
        return refuse(files, message, Some("merge some of the files".into()));
    }
    if files.paths.len() >= FILES_MAX {
        return refuse(files, format!("the experiment extends more than {FILES_MAX} files"), None);
    }
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err((message, help)) => {
            let names: Vec<&str> = chain.iter().map(|(name, _)| name.as_str()).collect();
            let via = if names.len() < 2 { String::new() } else { format!(" (via {})", names.join(" -> ")) };
            return refuse(files, format!("{message}{via}"), Some(help));
        }
    };
    files.paths.push(path.to_owned());
    if chain.is_empty() {
        files.text.clone_from(&bytes);
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let message = format!("{name} is not a text file: invalid UTF-8 at byte {at}");
            let help = format!("an experiment is a TOML file; `{}` writes a template", template::command());
            return refuse(files, message, Some(help));
        }
    };
    let source = Arc::new(Source::new(name.clone(), text));
    if chain.is_empty() {
        files.start = Some(Location { source: source.clone(), span: 0..0 });
    }
    let mut entries = match tree::parse(&source) {
        Ok(entries) => entries,
        Err(problem) => {
            files.problems.add(problem);
            files.incomplete = true;
            return;
        }
    };
    let directory = path.parent().map(Path::to_owned).unwrap_or_default();
    chain.push((name, identity));
    for (other, location) in extended(&entries) {
        load_into(&directory.join(other), Some(&location), chain, files);
    }
    chain.pop();
    // An `extends` of the wrong type stays, so that validation reports it.
    entries.retain(|entry| entry.key != "extends" || !is_files(&entry.node.tree));
    files.layers.push(Layer { source, entries, directory: Some(directory) });
}

fn is_files(tree: &Tree) -> bool {
    let is_name = |tree: &Tree| matches!(tree, Tree::Text(text) if !text.is_empty());
    match tree {
        Tree::Array(list) => (1..=16).contains(&list.len()) && list.iter().all(|node| is_name(&node.tree)),
        tree => is_name(tree),
    }
}

/// Files in `extends`, with their locations.
fn extended(entries: &[Entry]) -> Vec<(String, Location)> {
    let Some(entry) = entries.iter().find(|entry| entry.key == "extends") else { return Vec::new() };
    let one = |node: &tree::Node| match &node.tree {
        Tree::Text(text) => Some((text.clone(), node.location.clone())),
        _ => None,
    };
    match &entry.node.tree {
        tree if !is_files(tree) => Vec::new(),
        Tree::Array(list) => list.iter().filter_map(one).collect(),
        _ => one(&entry.node).into_iter().collect(),
    }
}

/// Content of a file, or a message and its help.
fn read_bytes(path: &Path) -> Result<Vec<u8>, (String, String)> {
    let name = path.display();
    file::bytes(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let usual = path.with_file_name(USUAL_DIRECTORY).join(path.file_name().unwrap_or_default());
            let similar = similar_file(path).or_else(|| similar_file(&usual));
            let help = similar.map(|similar| format!("did you mean {similar}?"));
            let help = help.unwrap_or_else(|| "check the name and the directory".to_owned());
            (format!("{name} does not exist"), help)
        }
        _ if path.is_dir() => {
            let help = "name an experiment file in it; `path` in an experiment names a directory of data";
            (format!("{name} is a directory"), help.to_owned())
        }
        _ => (
            format!("cannot read {name}: {error}"),
            "check the name and its permissions; an experiment is a short TOML file".to_owned(),
        ),
    })
}

/// Usual directory of experiments.
const USUAL_DIRECTORY: &str = "experiments";

/// TOML file with a similar name in the same directory.
fn similar_file(path: &Path) -> Option<String> {
    let names = names_beside(path);
    let near = nearest(path.file_stem()?.to_str()?, names.iter().filter_map(|name| name.strip_suffix(".toml")))?;
    Some(path.with_file_name(format!("{near}.toml")).display().to_string())
}

/// Names in the directory of a path, of the first thousand entries.
pub fn names_beside(path: &Path) -> Vec<String> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(directory).into_iter().flatten().take(1000).flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Removes a kind from earlier layers if a later layer has another one.
pub fn keep_last_kinds(layers: &mut [Layer], schema: &serde_json::Value) {
    for path in kind_tables(schema, "") {
        let mut selected: Option<String> = None;
        for layer in layers.iter_mut().rev() {
            let Some(kinds) = table_at(&mut layer.entries, &path) else { continue };
            match &selected {
                Some(kind) => kinds.retain(|entry| entry.key == *kind),
                None => selected = kinds.first().map(|entry| entry.key.clone()),
            }
        }
    }
}

fn kind_tables(schema: &serde_json::Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    for (name, part) in properties.into_iter().flatten() {
        let key = join(path, name);
        if super::shape::is_kinds(part) {
            found.push(key.clone());
        }
        found.extend(kind_tables(part, &key));
    }
    found
}

fn table_at<'a>(entries: &'a mut Vec<Entry>, path: &str) -> Option<&'a mut Vec<Entry>> {
    path.split('.').try_fold(entries, |entries, key| {
        match &mut entries.iter_mut().find(|entry| entry.key == key)?.node.tree {
            Tree::Table(inner) => Some(inner),
            _ => None,
        }
    })
}
