//! Rule like the one of TraceML (<https://pypi.org/project/traceml-ai/>): memory creep between thirds of the newest steps.
//!
//! At each look, with 50 to 800 steps: the mean of the last third is at least 1 GiB above that of the first, the middle is not below
//! the first nor above the last, and 512 MiB are in use.

use super::Sample;

const LOOK: std::ops::RangeInclusive<usize> = 50..=800;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

pub fn grows(samples: &[Sample]) -> bool {
    let mut sums = vec![0.0];
    for sample in samples {
        sums.push(sums[sums.len() - 1] + sample.bytes);
    }
    let creeps = |end: usize| {
        let length = end.min(*LOOK.end());
        let (start, third) = (end - length, length / 3);
        let mean = |from: usize, to: usize| (sums[to] - sums[from]) / (to - from) as f64;
        let baseline = mean(start, start + third);
        let (middle, recent) = (mean(start + third, end - third), mean(end - third, end));
        recent - baseline >= GIB && recent > middle && middle >= baseline && samples[end - 1].bytes >= GIB / 2.0
    };
    (*LOOK.start()..=samples.len()).any(creeps)
}
