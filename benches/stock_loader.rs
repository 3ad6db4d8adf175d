//! Peak RSS of the batches of `experiments/stage2.toml` through Burn's data loader.
//!
//! `cargo bench --features stock-loader --bench stock_loader`; compare with `rss_peak` of `xrun experiments/stage2.toml`. The
//! batches and their order are the same; they pass through Burn's `DataLoaderBuilder` with one worker, which creates the tensors.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may panic")]

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
use xrun::device::DeviceKind;
use xrun::experiment::read;
use xrun::pipelines::fewshot_detection::batch::{BatchLoader, HostBatch};
use xrun::pipelines::fewshot_detection::prepare::Prepared;

/// Batch numbers; the batcher prepares the batches, as the workers of xrun's feed do.
struct BatchNumbers(usize);

impl Dataset<u64> for BatchNumbers {
    fn get(&self, index: usize) -> Option<u64> {
        (index < self.0).then_some(index as u64)
    }

    fn len(&self) -> usize {
        self.0
    }
}

struct ToTensors(BatchLoader);

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

/// Returns the peak RSS of this process in MiB.
fn rss_peak_mib() -> u64 {
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
    let prepared: Prepared = prepared.into_parts().expect("stage2 is a few-shot detection");
    println!("before: peak RSS {} MiB", rss_peak_mib());
    let loader = DataLoaderBuilder::new(ToTensors(prepared.batches.clone()))
        .batch_size(1)
        .num_workers(1)
        .set_device(TensorDevice::open(DeviceKind::Cpu, false).unwrap().inner)
        .build(Arc::new(BatchNumbers(490)) as Arc<dyn Dataset<u64>>);
    let mut largest = 0;
    for (taken, (batch, bytes)) in loader.iter().enumerate() {
        largest = largest.max(bytes);
        // Stands in for the training step, which takes longer than the loader needs for a batch.
        std::thread::sleep(Duration::from_millis(220));
        drop(batch);
        if taken == 150 {
            break;
        }
    }
    println!("Burn's loader, one worker, batches of up to {} MiB: peak RSS {} MiB", largest >> 20, rss_peak_mib());
}
