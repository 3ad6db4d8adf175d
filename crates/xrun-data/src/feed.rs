//! Feed of batches: prepared ahead by workers, in order, in a bounded queue.
//!
//! Workers claim the next number, prepare that batch on the host and deliver it into a bounded queue; the trainer takes
//! them in the order of their numbers. What is ahead is bounded from the claim on, so that the bound holds while a
//! worker is still at it. Workers live as long as the feed.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::bounded::queue::OrderedQueue;
use xrun_core::dataset::error::DataError;
use xrun_core::panics;
use xrun_core::settings::rung::Rung;
use xrun_core::settings::sections::{Limits, Training};

/// A failure travels through the queue in place of its batch and counts as this many bytes at most; its message is cut
/// to fit.
const FAILURE_BYTES_MAX: u64 = 4096;
const MESSAGE_BYTES_MAX: usize = 3600;

/// Makes the batch of a number; called by several threads at once.
pub type Prepare<T> = Arc<dyn Fn(u64) -> Result<T, DataError> + Send + Sync>;

xrun_core::buffers! {
    /// The buffers of a feed.
    pub struct Buffers {
        /// Batches that are ready, or that a worker is at: those ahead of the trainer, counted from the claim.
        pub ready: Buffer,
        /// The batch in the trainer's hands. A larger one is an error.
        pub in_use: Buffer,
    }
}

impl Buffers {
    /// `item_bytes_max` is the largest size of one batch, in bytes.
    pub fn new(limits: &Limits, item_bytes_max: u64) -> Self {
        let items = limits.batches_ahead();
        let ready = Cap { items, bytes: items * item_bytes_max.max(FAILURE_BYTES_MAX) };
        let is_raised = limits.prefetch.is_some_and(|prefetch| limits.workers > prefetch);
        let key = if is_raised { "limits.workers" } else { "limits.prefetch" };
        let in_use = Cap { items: 1, bytes: item_bytes_max };
        Self {
            ready: Buffer::new("feed_ready", Policy::Block, ready)
                .key(key)
                .rung(Rung::Prefetch)
                .because("batches: `limits.prefetch`, by default 2 x `limits.workers`, and never fewer than workers"),
            in_use: Buffer::new("feed_in_use", Policy::Refuse, in_use).because("the batch of the present step"),
        }
    }
}

/// Settings of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedSettings {
    /// Threads that prepare batches; 0 prepares them on the thread that asks.
    pub workers: usize,
    /// The number of the first batch.
    pub first: u64,
}

impl FeedSettings {
    /// Settings for a run whose next step is `first_step`, from 1.
    pub fn new(limits: &Limits, training: &Training, first_step: u64) -> Self {
        let first = first_step.saturating_sub(1) * training.gradient_accumulation as u64;
        Self { workers: limits.workers, first }
    }
}

/// Batches in order. Policy of the queue: block. Dropping the feed closes the queue and waits for the workers, each of
/// which ends after the batch that it is at. Workers beyond the present length of the queue end, and start again when it is
/// longer.
pub struct Feed<T: DeepSize + Send + 'static> {
    queue: OrderedQueue<Item<T>>,
    workers: Vec<JoinHandle<()>>,
    /// Called by the thread that asks when there are no workers.
    prepare: Prepare<T>,
    item_bytes_max: u64,
    in_use: Arc<Registration>,
    failure: Option<DataError>,
}

enum Item<T> {
    Batch(T),
    Failure(String),
}

impl<T: DeepSize> DeepSize for Item<T> {
    fn deep_size(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.deep_size(),
            Self::Failure(message) => message.deep_size(),
        }
    }
}

/// The batch that the trainer holds; dropping it gives its bytes back. It must go before the next one is asked for, and
/// before another feed is made, which would register the same owner.
#[derive(Debug)]
pub struct InUse<T> {
    batch: T,
    /// The only other owner of it, by which the feed knows that a batch is in use.
    registration: Arc<Registration>,
}

impl<T> Drop for InUse<T> {
    fn drop(&mut self) {
        self.registration.set(0, 0);
    }
}

impl<T> Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.batch
    }
}

