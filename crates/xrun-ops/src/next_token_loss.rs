//! Loss of a language model: cross-entropy with the next token, optionally mixed with the KL divergence from a teacher.
//!
//! The divergence is KL(teacher || model) over the whole vocabulary, as in LLM-QAT (Liu et al. 2023). At a temperature `T` both
//! sets of logits are divided by `T` and the divergence is multiplied by `T²`, which keeps the size of its gradient (Hinton et
//! al. 2015).
//!
//! The gradient of a logit is `w ((1 − fraction) (p − y) + fraction T (p_T − q_T))`, with the probabilities p of the model and q of the
//! teacher, and y = 1 at the label. It is computed together with the loss, in place if the logits are not shared.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Shape, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, last_dim, shape, tensor, values, writable};
use crate::operation::{Operation, unary};
use crate::simd::{LANES, exp, max, reduce, vectorize};

/// Number of rows that a thread processes at a time.
const CHUNK_ROWS: usize = 16;

/// Loss and its terms, `[1]` each.
#[derive(Clone, Debug)]
pub struct NextTokenLoss {
    /// `(1 − fraction) · cross_entropy + fraction · divergence`; without a teacher, the cross-entropy.
    pub total: Tensor<1>,
    /// Weighted sum of cross-entropies. The fused kernel detaches it.
    pub cross_entropy: Tensor<1>,
    /// Weighted sum of divergences; `None` without a teacher.
    pub divergence: Option<Tensor<1>>,
}

/// Teacher of a distillation.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// Logits `[rows, vocabulary]`, on the inner (non-autodiff) device.
    pub logits: Tensor<2>,
    /// Fraction of the divergence in the total, 0 to 1.
    pub divergence_fraction: f64,
    /// Temperature: divisor of the logits of model and teacher.
    pub temperature: f64,
}

/// Targets of logits `[rows, vocabulary]`.
#[derive(Clone, Debug)]
pub struct LossTargets {
    /// Next token of each row, below the size of the vocabulary.
    pub labels: Vec<i32>,
    /// Weight of each row's loss.
    pub weights: Vec<f32>,
    /// Teacher of a distillation.
    pub teacher: Option<Teacher>,
}

/// Returns the loss of logits `[rows, vocabulary]`: sums over rows, each multiplied by its weight.
///
/// # Panics
/// There is not one label and one weight for each row, or a label is not in the vocabulary.
pub fn next_token_loss(logits: Tensor<2>, targets: LossTargets) -> NextTokenLoss {
    let [rows, vocabulary] = logits.dims();
    assert!(
        targets.labels.len() == rows && targets.weights.len() == rows,
        "{rows} rows need as many labels and weights"
    );
    let in_vocabulary = |label: &i32| usize::try_from(*label).is_ok_and(|label| label < vocabulary);
    assert!(targets.labels.iter().all(in_vocabulary), "a label is not below {vocabulary}");
    let (LossTargets { labels, weights, teacher }, device) = (targets, logits.device().inner());
    let labels = Tensor::from_data(TensorData::new(labels, [rows]), &device);
    staged_next_token_loss(logits, labels, Tensor::from_data(TensorData::new(weights, [rows]), &device), teacher)
}

/// As [`next_token_loss`], with labels and weights that are on the device of the logits, without autodiff.
pub fn staged_next_token_loss(
    logits: Tensor<2>,
    labels: Tensor<1, Int>,
    weights: Tensor<1>,
    teacher: Option<Teacher>,
) -> NextTokenLoss {
    on_cube!(&logits => {
        let has_teacher = teacher.is_some();
        NextTokenLoss::of_terms(&crate::cube::loss(logits, labels, weights, teacher), has_teacher)
    });
    if !is_fused(&logits) {
        return plain(logits, labels, weights, teacher);
    }
    let (labels, weights) = (labels.into_data().iter().collect(), weights.into_data().iter().collect());
    let (teacher, fraction, temperature) = match teacher {
        Some(Teacher { logits, divergence_fraction: fraction, temperature }) => {
            let logits = logits.try_into_primitive::<Flex>();
            let logits =
                logits.unwrap_or_else(|error| panic!("the teacher's logits are on an autodiff device: {error:?}"));
            (Some(contiguous(logits)), fraction as f32, temperature as f32)
        }
        None => (None, 0.0, 1.0),
    };
    let has_teacher = teacher.is_some();
    let losses: Tensor<1> = unary(Loss { labels, weights, teacher, fraction, temperature }, (logits,));
    NextTokenLoss::of_terms(&losses, has_teacher)
}

impl NextTokenLoss {
    /// Splits `[3]`: total, cross-entropy and divergence.
    fn of_terms(terms: &Tensor<1>, has_teacher: bool) -> Self {
        let term = |number: usize| terms.clone().narrow(0, number, 1);
        let (cross_entropy, divergence) = (term(1).detach(), has_teacher.then(|| term(2).detach()));
        Self { total: term(0), cross_entropy, divergence }
    }
}

