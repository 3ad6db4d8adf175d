//! Leaks of decoded pictures, kept by a cache or by the workers (`docs/origins.md`). Off unless `[leaks]` says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use super::leaks;
use crate::bounded::HeldBytes;
use crate::bounded::ledger::{Holding, Ledger, NO_CAP, Policy};
use crate::data::error::DataError;
use crate::data::sample::{Picture, PictureSource};
use crate::experiment::leaks::Leaks;

/// The source itself, with the leaks in front of it that are switched on.
pub fn source(source: Arc<dyn PictureSource>, switched: &Leaks, ledger: &Ledger) -> Arc<dyn PictureSource> {
    [(&leaks::FRAME_CACHE, false), (&leaks::DATA_PER_WORKER, true)]
        .into_iter()
        .filter(|(leak, _)| switched.has(leak))
        .fold(source, |source, (leak, per_worker)| {
            let holding = ledger.register(leak.owner, NO_CAP, Policy::Leak);
            Arc::new(Hoard { source, per_worker, kept: Mutex::new((HashMap::new(), holding)) })
        })
}

/// Keeps each picture that it was asked for: once for all workers, or a copy for each.
struct Hoard {
    source: Arc<dyn PictureSource>,
    per_worker: bool,
    kept: Mutex<(HashMap<Key, Picture>, Holding)>,
}

/// A picture, and whose copy it is.
type Key = (Option<ThreadId>, PathBuf);

impl PictureSource for Hoard {
    fn picture(&self, path: &Path) -> Result<Picture, DataError> {
        let key = (self.per_worker.then(|| std::thread::current().id()), path.to_path_buf());
        let find = |key| self.kept.lock().unwrap_or_else(PoisonError::into_inner).0.get(key).cloned();
        if let Some(picture) = find(&key) {
            return Ok(picture);
        }
        let picture = self.source.picture(path)?;
        // A copy of the pixels: what the source keeps is its own.
        let copy = Picture { rgb: picture.rgb.to_vec().into(), ..picture };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (pictures, holding) = &mut *kept;
        let bytes = copy.held_bytes();
        // Another worker may have been as fast.
        let replaced = pictures.insert(key, copy.clone()).map_or(0, |picture| picture.held_bytes());
        holding.set(pictures.len() as u64, holding.bytes() + bytes - replaced);
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Grey;

    impl PictureSource for Grey {
        fn picture(&self, _: &Path) -> Result<Picture, DataError> {
            Ok(Picture { width: 10, height: 10, rgb: vec![128; 300].into() })
        }
    }

    #[test]
    fn a_copy_is_kept_for_each_worker_or_one_for_all() {
        for (leak, copies) in [(&leaks::FRAME_CACHE, 2), (&leaks::DATA_PER_WORKER, 4)] {
            let mut leaks = Leaks::default();
            leaks.switch_on(leak);
            let ledger = Ledger::default();
            let source = source(Arc::new(Grey), &leaks, &ledger);
            let ask = || ["a.png", "b.png", "a.png"].map(|name| source.picture(Path::new(name)).unwrap());
            ask();
            std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
            let held = &ledger.read()[0];
            assert_eq!((held.items, held.bytes / 300), (copies, copies), "{leaks:?}");
        }
    }

    #[test]
    fn without_a_leak_the_source_is_asked_each_time_and_nothing_is_kept() {
        let ledger = Ledger::default();
        source(Arc::new(Grey), &Leaks::default(), &ledger).picture(Path::new("a.png")).unwrap();
        assert_eq!(ledger.read(), []);
    }
}
