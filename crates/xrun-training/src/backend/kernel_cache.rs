//! Compiled kernels on disk: the database of CubeCL, in the directory `kernels` of the cache. Its keys have the build of the program, the
//! compute capability of the GPU and the newest code that the driver takes.
//!
//! A release has the kernels of its experiments in a file beside the program (`packaging/cuda`), as code that all drivers take.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use burn::tensor::Bytes;
use cubecl::bundle::{self, Bundle};
use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::records::RecordLevel;
use cubecl_llvm::nvptx::ptx_version::PtxVersion;

use xrun_core::dataset::cache;

/// Size from which on the database is removed at a start, in bytes. All kernels of an experiment take a few MiB.
const BYTES_MAX: u64 = 512 << 20;

/// File of shipped kernels, in the directory of the program or the one above.
const SHIPPED: &str = "share/xrun/kernels.db";

/// Configures CubeCL, once in a process and before a device is opened, and takes the shipped kernels of a GPU of a compute capability, 90
/// for 9.0, that the driver can load. A `cubecl.toml` still has its effect.
pub fn open(capability: u32, driver: i32) {
    static OPENED: Once = Once::new();
    OPENED.call_once(|| {
        let directory = cache::directory().join("kernels");
        // Without a directory kernels are compiled at each start. So they are in a program without a build ID: it might read older ones.
        let usable = cache::create(&directory).is_ok() && buildid::build_id().is_some();
        remove_if_large(&directory, BYTES_MAX);
        let mut config = CubeClRuntimeConfig::from_current_dir();
        config.compilation.cache = usable;
        config.environment.name = name(&directory);
        config.environment.path = CacheConfig::Directory(directory.clone());
        config.environment.records.level = RecordLevel::Off;
        CubeClRuntimeConfig::try_set(config.override_from_env());
        if let Some(file) = shipped().filter(|_| usable) {
            import(&file, &directory, capability, driver);
        }
    });
}

/// File of shipped kernels, if there is one.
fn shipped() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().skip(1).take(2).map(|directory| directory.join(SHIPPED)).find(|file| file.is_file())
}

/// Copies shipped kernels to the database, once for each program and kind of code. Kernels that cannot be read are compiled.
fn import(file: &Path, directory: &Path, capability: u32, driver: i32) {
    let Some(newest) = PtxVersion::for_driver(driver) else { return };
    let build =
        buildid::build_id().unwrap_or_default().iter().fold(0u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    let mark = directory.join(format!("shipped-{build:x}-{capability}-{newest}"));
    if mark.exists() {
        return;
    }
    if let Ok(shipped) = bundle::open(file)
        && let Some(kernels) = ForGpu::new(shipped, capability, &newest.to_string())
    {
        bundle::import(&kernels);
    }
    // Without it they are copied again, over the same ones.
    let _ = std::fs::write(mark, "");
}

/// Shipped kernels of a GPU under the name that CubeCL looks for: that of the newest code that the driver takes.
#[derive(Debug)]
struct ForGpu {
    shipped: Box<dyn Bundle>,
    from: String,
    to: String,
}

impl ForGpu {
    /// Kernels of the newest code up to `newest`, as `ptx90`; `None` if there are none of this compute capability.
    fn new(shipped: Box<dyn Bundle>, capability: u32, newest: &str) -> Option<Self> {
        let kind = format!("/ptx_sm{capability}-llvm-");
        let version = |name: &str| name.strip_prefix("ptx")?.parse::<u32>().ok();
        let candidates = shipped.namespaces().into_iter().filter_map(|namespace| {
            let (before, name) = namespace.split_once(&kind)?;
            let found = (version(name)?, format!("{before}{kind}{newest}"));
            (before.starts_with("cuda/") && Some(found.0) <= version(newest)).then_some((found, namespace))
        });
        let ((_, to), from) = candidates.max()?;
        Some(Self { shipped, from, to })
    }
}

impl Bundle for ForGpu {
    fn get(&self, namespace: &str, key: &[u8]) -> Option<Bytes> {
        (namespace == self.to).then(|| self.shipped.get(&self.from, key))?
    }

    fn scan(&self, namespace: &str, visit: &mut dyn FnMut(&[u8], &[u8])) {
        if namespace == self.to {
            self.shipped.scan(&self.from, visit);
        }
    }

    fn namespaces(&self) -> Vec<String> {
        vec![self.to.clone()]
    }

    fn describe(&self) -> String {
        self.shipped.describe()
    }
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

    /// Bundle of entries that are their own namespaces.
    #[derive(Debug)]
    struct Names(&'static [&'static str]);

    impl Bundle for Names {
        fn get(&self, namespace: &str, _: &[u8]) -> Option<Bytes> {
            Some(Bytes::from_bytes_vec(namespace.as_bytes().to_vec()))
        }

        fn scan(&self, namespace: &str, visit: &mut dyn FnMut(&[u8], &[u8])) {
            visit(b"key", namespace.as_bytes());
        }

        fn namespaces(&self) -> Vec<String> {
            self.0.iter().map(ToString::to_string).collect()
        }

        fn describe(&self) -> String {
            "names".into()
        }
    }

    #[test]
    fn a_driver_gets_the_newest_shipped_code_that_it_takes_and_no_other_gpus() {
        const SHIPPED: &[&str] =
            &["cuda/0.1/ptx_sm90-llvm-ptx80", "cuda/0.1/ptx_sm90-llvm-ptx87", "cuda/0.1/ptx_sm120-llvm-ptx87", "other"];
        for (capability, driver, expected) in [
            (90, "ptx80", Some("ptx_sm90-llvm-ptx80")),
            (90, "ptx85", Some("ptx_sm90-llvm-ptx80")),
            (90, "ptx90", Some("ptx_sm90-llvm-ptx87")),
            (120, "ptx87", Some("ptx_sm120-llvm-ptx87")),
            (120, "ptx85", None),
            (12, "ptx90", None),
        ] {
            let kernels = ForGpu::new(Box::new(Names(SHIPPED)), capability, driver);
            let mut found = Vec::new();
            for namespace in kernels.iter().flat_map(Bundle::namespaces) {
                assert_eq!(namespace, format!("cuda/0.1/ptx_sm{capability}-llvm-{driver}"));
                kernels.as_ref().unwrap().scan(&namespace, &mut |_, value| found.push(value.to_vec()));
            }
            let expected = expected.map(|name| format!("cuda/0.1/{name}").into_bytes());
            assert_eq!(found.pop(), expected, "{capability} {driver}");
        }
    }

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
