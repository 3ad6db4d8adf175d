//! Task of the pipeline `dummy`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::settings::Dummy;
use crate::bounded::DeepSize;
use crate::bounded::buffer::Buffer;
use crate::bounded::cache::ByteCache;
use crate::bounded::leak_buffer;
use crate::bounded::ledger::{Cap, Ledger, Policy, Registration};
use crate::bounded::planned::PlannedBuffer;
use crate::files::{file, layout, write};
use crate::settings::rung::Rung;
use crate::settings::sections::{CleanupAction, Limits};
use crate::task::predict::{Item, Predict, PredictRequest, PredictionSink};
use crate::task::{DeviceMemory, Metric, Phases, StepReport, Task, TaskError, TaskFacts, ValidationReport};

/// Validation metrics.
pub const METRICS: &[Metric] =
    &[Metric::higher("score", "").chance(0.0).about("One minus a weight that each step shrinks; no model is trained.")];

/// Task whose state is one number that each step changes, so that a resume that loses a step is detected.
#[derive(Debug)]
pub struct DummyTask {
    settings: Dummy,
    seed: u32,
    weight: f64,
    held: Option<(Registration, Vec<u8>)>,
    cache: Option<ByteCache<u64, CachedBytes>>,
    /// Number of halvings of the micro-batch.
    halvings: u32,
    leaked: Vec<Vec<u8>>,
    registration: Option<Registration>,
}

/// Item of the cache.
#[derive(Clone, Debug)]
struct CachedBytes(Arc<[u8]>);

