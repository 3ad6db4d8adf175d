//! The loss of a language model: cross-entropy with the text, and optionally the divergence from a teacher's distribution.
//!
//! The divergence is KL(teacher || model) over the whole vocabulary, LLM-QAT's loss (Liu et al. 2023). At a temperature `T`
//! both distributions are of logits over `T`, and the divergence is multiplied by `T²`, so that its gradient keeps its size
//! (Hinton et al. 2015).
//!
//! The gradient of a logit is `w ((1 − share) (p − y) + share T (p_T − q_T))`, with the probabilities p of the model and q of the
//! teacher, and y one at the label. It is computed with the value, in the memory of the logits where nobody else holds them.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Shape, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, shape, tensor, values, width, writable};
use crate::operation::{Operation, unary};
use crate::simd::{LANES, exp, max, reduce, vectorize};

/// Rows that one thread takes at a time.
const ROWS: usize = 16;

/// The minimised loss and its parts, `[1]` each.
#[derive(Clone, Debug)]
pub struct NextTokenLoss {
    /// `(1 − share) · cross_entropy + share · divergence`; without a teacher, the cross-entropy.
    pub total: Tensor<1>,
    /// The weighted sum of cross-entropies. It has a gradient with Burn's operations alone.
    pub cross_entropy: Tensor<1>,
    /// The weighted sum of divergences, with a teacher.
    pub divergence: Option<Tensor<1>>,
}

/// The distribution that a model is to come near, besides the text.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// `[rows, vocabulary]`, on the device without autodiff.
    pub logits: Tensor<2>,
    /// The share of the divergence in the total.
    pub share: f64,
    /// Both logits are divided by this.
    pub temperature: f64,
}

/// The targets of logits `[rows, vocabulary]`.
#[derive(Clone, Debug)]
pub struct LossTargets {
    /// The right token of each row, below the size of the vocabulary.
    pub labels: Vec<i32>,
    /// The factor of each row's loss.
    pub weights: Vec<f32>,
    /// The teacher, if there is one.
    pub teacher: Option<Teacher>,
}

/// The losses of logits `[rows, vocabulary]`: sums over rows, each times its weight.
///
/// # Panics
/// The numbers of labels or weights are not those of the rows, or a label is not in the vocabulary.
pub fn next_token_loss(logits: Tensor<2>, targets: LossTargets) -> NextTokenLoss {
    let [rows, vocabulary] = logits.dims();
    assert!(targets.labels.len() == rows && targets.weights.len() == rows, "each row has a label and a weight");
    let known = |label: &i32| usize::try_from(*label).is_ok_and(|label| label < vocabulary);
    assert!(targets.labels.iter().all(known), "labels are in the vocabulary");
    if !is_fused(&logits) {
        return plain(logits, targets);
    }
    let LossTargets { labels, weights, teacher } = targets;
    let (teacher, share, temperature) = match teacher {
        Some(Teacher { logits, share, temperature }) => {
            let logits = logits.try_into_primitive::<Flex>();
            let logits = logits.unwrap_or_else(|error| panic!("the teacher's logits are without autodiff: {error:?}"));
            (Some(contiguous(logits)), share as f32, temperature as f32)
        }
        None => (None, 0.0, 1.0),
    };
    let taught = teacher.is_some();
    let losses: Tensor<1> = unary(Loss { labels, weights, teacher, share, temperature }, logits);
    let part = |number: usize| losses.clone().narrow(0, number, 1);
    let (cross_entropy, divergence) = (part(1).detach(), taught.then(|| part(2).detach()));
    NextTokenLoss { total: part(0), cross_entropy, divergence }
}

