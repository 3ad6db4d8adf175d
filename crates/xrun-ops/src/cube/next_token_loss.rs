//! Next-token loss: one cube a row, which is read once forward and once backward. No probabilities are kept, only the logarithm of their
//! sum for each row.

use burn::tensor::{Int, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cube_max, cube_sum, cubes, each, empty, inner_memory, int_memory, launch, rows, unary, writable};
use crate::next_token_loss::Teacher;
use crate::operation::Operation;

/// Sums of the losses of logits `[rows, vocabulary]`: total, cross-entropy and divergence, `[3]`, of which the total has a gradient.
/// `labels` and `weights` are `[rows]`, without autodiff.
pub fn loss(logits: Tensor<2>, labels: Tensor<1, Int>, weights: Tensor<1>, teacher: Option<Teacher>) -> Tensor<1> {
    let (labels, weights) = (int_memory(labels), inner_memory(weights));
    let (teacher, fraction, temperature) = match teacher {
        Some(Teacher { logits, divergence_fraction, temperature }) => {
            (Some(inner_memory(logits)), divergence_fraction as f32, temperature as f32)
        }
        None => (None, 0.0, 1.0),
    };
    unary(Loss { labels, weights, teacher, fraction, temperature }, (logits,))
}

#[derive(Clone, Debug)]
struct Loss {
    labels: CubeTensor,
    weights: CubeTensor,
    teacher: Option<CubeTensor>,
    fraction: f32,
    temperature: f32,
}

/// Values saved for the backward pass.
#[derive(Clone, Debug)]
struct Saved {
    logits: CubeTensor,
    /// Weighted terms and logarithms of the sums of exponentials, `[rows, 5]`.
    terms: CubeTensor,
}

impl Operation<CubeTensor, 1> for Loss {
    type Saved = Saved;

    fn forward(&self, [logits]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<Saved>) {
        let logits = into_contiguous(logits);
        let (count, width) = rows(&logits);
        let (terms, losses) = (empty(&logits, [count, 5]), empty(&logits, [3]));
        launch!(
            forward,
            cubes(count),
            [logits, self.teacher.as_ref().unwrap_or(&logits), self.labels, self.weights, terms],
            [self.temperature, count as u32, width as u32, self.teacher.is_some()]
        );
        launch!(add_terms, cubes(1), [terms, losses], [self.fraction, count as u32]);
        (losses, save.then_some(Saved { logits, terms }))
    }

    fn backward(&self, saved: Saved, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let Saved { logits, terms } = saved;
        let (_, width) = rows(&logits);
        let output = writable(&logits);
        launch!(
            backward,
            each(&logits),
            [logits, self.teacher.as_ref().unwrap_or(&logits), self.labels, self.weights, terms, gradient, output],
            [self.fraction, self.temperature, width as u32, self.teacher.is_some()]
        );
        [Some(output)]
    }
}

/// Logarithm of the sum of exponentials of `values / temperature` in a row, whose units hold the largest value and the sum relative to it.
#[cube]
fn log_sum(largest: f32, sum: f32, scratch: &mut Shared<[f32]>) -> f32 {
    let row_largest = cube_max(largest, scratch);
    cube_sum(sum * (largest - row_largest).exp(), scratch).ln() + row_largest
}

