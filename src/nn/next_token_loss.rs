//! How far is a language model from the text, and from a teacher? Cross-entropy and the divergence of its distribution.
//!
//! The divergence is KL(teacher || model) over the whole vocabulary, LLM-QAT's loss (Liu et al. 2023). At a temperature `T`
//! both distributions are of logits over `T`, and the divergence is multiplied by `T²`, so that its gradient keeps its size
//! (Hinton et al. 2015).
//!
//! On the CPU, value and gradient are computed together, row by row: the gradient of a logit is `w ((1 − share) (p − y) +
//! share T (p_T − q_T))`, with the chances p of the model and q of the teacher, and y one at the target. It is all that the
//! graph keeps, one tensor as large as the logits; of Burn's operations it keeps two when there is a teacher.

use burn::tensor::Device;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, TensorData};
use rayon::prelude::*;
use wide::f32x8;

use super::fake_quantise::has_graph;
use super::rows::Rows;
use super::{Tensor, one_pass};

type Targets = burn::tensor::Tensor<1, Int>;

/// Rows that one thread takes at a time.
const ROWS: usize = 16;

/// What is minimised, and its parts, `[1]` each.
#[derive(Clone, Debug)]
pub struct NextTokenLoss {
    /// `[1]`: what is minimised.
    pub total: Tensor<1>,
    /// `[1]`: the part that compares with the text.
    pub cross_entropy: Tensor<1>,
    /// `[1]`: the part that compares with the teacher, where there is one.
    pub divergence: Option<Tensor<1>>,
}

/// What a model is compared with besides the text.
#[derive(Clone, Debug)]
pub struct Teacher {
    /// `[n, vocabulary]`, on the plain device.
    pub logits: Tensor<2>,
    /// The share of the divergence in the total.
    pub share: f64,
    /// Both logits are divided by this.
    pub temperature: f64,
}

/// What logits `[n, vocabulary]` are held against.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The token that comes next, of each row.
    pub targets: Vec<i32>,
    /// What each row counts.
    pub weights: Vec<f32>,
    /// What says how likely each token is, if anything does.
    pub teacher: Option<Teacher>,
}

impl Aim {
    /// The losses of logits, on their device.
    pub fn loss(self, logits: Tensor<2>) -> NextTokenLoss {
        let (count, device) = (self.targets.len(), logits.device());
        let targets = Targets::from_data(TensorData::new(self.targets, [count]), &device);
        let weights = Tensor::from_data(TensorData::new(self.weights, [count]), &device);
        next_token_loss(logits, targets, weights, self.teacher)
    }

    /// The losses of logits in host memory, without a graph, on the CPU. In the place of each logit comes its gradient.
    pub fn slopes(self, logits: &mut Rows, plain: &Device) -> NextTokenLoss {
        let targets = self.targets.into_iter().map(|target| target as usize).collect();
        slopes(&mut logits.values, logits.width, targets, self.weights, self.teacher, plain)
    }
}

/// `logits` `[n, vocabulary]`, `targets` `[n]`; the losses are sums over rows, each times its weight, `weights` `[n]`.
pub fn next_token_loss(
    logits: Tensor<2>,
    targets: Targets,
    weights: Tensor<1>,
    teacher: Option<Teacher>,
) -> NextTokenLoss {
    match has_graph(&logits) && one_pass::is_for(&logits) {
        true => at_once(logits, targets, weights, teacher),
        false => by_operations(logits, targets, weights, teacher),
    }
}

