//! Files of a directory that the user names: nothing outside of it is read, and no file beyond the cap of its kind.

use std::fs::{DirEntry, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use xrun_core::dataset::error::DataError;

/// The directory of a data set. Nothing outside of it is read, except for what its symlinks lead to where that is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Canonical path of the directory.
    pub path: PathBuf,
    /// Canonical path of the directory that symlinks may lead into; `None` where none is followed out of the data set's.
    pub link_root: Option<PathBuf>,
}

impl Root {
    /// Opens a directory. Its symlinks may lead into `link_root` where they are followed, and nowhere else out of it.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn open(path: &Path, follow_links: bool, link_root: Option<&str>) -> Result<Self, DataError> {
        let opened = |path: &Path, noun: &str| {
            path.canonicalize().map_err(|error| DataError::file(path, format!("{noun} cannot be read: {error}")))
        };
        let link_root = link_root.filter(|_| follow_links).map(|path| opened(Path::new(path), "`link_root`"));
        Ok(Self { path: opened(path, "the data set's directory")?, link_root: link_root.transpose()? })
    }

    /// A path below the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns whether a canonical path may be read.
    fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.path) || self.link_root.as_ref().is_some_and(|link_root| path.starts_with(link_root))
    }

    /// Error of a path that leads out of the directory by a symlink to `target`.
    fn leads_out(&self, path: &Path, target: &Path) -> DataError {
        let relative = path.strip_prefix(&self.path).unwrap_or(path);
        let root =
            self.link_root.as_ref().map_or_else(String::new, |link_root| format!(" and of {}", link_root.display()));
        let message = format!(
            "is behind a symlink to {}, outside of the data set's directory{root}; allow it with `follow_links = true` and \
             `link_root = \"{}\"`, or copy the files",
            target.display(),
            target.parent().unwrap_or(target).display()
        );
        DataError::file(relative, message)
    }
}

/// Directories that symlinks in a directory, or in its directories, lead to; for digests of what is read.
pub fn linked_directories(root: &Path) -> Vec<PathBuf> {
    let entries =
        |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let above: Vec<PathBuf> = entries(root).filter(|path| path.is_dir()).collect();
    let below =
        above.iter().filter(|path| !path.is_symlink()).flat_map(|path| entries(path)).filter(|path| path.is_dir());
    let mut linked: Vec<PathBuf> = above.iter().cloned().chain(below).filter(|path| path.is_symlink()).collect();
    linked.sort();
    linked.truncate(LINKED_MAX);
    linked
}

/// Maximum number of linked directories whose files are looked at for changes.
const LINKED_MAX: usize = 64;

/// A path inside the root, without `.` in it. What leads out of it is an error whatever the policy; `None` where nothing is.
pub fn confined(root: &Root, name: &str) -> Result<Option<PathBuf>, DataError> {
    let relative = Path::new(name);
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain || name.is_empty() || name.contains('\0') {
        return Err(DataError::file(relative, "names a file outside of the data set's directory"));
    }
    match root.join(relative).canonicalize() {
        Ok(path) if root.holds(&path) => {
            let plain = relative.components().filter(|part| matches!(part, Component::Normal(_))).collect();
            Ok(path.is_file().then_some(plain))
        }
        Ok(path) => Err(root.leads_out(relative, &path)),
        // As tools write it on Windows.
        Err(_) if name.contains('\\') => confined(root, &name.replace('\\', "/")),
        Err(_) => Ok(None),
    }
}

/// Returns whether a name has only parts that lead down from where it is joined.
pub fn leads_down(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) && !name.contains('\0')
}

/// Name of a file without its ending.
pub fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Maximum number of files in a directory.
const LISTED_MAX: usize = 10_000_000;

/// Names of the files of a directory below `root` that have one of these endings; sorted. Hidden ones are left
/// out. Empty where the directory is not there.
///
/// # Errors
/// The directory cannot be read, is a link that leads out of the root, or has a name that is not UTF-8.
pub fn files(root: &Root, directory: &str, endings: &[&str]) -> Result<Vec<String>, DataError> {
    listed(root, directory, |path| has_ending(path, endings) && !path.is_dir())
}

/// Returns whether a file's name has one of these endings, in upper or lower case.
pub fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

/// Returns whether the name of a file or directory begins with a dot.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Names of the directories below a directory, sorted; as [`files`].
///
/// # Errors
/// The errors of [`files`].
pub fn directories(root: &Root, directory: &str) -> Result<Vec<String>, DataError> {
    listed(root, directory, Path::is_dir)
}

/// Entries of a directory below `root`; none where it is not there.
///
/// # Errors
/// It cannot be read, or is a link that leads out of the root.
pub fn entries(root: &Root, directory: &str) -> Result<impl Iterator<Item = std::io::Result<DirEntry>>, DataError> {
    let path = root.join(directory);
    let failed = |error: std::io::Error| DataError::file(&path, format!("cannot be read: {error}"));
    let found = match path.canonicalize() {
        Ok(found) if root.holds(&found) => Some(std::fs::read_dir(&path).map_err(failed)?),
        Ok(found) => return Err(root.leads_out(&path, &found)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    Ok(found.into_iter().flatten())
}

fn listed(root: &Root, directory: &str, wanted: impl Fn(&Path) -> bool) -> Result<Vec<String>, DataError> {
    let path = root.join(directory);
    let failed = |error: std::io::Error| DataError::file(&path, format!("cannot be read: {error}"));
    let mut names = Vec::new();
    for entry in entries(root, directory)? {
        let entry = entry.map_err(failed)?.path();
        let name = entry.file_name().unwrap_or_default();
        if is_hidden(&entry) || !wanted(&entry) {
            continue;
        }
        let name = name.to_str().ok_or_else(|| DataError::file(&entry, "has a name that is not UTF-8; rename it"))?;
        if names.len() >= LISTED_MAX {
            return Err(DataError::file(&path, format!("has more than {LISTED_MAX} files; divide it into several")));
        }
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}

/// The bytes of an annotation file below `root`, as [`open_annotations`].
pub fn annotation_file(root: &Root, path: &Path, bytes_max: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let read = open_annotations(root, path, bytes_max)?.take(bytes_max).read_to_end(&mut bytes);
    read.map_err(|error| DataError::file(path, format!("cannot be read: {error}")))?;
    Ok(bytes)
}

/// Opens an annotation file below `root`. More than `bytes_max` are an error, and so is a link that leads out of the root.
pub fn open_annotations(root: &Root, path: &Path, bytes_max: u64) -> Result<File, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    let found = path.canonicalize().map_err(failed)?;
    if !root.holds(&found) {
        return Err(root.leads_out(path, &found));
    }
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(DataError::file(path, "is no file"));
    }
    if about.len() > bytes_max {
        let message = format!("has {} bytes, at most {bytes_max} are read of an annotation file", about.len());
        return Err(DataError::file(path, message));
    }
    File::open(path).map_err(failed)
}