/// Loss in Burn's operations.
fn plain(logits: Tensor<2>, labels: Tensor<1, Int>, weights: Tensor<1>, teacher: Option<Teacher>) -> NextTokenLoss {
    let (count, device) = (logits.dims()[0], logits.device());
    let (labels, weights) = match device.is_autodiff() {
        true => (Tensor::from_inner(labels), Tensor::from_inner(weights)),
        false => (labels, weights),
    };
    let log_probabilities = log_softmax(logits.clone(), 1);
    let label_log_probability = log_probabilities.clone().gather(1, labels.reshape([count, 1])).reshape([count]);
    let cross_entropy = (label_log_probability * weights.clone()).sum().neg();
    let Some(Teacher { logits: teacher, divergence_fraction: fraction, temperature }) = teacher else {
        return NextTokenLoss { total: cross_entropy.clone(), cross_entropy, divergence: None };
    };
    let (log_probabilities, teacher) = match temperature {
        1.0 => (log_probabilities, teacher),
        _ => (log_softmax(logits.div_scalar(temperature as f32), 1), teacher.div_scalar(temperature as f32)),
    };
    let teacher_log_probabilities = log_softmax(teacher, 1);
    let probabilities = teacher_log_probabilities.clone().exp();
    // The negative entropy of the teacher has no gradient; it makes the divergence zero where both agree.
    let negative_entropy = (probabilities.clone() * teacher_log_probabilities).sum_dim(1).reshape([count]);
    let negative_entropy = if device.is_autodiff() { Tensor::from_inner(negative_entropy) } else { negative_entropy };
    let negative_entropy = (negative_entropy * weights.clone()).sum();
    let probabilities = if device.is_autodiff() { Tensor::from_inner(probabilities) } else { probabilities };
    let cross = (log_probabilities * probabilities).sum_dim(1).reshape([count]);
    let divergence = (negative_entropy - (cross * weights).sum()).mul_scalar((temperature * temperature) as f32);
    let fraction = fraction as f32;
    let total = cross_entropy.clone().mul_scalar(1.0 - fraction) + divergence.clone().mul_scalar(fraction);
    NextTokenLoss { total, cross_entropy, divergence: Some(divergence) }
}

/// Fused loss: an operation on the logits.
#[derive(Clone, Debug)]
struct Loss {
    labels: Vec<i32>,
    weights: Vec<f32>,
    teacher: Option<FlexTensor>,
    fraction: f32,
    temperature: f32,
}

impl Operation<FlexTensor, 1> for Loss {
    /// Gradient of the total with respect to the logits.
    type Saved = FlexTensor;

    /// Computes `[3]`: total, cross-entropy and divergence. Only the total has a gradient.
    fn forward(&self, [logits]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<FlexTensor>) {
        let vocabulary = last_dim(&logits);
        let mut gradient = writable(logits);
        let teacher = self.teacher.as_ref().map(values);
        let rows = gradient.storage_mut::<f32>().par_chunks_mut(CHUNK_ROWS * vocabulary).enumerate();
        let terms: Vec<Vec<[f64; 2]>> = rows
            .map(|(number, logits)| {
                let rows = logits.chunks_exact_mut(vocabulary).enumerate();
                let mut scratch = vec![0.0; if teacher.is_some() { vocabulary } else { 0 }];
                rows.map(|(row, logits)| {
                    let row = number * CHUNK_ROWS + row;
                    let teacher = teacher.map(|teacher| &teacher[row * vocabulary..][..vocabulary]);
                    self.row(logits, row, teacher, &mut scratch)
                })
                .collect()
            })
            .collect();
        let sum = |term: usize| terms.iter().flatten().map(|terms| terms[term]).sum::<f64>();
        let (cross_entropy, divergence) = (sum(0), sum(1));
        let total = cross_entropy * (1.0 - f64::from(self.fraction)) + divergence * f64::from(self.fraction);
        let losses = [total, cross_entropy, divergence].map(|loss| loss as f32).to_vec();
        (tensor(losses, Shape::new([3])), save.then_some(gradient))
    }

    fn backward(&self, saved: FlexTensor, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let mut saved = writable(saved);
        let factor = values(&gradient)[0];
        if factor != 1.0 {
            saved.storage_mut::<f32>().par_chunks_mut(1 << 14).for_each(|chunk| scale(chunk, factor));
        }
        debug_assert_eq!(shape(&saved).num_dims(), 2);
        [Some(saved)]
    }
}

