//! Spatio-temporal IoU of an object in a video, the vIoU of Zhang et al. 2020 (spatio-temporal video grounding).
//!
//! The sum of IoU over the frames where the object is both present and found, over the number of frames where it is present or found;
//! the mean over videos. The memory does not depend on the length of the videos.

use xrun_core::dataset::sample::BoundingBox;

/// Running mean over videos.
#[derive(Clone, Copy, Debug, Default)]
pub struct StIou {
    sum: f64,
    videos: u64,
    overlap: f64,
    frames: u64,
}

impl StIou {
    /// Adds a frame of the current video: true and predicted box of the object, `None` if it is absent or not found.
    pub fn frame(&mut self, truth: Option<BoundingBox>, found: Option<BoundingBox>) {
        if truth.is_some() || found.is_some() {
            self.frames += 1;
        }
        if let Some((truth, found)) = truth.zip(found) {
            self.overlap += f64::from(truth.iou(&found));
        }
    }

    /// Ends the current video. A video in which the object is neither present nor found does not count.
    pub fn end_video(&mut self) {
        if self.frames > 0 {
            self.sum += self.overlap / self.frames as f64;
            self.videos += 1;
        }
        (self.overlap, self.frames) = (0.0, 0);
    }

    /// Mean over videos; `None` without videos.
    pub fn mean(&self) -> Option<f64> {
        (self.videos > 0).then(|| self.sum / self.videos as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rectangle(left: f32) -> Option<BoundingBox> {
        Some(BoundingBox { left, top: 0.0, right: left + 10.0, bottom: 10.0 })
    }

    /// By hand. Correct in one frame, shifted by half in one (IoU 1/3), missed in one, a false positive in one, absent in one:
    /// (1 + 1/3) / 4.
    #[test]
    fn misses_and_false_positives_reduce_the_score() {
        let mut score = StIou::default();
        assert_eq!(score.mean(), None);
        for (truth, found) in [
            (rectangle(0.0), rectangle(0.0)),
            (rectangle(0.0), rectangle(5.0)),
            (rectangle(0.0), None),
            (None, rectangle(0.0)),
            (None, None),
        ] {
            score.frame(truth, found);
        }
        score.end_video();
        score.end_video(); // nothing in it
        assert!((score.mean().unwrap() - (1.0 + 1.0 / 3.0) / 4.0).abs() < 1e-6);
        score.frame(rectangle(0.0), rectangle(0.0));
        score.end_video();
        assert!((score.mean().unwrap() - (1.0 / 3.0 + 1.0) / 2.0).abs() < 1e-6);
    }
}
