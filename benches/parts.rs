//! What do the parts cost: a memory sample, and decoding and augmenting pictures with several workers?
//!
//! `cargo bench --bench parts`

#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

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
use xrun::run::recorder::LoopPosition;
use xrun::run::trace::{SampleContext, Tracer};

fn main() {
    divan::main();
}

/// A sample with twelve owners, with and without the slower sources.
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
        let position = LoopPosition { step: 1, epoch: 1, point: SamplePoint::Step, freed: None };
        tracer.sample(SampleContext { start_time, position, device: None, phases })
    });
}

/// A thousand allocations of a quarter KiB and their end, by the system's allocator alone and by the one that counts.
/// The difference, times the allocations of a step, is what heap in use costs.
#[divan::bench(args = ["system", "counted"])]
fn a_thousand_allocations(bencher: Bencher, which: &str) {
    let layout = Layout::from_size_align(256, 16).unwrap();
    let counted = which == "counted";
    bencher.bench_local(|| {
        for _ in 0..1000 {
            // SAFETY: the layout is not empty, and each piece goes back to where it came from.
            unsafe {
                let piece = if counted { CountingAllocator.alloc(layout) } else { System.alloc(layout) };
                let piece = std::hint::black_box(piece);
                if counted { CountingAllocator.dealloc(piece, layout) } else { System.dealloc(piece, layout) }
            }
        }
    });
}

/// Eight batches of the main job, decoded and augmented and thrown away; items are pictures.
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
    let prepared: Prepared = prepared.into_parts().expect("the main job is of that kind");
    let batches = prepared.batches.clone();
    let prepare = Arc::new(move |number| batches.prepare(number));
    let feed_settings = FeedSettings { workers, first: 0 };
    let mut feed = Feed::new(&ledger, &prepared.buffers.feed, feed_settings, prepare).unwrap();
    let pictures =
        prepared.settings.n_way * (prepared.settings.n_query + prepared.settings.n_shot * prepared.settings.num_aug);
    bencher.counter(ItemsCount::new(BATCHES * pictures)).bench_local(|| {
        let mut taken = 0;
        while taken < BATCHES {
            // Triplet batches are of another size and not counted.
            taken += usize::from(matches!(*feed.next().unwrap(), HostBatch::Detection(_)));
        }
    });
}
