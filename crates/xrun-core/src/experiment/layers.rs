//! Which files is an experiment put together from, and can each be read?
//!
//! Layers, later wins: defaults, the files named by `extends` (in their order, each with its own `extends` before it),
//! the file, the environment, the command line. Tables are merged key by key; arrays are replaced. Where a table's name
//! is the kind, a later layer with another kind replaces the earlier kind with all its keys.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::template;
use super::tree::{self, Entry, Tree};
use super::walk::join;
use crate::problem::{Place, Problem, Problems, Source};

/// Longer files are not experiments.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// So deep may `extends` go.
pub const EXTENDS_DEPTH_MAX: usize = 16;
/// So many files may one experiment be put together from.
pub const FILES_MAX: usize = 64;

/// Values from one place.
#[derive(Clone, Debug)]
pub struct Layer {
    pub source: Arc<Source>,
    pub entries: Vec<Entry>,
    /// The folder of the file; `None` for the environment and the command line.
    pub folder: Option<PathBuf>,
}

impl Layer {
    /// How the origin of a value in it is written: `experiments/x.toml:12`, or the name of the layer.
    pub fn origin(&self, place: Option<&Place>) -> String {
        match (place, &self.folder) {
            (Some(place), Some(_)) => format!("{}:{}", self.source.name, place.line_and_column().0),
            _ => self.source.name.clone(),
        }
    }
}

/// The files of an experiment.
#[derive(Debug, Default)]
pub struct Files {
    /// In the order in which they are merged: the experiment's own file is the last.
    pub layers: Vec<Layer>,
    /// All files that were read.
    pub paths: Vec<PathBuf>,
    /// The bytes of the experiment's own file.
    pub text: Vec<u8>,
    /// The beginning of the experiment's own file, if it could be read.
    pub start: Option<Place>,
    pub problems: Problems,
    /// Some file could not be read or parsed: what is missing may stand there.
    pub incomplete: bool,
}

/// Reads a file and all that it extends.
pub fn load(path: &Path) -> Files {
    let mut files = Files::default();
    load_into(path, None, &mut Vec::new(), &mut files);
    files
}

/// One step of a chain of `extends`: what to call the file, and what it is.
type Chain = Vec<(String, PathBuf)>;

fn load_into(path: &Path, named_at: Option<&Place>, chain: &mut Chain, files: &mut Files) {
    let name = path.display().to_string();
    let key = if named_at.is_some() { "extends" } else { "" };
    let refuse = |files: &mut Files, message: String, help: Option<String>| {
        let mut problem = Problem::new(key, message).at(named_at.cloned());
        problem.help = help.map(Into::into);
        files.problems.add(problem);
        files.incomplete = true;
    };
    let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let way = |chain: &Chain| {
        chain.iter().map(|(name, _)| name.as_str()).chain([name.as_str()]).collect::<Vec<_>>().join(" -> ")
    };
    if chain.iter().any(|(_, before)| *before == identity) {
        let itself = chain.last().is_some_and(|(_, before)| *before == identity);
        let (message, help) = match itself {
            true => (format!("{name} extends itself"), "take its own name out of `extends`"),
            false => (
                format!("these files extend one another in a circle: {}", way(chain)),
                "take one of these `extends` out",
            ),
        };
        return refuse(files, message, Some(help.to_owned()));
    }
    if chain.len() > EXTENDS_DEPTH_MAX {
        let message = format!("`extends` goes deeper than {EXTENDS_DEPTH_MAX} files: {}", way(chain));
        return refuse(files, message, Some("put the values of some of them together".into()));
    }
    if files.paths.len() >= FILES_MAX {
        return refuse(files, format!("more than {FILES_MAX} files are put together by `extends`"), None);
    }
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(Unreadable { message, help }) => {
            let names: Vec<&str> = chain.iter().map(|(name, _)| name.as_str()).collect();
            let by = if names.len() < 2 { String::new() } else { format!(" (by way of {})", names.join(" -> ")) };
            return refuse(files, format!("{message}{by}"), Some(help));
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
            let message = format!("{name} is not text: the byte at offset {at} is not UTF-8");
            let help = format!("an experiment is a TOML file; `{}` writes one to start from", template::command());
            return refuse(files, message, Some(help));
        }
    };
    let source = Arc::new(Source::new(name.clone(), text));
    if chain.is_empty() {
        files.start = Some(Place { source: source.clone(), span: 0..0 });
    }
    let mut entries = match tree::parse(&source) {
        Ok(entries) => entries,
        Err(problem) => {
            files.problems.add(problem);
            files.incomplete = true;
            return;
        }
    };
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    chain.push((name, identity));
    for (other, place) in extended(&entries) {
        load_into(&folder.join(other), Some(&place), chain, files);
    }
    chain.pop();
    // Kept where it is of the wrong type, so that the walk says so.
    entries.retain(|entry| entry.key != "extends" || !is_files(&entry.node.tree));
    files.layers.push(Layer { source, entries, folder: Some(folder) });
}