impl DeepSize for CachedBytes {
    fn deep_size(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Facts for the plan.
pub fn facts(settings: &Dummy, limits: &Limits) -> TaskFacts {
    let buffers = [leak(settings), hold(settings), cache(settings, limits)];
    let owners = buffers.iter().flatten().map(PlannedBuffer::from).collect();
    TaskFacts { owners, probe_steps: 2, ..TaskFacts::new(settings.steps_per_epoch, METRICS) }
}

/// Buffer of the leak, if it is in the ledger.
fn leak(settings: &Dummy) -> Option<Buffer> {
    let leak = || leak_buffer::leak("dummy_leak").because("`pipeline.dummy.leak_per_step` of each step");
    settings.leak_in_ledger.then(leak)
}

/// Buffer of the bytes held from the first step on.
fn hold(settings: &Dummy) -> Option<Buffer> {
    let cap = Cap { items: 1, bytes: settings.hold.0 };
    let hold = || Buffer::new("dummy_hold", Policy::Refuse, cap).key(HOLD).because(format!("`{HOLD}`"));
    (settings.hold.0 > 0).then(hold)
}

/// Buffer of the cache, if steps use it.
fn cache(settings: &Dummy, limits: &Limits) -> Option<Buffer> {
    let cap = Cap { items: 1_000_000, bytes: limits.frame_cache.0 };
    let cache = || Buffer::new("dummy_cache", Policy::Evict, cap).key("limits.frame_cache").rung(Rung::Caches);
    (settings.cache_per_step.0 > 0).then(|| cache().because("`limits.frame_cache`"))
}

/// Key of the bytes held.
const HOLD: &str = "pipeline.dummy.hold";

impl DummyTask {
    /// Task at step 0.
    pub fn new(settings: Dummy, seed: u32, limits: &Limits, ledger: &Ledger) -> Self {
        let registration = leak(&settings).map(|leak| leak.register(ledger));
        let held = hold(&settings).map(|hold| (hold.register(ledger), Vec::new()));
        let cache = cache(&settings, limits).map(|cache| ByteCache::new(ledger, &cache));
        Self { settings, seed, weight: 1.0, held, cache, halvings: 0, leaked: Vec::new(), registration }
    }
}

/// Panics as CubeCL does when an allocation of 3 GiB fails.
#[expect(clippy::disallowed_methods, reason = "the thread ends here")]
fn full_device() {
    let device = std::thread::spawn(|| {
        panic!("called `Result::unwrap()` on an `Err` value: out of device memory allocating 3221225472 bytes")
    });
    let result: Result<(), _> = device.join().map_err(|_| "CallError");
    assert!(result.is_ok(), "called `Result::unwrap()` on an `Err` value: CallError");
}

impl Task for DummyTask {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let is_now = |at: Option<u64>| at == Some(step);
        phases.enter("forward");
        if is_now(self.settings.fail_at_step) {
            return Err(TaskError::Rejected(format!("step {step} fails, as set by `fail_at_step`")));
        }
        if is_now(self.settings.broken_data_at_step) {
            return Err(TaskError::Data(format!("step {step} finds invalid data, as set by `broken_data_at_step`")));
        }
        assert!(!is_now(self.settings.panic_at_step), "step {step} panics, as set by `panic_at_step`");
        if is_now(self.settings.device_full_at_step) && self.halvings == 0 {
            full_device();
        }
        std::thread::sleep(Duration::from_micros(self.settings.step_microseconds));
        if let Some((registration, bytes)) = self.held.as_mut().filter(|(_, bytes)| bytes.is_empty()) {
            // Written, so that the pages are resident.
            *bytes = vec![1; self.settings.hold.0 as usize];
            registration.set(1, self.settings.hold.0);
        }
        if let Some(cache) = &self.cache {
            // Written, so that the pages are resident.
            cache.insert(step, CachedBytes(vec![1; self.settings.cache_per_step.0 as usize].into()));
        }
        drop(std::hint::black_box(vec![1_u8; (self.settings.activations.0 >> self.halvings) as usize]));
        if self.settings.leak_per_step.0 > 0 {
            // Written, so that the pages are resident.
            self.leaked.push(vec![1; self.settings.leak_per_step.0 as usize]);
            let items = self.leaked.len() as u64;
            self.registration
                .iter()
                .for_each(|registration| registration.set(items, items * self.settings.leak_per_step.0));
        }
        let noise =
            ((step ^ u64::from(self.seed)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
        let factor = 1.0 - 0.01 * (0.5 + noise) * (learning_rate * 1000.0).min(1.0);
        match self.settings.worse_after_step.is_some_and(|last| step > last) {
            true => self.weight /= factor,
            false => self.weight *= factor,
        }
        let loss = if is_now(self.settings.nan_at_step) { f64::NAN } else { self.weight };
        Ok(StepReport {
            kind: "dummy",
            loss,
            values: vec![("noise", noise)],
            gradient_norm: Some(1.0 + noise),
            items: 1,
            batch: format!("dummy batch {step}"),
        })
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        phases.enter("validation");
        let score = 1.0 - self.weight;
        Ok(ValidationReport { metrics: vec![("score".into(), Some(score))], ..ValidationReport::default() })
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        let mut bytes = self.weight.to_le_bytes().to_vec();
        bytes.resize((self.settings.checkpoint_size.0 as usize).max(8), 0);
        let path = directory.join(layout::WEIGHTS);
        Ok(write::replace(&path, &bytes)?)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.load_weights(&directory.join(layout::WEIGHTS))
    }

    fn load_weights(&mut self, path: &Path) -> Result<(), TaskError> {
        let bytes = std::fs::read(path).map_err(|error| TaskError::file(path, error))?;
        let first = bytes.first_chunk::<8>().ok_or_else(|| TaskError::file(path, "has fewer than 8 bytes"))?;
        self.weight = f64::from_le_bytes(*first);
        Ok(())
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match (action, &self.cache) {
            (CleanupAction::Caches, Some(cache)) => cache.evict_to_fraction(1.0),
            _ => 0,
        }
    }

    fn set_rung(&mut self, rung: Rung, level: u32) -> bool {
        let is_known = rung == Rung::MicroBatch && self.settings.activations.0 >> level > 0;
        if is_known {
            self.halvings = level;
        }
        is_known
    }

    fn synchronise(&mut self) -> Result<(), TaskError> {
        Ok(())
    }

    fn device_memory(&mut self) -> Option<DeviceMemory> {
        None
    }

    fn parameters(&self) -> u64 {
        1
    }

    fn device_name(&self) -> String {
        "cpu".into()
    }

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        Some(self)
    }
}

/// Prediction for a file.
#[derive(serde::Serialize)]
struct Answer {
    bytes: u64,
    /// The weight times the number of bytes.
    sum: f64,
}

impl Predict for DummyTask {
    fn predict(
        &mut self,
        asked: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError> {
        for path in asked.files {
            let length = file::open(path).and_then(|file| Ok(file.metadata()?.len()));
            match length {
                Ok(bytes) => {
                    let answer = Answer { bytes, sum: self.weight * bytes as f64 };
                    sink.answered(Item::file(path), &answer, &format!("{bytes} bytes, {:.3}", answer.sum))?;
                }
                Err(error) => sink.failed(Item::file(path), &format!("cannot be read: {error}"))?,
            }
        }
        Ok(serde_json::json!({ "weight": self.weight }))
    }
}
