//! Is an object followed through a video? ST-IoU, the vIoU of Zhang et al. 2020 (spatio-temporal video grounding).
//!
//! The sum of IoU over the frames where the object is both there and found, over the number of frames where it is there
//! or found; the mean over videos. Two numbers are kept, however long the videos are.

use xrun_core::dataset::sample::BoundingBox;

/// A running mean over videos.
#[derive(Clone, Copy, Debug, Default)]
pub struct StIou {
    sum: f64,
    videos: u64,
    overlap: f64,
    frames: u64,
}

impl StIou {
    /// One frame of the current video: where the object is, and where it was found.
    pub fn frame(&mut self, truth: Option<BoundingBox>, found: Option<BoundingBox>) {
        if truth.is_some() || found.is_some() {
            self.frames += 1;
        }
        if let Some((truth, found)) = truth.zip(found) {
            self.overlap += f64::from(truth.iou(&found));
        }
    }

    /// Ends the current video. One in which the object neither is nor is found does not count.
    pub fn end_video(&mut self) {
        if self.frames > 0 {
            self.sum += self.overlap / self.frames as f64;
            self.videos += 1;
        }
        (self.overlap, self.frames) = (0.0, 0);
    }

    /// `None` without videos.
    pub fn mean(&self) -> Option<f64> {
        (self.videos > 0).then(|| self.sum / self.videos as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(left: f32) -> Option<BoundingBox> {
        Some(BoundingBox { left, top: 0.0, right: left + 10.0, bottom: 10.0 })
    }

    /// By hand. Right in one frame, shifted by half in one (IoU 1/3), missed in one, invented in one, absent in one:
    /// (1 + 1/3) / 4.
    #[test]
    fn missed_and_invented_frames_both_cost() {
        let mut score = StIou::default();
        for (truth, found) in
            [(place(0.0), place(0.0)), (place(0.0), place(5.0)), (place(0.0), None), (None, place(0.0)), (None, None)]
        {
            score.frame(truth, found);
        }
        score.end_video();
        score.end_video(); // nothing in it
        assert!((score.mean().unwrap() - (1.0 + 1.0 / 3.0) / 4.0).abs() < 1e-6);
        score.frame(place(0.0), place(0.0));
        score.end_video();
        assert!((score.mean().unwrap() - (1.0 / 3.0 + 1.0) / 2.0).abs() < 1e-6);
    }

    #[test]
    fn without_videos_there_is_no_score() {
        assert_eq!(StIou::default().mean(), None);
    }
}