/// Plain body in Burn's operations.
fn plain(logits: Tensor<2>, targets: LossTargets) -> NextTokenLoss {
    let (count, device) = (logits.dims()[0], logits.device());
    let labels = Tensor::<1, Int>::from_data(TensorData::new(targets.labels, [count]), &device);
    let weights = Tensor::<1>::from_data(TensorData::new(targets.weights, [count]), &device);
    let logarithms = log_softmax(logits.clone(), 1);
    let said = logarithms.clone().gather(1, labels.reshape([count, 1])).reshape([count]);
    let cross_entropy = (said * weights.clone()).sum().neg();
    let Some(Teacher { logits: teacher, share, temperature }) = targets.teacher else {
        return NextTokenLoss { total: cross_entropy.clone(), cross_entropy, divergence: None };
    };
    let (logarithms, teacher) = match temperature {
        1.0 => (logarithms, teacher),
        _ => (log_softmax(logits.div_scalar(temperature as f32), 1), teacher.div_scalar(temperature as f32)),
    };
    let wanted = log_softmax(teacher, 1);
    let chance = wanted.clone().exp();
    // The part without the model has no gradient; it makes the divergence zero where both agree.
    let own = (chance.clone() * wanted).sum_dim(1).reshape([count]);
    let beside = |inner: Tensor<1>| if device.is_autodiff() { Tensor::from_inner(inner) } else { inner };
    let own = (beside(own) * weights.clone()).sum();
    let chance = if device.is_autodiff() { Tensor::from_inner(chance) } else { chance };
    let crossed = (logarithms * chance).sum_dim(1).reshape([count]);
    let divergence = (own - (crossed * weights).sum()).mul_scalar((temperature * temperature) as f32);
    let share = share as f32;
    let total = cross_entropy.clone().mul_scalar(1.0 - share) + divergence.clone().mul_scalar(share);
    NextTokenLoss { total, cross_entropy, divergence: Some(divergence) }
}

#[derive(Clone, Debug)]
struct Loss {
    labels: Vec<i32>,
    weights: Vec<f32>,
    teacher: Option<FlexTensor>,
    share: f32,
    temperature: f32,
}

impl Operation<1> for Loss {
    /// The gradient of the total by the logits.
    type Saved = FlexTensor;

    /// Total, cross-entropy and divergence. Only the first has a gradient.
    fn forward(&self, [logits]: [FlexTensor; 1], save: bool) -> (FlexTensor, Option<FlexTensor>) {
        let vocabulary = width(&logits);
        let mut gradient = writable(logits);
        let teacher = self.teacher.as_ref().map(values);
        let rows = gradient.storage_mut::<f32>().par_chunks_mut(ROWS * vocabulary).enumerate();
        let parts: Vec<Vec<[f64; 2]>> = rows
            .map(|(number, logits)| {
                let rows = logits.chunks_exact_mut(vocabulary).enumerate();
                let mut scratch = vec![0.0; if teacher.is_some() { vocabulary } else { 0 }];
                rows.map(|(row, logits)| {
                    let row = number * ROWS + row;
                    let teacher = teacher.map(|teacher| &teacher[row * vocabulary..][..vocabulary]);
                    self.row(logits, row, teacher, &mut scratch)
                })
                .collect()
            })
            .collect();
        let sum = |part: usize| parts.iter().flatten().map(|parts| parts[part]).sum::<f64>();
        let (cross_entropy, divergence) = (sum(0), sum(1));
        let total = cross_entropy * (1.0 - f64::from(self.share)) + divergence * f64::from(self.share);
        let losses = [total, cross_entropy, divergence].map(|loss| loss as f32).to_vec();
        (tensor(losses, Shape::new([3])), save.then_some(gradient))
    }

    fn backward(&self, saved: FlexTensor, gradient: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let mut saved = writable(saved);
        let factor = values(&gradient)[0];
        if factor != 1.0 {
            saved.storage_mut::<f32>().par_chunks_mut(1 << 14).for_each(|piece| scale(piece, factor));
        }
        debug_assert_eq!(shape(&saved).num_dims(), 2);
        [Some(saved)]
    }
}