impl<T: DeepSize + Send + 'static> Feed<T> {
    /// Starts the workers. Fails when the system gives no thread.
    pub fn new(
        ledger: &Ledger,
        buffers: &Buffers,
        settings: FeedSettings,
        prepare: Prepare<T>,
    ) -> Result<Self, DataError> {
        let FeedSettings { workers, first } = settings;
        let item_bytes_max = buffers.in_use.cap.bytes;
        let mut feed = Self {
            queue: OrderedQueue::new(ledger, &buffers.ready, first),
            workers: Vec::with_capacity(workers),
            prepare,
            item_bytes_max,
            in_use: Arc::new(buffers.in_use.register(ledger)),
            failure: None,
        };
        for worker in 0..workers {
            // On failure the feed is dropped here, which ends those that were started.
            let thread = feed.start(worker).map_err(|error| {
                DataError::Content(format!(
                    "worker {worker} of `limits.workers` = {workers} cannot be started: {error}"
                ))
            })?;
            feed.workers.push(thread);
        }
        Ok(feed)
    }

    /// Starts the worker of a number.
    fn start(&self, worker: usize) -> std::io::Result<JoinHandle<()>> {
        let (queue, prepare, item_bytes_max) = (self.queue.clone(), self.prepare.clone(), self.item_bytes_max);
        let work = move || {
            while let Some(number) = queue.claim(worker) {
                queue.deliver(number, prepared(&*prepare, number, item_bytes_max));
            }
        };
        std::thread::Builder::new().name(format!("feed-{worker}")).spawn(work)
    }

    /// Starts again workers that ended and have a place now. Those that cannot be started are missed by nobody but the clock.
    fn restart(&mut self) {
        let places = usize::try_from(self.queue.capacity()).unwrap_or(usize::MAX).min(self.workers.len());
        for worker in 0..places {
            if self.workers[worker].is_finished()
                && let Ok(thread) = self.start(worker)
            {
                self.workers[worker] = thread;
            }
        }
    }

    /// Waits for the next batch. Fails at the batch that could not be prepared, by an error or a panic, and then always
    /// with the same error. Fails when the batch before is still held.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after a failure")]
    pub fn next(&mut self) -> Result<InUse<T>, DataError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if Arc::strong_count(&self.in_use) > 1 {
            return Err(DataError::Content("a batch was asked for while the one before was still held".into()));
        }
        self.restart();
        if self.workers.is_empty()
            && let Some(number) = self.queue.claim(0)
        {
            self.queue.deliver(number, prepared(&*self.prepare, number, self.item_bytes_max));
        }
        match self.queue.take() {
            Some(Item::Batch(batch)) => {
                self.in_use.set(1, batch.deep_size());
                Ok(InUse { batch, registration: self.in_use.clone() })
            }
            Some(Item::Failure(message)) => Err(self.fail(message)),
            None => Err(self.fail("the feed is closed".into())),
        }
    }

    fn fail(&mut self, message: String) -> DataError {
        let failure = DataError::Content(message);
        self.queue.close();
        self.failure = Some(failure.clone());
        failure
    }
}

impl<T: DeepSize + Send + 'static> Drop for Feed<T> {
    fn drop(&mut self) {
        self.queue.close();
        for worker in self.workers.drain(..) {
            // A worker cannot panic: what it runs is caught.
            let _ = worker.join();
        }
    }
}