fn by_operations(logits: Tensor<2>, targets: Targets, weights: Tensor<1>, teacher: Option<Teacher>) -> NextTokenLoss {
    let count = logits.dims()[0];
    let logarithms = log_softmax(logits.clone(), 1);
    let said = logarithms.clone().gather(1, targets.reshape([count, 1])).reshape([count]);
    let cross_entropy = (said * weights.clone()).sum().neg();
    let Some(Teacher { logits: teacher, share, temperature }) = teacher else {
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
    let own = (own * weights.clone()).sum();
    let crossed = (logarithms.clone() * chance).sum_dim(1).reshape([count]);
    let divergence = (own - (crossed * weights).sum()).mul_scalar((temperature * temperature) as f32);
    let share = share as f32;
    let total = cross_entropy.clone().mul_scalar(1.0 - share) + divergence.clone().mul_scalar(share);
    NextTokenLoss { total, cross_entropy, divergence: Some(divergence) }
}

fn at_once(logits: Tensor<2>, targets: Targets, weights: Tensor<1>, teacher: Option<Teacher>) -> NextTokenLoss {
    let device = logits.device();
    let vocabulary = logits.dims()[1];
    let fixed = logits.clone().inner();
    let targets: Vec<usize> = targets.into_data().iter::<i64>().map(|target| target as usize).collect();
    let weights: Vec<f32> = weights.into_data().iter::<f32>().collect();
    let mut found = one_pass::own(fixed.clone());
    let loss = slopes(one_pass::floats(&mut found), vocabulary, targets, weights, teacher, &device);
    let found = Tensor::<2>::from_data(found, &fixed.device());
    // Zero to the bit, with the slopes as its gradient.
    let zero = ((logits - fixed) * found).sum();
    NextTokenLoss { total: zero + loss.total, ..loss }
}

/// The losses, as numbers on a device. In the place of each logit comes its slope.
fn slopes(
    logits: &mut [f32],
    vocabulary: usize,
    targets: Vec<usize>,
    weights: Vec<f32>,
    teacher: Option<Teacher>,
    device: &Device,
) -> NextTokenLoss {
    let count = targets.len();
    let (teacher, share, temperature) = match teacher {
        Some(teacher) => (Some(one_pass::own(teacher.logits)), teacher.share as f32, teacher.temperature as f32),
        None => (None, 0.0, 1.0),
    };
    let taught = teacher.is_some();
    // Without a teacher its rows are never looked at.
    let mut teacher = teacher.unwrap_or_else(|| TensorData::new(vec![0.0f32; count], [count, 1]));
    let width = if taught { vocabulary } else { 1 };
    let rows = logits.par_chunks_mut(vocabulary).zip(one_pass::floats(&mut teacher).par_chunks_mut(width));
    let parts: Vec<(f64, f64)> = rows
        .zip(targets.into_par_iter().zip(weights))
        .with_min_len(ROWS)
        .map(|((row, teacher), (target, weight))| {
            let (cross_entropy, divergence) = match taught {
                true if temperature == 1.0 => slopes_of_taught_row(row, target, weight, teacher, share),
                true => slopes_at_temperature(row, target, weight, teacher, share, temperature),
                false => slopes_of_row(row, target, weight),
            };
            (f64::from(weight) * cross_entropy, f64::from(weight) * divergence)
        })
        .collect();
    let sum = |part: fn(&(f64, f64)) -> f64| parts.iter().map(part).sum::<f64>();
    let (cross_entropy, divergence) = (sum(|parts| parts.0), sum(|parts| parts.1));
    let value = cross_entropy * (1.0 - f64::from(share)) + divergence * f64::from(share);
    let number = |value: f64| Tensor::<1>::from_floats([value as f32], device);
    NextTokenLoss {
        total: number(value),
        cross_entropy: number(cross_entropy),
        divergence: taught.then(|| number(divergence)),
    }
}

/// Turns a row of logits into slopes of the loss. Returns cross-entropy and divergence of the row.
fn slopes_of_row(row: &mut [f32], target: usize, weight: f32) -> (f64, f64) {
    if weight == 0.0 {
        row.fill(0.0);
        return (0.0, 0.0);
    }
    let said = f64::from(row[target]);
    let most = greatest(row);
    let sum = exponentials(row, most);
    let factor = f32x8::splat(weight / sum);
    one_pass::each(row, |chance| chance * factor);
    row[target] -= weight;
    (f64::from(sum).ln() + f64::from(most) - said, 0.0)
}

/// The same beside a teacher's logits, which are used up.
fn slopes_of_taught_row(row: &mut [f32], target: usize, weight: f32, teacher: &mut [f32], share: f32) -> (f64, f64) {
    if weight == 0.0 {
        row.fill(0.0);
        return (0.0, 0.0);
    }
    let said = f64::from(row[target]);
    let most = greatest(row);
    let teacher_most = greatest(teacher);
    let (most_8, teacher_most) = (f32x8::splat(most), f32x8::splat(teacher_most));
    // The teacher's logits less the model's, both below their greatest, by the teacher's chances.
    let mut gap = f32x8::ZERO;
    let (mut sum, mut teacher_sum) = (f32x8::ZERO, f32x8::ZERO);
    let mut eight = |row: &mut [f32], teacher: &mut [f32]| {
        let own = f32x8::new(one_pass::padded(row, f32::NEG_INFINITY)) - most_8;
        let wanted = f32x8::new(one_pass::padded(teacher, f32::NEG_INFINITY)) - teacher_most;
        let (chance, wish) = (own.exp(), wanted.exp());
        sum += chance;
        teacher_sum += wish;
        // Where the teacher's chance is nothing, both may be infinite.
        gap += wish.simd_gt(f32x8::ZERO).select(wish * (wanted - own), f32x8::ZERO);
        row.copy_from_slice(&chance.to_array()[..row.len()]);
        teacher.copy_from_slice(&wish.to_array()[..teacher.len()]);
    };
    for (row, teacher) in row.chunks_mut(one_pass::LANES).zip(teacher.chunks_mut(one_pass::LANES)) {
        eight(row, teacher);
    }
    let (sum, teacher_sum, gap) = (sum.reduce_add(), teacher_sum.reduce_add(), gap.reduce_add());
    let (factor, teacher_factor) = (weight / sum, weight * share / teacher_sum);
    row.iter_mut().zip(&*teacher).for_each(|(chance, wish)| *chance = *chance * factor - *wish * teacher_factor);
    row[target] -= weight * (1.0 - share);
    let divergence = f64::from(gap) / f64::from(teacher_sum) + f64::from(sum).ln() - f64::from(teacher_sum).ln();
    (f64::from(sum).ln() + f64::from(most) - said, divergence)
}

/// The same at a temperature that is not one: the divergence of a copy of the row over `T`, and the text by the row itself.
fn slopes_at_temperature(
    row: &mut [f32],
    target: usize,
    weight: f32,
    teacher: &mut [f32],
    share: f32,
    temperature: f32,
) -> (f64, f64) {
    let mut cooled: Vec<f32> = row.iter().map(|logit| logit / temperature).collect();
    teacher.iter_mut().for_each(|logit| *logit /= temperature);
    let (_, divergence) = slopes_of_taught_row(&mut cooled, target, weight, teacher, 1.0);
    let (cross_entropy, _) = slopes_of_row(row, target, weight);
    // A slope by a logit over T is one by the logit, over T; of T² one T is left.
    let (of_text, of_teacher) = (1.0 - share, share * temperature);
    row.iter_mut().zip(cooled).for_each(|(slope, other)| *slope = *slope * of_text + other * of_teacher);
    (cross_entropy, divergence * f64::from(temperature * temperature))
}

fn greatest(row: &[f32]) -> f32 {
    let mut most = f32x8::splat(f32::NEG_INFINITY);
    one_pass::each_padded(row, most, |values| most = most.max(values));
    most.to_array().into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Each value becomes `exp(value - most)`; returns their sum.
fn exponentials(row: &mut [f32], most: f32) -> f32 {
    let most = f32x8::splat(most);
    let mut sum = f32x8::ZERO;
    let (eights, rest) = row.as_chunks_mut::<{ one_pass::LANES }>();
    for eight in eights {
        let chances = (f32x8::new(*eight) - most).exp();
        sum += chances;
        *eight = chances.to_array();
    }
    if !rest.is_empty() {
        let chances = (f32x8::new(one_pass::padded(rest, f32::NEG_INFINITY)) - most).exp();
        sum += chances;
        rest.copy_from_slice(&chances.to_array()[..rest.len()]);
    }
    sum.reduce_add()
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use serde_json::Value;

    use super::super::tests::{autodiff, close, plain, values};
    use super::*;

    fn numbers(value: &Value) -> Vec<f32> {
        match value.as_array() {
            Some(list) => list.iter().flat_map(numbers).collect(),
            None => vec![value.as_f64().unwrap() as f32],
        }
    }

    /// PyTorch's `cross_entropy` and `kl_div`, `tests/reference/fake_quantise.py`.
    #[test]
    fn both_parts_and_the_gradient_are_those_of_pytorch() {
        let all: Value = serde_json::from_str(include_str!("../../tests/reference/fake_quantise.json")).unwrap();
        for case in all["distillation"].as_array().unwrap() {
            let tensor = |name: &str| TensorData::new(numbers(&all[name]), [5, 7]);
            let logits = Tensor::<2>::from_data(tensor("logits"), &autodiff()).require_grad();
            let targets: Vec<i32> = numbers(&all["targets"]).into_iter().map(|number| number as i32).collect();
            let targets = Targets::from_ints(targets.as_slice(), &autodiff());
            let weights = Tensor::<1>::from_floats(numbers(&all["weights"]).as_slice(), &autodiff()) / 4.0;
            let number = |name: &str| case[name].as_f64().unwrap();
            let teacher = Teacher {
                logits: Tensor::from_data(tensor("teacher"), &plain()),
                share: number("share"),
                temperature: number("temperature"),
            };
            for way in [at_once, by_operations] {
                let loss = way(logits.clone(), targets.clone(), weights.clone(), Some(teacher.clone()));
                close(&values(loss.cross_entropy), &[number("cross_entropy") as f32], 1e-5);
                close(&values(loss.divergence.unwrap()), &[number("divergence") as f32], 1e-5);
                close(&values(loss.total.clone()), &[number("total") as f32], 1e-5);
                let gradients = loss.total.backward();
                close(&values(logits.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 1e-6);
            }
        }
    }

    type Way = fn(Tensor<2>, Targets, Tensor<1>, Option<Teacher>) -> NextTokenLoss;

    /// A vocabulary that does not fill eights, more rows than a thread takes at a time, rows that do not count, and logits
    /// far apart.
    #[test]
    fn in_one_pass_it_is_what_burns_operations_make_of_it() {
        const SHAPE: [usize; 2] = [70, 37];
        let draw = |factor: f32, step: usize| {
            let numbers = (0..SHAPE[0] * SHAPE[1]).map(|number| ((number * step % 101) as f32 - 50.0) * factor);
            TensorData::new(numbers.collect::<Vec<f32>>(), SHAPE)
        };
        let targets: Vec<i32> = (0..SHAPE[0] as i32).map(|row| row * 5 % SHAPE[1] as i32).collect();
        let targets = Targets::from_ints(targets.as_slice(), &autodiff());
        let weights: Vec<f32> = (0..SHAPE[0]).map(|row| (row % 3) as f32 / 70.0).collect();
        let weights = Tensor::<1>::from_floats(weights.as_slice(), &autodiff());
        let cases = [(0.1, Some(1.0)), (0.1, None), (3.0, Some(1.0)), (3.0, None), (3.0, Some(2.5))];
        for (factor, temperature) in cases {
            let run = |way: Way| {
                let logits = Tensor::<2>::from_data(draw(factor, 31), &autodiff()).require_grad();
                let teacher = temperature.map(|temperature| Teacher {
                    logits: Tensor::from_data(draw(factor * 0.5, 17), &plain()),
                    share: 0.3,
                    temperature,
                });
                let loss = way(logits.clone(), targets.clone(), weights.clone(), teacher);
                let gradients = (loss.total.clone() * 0.5).backward();
                let divergence = loss.divergence.map(values).unwrap_or_default();
                (values(loss.total), values(loss.cross_entropy), divergence, values(logits.grad(&gradients).unwrap()))
            };
            let (ours, burns) = (run(at_once), run(by_operations));
            close(&ours.0, &burns.0, 2e-4);
            close(&ours.1, &burns.1, 2e-4);
            close(&ours.2, &burns.2, 2e-4);
            close(&ours.3, &burns.3, 1e-6);
        }
    }

    #[test]
    fn a_model_that_says_what_its_teacher_says_does_not_diverge() {
        let logits = Tensor::<2>::from_floats([[0.3, -2.0, 1.0]], &plain());
        let targets = burn::tensor::Tensor::<1, Int>::from_ints([2], &plain());
        let weights = Tensor::<1>::from_floats([1.0], &plain());
        let teacher = Teacher { logits: logits.clone(), share: 1.0, temperature: 1.0 };
        let loss = next_token_loss(logits, targets, weights, Some(teacher));
        close(&values(loss.divergence.unwrap()), &[0.0], 1e-6);
    }
}