impl Loss {
    /// Turns a row of logits into their gradient. Returns cross-entropy and divergence of the row, times its weight.
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
                distilled_row(logits, label, weight, scratch, self.share)
            }
            Some(teacher) => {
                let temperature = self.temperature;
                let mut cooled: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
                scratch.iter_mut().zip(teacher).for_each(|(to, logit)| *to = logit / temperature);
                let [_, divergence] = distilled_row(&mut cooled, label, weight, scratch, 1.0);
                let cross_entropy = cross_entropy_row(logits, label, weight);
                // A gradient by a logit over T is one by the logit, over T; of T² one T is left.
                let (of_text, of_teacher) = (1.0 - self.share, self.share * temperature);
                logits.iter_mut().zip(cooled).for_each(|(one, other)| *one = *one * of_text + other * of_teacher);
                [cross_entropy, divergence * f64::from(temperature * temperature)]
            }
        };
        losses.map(|loss| f64::from(weight) * loss)
    }
}

/// Turns a row of logits into the gradient of its weighted cross-entropy, which is returned without the weight.
fn cross_entropy_row(row: &mut [f32], label: usize, weight: f32) -> f64 {
    vectorize(
        #[inline(always)]
        || {
            let said = f64::from(row[label]);
            let most = max(row);
            let mut lanes = [0.0f32; LANES];
            let (chunks, rest) = row.as_chunks_mut::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    chunk[lane] = exp(chunk[lane] - most);
                    lanes[lane] += chunk[lane];
                }
            }
            for (lane, value) in lanes.iter_mut().zip(rest) {
                *value = exp(*value - most);
                *lane += *value;
            }
            let sum = reduce(lanes);
            let factor = weight / sum;
            for value in &mut *row {
                *value *= factor;
            }
            row[label] -= weight;
            f64::from(sum).ln() + f64::from(most) - said
        },
    )
}

/// Loss beside a teacher's logits, which are used up. Returns cross-entropy and divergence.
fn distilled_row(row: &mut [f32], label: usize, weight: f32, teacher: &mut [f32], share: f32) -> [f64; 2] {
    vectorize(
        #[inline(always)]
        || {
            let said = f64::from(row[label]);
            let (most, teacher_most) = (max(row), max(teacher));
            // The teacher's logits less the model's, both below their greatest, by the teacher's probabilities.
            let mut gaps = [0.0f32; LANES];
            let (mut sums, mut teacher_sums) = ([0.0f32; LANES], [0.0f32; LANES]);
            for (row, teacher) in row.chunks_mut(LANES).zip(teacher.chunks_mut(LANES)) {
                let lanes = gaps.iter_mut().zip(sums.iter_mut().zip(teacher_sums.iter_mut()));
                for ((own, wanted), (gap, (sum, teacher_sum))) in row.iter_mut().zip(teacher).zip(lanes) {
                    let (below, wanted_below) = (*own - most, *wanted - teacher_most);
                    let (chance, wish) = (exp(below), exp(wanted_below));
                    *sum += chance;
                    *teacher_sum += wish;
                    // Where the teacher's probability is zero, both may be infinite.
                    let product = wish * (wanted_below - below);
                    *gap += if wish > 0.0 { product } else { 0.0 };
                    (*own, *wanted) = (chance, wish);
                }
            }
            let (sum, teacher_sum, gap) = (reduce(sums), reduce(teacher_sums), reduce(gaps));
            let (factor, teacher_factor) = (weight / sum, weight * share / teacher_sum);
            for (chance, wish) in row.iter_mut().zip(&*teacher) {
                *chance = *chance * factor - wish * teacher_factor;
            }
            row[label] -= weight * (1.0 - share);
            let divergence =
                f64::from(gap) / f64::from(teacher_sum) + f64::from(sum).ln() - f64::from(teacher_sum).ln();
            [f64::from(sum).ln() + f64::from(most) - said, divergence]
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
