//! Files of a directory that the user names: nothing outside of it is read, and no file beyond the cap of its kind.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use xrun_core::dataset::error::DataError;

/// A path inside the root, without `.` in it. What leads out of it is an error whatever the policy; `None` where nothing is.
pub fn confined(root: &Path, name: &str) -> Result<Option<PathBuf>, DataError> {
    let relative = Path::new(name);
    let outside = || DataError::file(relative, "names a file outside of the data set's directory");
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain || name.is_empty() || name.contains('\0') {
        return Err(outside());
    }
    match root.join(relative).canonicalize() {
        Ok(path) if path.starts_with(root) => {
            let plain = relative.components().filter(|part| matches!(part, Component::Normal(_))).collect();
            Ok(path.is_file().then_some(plain))
        }
        Ok(_) => Err(outside()), // a link
        Err(_) => Ok(None),
    }
}

/// Maximum number of files in a directory.
const LISTED_MAX: usize = 10_000_000;

/// Names of the files of a directory below `root`, which is canonical, that have one of these endings; sorted. Hidden ones are left
/// out. Empty where the directory is not there.
///
/// # Errors
/// The directory cannot be read, is a link that leads out of the root, or has a name that is not UTF-8.
pub fn files(root: &Path, folder: &str, endings: &[&str]) -> Result<Vec<String>, DataError> {
    listed(root, folder, |path| {
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        ending.is_some_and(|ending| endings.contains(&ending.as_str())) && !path.is_dir()
    })
}

/// Names of the directories below a directory, sorted; as [`files`].
///
/// # Errors
/// The errors of [`files`].
pub fn folders(root: &Path, folder: &str) -> Result<Vec<String>, DataError> {
    listed(root, folder, Path::is_dir)
}

fn listed(root: &Path, folder: &str, wanted: impl Fn(&Path) -> bool) -> Result<Vec<String>, DataError> {
    let path = root.join(folder);
    let failed = |error: std::io::Error| DataError::file(&path, format!("cannot be read: {error}"));
    match path.canonicalize() {
        Ok(found) if found.starts_with(root) => {}
        Ok(_) => {
            let message = "is a link to a directory outside of the data set's directory; copy the directory there";
            return Err(DataError::file(&path, message));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        let name = entry.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") || !wanted(&entry) {
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

/// The bytes of an annotation file below `root`, which is canonical. More than `bytes_max` are an error, and so is a
/// link that leads out of the root.
pub fn annotation_file(root: &Path, path: &Path, bytes_max: u64) -> Result<Vec<u8>, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    if !path.canonicalize().map_err(failed)?.starts_with(root) {
        return Err(DataError::file(
            path,
            "is a link to a file outside of the data set's directory; copy the file there",
        ));
    }
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(DataError::file(path, "is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("has {} bytes, at most {bytes_max} are read of an annotation file", about.len());
        return Err(DataError::file(path, message));
    }
    Ok(bytes)
}