fn is_files(tree: &Tree) -> bool {
    let is_name = |tree: &Tree| matches!(tree, Tree::Text(text) if !text.is_empty());
    match tree {
        Tree::Array(list) => (1..=16).contains(&list.len()) && list.iter().all(|node| is_name(&node.tree)),
        tree => is_name(tree),
    }
}

/// The files that these entries extend, each with the place where it is named.
fn extended(entries: &[Entry]) -> Vec<(String, Place)> {
    let Some(entry) = entries.iter().find(|entry| entry.key == "extends") else { return Vec::new() };
    let one = |node: &tree::Node| match &node.tree {
        Tree::Text(text) => Some((text.clone(), node.place.clone())),
        _ => None,
    };
    match &entry.node.tree {
        tree if !is_files(tree) => Vec::new(),
        Tree::Array(list) => list.iter().filter_map(one).collect(),
        _ => one(&entry.node).into_iter().collect(),
    }
}

struct Unreadable {
    message: String,
    help: String,
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let name = path.display();
    let refuse = |message: String, help: &str| Err(Unreadable { message, help: help.into() });
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut help = "check the name and the folder".to_owned();
            if let Some(near) = neighbour(path) {
                help = format!("did you mean {near}?");
            }
            return Err(Unreadable { message: format!("there is no file {name}"), help });
        }
        Err(error) => return refuse(format!("cannot read {name}: {error}"), "check the name and its permissions"),
    };
    if about.is_dir() {
        return refuse(format!("{name} is a folder"), "name one experiment file in it");
    }
    if !about.is_file() {
        return refuse(format!("{name} is not a regular file"), "name an experiment file");
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => refuse(format!("cannot read {name}: {error}"), "check its permissions"),
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            refuse(format!("{name} is larger than 1 MiB"), "an experiment is a short TOML file; is this another file?")
        }
        Ok(_) => Ok(bytes),
    }
}

/// Where experiments are usually kept.
const USUAL_FOLDER: &str = "experiments";

/// The file that is meant by the name of one that is not there: without its ending, without the folder where experiments are
/// kept, or with a name like it.
fn neighbour(path: &Path) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let usual = path.with_file_name(USUAL_FOLDER).join(path.file_name()?);
    let exact = [path, &usual].map(|path| path.with_file_name(format!("{name}.toml")));
    let found = exact.into_iter().find(|path| path.is_file());
    found.map(|path| path.display().to_string()).or_else(|| like(path)).or_else(|| like(&usual))
}

/// A TOML file in the same folder with a name like this one; of the first thousand entries.
fn like(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .take(1000)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let near =
        crate::problem::nearest(path.file_stem()?.to_str()?, names.iter().map(|name| name.trim_end_matches(".toml")))?;
    Some(path.with_file_name(format!("{near}.toml")).display().to_string())
}

/// Takes a kind out of earlier layers where a later one has another.
pub fn keep_last_kinds(layers: &mut [Layer], schema: &serde_json::Value) {
    for path in kind_tables(schema, "") {
        let mut wanted: Option<String> = None;
        for layer in layers.iter_mut().rev() {
            let Some(kinds) = table_at(&mut layer.entries, &path) else { continue };
            match &wanted {
                Some(kind) => kinds.retain(|entry| entry.key == *kind),
                None => wanted = kinds.first().map(|entry| entry.key.clone()),
            }
        }
    }
}

fn kind_tables(schema: &serde_json::Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    for (name, part) in properties.into_iter().flatten() {
        let key = join(path, name);
        if super::schema::is_kinds(part) {
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
