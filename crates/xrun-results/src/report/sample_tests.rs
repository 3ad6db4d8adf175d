//! Synthetic runs for the tests of reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::format::*;
use crate::loss;
use crate::loss::KindLoss;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{MemoryKind, PlannedBuffer};
use xrun_core::files::{layout, write};
use xrun_core::task::DeviceMemory;
use xrun_core::task::confusion::ClassResult;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::metric::{Direction, Interval, PlannedMetric};

pub const STEPS: u64 = 200;
const MIB: u64 = 1 << 20;
/// Duration of a validation in microseconds.
const VALIDATION_US: u64 = 6_000_000;
const OWNERS: [(&str, Policy, u64, u64); 6] = [
    ("frame_cache", Policy::Evict, 300, 128 * MIB),
    ("feed_ready", Policy::Block, 4, 48 * MIB),
    ("validation_predictions", Policy::Reduce, 20_000, 24 * MIB),
    ("reference_images", Policy::Refuse, 120, 16 * MIB),
    ("metrics_lines", Policy::Refuse, 64, MIB),
    ("gradient_norms", Policy::Evict, 100, 800),
];

/// Names in a run that may come from elsewhere.
#[derive(Clone, Copy)]
pub struct SampleNames {
    pub experiment: &'static str,
    pub description: &'static str,
    pub metric: &'static str,
    pub kind: &'static str,
    pub owner: &'static str,
    pub caption: &'static str,
}

pub const PLAIN: SampleNames = SampleNames {
    experiment: "stage2",
    description: "Few-shot reference detection on moving shapes; sized for two cores.",
    metric: "map_50",
    kind: "detection",
    owner: "frame_cache",
    caption: "video 3, frame 12: cross 0.91 (IoU 0.84), ring 0.77 (IoU 0.71)",
};

pub const HOSTILE: SampleNames = SampleNames {
    experiment: "<script>alert(1)</script>",
    description: "</style><img src=x onerror=alert(2)>",
    metric: "\u{1b}[2Jmap\"><b>",
    kind: "</svg><script>alert(3)</script>\u{1b}]0;title\u{7}",
    owner: "\u{202e}cache<i>",
    caption: "\"><script>alert(4)</script>",
};

/// A run of 200 steps, resumed once after step 120, and finished.
pub fn finished(results: &Path, names: SampleNames) -> PathBuf {
    let run = started(results, "2026-11-20T18-02-11_7f3a90", names, STEPS);
    write::replace_json(&run.join(layout::SUMMARY), &summary(names)).unwrap();
    let checkpoint = layout::checkpoint(&run, STEPS);
    std::fs::create_dir_all(&checkpoint).unwrap();
    write::replace_json(&checkpoint.join(layout::LOOP_STATE), &LoopState::default()).unwrap();
    run
}

/// A run that was killed while writing step 57.
pub fn killed(results: &Path) -> PathBuf {
    let run = started(results, "2026-11-21T07-14-35_0c55e1", PLAIN, 56);
    for (name, cut) in
        [(layout::METRICS, "{\"kind\":\"train\",\"step\":57,\"ep"), (layout::MEMORY, "{\"version\":1,\"seg")]
    {
        let mut text = std::fs::read_to_string(run.join(name)).unwrap();
        text.push_str(cut);
        write::replace(&run.join(name), text.as_bytes()).unwrap();
    }
    run
}

fn started(results: &Path, id: &str, names: SampleNames, steps: u64) -> PathBuf {
    let run = results.join("stage2").join(id);
    std::fs::create_dir_all(run.join(layout::IMAGES)).unwrap();
    write::replace_json(&run.join(layout::MANIFEST), &manifest(id, names, steps > 120)).unwrap();
    write::replace_json(&run.join(layout::PLAN), &plan(names)).unwrap();
    let resolved = format!("[experiment]\nname = {:?}\nseed = 7\n\n[training]\nepochs = 4\n", names.experiment);
    write::replace(&run.join(layout::RESOLVED), resolved.as_bytes()).unwrap();
    write_lines(&run.join(layout::METRICS), &metrics(names, steps));
    write_lines(&run.join(layout::MEMORY), &memory(names, steps));
    images(&run, names);
    write::replace_json(&run.join(layout::CLASSES), &classes(names)).unwrap();
    run
}

pub fn write_lines(path: &Path, records: &[impl Serialize]) {
    let lines: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    write::replace(path, lines.concat().as_bytes()).unwrap();
}

