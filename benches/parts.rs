//! Costs of components: a memory sample, a counted allocation, decoding and augmenting images with several workers.
//!
//! `cargo bench --bench parts`

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use xrun::Program;
use xrun::bounded::buffer::Buffer;
use xrun::bounded::ledger::{Cap, Ledger, Policy};
use xrun::data::feed::{Feed, FeedSettings};
use xrun::experiment::read;
use xrun::heap::CountingAllocator;
use xrun::pipelines::fewshot_detection::batch::HostBatch;
use xrun::pipelines::fewshot_detection::prepare::Prepared;
use xrun::results::format::SamplePoint;
use xrun::run::trace::LoopPosition;
use xrun::run::trace::{SampleContext, Tracer};

fn main() {
    divan::main();
}

/// Memory sample with twelve owners, with and without the sources that are slow to read.
#[divan::bench(args = ["quick", "with parts"])]
fn memory_sample(bencher: Bencher, kind: &str) {
    let ledger = Ledger::default();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let owners = names.map(|name| Buffer::new(name, Policy::Evict, Cap { items: 10, bytes: 1000 }).register(&ledger));
    owners.iter().for_each(|owner| owner.set(1, 100));
    let every = if kind == "quick" { u64::MAX } else { 1 };
    let mut tracer = Tracer::new(&ledger, 0, every, None);
    bencher.bench_local(|| {
        let phases = BTreeMap::from([("forward".to_owned(), 1), ("backward".to_owned(), 2)]);
        let start_time = std::time::Instant::now();
        let position = LoopPosition { step: 1, epoch: 1, point: SamplePoint::Step, freed: None, left: None };
        tracer.sample(SampleContext { start_time, position, device: None, phases })
    });
}

/// 1,000 allocations of 256 bytes and their deallocations, with and without the counting allocator. The difference per allocation is
/// the cost of measuring heap in use.
#[divan::bench(args = ["system", "counted"])]
fn a_thousand_allocations(bencher: Bencher, which: &str) {
    let layout = Layout::from_size_align(256, 16).unwrap();
    let is_counted = which == "counted";
    bencher.bench_local(|| {
        for _ in 0..1000 {
            // SAFETY: the layout is not empty, and each block is freed by its allocator.
            unsafe {
                let block = if is_counted { CountingAllocator.alloc(layout) } else { System.alloc(layout) };
                let block = std::hint::black_box(block);
                if is_counted { CountingAllocator.dealloc(block, layout) } else { System.dealloc(block, layout) }
            }
        }
    });
}

/// Eight batches of `experiments/stage2.toml`, decoded, augmented and dropped; the items counted are images.
#[divan::bench(args = [0, 1, 2], sample_count = 12, sample_size = 1)]
fn decode_and_augment(bencher: Bencher, workers: usize) {
    const BATCHES: usize = 8;
    Program::new().built_in().register();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/stage2.toml");
    let settings = |key: &str| format!("limits.{key}");
    let overrides = [
        format!("{}={}", settings("workers"), workers),
        format!("{}=4", settings("prefetch")),
        format!("{}=0", settings("frame_cache")),
    ];
    let experiment = read::read(&file, &overrides, std::env::vars()).unwrap().experiment;
    let ledger = Ledger::default();
    let (_, prepared) = experiment.prepare(&ledger).unwrap();
    let prepared: Prepared = prepared.into_parts().expect("stage2 is a few-shot detection");
    let batches = prepared.batches.clone();
    let prepare = Arc::new(move |number| batches.training_batch(number));
    let feed_settings = FeedSettings { workers, first: 0 };
    let mut feed = Feed::new(&ledger, &prepared.buffers.feed, feed_settings, prepare).unwrap();
    let images = prepared.settings.n_way
        * (prepared.settings.n_query + prepared.settings.n_shot * prepared.settings.augmentations);
    bencher.counter(ItemsCount::new(BATCHES * images)).bench_local(|| {
        let mut received = 0;
        while received < BATCHES {
            // Triplet batches have another size and are skipped.
            received += usize::from(matches!(*feed.next().unwrap(), HostBatch::Detection(_)));
        }
    });
}
