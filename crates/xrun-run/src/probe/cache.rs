//! Cache of probes: a small file for each in the cache directory, of which the oldest are removed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Probe;
use xrun_core::dataset::digest::digest;
use xrun_core::dataset::{cache, digest_cache};
use xrun_core::experiment::{Experiment, resolved};
use xrun_core::files::{checksum, file, write};
use xrun_results::format::VERSION;

/// Largest number of files.
const FILES_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Record<P> {
    version: u32,
    probe: P,
}

/// Digest of everything that a probe depends on: the experiment without its name, the data, the program, the device and the
/// number of cores.
pub fn key(experiment: &Experiment, data: &[(String, String)], device: &str) -> String {
    let mut nameless = experiment.clone();
    nameless.experiment.name.clear();
    nameless.experiment.description.clear();
    nameless.experiment.patch = false;
    // Size and modification time: another build may need other memory.
    let program = std::env::current_exe().and_then(|path| path.metadata()).ok();
    let program = program.map(|file| (file.len(), file.modified().ok()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    digest(format!("{}\n{data:?}\n{program:?}\n{device}\n{cores}", resolved::to_toml(&nameless, None)).as_bytes())
}

/// Loads the probe of a key, if it is in the cache.
pub fn load(key: &str) -> Option<Probe> {
    let path = path(key);
    let text = file::bytes(&path, FILE_BYTES_MAX).ok()?;
    checksum::check_record(&text)
        .inspect_err(|_| digest_cache::report_damaged(&path, "memory is measured again"))
        .ok()?;
    let record: Record<Probe> = serde_json::from_slice(&text).ok()?;
    (record.version == VERSION).then_some(record.probe)
}

/// Stores a probe. A cache that cannot be written is ignored.
pub fn store(key: &str, probe: &Probe) {
    let path = path(key);
    let Some(directory) = path.parent() else { return };
    let record = Record { version: VERSION, probe };
    if cache::create(directory).is_ok() && write::replace_json(&path, &record).is_ok() {
        cache::remove_oldest(directory, FILES_MAX);
    }
}

fn path(key: &str) -> PathBuf {
    cache::directory().join("probes").join(format!("{key}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_limits_and_device_but_not_on_the_name() {
        let experiment = |text: &str| toml::from_str::<Experiment>(text).unwrap();
        let plain = experiment("[pipeline.dummy]\n");
        let named = experiment("[experiment]\nname = \"other\"\n[pipeline.dummy]\n");
        let larger = experiment("[pipeline.dummy]\n[limits]\nbatch_size = 64\n");
        assert_eq!(key(&plain, &[], "cpu"), key(&named, &[], "cpu"));
        assert_ne!(key(&plain, &[], "cpu"), key(&larger, &[], "cpu"));
        assert_ne!(key(&plain, &[], "cpu"), key(&plain, &[], "cuda:0"));
    }
}