/// Deterministic pseudo-random number from 0 to 1.
fn noise(step: u64, stream: u64) -> f64 {
    let mixed = (step + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as f64 / (1u64 << 24) as f64
}

fn manifest(id: &str, names: SampleNames, resumed: bool) -> Manifest {
    Manifest {
        version: VERSION,
        experiment: names.experiment.into(),
        description: names.description.into(),
        run: id.into(),
        fingerprint: "7f3a90c1d2e45b60718293a4b5c6d7e8f90123456789abcdef0123456789abcd".into(),
        seed: 7,
        command: ["xrun", "experiments/stage2.toml", "-s", "experiment.seed=7"].map(String::from).into(),
        working_directory: "/home/ada/xrun".into(),
        started: "2026-11-20T18:02:11Z".into(),
        resumed: if resumed { vec!["2026-11-20T18:31:40Z".into()] } else { Vec::new() },
        code: Code { xrun: "0.1.0".into(), lock_digest: "ab".into(), ..Code::default() },
        host: Host {
            name: "workbench".into(),
            processor: "AMD EPYC 7B13".into(),
            cores: 2,
            memory: Some(16 << 30),
            memory_limit: Some(8 << 30),
            ..Host::default()
        },
        device: Device {
            chosen: "cuda:0".into(),
            because: "`auto`: the first GPU that answers".into(),
            name: "NVIDIA RTX A2000".into(),
            memory: Some(6 << 30),
            ..Device::default()
        },
        lowered: vec![LoweredSetting {
            key: "pipeline.fewshot-detection.n_way".into(),
            asked: 4,
            used: 2,
            because: "the data has 2 classes to train on".into(),
        }],
        data_skipped: [("box outside the image".to_owned(), 3), ("undecodable image".to_owned(), 1)].into(),
        ..Manifest::default()
    }
}

fn owner_names(names: SampleNames) -> [String; 6] {
    OWNERS.map(|(name, ..)| if name == "frame_cache" { names.owner.into() } else { name.to_owned() })
}

fn plan(names: SampleNames) -> PlanFile {
    let owners = owner_names(names).into_iter().zip(OWNERS);
    let owners = owners.map(|(name, (key, policy, items, bytes))| {
        let (key, because) = (Some(format!("limits.{key}")), format!("`limits.{key}`"));
        PlannedBuffer {
            name,
            place: MemoryKind::Host,
            policy,
            items,
            bytes,
            key,
            because,
            working_set_bytes: None,
            leak_growth: None,
            rung: None,
        }
    });
    PlanFile {
        lowered: Vec::new(),
        stages: Vec::new(),
        forecast: None,
        best_by: Some(names.metric.into()),
        images: "White: where the objects are. Coloured: what was found.".into(),
        version: VERSION,
        epochs: 4,
        steps_per_epoch: 50,
        steps: STEPS,
        validations: 2,
        parameters: 412_608,
        trained_parameters: None,
        owners: owners.collect(),
        metrics: [(names.metric, "share"), ("map", "share"), ("recall", "share"), ("embedding_margin", "cosine")]
            .map(|(name, unit)| {
                let family = if name == "embedding_margin" { "Embeddings" } else { "Average precision" };
                let about = format!("What `{name}` is.");
                let (direction, line) = (Some(Direction::Higher), name.replace('_', " "));
                let plain = PlannedMetric::plain(name, Direction::Higher);
                PlannedMetric { direction, unit: unit.into(), family: family.into(), line, about, ..plain }
            })
            .into(),
        rungs: Vec::new(),
    }
}

fn loss(step: u64) -> f64 {
    let progress = step as f64 / STEPS as f64;
    0.45 + 2.1 * (-3.0 * progress).exp() * (0.75 + 0.5 * noise(step, 1)) + if step == 83 { 9.0 } else { 0.0 }
}

fn metrics(names: SampleNames, steps: u64) -> Vec<MetricsLine> {
    let validation = |step: u64| {
        let progress = step as f64 / STEPS as f64;
        MetricsLine::Validation {
            step,
            epoch: step.div_ceil(50),
            metrics: [
                (names.metric.to_owned(), Some(0.012 + 0.42 * progress)),
                ("map".to_owned(), Some(0.004 + 0.21 * progress)),
                ("recall".to_owned(), Some(0.08 + 0.5 * progress)),
                ("st_iou".to_owned(), Some(0.03 + 0.33 * progress)),
                ("embedding_margin".to_owned(), Some(-0.2 + 1.6 * progress)),
                ("episode_map".to_owned(), Some(0.005 + 0.22 * progress)),
            ]
            .into(),
            intervals: [("episode_map".to_owned(), Interval { half_width: 0.004 + 0.03 * progress, episodes: 10 })]
                .into(),
        }
    };
    let mut lines = vec![validation(0)];
    for step in 1..=steps {
        let triplet = step % 3 == 0;
        let norm = 0.8 + 2.0 * noise(step, 2) + if step == 83 { 40.0 } else { 0.0 };
        lines.push(MetricsLine::Train {
            step,
            epoch: step.div_ceil(50),
            batch: if triplet { "triplet".into() } else { names.kind.into() },
            loss: if triplet { 0.25 * loss(step).min(4.0) } else { loss(step) },
            learning_rate: Some(3e-4 * (step as f64 / 20.0).min(1.0) * (0.5 + 0.5 * (step as f64 / 64.0).cos())),
            gradient_norm: Some(norm),
            gradient_norm_median: Some(1.7 + 0.1 * noise(step / 10, 3)),
            values: BTreeMap::new(),
        });
        if step % 100 == 0 {
            lines.push(validation(step));
        }
    }
    lines
}

fn losses(names: SampleNames) -> Vec<KindLoss> {
    let mut losses = Vec::new();
    for line in metrics(names, STEPS) {
        if let MetricsLine::Train { batch, loss, .. } = line {
            loss::add(&mut losses, &batch, loss, loss::averaging_window(Some(STEPS)));
        }
    }
    losses
}

fn memory(names: SampleNames, steps: u64) -> Vec<MemoryLine> {
    let mut lines = Vec::new();
    let (mut segment, mut time, mut cache) = (0, 180_000, 0u64);
    let mut heap_peak = 0;
    let mut sample = |segment: u32, time: u64, step: u64, point: SamplePoint, cache: u64, freed: Option<u64>| {
        let validating = matches!(point, SamplePoint::AfterValidation);
        let sizes = [
            cache.min(128 * MIB),
            (20.0 + 26.0 * noise(step, 4)) as u64 * MIB,
            if validating { 17 * MIB } else { 0 },
            11 * MIB,
            (step % 64) * 3_000,
            800.min(step * 8),
        ];
        let heap = 40 * MIB + sizes.iter().sum::<u64>() + (noise(step, 5) * 6e6) as u64;
        heap_peak = heap.max(heap_peak);
        let rss = heap + 110 * MIB + (noise(step / 10, 6) * 9e6) as u64;
        let slow = point != SamplePoint::Step;
        let in_use = (210 + (step % 10) * 4) * MIB + if validating { 160 * MIB } else { 0 };
        let reserved = if step < 4 { 256 * MIB } else { 512 * MIB };
        lines.push(MemoryLine {
            version: VERSION,
            segment,
            time_us: time,
            step,
            epoch: step.div_ceil(50),
            point,
            host: HostMemory {
                heap,
                heap_peak,
                heap_allocations: 41_000,
                rss: Some(rss),
                rss_peak: slow.then_some(rss + 9 * MIB),
                ..HostMemory::default()
            },
            device: Some(DeviceMemory { in_use, reserved, allocations: 300 }),
            driver: slow.then_some(DriverMemory {
                process: Some(reserved + 190 * MIB),
                device: 3 << 30,
                before: None,
                total: None,
                load: GpuTelemetry::new(Some(90 + step as u32 % 8), Some(300_000 + 1000 * (step as u32 % 20))),
            }),
            owners: owner_names(names).into_iter().zip(sizes).collect(),
            freed,
            phases_us: [("forward", 240_000), ("backward", 410_000), ("data", 31_000), ("trace", 900)]
                .map(|(name, spent)| (name.to_owned(), spent))
                .into(),
            cost_us: 850,
            ..MemoryLine::default()
        });
    };
    sample(segment, time, 0, SamplePoint::Start, cache, None);
    sample(segment, time, 0, SamplePoint::BeforeValidation, cache, None);
    time += VALIDATION_US;
    sample(segment, time, 0, SamplePoint::AfterValidation, cache, None);
    for step in 1..=steps {
        if step == 121 {
            (segment, time, cache) = (1, 210_000, 0);
            sample(segment, time, 120, SamplePoint::Start, cache, None);
        }
        time += 690_000 + (noise(step, 7) * 90_000.0) as u64;
        cache += 3 * MIB;
        sample(segment, time, step, SamplePoint::Step, cache, None);
        if step % 100 == 0 {
            sample(segment, time, step, SamplePoint::BeforeValidation, cache, None);
            time += VALIDATION_US;
            sample(segment, time, step, SamplePoint::AfterValidation, cache, None);
        }
        if step % 10 == 0 {
            sample(segment, time + 1_000, step, SamplePoint::BeforeCleanup, cache, None);
            let kept = cache.min(128 * MIB) * 3 / 4;
            sample(segment, time + 4_000, step, SamplePoint::AfterCleanup, kept, Some(cache.min(128 * MIB) - kept));
            cache = kept;
        }
    }
    lines
}

fn summary(names: SampleNames) -> Summary {
    let validation = |step: u64| {
        let is_of_step = |line: &MetricsLine| matches!(line, MetricsLine::Validation { step: at, .. } if *at == step);
        match metrics(names, STEPS).into_iter().find(is_of_step) {
            Some(MetricsLine::Validation { metrics, intervals, .. }) => (metrics, intervals),
            _ => unreachable!("validated after step {step}"),
        }
    };
    let (metrics_last, intervals_last) = validation(STEPS);
    let trace = memory(names, STEPS);
    let peak = |of: &dyn Fn(&MemoryLine) -> Option<u64>| trace.iter().filter_map(of).max();
    let phase = |name: &str, count: u64, seconds: f64, longest: f64| PhaseSummary {
        name: name.into(),
        count,
        seconds,
        longest,
        grown: None,
    };
    let best = Best { metric: names.metric.into(), value: 0.432, step: 200 };
    Summary {
        demand: Demand::default(),
        plan_and_actual: Vec::new(),
        version: VERSION,
        experiment: names.experiment.into(),
        run: "2026-11-20T18-02-11_7f3a90".into(),
        is_data_error: false,
        outcome: Outcome::Finished,
        message: "all 200 steps are done".into(),
        exit_code: 0,
        finished: "2026-11-20T18:34:20Z".into(),
        seconds: 168.4,
        steps: STEPS,
        steps_planned: STEPS,
        epochs: 4.0,
        steps_per_second: Some(1.364),
        items_per_second: Some(10.91),
        loss_first: Some(loss(1)),
        loss_last: Some(loss(STEPS)),
        losses: losses(names),
        metrics_first: validation(0).0,
        metrics_last,
        intervals_last,
        best: Some(best),
        restored: None,
        training: None,
        memory: MemorySummary {
            size_classes: vec![SizeClass {
                from_bytes: 65_536,
                allocations_at_start: 10,
                allocations: 12,
                bytes: 1 << 20,
            }],
            heap_peak: peak(&|line| Some(line.host.heap_peak)).unwrap(),
            heap_at_end: trace.last().unwrap().host.heap,
            rss_peak: peak(&|line| line.host.rss_peak),
            device_in_use_peak: peak(&|line| Some(line.device?.in_use)),
            device_reserved_peak: peak(&|line| Some(line.device?.reserved)),
            gpu_utilisation_mean: Some(94.2),
            gpu_power_mean: Some(309.5),
            samples: trace.len() as u64,
            trace_seconds: 0.21,
            trace_share: Some(0.0014),
        },
        owners: (owner_names(names).into_iter().zip(OWNERS).enumerate())
            .map(|(at, (name, (_, policy, cap_items, cap_bytes)))| OwnerSummary {
                peak_bytes: trace.iter().map(|line| line.owners[&name]).max().unwrap(),
                name,
                policy,
                cap_items,
                cap_bytes,
                peak_items: cap_items - at as u64,
            })
            .collect(),
        rungs: Vec::new(),
        durations: None,
        lines: None,
        phases: vec![
            phase("backward", 200, 86.9, 0.71),
            phase("forward", 200, 50.2, 0.44),
            phase("validation", 3, 18.0, 6.02),
            phase("data", 200, 6.1, 0.12),
            phase("optimizer", 200, 4.4, 0.03),
            phase("checkpoint", 5, 1.1, 0.26),
            phase("cleanup", 20, 0.61, 0.05),
            phase("trace", 262, 0.21, 0.002),
        ],
        counters: [("frame_cache_hits".to_owned(), 8_210)].into(),
    }
}

fn classes(names: SampleNames) -> ClassIndex {
    let row = |class: &str, correct, taken_for: &[(&str, u64)]| ClassResult {
        class: class.into(),
        items: 20,
        correct,
        taken_for: taken_for.iter().map(|(other, count)| ((*other).into(), *count)).collect(),
        ..ClassResult::default()
    };
    let classes = vec![row(names.caption, 12, &[("mug", 8)]), row("mug", 20, &[])];
    ClassIndex { version: VERSION, classes }
}

/// Six small images.
fn images(run: &Path, names: SampleNames) {
    let directory = run.join(layout::IMAGES);
    let entry = |number: u32| {
        let file = format!("{number}.png");
        image::RgbImage::new(192, 128).save(directory.join(&file)).unwrap();
        ImageEntry { file, caption: names.caption.into() }
    };
    let images = ImageIndex { version: VERSION, images: (0..6).map(entry).collect() };
    write::replace_json(&directory.join(layout::IMAGES_INDEX), &images).unwrap();
}
