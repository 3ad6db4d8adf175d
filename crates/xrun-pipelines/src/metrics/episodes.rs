//! How sure is a mean over episodes? Its 95 % interval, as papers on few-shot learning give it, from three numbers.
//!
//! Welford's running mean and sum of squares: the memory does not depend on the number of episodes.

use xrun_core::task::metric::{Interval, student_t_quantile};

/// A running mean over episodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpisodeMean {
    episodes: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl EpisodeMean {
    /// One episode; `None`, of one in which there was nothing to measure, does not count.
    pub fn add(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        self.episodes += 1;
        let before = value - self.mean;
        self.mean += before / self.episodes as f64;
        self.squares += before * (value - self.mean);
    }

    /// `None` without episodes.
    pub fn mean(&self) -> Option<f64> {
        (self.episodes > 0).then_some(self.mean)
    }

    /// The 95 % interval of the mean; `None` with fewer than two episodes.
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

    fn of(values: &[Option<f64>]) -> EpisodeMean {
        let mut mean = EpisodeMean::default();
        values.iter().for_each(|value| mean.add(*value));
        mean
    }

    /// By hand. 0.2, 0.4, 0.6, 0.8: mean 0.5, deviation sqrt(0.2 / 3) = 0.258199, Student's 3.182 with 3 degrees of
    /// freedom, so 3.182 * 0.258199 / 2.
    #[test]
    fn the_interval_is_students() {
        let mean = of(&[Some(0.2), None, Some(0.4), Some(0.6), Some(0.8)]);
        assert!((mean.mean().unwrap() - 0.5).abs() < 1e-12);
        let interval = mean.interval().unwrap();
        assert_eq!(interval.episodes, 4, "an episode with nothing to measure does not count");
        assert!((interval.half_width - 3.182 * 0.258_198_9 / 2.0).abs() < 1e-6, "{interval:?}");
    }

    #[test]
    fn one_episode_has_a_mean_and_no_interval() {
        assert_eq!((of(&[]).mean(), of(&[]).interval()), (None, None));
        assert_eq!((of(&[Some(0.3)]).mean(), of(&[Some(0.3)]).interval()), (Some(0.3), None));
        assert_eq!(of(&[Some(0.3), Some(0.3)]).interval(), Some(Interval { half_width: 0.0, episodes: 2 }));
    }
}
