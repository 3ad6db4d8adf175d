//! How do prepared batches reach the training thread? In order, a bounded number ahead, whoever prepares them.
//!
//! Workers live as long as the run and prepare on the host only. A worker that fails or panics ends the feed at the
//! batch it was working on, with its message. Burn's loader is the counter-example: it queues up to 100 device batches.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::bounded::HeldBytes;
use crate::bounded::queue::OrderedQueue;
use crate::data::error::DataError;
use crate::experiment::sections::Limits;
use crate::memory::ledger::{Cap, Holding, Ledger, Policy};
use crate::panics;
use crate::results::format::{Place, PlannedOwner};

const READY: &str = "feed_ready";
const IN_USE: &str = "feed_in_use";

/// Prepares the batch of a number; a pure function of it.
pub type Prepare<T> = Arc<dyn Fn(u64) -> Result<T, DataError> + Send + Sync>;

/// Batches 0, 1, 2, … or from wherever it was started.
pub struct Feed<T: HeldBytes + Send + 'static> {
    queue: OrderedQueue<Ready<T>>,
    prepare: Prepare<T>,
    workers: Vec<JoinHandle<()>>,
    in_use: Arc<Holding>,
}

impl<T: HeldBytes + Send + 'static> fmt::Debug for Feed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Feed({} workers)", self.workers.len())
    }
}

struct Ready<T>(Result<T, DataError>);

impl<T: HeldBytes> HeldBytes for Ready<T> {
    fn held_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, HeldBytes::held_bytes)
    }
}

/// A batch in the trainer's hands; leaves the ledger when it is dropped.
#[derive(Debug)]
pub struct InUse<T> {
    batch: T,
    holding: Arc<Holding>,
}

impl<T> Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.batch
    }
}

impl<T> Drop for InUse<T> {
    fn drop(&mut self) {
        self.holding.set(0, 0);
    }
}

fn capacity(limits: &Limits) -> usize {
    limits.prefetch.max(limits.workers).max(1)
}

/// The owners that a feed registers.
pub fn planned_owners(limits: &Limits, batch_bytes_max: u64) -> Vec<PlannedOwner> {
    let owner = |name: &str, policy, items: usize, because: &str| PlannedOwner {
        name: name.into(),
        place: Place::Host,
        policy,
        items: items as u64,
        bytes: items as u64 * batch_bytes_max,
        because: because.into(),
    };
    vec![
        owner(READY, Policy::Block, capacity(limits), "`limits.prefetch` batches"),
        owner(IN_USE, Policy::Refuse, 1, "the batch of the step"),
    ]
}

impl<T: HeldBytes + Send + 'static> Feed<T> {
    /// Starts the workers at batch `first`. `batch_bytes_max` is the largest that a batch can be.
    pub fn new(
        ledger: &Ledger,
        limits: &Limits,
        batch_bytes_max: u64,
        first: u64,
        prepare: Prepare<T>,
    ) -> Result<Self, DataError> {
        let queue = OrderedQueue::new(ledger, READY, capacity(limits), batch_bytes_max, first);
        let in_use = Arc::new(ledger.register(IN_USE, Cap { items: 1, bytes: batch_bytes_max }, Policy::Refuse));
        let mut feed = Self { queue, prepare, workers: Vec::with_capacity(limits.workers), in_use };
        for number in 0..limits.workers {
            let (queue, prepare) = (feed.queue.clone(), feed.prepare.clone());
            let work = move || {
                while let Some(number) = queue.claim() {
                    queue.deliver(number, caught(&prepare, number));
                }
            };
            let worker = Builder::new().name(format!("feed-{number}")).spawn(work).map_err(|error| {
                DataError::Content(format!("worker {number} cannot be started: {error}; lower `limits.workers`"))
            })?;
            feed.workers.push(worker);
        }
        Ok(feed)
    }

    /// Waits for the next batch in order. After an error there are no more.
    pub fn next(&mut self) -> Result<InUse<T>, DataError> {
        if self.workers.is_empty()
            && let Some(number) = self.queue.claim()
        {
            self.queue.deliver(number, caught(&self.prepare, number));
        }
        let ended = || DataError::Content("the feed has ended after an error".into());
        match self.queue.take().ok_or_else(ended)?.0 {
            Ok(batch) => {
                self.in_use.set(1, batch.held_bytes());
                Ok(InUse { batch, holding: self.in_use.clone() })
            }
            Err(error) => {
                self.queue.close();
                Err(error)
            }
        }
    }
}

