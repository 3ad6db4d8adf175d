//! Running mean with its 95 % confidence interval, as papers on few-shot learning report it.
//!
//! Welford's running mean and sum of squares: three numbers, independent of the number of values.

use xrun_core::task::metric::{Interval, student_t_quantile};

/// Running mean over episodes (or other samples).
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningMean {
    episodes: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl RunningMean {
    /// Adds the value of an episode. `None` (nothing to measure) and values that are not finite are ignored.
    pub fn add(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        self.episodes += 1;
        let difference = value - self.mean;
        self.mean += difference / self.episodes as f64;
        self.squares += difference * (value - self.mean);
    }

    /// Mean; `None` without episodes.
    pub fn mean(&self) -> Option<f64> {
        (self.episodes > 0).then_some(self.mean)
    }

    /// 95 % confidence interval of the mean (Student's t); `None` with fewer than two episodes.
    pub fn interval(&self) -> Option<Interval> {
        let freedom = self.episodes.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let deviation = (self.squares / freedom as f64).sqrt();
        let half_width = student_t_quantile(freedom as usize) * deviation / (self.episodes as f64).sqrt();
        Some(Interval { half_width, episodes: self.episodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[Option<f64>]) -> RunningMean {
        let mut mean = RunningMean::default();
        values.iter().for_each(|value| mean.add(*value));
        mean
    }

    /// By hand. 0.2, 0.4, 0.6, 0.8: mean 0.5, deviation sqrt(0.2 / 3) = 0.258199, Student's 3.182 with 3 degrees of
    /// freedom, so 3.182 * 0.258199 / 2.
    #[test]
    fn the_interval_is_that_of_students_t() {
        let scores = mean(&[Some(0.2), None, Some(0.4), Some(0.6), Some(0.8)]);
        assert!((scores.mean().unwrap() - 0.5).abs() < 1e-12);
        let interval = scores.interval().unwrap();
        assert_eq!(interval.episodes, 4, "an episode with nothing to measure does not count");
        assert!((interval.half_width - 3.182 * 0.258_198_9 / 2.0).abs() < 1e-6, "{interval:?}");
    }

    #[test]
    fn one_episode_has_a_mean_and_no_interval() {
        assert_eq!((mean(&[]).mean(), mean(&[]).interval()), (None, None));
        assert_eq!((mean(&[Some(0.3)]).mean(), mean(&[Some(0.3)]).interval()), (Some(0.3), None));
        assert_eq!(mean(&[Some(0.3), Some(0.3)]).interval(), Some(Interval { half_width: 0.0, episodes: 2 }));
    }
}
