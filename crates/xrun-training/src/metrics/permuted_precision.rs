//! Average precision of the same detections with permuted classes: chance of a detector, which keeps its boxes and scores.
//!
//! In each frame the classes of an episode are permuted at random, with a seeded generator. A permutation moves all
//! detections of a way to one class, and matching is by class, so each way is matched with each class once, and all
//! permutations are sums of that.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;

use super::average_precision::average;
use super::matching::MatchedImage;
use super::running_mean::RunningMean;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy};
use xrun_core::bounded::list::CappedList;
use xrun_core::seed;
use xrun_core::task::metric::Interval;

/// Number of permutations.
const PERMUTATIONS: u64 = 20;
/// Maximum number of ways of an episode.
pub const WAYS_MAX: usize = 32;

/// Detection with its outcomes at IoU 0.5 when its way is matched with each class of the episode, a bit each.
#[derive(Clone, Copy, Debug)]
struct Entry {
    score: f32,
    frame: u32,
    way: u32,
    matched: u32,
    ignored: u32,
}

impl DeepSize for Entry {
    fn deep_size(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

/// Accumulates the frames of a validation. Without room for all detections there is no result.
#[derive(Debug)]
pub struct PermutedPrecision {
    entries: CappedList<Entry>,
    /// Classes of each episode, and its first frame.
    episodes: Vec<(u32, Vec<u32>)>,
    frames: u32,
    /// Number of objects by class.
    truths: BTreeMap<u32, u64>,
    is_whole: bool,
}

/// Buffer of a [`PermutedPrecision`] for at most this many predictions.
pub fn buffer(name: &'static str, predictions: usize) -> Buffer {
    let cap = Cap { items: predictions as u64, bytes: (predictions * size_of::<Entry>()) as u64 };
    Buffer::new(name, Policy::Refuse, cap)
}

impl PermutedPrecision {
    /// Empty accumulator with a buffer made by [`buffer`].
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        let entries = CappedList::new(ledger, buffer);
        Self { entries, episodes: Vec::new(), frames: 0, truths: BTreeMap::new(), is_whole: true }
    }

    /// Begins an episode with these classes.
    pub fn begin_episode(&mut self, classes: impl Iterator<Item = u32>) {
        let classes: Vec<u32> = classes.collect();
        self.is_whole &= (2..=WAYS_MAX).contains(&classes.len());
        self.episodes.push((self.frames, classes));
    }

    /// Adds a frame. `shifted`: its detections after matching, with the class of each way moved on by 0, 1, … ways.
    pub fn add(&mut self, shifted: &[MatchedImage]) {
        let (Some(own), Some((_, classes))) = (shifted.first(), self.episodes.last()) else { return };
        for (class, _) in own.truths.iter().filter(|(_, counts)| counts[0]) {
            *self.truths.entry(*class).or_default() += 1;
        }
        // The same detections in the same order, whatever their classes are.
        for (at, detection) in own.detections.iter().enumerate() {
            let Some(way) = classes.iter().position(|class| *class == detection.class) else { continue };
            let bits = |of: &dyn Fn(&MatchedImage) -> u16| {
                let bit = |(shift, image)| u32::from(of(image) & 1) << ((way + shift) % classes.len());
                shifted.iter().enumerate().map(bit).sum()
            };
            let matched = bits(&|image| image.detections[at].outcomes.matched[0]);
            let ignored = bits(&|image| image.detections[at].outcomes.ignored[0]);
            let entry = Entry { score: detection.score, frame: self.frames, way: way as u32, matched, ignored };
            self.is_whole = self.is_whole && self.entries.push(entry).is_ok();
        }
        self.frames += 1;
    }

    /// Returns the mean over permutations of the mean average precision at IoU 0.5, and the range of 95 % of permutations;
    /// resets the accumulator. `None` with one class in an episode, or with more detections than the cap.
    pub fn finish(&mut self) -> Option<(f64, Interval)> {
        let mut entries = self.entries.take();
        entries.sort_by(|a, b| b.score.total_cmp(&a.score));
        let (episodes, truths) = (std::mem::take(&mut self.episodes), std::mem::take(&mut self.truths));
        let frames = std::mem::take(&mut self.frames);
        if !std::mem::replace(&mut self.is_whole, true) || truths.is_empty() {
            return None;
        }
        let ends = episodes.iter().skip(1).map(|(first, _)| *first).chain([frames]);
        let of_frames: Vec<&[u32]> =
            episodes.iter().zip(ends).flat_map(|((first, classes), end)| (*first..end).map(|_| &classes[..])).collect();
        let (mut all, mut curve) = (RunningMean::default(), Vec::new());
        for number in 0..PERMUTATIONS {
            let mut random = seed::generator(0, "permuted classes", number);
            let order = of_frames.iter().map(|classes| {
                let mut order: Vec<usize> = (0..classes.len()).collect();
                order.shuffle(&mut random);
                order
            });
            let order: Vec<Vec<usize>> = order.collect();
            let mut outcomes: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
            for entry in &entries {
                let at = order[entry.frame as usize][entry.way as usize];
                if entry.ignored >> at & 1 == 0 {
                    let class = of_frames[entry.frame as usize][at];
                    outcomes.entry(class).or_default().push(entry.matched >> at & 1 == 1);
                }
            }
            let of_class = |(class, count): (&u32, &u64)| {
                let own = outcomes.get(class).into_iter().flatten().copied();
                average(own, *count, &mut curve).0
            };
            all.add(Some(truths.iter().map(of_class).sum::<f64>() / truths.len() as f64));
        }
        let interval = all.interval()?;
        let half_width = interval.half_width * (PERMUTATIONS as f64).sqrt();
        Some((all.mean()?, Interval { half_width, ..interval }))
    }
}