impl Loss {
    /// Overwrites a row of logits by their gradient; returns its weighted cross-entropy and divergence.
    fn row(&self, logits: &mut [f32], row: usize, teacher: Option<&[f32]>, scratch: &mut [f32]) -> [f64; 2] {
        let (label, weight) = (self.labels[row] as usize, self.weights[row]);
        if weight == 0.0 {
            logits.fill(0.0);
            return [0.0; 2];
        }
        let losses = match teacher {
            None => [cross_entropy_row(logits, label, weight), 0.0],
            Some(teacher) if self.temperature == 1.0 => {
                scratch.copy_from_slice(teacher);
                distilled_row(logits, label, weight, scratch, self.fraction)
            }
            Some(teacher) => {
                let temperature = self.temperature;
                let mut scaled: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
                scratch.iter_mut().zip(teacher).for_each(|(to, logit)| *to = logit / temperature);
                let [_, divergence] = distilled_row(&mut scaled, label, weight, scratch, 1.0);
                let cross_entropy = cross_entropy_row(logits, label, weight);
                // The chain rule of the division by T leaves one factor T of T².
                let (label_factor, teacher_factor) = (1.0 - self.fraction, self.fraction * temperature);
                let gradients = logits.iter_mut().zip(scaled);
                gradients.for_each(|(own, distilled)| *own = *own * label_factor + distilled * teacher_factor);
                [cross_entropy, divergence * f64::from(temperature * temperature)]
            }
        };
        losses.map(|loss| f64::from(weight) * loss)
    }
}

/// Overwrites a row of logits by the gradient of its weighted cross-entropy; returns the unweighted cross-entropy.
fn cross_entropy_row(row: &mut [f32], label: usize, weight: f32) -> f64 {
    vectorize(
        #[inline(always)]
        || {
            let label_logit = f64::from(row[label]);
            let max_logit = max(row);
            let mut lanes = [0.0f32; LANES];
            let (chunks, rest) = row.as_chunks_mut::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    chunk[lane] = exp(chunk[lane] - max_logit);
                    lanes[lane] += chunk[lane];
                }
            }
            for (lane, value) in lanes.iter_mut().zip(rest) {
                *value = exp(*value - max_logit);
                *lane += *value;
            }
            let sum = reduce(lanes);
            let factor = weight / sum;
            for value in &mut *row {
                *value *= factor;
            }
            row[label] -= weight;
            f64::from(sum).ln() + f64::from(max_logit) - label_logit
        },
    )
}

/// Overwrites a row of logits by the gradient of the mixed loss, and the teacher's logits by scratch values; returns the unweighted
/// cross-entropy and divergence.
fn distilled_row(row: &mut [f32], label: usize, weight: f32, teacher: &mut [f32], fraction: f32) -> [f64; 2] {
    vectorize(
        #[inline(always)]
        || {
            let label_logit = f64::from(row[label]);
            let (max_logit, max_teacher_logit) = (max(row), max(teacher));
            // Differences of the shifted logits (teacher minus model), weighted by the teacher's unnormalised probabilities.
            let mut gaps = [0.0f32; LANES];
            let (mut sums, mut teacher_sums) = ([0.0f32; LANES], [0.0f32; LANES]);
            for (row, teacher) in row.chunks_mut(LANES).zip(teacher.chunks_mut(LANES)) {
                let lanes = gaps.iter_mut().zip(sums.iter_mut().zip(teacher_sums.iter_mut()));
                for ((own, teacher), (gap, (sum, teacher_sum))) in row.iter_mut().zip(teacher).zip(lanes) {
                    let (shifted, teacher_shifted) = (*own - max_logit, *teacher - max_teacher_logit);
                    let (own_exp, teacher_exp) = (exp(shifted), exp(teacher_shifted));
                    *sum += own_exp;
                    *teacher_sum += teacher_exp;
                    // Where the teacher's probability is zero, both may be infinite.
                    let product = teacher_exp * (teacher_shifted - shifted);
                    *gap += if teacher_exp > 0.0 { product } else { 0.0 };
                    (*own, *teacher) = (own_exp, teacher_exp);
                }
            }
            let (sum, teacher_sum, gap) = (reduce(sums), reduce(teacher_sums), reduce(gaps));
            let (factor, teacher_factor) = (weight / sum, weight * fraction / teacher_sum);
            for (own, teacher) in row.iter_mut().zip(&*teacher) {
                *own = *own * factor - teacher * teacher_factor;
            }
            row[label] -= weight * (1.0 - fraction);
            let divergence =
                f64::from(gap) / f64::from(teacher_sum) + f64::from(sum).ln() - f64::from(teacher_sum).ln();
            [f64::from(sum).ln() + f64::from(max_logit) - label_logit, divergence]
        },
    )
}

fn scale(values: &mut [f32], factor: f32) {
    vectorize(
        #[inline(always)]
        || {
            for value in values {
                *value *= factor;
            }
        },
    )
}