fn prepared<T: DeepSize>(
    prepare: &(dyn Fn(u64) -> Result<T, DataError> + Send + Sync),
    number: u64,
    item_bytes_max: u64,
) -> Item<T> {
    let failure = match catch_unwind(AssertUnwindSafe(|| prepare(number))) {
        Ok(Ok(batch)) if batch.deep_size() <= item_bytes_max => return Item::Batch(batch),
        Ok(Ok(batch)) => format!(
            "it holds {} bytes where the plan says at most {item_bytes_max}; this is a fault in xrun",
            batch.deep_size()
        ),
        Ok(Err(error)) => error.to_string(),
        Err(payload) => format!("a worker panicked: {}", panics::payload(&*payload)),
    };
    Item::Failure(format!("batch {number}: {}", &failure[..failure.floor_char_boundary(MESSAGE_BYTES_MAX)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Makes a feed of numbers from 5 on, at least two ahead.
    fn feed(ledger: &Ledger, workers: usize, prepare: Prepare<f64>) -> Feed<f64> {
        let buffers = Buffers::new(&Limits { workers, prefetch: Some(2), ..Limits::default() }, 8);
        Feed::new(ledger, &buffers, FeedSettings { workers, first: 5 }, prepare).unwrap()
    }

    fn numbers() -> Prepare<f64> {
        Arc::new(|number| Ok(number as f64))
    }

    #[test]
    fn batches_come_in_order_from_the_first_whatever_the_number_of_workers() {
        for workers in [0, 1, 4] {
            let ledger = Ledger::default();
            let mut feed = feed(&ledger, workers, numbers());
            let taken: Vec<f64> = (0..50).map(|_| *feed.next().unwrap()).collect();
            let expected: Vec<f64> = (5..55).map(f64::from).collect();
            assert_eq!(taken, expected, "{workers} workers");
            assert!(ledger.read().iter().all(|owner| !owner.exceeds_cap()), "{:?}", ledger.read());
        }
    }

    #[test]
    fn the_batch_in_use_is_counted_until_it_is_dropped_and_only_one_can_be() {
        let ledger = Ledger::default();
        let mut feed = feed(&ledger, 1, numbers());
        let batch = feed.next().unwrap();
        let in_use = || ledger.read().iter().find(|owner| owner.name == "feed_in_use").unwrap().bytes;
        assert_eq!(in_use(), 8);
        assert!(feed.next().unwrap_err().to_string().contains("still held"));
        drop(batch);
        assert_eq!(in_use(), 0);
        assert_eq!(*feed.next().unwrap(), 6.0, "the refusal cost no batch");
    }

    #[test]
    fn an_error_or_a_panic_arrives_at_its_batch_with_its_number_and_ends_the_feed() {
        for (workers, panics) in [(0, false), (1, false), (4, false), (0, true), (1, true), (4, true)] {
            let prepare: Prepare<f64> = Arc::new(move |number| match number {
                7 if panics => panic!("frame {} is cursed", "x".repeat(10_000)),
                7 => Err(DataError::file("frames/7.png".as_ref(), "not an image")),
                _ => Ok(number as f64),
            });
            let ledger = Ledger::default();
            let mut feed = feed(&ledger, workers, prepare);
            assert_eq!([0, 1].map(|_| *feed.next().unwrap()), [5.0, 6.0]);
            for _ in 0..2 {
                let message = feed.next().unwrap_err().to_string();
                match panics {
                    true => assert!(message.starts_with("batch 7: a worker panicked: frame xxx"), "{message}"),
                    false => assert_eq!(message, "batch 7: frames/7.png: not an image"),
                }
                assert!(message.len() < 4000, "the message is cut");
            }
            assert!(ledger.read().iter().all(|owner| !owner.exceeds_cap()), "{:?}", ledger.read());
        }
    }

    #[test]
    fn a_shorter_queue_ends_workers_and_a_longer_one_starts_them_again_without_a_batch_lost() {
        let ledger = Ledger::default();
        let buffers = Buffers::new(&Limits { workers: 4, prefetch: Some(8), ..Limits::default() }, 8);
        let settings = FeedSettings { workers: 4, first: 5 };
        let mut feed = Feed::new(&ledger, &buffers, settings, numbers()).unwrap();
        let mut next = 5.0;
        let mut take = |feed: &mut Feed<f64>, ended: usize| {
            // Threads end in their own time.
            let finished = |feed: &Feed<f64>| feed.workers.iter().filter(|worker| worker.is_finished()).count();
            for _ in 0..20 {
                assert_eq!(*feed.next().unwrap(), next);
                next += 1.0;
            }
            while finished(feed) != ended {
                std::thread::yield_now();
            }
        };
        take(&mut feed, 0);
        for (items, ended) in [(1, 3), (2, 2), (8, 0)] {
            ledger.allow(Rung::Prefetch, |_| Cap { items, bytes: 8 * items });
            take(&mut feed, ended);
        }
    }

    #[test]
    fn a_batch_larger_than_planned_is_refused() {
        let buffers = Buffers::new(&Limits::default(), 8);
        let settings = FeedSettings { workers: 0, first: 0 };
        let mut feed =
            Feed::new(&Ledger::default(), &buffers, settings, Arc::new(|_| Ok("too long by far".to_owned()))).unwrap();
        assert!(feed.next().unwrap_err().to_string().contains("at most 8"));
    }

    #[test]
    fn dropping_a_feed_ends_its_workers_whether_they_wait_or_work() {
        let ledger = Ledger::default();
        let prepare: Prepare<f64> = Arc::new(|number| {
            std::thread::sleep(Duration::from_millis(number % 3));
            Ok(number as f64)
        });
        for taken in 0..4 {
            let mut feed = feed(&ledger, 4, prepare.clone());
            for _ in 0..taken {
                feed.next().unwrap();
            }
            drop(feed);
            assert_eq!(ledger.read(), [], "no worker keeps the queue alive");
            assert_eq!(Arc::strong_count(&prepare), 1, "no worker keeps the work alive");
        }
    }

    #[test]
    fn batches_ahead_follow_the_workers_unless_they_are_set() {
        for (workers, prefetch, key, items) in [
            (0, Some(1), "limits.prefetch", 1),
            (4, Some(2), "limits.workers", 4),
            (2, Some(7), "limits.prefetch", 7),
            (0, None, "limits.prefetch", 2),
            (4, None, "limits.prefetch", 8),
        ] {
            let Buffer { key: found, cap, .. } =
                Buffers::new(&Limits { workers, prefetch, ..Limits::default() }, 9000).ready;
            assert_eq!((found, cap), (Some(key.into()), Cap { items, bytes: items * 9000 }));
        }
    }
}
