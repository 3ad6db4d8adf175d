//! Compiled kernels on disk: the database of CubeCL, in the directory `kernels` of the cache. Its keys have the build of the program, the
//! compute capability of the GPU and the newest code that the driver takes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;

use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::records::RecordLevel;

use xrun_core::dataset::cache;

/// Size from which on the database is removed at a start, in bytes. All kernels of an experiment take a few MiB.
const BYTES_MAX: u64 = 512 << 20;

/// Configures CubeCL, once in a process and before a device is opened. A `cubecl.toml` still has its effect.
pub fn open() {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        let directory = cache::directory().join("kernels");
        // Without a directory kernels are compiled at each start. So they are in a program without a build ID: it might read older ones.
        let usable = cache::create(&directory).is_ok() && buildid::build_id().is_some();
        remove_if_large(&directory, BYTES_MAX);
        let mut config = CubeClRuntimeConfig::from_current_dir();
        config.compilation.cache = usable;
        config.environment.name = name(&directory);
        config.environment.path = CacheConfig::Directory(directory);
        config.environment.records.level = RecordLevel::Off;
        CubeClRuntimeConfig::try_set(config.override_from_env());
    });
}

/// Name of the database. Processes of one host share it; those of other hosts, which a file system without a block device may have, cannot.
fn name(directory: &Path) -> String {
    let is_local = std::fs::metadata(directory).is_ok_and(|data| data.dev() >> 8 & 0xfff != 0);
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if is_local { "default".into() } else { host().trim().into() }
}

/// Removes all files of a directory if they have more bytes. A process that has them open keeps them until its end.
fn remove_if_large(directory: &Path, most: u64) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> =
        entries.map(|entry| (entry.path(), entry.metadata().map_or(0, |data| data.len()))).collect();
    if files.iter().map(|(_, bytes)| bytes).sum::<u64>() <= most {
        return;
    }
    // The log of a database (`default.db-wal`) before the database: another process may open what is left.
    files.sort_by(|one, other| other.cmp(one));
    for (path, _) in files {
        // It stays large, and is tried again at the next start.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    #[test]
    fn a_database_within_the_limit_stays_and_a_larger_one_goes_with_its_log() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["default.db", "default.db-wal"] {
            write::replace(&directory.path().join(name), &[0; 100]).unwrap();
        }
        let left = || std::fs::read_dir(directory.path()).unwrap().count();
        remove_if_large(directory.path(), 200);
        assert_eq!(left(), 2);
        remove_if_large(directory.path(), 199);
        assert_eq!(left(), 0);
    }
}
