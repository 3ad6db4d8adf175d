//! Leaks of decoded images and of batches, in a cache or in the workers (`docs/origins.md`). Off unless `[leaks]` switches them on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use super::super::batch::{BatchLoader, HostBatch};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{HostImage, ImageSource};
use xrun_core::experiment::leaks::Leaks;
use xrun_data::feed::Prepare;

/// Wraps a source of images with the leaks that are switched on.
pub fn source(source: Arc<dyn ImageSource>, switches: &Leaks, ledger: &Ledger) -> Arc<dyn ImageSource> {
    [(&super::FRAME_CACHE, false), (&super::DATA_PER_WORKER, true)]
        .into_iter()
        .filter(|(leak, _)| switches.is_enabled(leak))
        .fold(source, |source, (leak, per_worker)| {
            let kept = Mutex::new((HashMap::new(), leak.buffer().register(ledger)));
            Arc::new(LeakingSource { source, per_worker, kept })
        })
}

/// Returns the function that prepares batches. With the leak each batch also goes into a second queue, which has no bound and no
/// consumer.
pub fn prepare(batches: BatchLoader, switches: &Leaks, ledger: &Ledger) -> Prepare<HostBatch> {
    if !switches.is_enabled(&super::WORKER_QUEUE) {
        return Arc::new(move |number| batches.training_batch(number));
    }
    let queue = Mutex::new(switches.leak_buffer(&super::WORKER_QUEUE, ledger));
    Arc::new(move |number| {
        let batch = batches.training_batch(number)?;
        let copy = batch.clone();
        let bytes = copy.deep_size();
        queue.lock().unwrap_or_else(PoisonError::into_inner).keep(|| (copy, bytes));
        Ok(batch)
    })
}

/// Source that keeps each image: once for all workers, or a copy for each worker.
struct LeakingSource {
    source: Arc<dyn ImageSource>,
    per_worker: bool,
    kept: Mutex<(HashMap<Key, HostImage>, Registration)>,
}

/// Worker that the copy belongs to, and path of the image.
type Key = (Option<ThreadId>, PathBuf);

impl ImageSource for LeakingSource {
    fn image(&self, path: &Path) -> Result<HostImage, DataError> {
        let key = (self.per_worker.then(|| std::thread::current().id()), path.to_path_buf());
        let find = |key| self.kept.lock().unwrap_or_else(PoisonError::into_inner).0.get(key).cloned();
        if let Some(image) = find(&key) {
            return Ok(image);
        }
        let image = self.source.image(path)?;
        // The pixels are copied, since the source may share them with its own cache.
        let copy = HostImage { rgb: image.rgb.to_vec().into(), ..image };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (images, registration) = &mut *kept;
        let bytes = copy.deep_size();
        // Another worker may have inserted the image meanwhile.
        let replaced = images.insert(key, copy.clone()).map_or(0, |image| image.deep_size());
        registration.set(images.len() as u64, registration.bytes() + bytes - replaced);
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::super::batch::batch_bytes_max;
    use super::super::super::episode::tests::{GreyFrames, SHAPE, episodes, library};
    use super::super::super::settings::FewshotDetection;
    use super::super::tests::small;
    use super::super::{DATA_PER_WORKER, FRAME_CACHE, WORKER_QUEUE};
    use super::*;
    use xrun_core::settings::sections::Limits;
    use xrun_data::feed;
    use xrun_data::feed::{Feed, FeedSettings};

    /// Ledger of a feed after a number of batches were consumed: name, items and bytes of each owner.
    fn feed_ledger(leaks: &Leaks, workers: usize, taken: usize, expected: u64) -> Vec<(&'static str, u64, u64)> {
        let settings = FewshotDetection { triplet_ratio: 0.0, ..small() };
        let limits = Limits { workers, prefetch: Some(2), ..Limits::default() };
        let buffers = feed::Buffers::new(&limits, batch_bytes_max(&settings, None));
        let batches = BatchLoader::new(episodes(library(SHAPE), settings, 7).unwrap(), Arc::new(GreyFrames));
        let ledger = Ledger::default();
        let prepare = prepare(batches, leaks, &ledger);
        let mut feed = Feed::new(&ledger, &buffers, FeedSettings { workers, first: 0 }, prepare).unwrap();
        (0..taken).for_each(|_| drop(feed.next().unwrap()));
        let items = |name| ledger.read().iter().find(|owner| owner.name == name).map_or(0, |owner| owner.items);
        let deadline = Instant::now() + Duration::from_secs(10);
        while items(WORKER_QUEUE.owner) < expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        ledger.read().iter().map(|owner| (owner.name, owner.items, owner.bytes)).collect()
    }

    #[test]
    fn the_leaked_queue_grows_by_a_batch_with_each_batch_and_the_feed_stays_within_its_cap() {
        let mut leaks = Leaks::default();
        leaks.switch_on(&WORKER_QUEUE);
        for (workers, ahead) in [(0, 0), (1, 2)] {
            let [few, many] = [3, 13].map(|taken| feed_ledger(&leaks, workers, taken, taken as u64 + ahead));
            let names: Vec<&str> = many.iter().map(|(name, ..)| *name).collect();
            assert_eq!(names, ["feed_in_use", "feed_ready", "leak_worker_queue"], "{workers} workers");
            assert_eq!((few[2].1, many[2].1), (3 + ahead, 13 + ahead), "{workers} workers");
            assert!(many[1].1 <= 2, "{many:?}");
            let pixels = 2 * 32 * 32 * 3;
            assert!(many[2].2 - few[2].2 > 10 * pixels, "{few:?} and {many:?}");
        }
        let without = feed_ledger(&Leaks::default(), 1, 13, 0);
        assert_eq!(without.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["feed_in_use", "feed_ready"]);
    }

    #[test]
    fn a_copy_is_kept_for_each_worker_or_one_for_all() {
        for (leak, copies) in [(&FRAME_CACHE, 2), (&DATA_PER_WORKER, 4)] {
            let mut leaks = Leaks::default();
            leaks.switch_on(leak);
            let ledger = Ledger::default();
            let source = source(Arc::new(GreyFrames), &leaks, &ledger);
            let read = || ["a.png", "b.png", "a.png"].map(|name| source.image(Path::new(name)).unwrap());
            read();
            std::thread::scope(|scope| scope.spawn(read).join().unwrap());
            let held = &ledger.read()[0];
            assert_eq!((held.items, held.bytes / (64 * 48 * 3)), (copies, copies), "{leaks:?}");
        }
    }
}