/// `terms` of a row: weighted cross-entropy, weighted divergence, and the logarithms of the sums of exponentials of the logits, of the
/// logits at the temperature, and of the teacher's.
#[cube(launch)]
fn forward(
    logits: &[f32],
    teacher: &[f32],
    labels: &[i32],
    weights: &[f32],
    terms: &mut [f32],
    temperature: f32,
    count: u32,
    width: u32,
    #[comptime] has_teacher: bool,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let start = CUBE_POS * width as usize;
        // A unit without a value of its own begins with the first one of the row and the sum 0.
        let mut largest = logits[start];
        let mut sum = 0.0f32;
        let mut i = UNIT_POS;
        while i < width {
            let value = logits[start + i as usize];
            if value > largest {
                sum *= (largest - value).exp();
                largest = value;
            }
            sum += (value - largest).exp();
            i += UNITS;
        }
        let log_total = log_sum(largest, sum, &mut scratch);
        let weight = weights[CUBE_POS];
        let term = CUBE_POS * 5;
        if UNIT_POS == 0 {
            let label = logits[start + labels[CUBE_POS] as usize];
            let mut loss = 0.0f32;
            if weight != 0.0 {
                loss = weight * (log_total - label);
            }
            terms[term] = loss;
            terms[term + 1] = 0.0;
            terms[term + 2] = log_total;
        }
        if comptime![has_teacher] {
            let mut own_largest = logits[start] / temperature;
            let mut own_sum = 0.0f32;
            let mut teacher_largest = teacher[start] / temperature;
            let mut teacher_sum = 0.0f32;
            // Differences of the teacher's logits and the model's, weighted by the teacher's exponentials.
            let mut gap = 0.0f32;
            i = UNIT_POS;
            while i < width {
                let own = logits[start + i as usize] / temperature;
                if own > own_largest {
                    own_sum *= (own_largest - own).exp();
                    own_largest = own;
                }
                own_sum += (own - own_largest).exp();
                let taught = teacher[start + i as usize] / temperature;
                if taught > teacher_largest {
                    let factor = (teacher_largest - taught).exp();
                    teacher_sum *= factor;
                    gap *= factor;
                    teacher_largest = taught;
                }
                let share = (taught - teacher_largest).exp();
                teacher_sum += share;
                // Where the teacher's probability is zero, both may be infinite.
                if share > 0.0 {
                    gap += share * (taught - own);
                }
                i += UNITS;
            }
            let own_log = log_sum(own_largest, own_sum, &mut scratch);
            let row_largest = cube_max(teacher_largest, &mut scratch);
            let factor = (teacher_largest - row_largest).exp();
            let teacher_total = cube_sum(teacher_sum * factor, &mut scratch);
            let row_gap = cube_sum(gap * factor, &mut scratch);
            let teacher_log = teacher_total.ln() + row_largest;
            if UNIT_POS == 0 {
                let mut loss = 0.0f32;
                if weight != 0.0 {
                    let divergence = row_gap / teacher_total - teacher_log + own_log;
                    loss = weight * divergence * temperature * temperature;
                }
                terms[term + 1] = loss;
                terms[term + 3] = own_log;
                terms[term + 4] = teacher_log;
            }
        }
    }
}

/// Adds the terms of all rows in one cube.
#[cube(launch)]
fn add_terms(terms: &[f32], losses: &mut [f32], fraction: f32, count: u32) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    let mut entropy = 0.0f32;
    let mut divergence = 0.0f32;
    let mut row = UNIT_POS;
    while row < count {
        entropy += terms[(row * 5) as usize];
        divergence += terms[(row * 5 + 1) as usize];
        row += UNITS;
    }
    let entropies = cube_sum(entropy, &mut scratch);
    let divergences = cube_sum(divergence, &mut scratch);
    if UNIT_POS == 0 {
        losses[0] = entropies * (1.0 - fraction) + divergences * fraction;
        losses[1] = entropies;
        losses[2] = divergences;
    }
}

/// Gradient of the total: `w ((1 − fraction) (p − y) + fraction T (p_T − q_T))` times that of the loss.
#[cube(launch)]
fn backward(
    logits: &[f32],
    teacher: &[f32],
    labels: &[i32],
    weights: &[f32],
    terms: &[f32],
    gradient: &[f32],
    output: &mut [f32],
    fraction: f32,
    temperature: f32,
    width: u32,
    #[comptime] has_teacher: bool,
) {
    if ABSOLUTE_POS < output.len() {
        let row = ABSOLUTE_POS / width as usize;
        let weight = weights[row];
        let logit = logits[ABSOLUTE_POS];
        let mut result = 0.0f32;
        if weight != 0.0 {
            result = (logit - terms[row * 5 + 2]).exp();
            if ABSOLUTE_POS % width as usize == labels[row] as usize {
                result -= 1.0;
            }
            if comptime![has_teacher] {
                let own = (logit / temperature - terms[row * 5 + 3]).exp();
                let taught = (teacher[ABSOLUTE_POS] / temperature - terms[row * 5 + 4]).exp();
                result = result * (1.0 - fraction) + (own - taught) * fraction * temperature;
            }
            result *= weight * gradient[0];
        }
        output[ABSOLUTE_POS] = result;
    }
}
