//! Detection of changed files by size, times and inode, without reading them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::digest::hexadecimal;
use super::digest_cache::{Stamp, nanoseconds};

/// Maximum number of files; `stat` of more takes minutes.
const FILES_MAX: usize = 2_000_000;
/// Maximum depth of nested directories.
const DEPTH_MAX: usize = 16;

/// Digest over names, sizes, times and inodes of files, and of all files in directories. `None` where it is unreliable:
/// a file was written too recently (a second write could leave its times unchanged), or a directory cannot be listed.
pub fn stamp(paths: &[PathBuf]) -> Option<String> {
    let mut files = Files { digest: Sha256::new(), left: FILES_MAX, now: nanoseconds(SystemTime::now()) };
    for path in paths {
        match path.is_dir() {
            true => files.directory(path, 0)?,
            false => files.file(path)?,
        }
    }
    Some(hexadecimal(&files.digest.finalize()))
}

/// Size and modification time of this executable. Another build may inspect data differently or need other memory.
pub fn program() -> Option<(u64, Option<SystemTime>)> {
    let file = std::env::current_exe().ok()?.metadata().ok()?;
    Some((file.len(), file.modified().ok()))
}

struct Files {
    digest: Sha256,
    left: usize,
    now: i128,
}

impl Files {
    fn file(&mut self, path: &Path) -> Option<()> {
        let stamp = std::fs::metadata(path).map(|about| Stamp::of(&about)).ok()?;
        self.left = self.left.checked_sub(1)?;
        self.digest.update(path.as_os_str().as_encoded_bytes());
        self.digest.update(format!("\0{stamp:?}\0"));
        stamp.settled(self.now).then_some(())
    }

    fn directory(&mut self, directory: &Path, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut entries: Vec<(PathBuf, bool)> = Vec::new();
        for entry in std::fs::read_dir(directory).ok()? {
            let entry = entry.ok()?;
            if entries.len() >= self.left {
                return None;
            }
            entries.push((entry.path(), entry.file_type().ok()?.is_dir()));
        }
        entries.sort();
        for (path, is_directory) in entries {
            match is_directory {
                true => self.directory(&path, depth + 1)?,
                // A dangling symlink: only its name counts. Repairing it changes the directory or the file.
                false if !path.exists() => self.digest.update(path.as_os_str().as_encoded_bytes()),
                false => self.file(&path)?,
            }
        }
        Some(())
    }
}