/// A panic becomes an error that names the batch.
fn caught<T>(prepare: &Prepare<T>, number: u64) -> Ready<T> {
    let result = panics::caught(|| prepare(number));
    Ready(match result {
        Ok(Ok(batch)) => Ok(batch),
        Ok(Err(error)) => Err(DataError::Content(format!("batch {number}: {error}"))),
        Err(message) => Err(DataError::Content(format!("batch {number}: its worker panicked: {message}"))),
    })
}

impl<T: HeldBytes + Send + 'static> Drop for Feed<T> {
    fn drop(&mut self) {
        self.queue.close();
        for worker in self.workers.drain(..) {
            let _ = worker.join(); // its panics were caught one by one
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(workers: usize, prefetch: usize) -> Limits {
        Limits { workers, prefetch, ..Limits::default() }
    }

    fn feed(
        workers: usize,
        prefetch: usize,
        prepare: impl Fn(u64) -> Result<f64, DataError> + Send + Sync + 'static,
    ) -> (Ledger, Feed<f64>) {
        let ledger = Ledger::default();
        let feed = Feed::new(&ledger, &limits(workers, prefetch), 8, 5, Arc::new(prepare)).unwrap();
        (ledger, feed)
    }

    #[test]
    fn order_and_content_do_not_depend_on_the_workers() {
        for workers in [0, 1, 4] {
            let (ledger, mut feed) = feed(workers, 3, |number| Ok(number as f64));
            let batches: Vec<f64> = (0..50).map(|_| *feed.next().unwrap()).collect();
            assert_eq!(batches, (5..55).map(f64::from).collect::<Vec<_>>(), "{workers} workers");
            assert!(ledger.read().iter().all(|owner| !owner.exceeded()), "{:?}", ledger.read());
        }
    }

    #[test]
    fn what_is_in_use_is_counted_until_it_is_dropped() {
        let (ledger, mut feed) = feed(1, 1, |_| Ok(1.0));
        let held = |ledger: &Ledger| ledger.read().iter().find(|owner| owner.name == IN_USE).unwrap().bytes;
        let batch = feed.next().unwrap();
        assert_eq!(held(&ledger), 8);
        drop(batch);
        assert_eq!(held(&ledger), 0);
    }

    #[test]
    fn an_error_comes_at_its_place_and_ends_the_feed() {
        for workers in [0, 2] {
            let (_ledger, mut feed) = feed(workers, 4, |number| match number {
                7 => Err(DataError::Content("frame_7.jpg is broken".into())),
                _ => Ok(0.0),
            });
            assert!(feed.next().is_ok() && feed.next().is_ok());
            let error = feed.next().unwrap_err().to_string();
            assert!(error.contains("batch 7") && error.contains("frame_7.jpg"), "{error}");
            assert!(feed.next().is_err());
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_an_error_with_its_message() {
        let (_ledger, mut feed) =
            feed(2, 2, |number| if number == 6 { panic!("worker lost its mind") } else { Ok(0.0) });
        feed.next().unwrap();
        let error = feed.next().unwrap_err().to_string();
        assert!(error.contains("batch 6") && error.contains("lost its mind"), "{error}");
    }

    #[test]
    fn the_plan_names_the_owners_of_the_feed() {
        let (ledger, _feed) = feed(2, 3, |_| Ok(0.0));
        let mut planned: Vec<_> =
            planned_owners(&limits(2, 3), 8).into_iter().map(|owner| (owner.name, owner.items, owner.bytes)).collect();
        planned.sort();
        let held: Vec<_> =
            ledger.read().into_iter().map(|owner| (owner.name.to_owned(), owner.cap.items, owner.cap.bytes)).collect();
        assert_eq!(planned, held);
    }
}
