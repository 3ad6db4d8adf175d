//! How much memory do the same batches take through Burn's own data loader?
//!
//! `cargo bench --features stock-loader --bench stock_loader`, beside `resident_peak` of `xrun experiments/stage2.toml`.
//! Network, optimiser, batches and their order are those of the main job; only the way from the workers to the step
//! differs: Burn's `DataLoaderBuilder` with one worker, whose batches are made into tensors by the worker.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark speaks to the terminal and may stop")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::{Device, Tensor, TensorData};
use xrun::Program;
use xrun::backend::dispatch::TensorDevice;
use xrun::bounded::ledger::Ledger;
use xrun::device::Kind;
use xrun::experiment::read;
use xrun::pipelines::fewshot_detection::batch::{Batches, HostBatch};
use xrun::pipelines::fewshot_detection::prepare::Prepared;

/// The numbers of the batches; the batcher does the work, as the feed's workers do.
struct Numbers(usize);

impl Dataset<u64> for Numbers {
    fn get(&self, index: usize) -> Option<u64> {
        (index < self.0).then_some(index as u64)
    }

    fn len(&self) -> usize {
        self.0
    }
}

struct ToTensors(Batches);

impl Batcher<u64, (Tensor<1>, u64)> for ToTensors {
    fn batch(&self, items: Vec<u64>, device: &Device) -> (Tensor<1>, u64) {
        let bytes = match self.0.prepare(items[0]).unwrap() {
            HostBatch::Detection(batch) => [&batch.query_pixels[..], &batch.reference_pixels[..]].concat(),
            HostBatch::Triplet(batch) => batch.pixels.to_vec(),
        };
        let values: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
        let count = values.len();
        (Tensor::from_data(TensorData::new(values, [count]), device), count as u64 * 4)
    }
}

fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn main() {
    Program::new().built_in().register();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/stage2.toml");
    let experiment = read::read(&file, &[], std::env::vars()).unwrap().experiment;
    let ledger = Ledger::default();
    let (_, prepared) = experiment.prepare(&ledger).unwrap();
    let prepared: Prepared = prepared.into_parts().expect("the main job is of that kind");
    println!("before: resident peak {} MiB", resident_peak());
    let loader = DataLoaderBuilder::new(ToTensors(prepared.batches.clone()))
        .batch_size(1)
        .num_workers(1)
        .set_device(TensorDevice::open(Kind::Cpu, false).unwrap().inner)
        .build(Arc::new(Numbers(490)) as Arc<dyn Dataset<u64>>);
    let mut largest = 0;
    for (taken, (batch, bytes)) in loader.iter().enumerate() {
        largest = largest.max(bytes);
        // The step of the main job takes longer than the loader needs for a batch.
        std::thread::sleep(Duration::from_millis(220));
        drop(batch);
        if taken == 150 {
            break;
        }
    }
    println!(
        "Burn's loader, one worker, batches of up to {} MiB: resident peak {} MiB",
        largest >> 20,
        resident_peak()
    );
}
