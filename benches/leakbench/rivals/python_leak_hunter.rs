//! Rule of python-leak-hunter 0.1.1 (<https://pypi.org/project/python-leak-hunter/>), `diagnose`: a regression over all samples rises by
//! 10 MiB an hour. A step counts as half a second.

use super::Sample;
use super::line::least_squares;

const STEPS_AN_HOUR: f64 = 7200.0;
const GROWTH_AN_HOUR: f64 = 10.0 * 1024.0 * 1024.0;

pub fn grows(samples: &[Sample]) -> bool {
    least_squares(samples).is_some_and(|line| line.slope * STEPS_AN_HOUR >= GROWTH_AN_HOUR)
}
