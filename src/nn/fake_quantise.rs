//! What would a number be with few bits? Rounded to a grid and back, with a gradient that passes straight through.
//!
//! `q = clamp(round(x / s) + z, least, most)`, `x' = (q - z) s` (Jacob et al. 2018). The gradient is one inside the grid and
//! zero outside (Bengio et al. 2013). The grid follows from the least and the greatest value.

use burn::tensor::TensorData;
use rayon::prelude::*;
use wide::f32x8;

use super::{Tensor, one_pass};

/// Keeps the division finite where all values are zero.
const SCALE_MIN: f32 = 1e-12;
/// Rows that one thread takes at a time.
const ROWS: usize = 32;

/// How many levels, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// 2 to 16.
    pub bits: u32,
    /// As many levels below zero as above; or from the least value to the greatest, zero among them.
    pub symmetric: bool,
}

/// The least and the greatest value, `[1]` each, or `[channels]` for a grid of its own for each index of the last dimension.
/// On the plain device: they have no gradient.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// `[channels]` or `[1]`: the least value that is represented.
    pub low: Tensor<1>,
    /// `[channels]` or `[1]`: the greatest.
    pub high: Tensor<1>,
}

impl Bounds {
    /// Of a tensor's values as they are; `per_channel` for each index of the last dimension.
    pub fn of<const D: usize>(values: &Tensor<D>, per_channel: bool) -> Self {
        let values = without_graph(values);
        if !per_channel && one_pass::is_for(&values) && values.shape().num_elements() > 0 {
            let device = values.device();
            let (low, high) = one_pass::ends(values);
            return Self { low: Tensor::from_floats([low], &device), high: Tensor::from_floats([high], &device) };
        }
        if !per_channel {
            return Self { low: values.clone().min(), high: values.max() };
        }
        let channels = values.dims()[D - 1];
        let rows = values.shape().num_elements() / channels;
        let values = values.reshape([rows, channels]);
        let flat = |edge: Tensor<2>| edge.reshape([channels]);
        Self { low: flat(values.clone().min_dim(0)), high: flat(values.max_dim(0)) }
    }
}

/// Whether operations on this tensor are recorded.
pub fn has_graph<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.is_autodiff()
}

/// The same values on the plain device.
pub fn without_graph<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    match has_graph(tensor) {
        true => tensor.clone().inner(),
        false => tensor.clone(),
    }
}

/// A tensor of the plain device where `like` is: untracked on the device that records. Operations take plain tensors as
/// constants, too; this is for what is returned or becomes a leaf.
pub fn beside<const D: usize, const E: usize>(plain: Tensor<D>, like: &Tensor<E>) -> Tensor<D> {
    match like.gradient_checkpointing_strategy() {
        // Burn refuses to mix strategies, and what is only made recorded has the one that keeps all.
        Some(strategy) => plain.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => plain,
    }
}

impl Grid {
    /// The least and the most level.
    fn ends(self) -> (f32, f32) {
        match self.symmetric {
            true => {
                let most = ((1u32 << (self.bits - 1)) - 1) as f32;
                (-most, most)
            }
            false => (0.0, ((1u32 << self.bits) - 1) as f32),
        }
    }

    /// Scale and zero point of the least and the greatest value.
    pub fn scale_and_zero<const D: usize>(self, low: Tensor<D>, high: Tensor<D>) -> (Tensor<D>, Tensor<D>) {
        let (_, most) = self.ends();
        let (low, high) = (low.clamp_max(0.0), high.clamp_min(0.0));
        match self.symmetric {
            true => {
                let reach = low.neg().max_pair(high);
                let zero = reach.zeros_like();
                ((reach / most).clamp_min(SCALE_MIN), zero)
            }
            false => {
                let scale = ((high - low.clone()) / most).clamp_min(SCALE_MIN);
                let zero = (low.neg() / scale.clone()).round();
                (scale, zero)
            }
        }
    }

    /// The values on the grid, and 1 where the grid reaches and 0 beyond. On the plain device.
    fn on_grid<const D: usize>(self, values: Tensor<D>, bounds: &Bounds) -> (Tensor<D>, impl FnOnce() -> Tensor<D>) {
        let (scale, zero) = self.scale_and_zero(bounds.low.clone(), bounds.high.clone());
        self.on_levels(values, spread(scale), spread(zero))
    }

    /// The same for scales and zero points that fit the values.
    fn on_levels<const D: usize>(
        self,
        values: Tensor<D>,
        scale: Tensor<D>,
        zero: Tensor<D>,
    ) -> (Tensor<D>, impl FnOnce() -> Tensor<D>) {
        let (least, most) = self.ends();
        let steps = (values / scale.clone()).round() + zero.clone();
        let level = steps.clone().clamp(least, most);
        let inside = {
            let level = level.clone();
            move || steps.equal(level).float()
        };
        ((level - zero) * scale, inside)
    }

    /// [`Self::on_grid`] in one pass; the same numbers to the bit.
    fn on_grid_at_once<const D: usize>(self, values: Tensor<D>, bounds: &Bounds) -> (Tensor<D>, Tensor<D>) {
        let (device, shape) = (values.device(), values.shape());
        let mut data = one_pass::own(values);
        let inside = self.in_place(one_pass::floats(&mut data), bounds);
        (Tensor::from_data(data, &device), Tensor::from_data(TensorData::new(inside, shape), &device))
    }

    /// Puts values in host memory on the grid; returns 1 for each where the grid reaches, and 0 beyond. Bounds of channels are
    /// as many as a row has values.
    pub fn in_place(self, values: &mut [f32], bounds: &Bounds) -> Vec<f32> {
        let (scale, zero) = self.scale_and_zero(bounds.low.clone(), bounds.high.clone());
        let (mut scale, mut zero) = (one_pass::own(scale), one_pass::own(zero));
        let (scale, zero) = (one_pass::floats(&mut scale), one_pass::floats(&mut zero));
        if let ([scale], [zero]) = (&*scale, &*zero) {
            let (scale, zero) = (f32x8::splat(*scale), f32x8::splat(*zero));
            return one_pass::change_to_two(values, |values| self.eight(values, scale, zero));
        }
        let mut inside = vec![0.0; values.len()];
        let rows = values.par_chunks_mut(scale.len());
        rows.zip(inside.par_chunks_mut(scale.len())).with_min_len(ROWS).for_each(|(row, inside)| {
            let starts = (0..row.len()).step_by(one_pass::LANES);
            starts.for_each(|start| {
                let part = start..row.len().min(start + one_pass::LANES);
                let eight = |values: &[f32], padding| f32x8::new(one_pass::padded(&values[part.clone()], padding));
                let (level, one) = self.eight(eight(row, 0.0), eight(scale, 1.0), eight(zero, 0.0));
                row[part.clone()].copy_from_slice(&level.to_array()[..part.len()]);
                inside[part.clone()].copy_from_slice(&one.to_array()[..part.len()]);
            });
        });
        inside
    }

    /// Eight values on the grid, and 1 where it reaches.
    fn eight(self, values: f32x8, scale: f32x8, zero: f32x8) -> (f32x8, f32x8) {
        let (least, most) = self.ends();
        let steps = (values / scale).round_ties_even() + zero;
        let level = steps.max(f32x8::splat(least)).min(f32x8::splat(most));
        ((level - zero) * scale, steps.simd_eq(level) & f32x8::ONE)
    }

    /// Values on the grid, without a gradient; where the input is.
    pub fn quantise<const D: usize>(self, values: &Tensor<D>, bounds: &Bounds) -> Tensor<D> {
        let fixed = without_graph(values);
        let quantised = match one_pass::is_for(&fixed) {
            true => self.on_grid_at_once(fixed, bounds).0,
            false => self.on_grid(fixed, bounds).0,
        };
        beside(quantised, values)
    }

    /// Values on the grid, with the gradient passed straight through inside it.
    pub fn fake_quantise<const D: usize>(self, values: Tensor<D>, bounds: &Bounds) -> Tensor<D> {
        if !has_graph(&values) {
            return self.quantise(&values, bounds);
        }
        let fixed = without_graph(&values);
        if one_pass::is_for(&fixed) {
            let (quantised, inside) = self.on_grid_at_once(fixed, bounds);
            return one_pass::with_slopes(values, quantised, inside);
        }
        let (quantised, inside) = self.on_grid(fixed.clone(), bounds);
        let inside = inside();
        let rest = quantised - fixed * inside.clone();
        values * inside + rest
    }
}

/// Grids of rows: each has its own, from its least to its greatest value, found anew each time.
impl Grid {
    /// `[rows, features]` on the grids of its rows, with the gradient passed straight through: what has just been measured
    /// lies inside. Only where rounding moves the zero point can a value be one level outside; it has no gradient.
    pub fn fake_quantise_rows(self, values: Tensor<2>) -> Tensor<2> {
        let fixed = without_graph(&values);
        let at_once = one_pass::is_for(&fixed);
        match (has_graph(&values), at_once) {
            (false, true) => self.rows_at_once(fixed).0,
            (false, false) => self.rows(fixed).0,
            // As many levels below zero as above: all are inside, and nothing is kept for the backward pass.
            (true, _) if self.symmetric => {
                let quantised = if at_once { self.rows_at_once(fixed).0 } else { self.rows(fixed).0 };
                one_pass::straight_through(values, quantised)
            }
            (true, true) => {
                let (quantised, inside) = self.rows_at_once(fixed);
                one_pass::with_slopes(values, quantised, inside)
            }
            (true, false) => {
                let (quantised, inside) = self.rows(fixed);
                one_pass::with_slopes(values, quantised, inside())
            }
        }
    }

    /// By Burn's operations.
    fn rows(self, values: Tensor<2>) -> (Tensor<2>, impl FnOnce() -> Tensor<2>) {
        let (scale, zero) = self.scale_and_zero(values.clone().min_dim(1), values.clone().max_dim(1));
        self.on_levels(values, scale, zero)
    }

    /// In one pass; the same numbers to the bit.
    fn rows_at_once(self, values: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
        let (device, shape) = (values.device(), values.shape());
        let mut data = one_pass::own(values);
        let inside = self.rows_in_place(one_pass::floats(&mut data), shape[1].max(1));
        (Tensor::from_data(data, &device), Tensor::from_data(TensorData::new(inside, shape), &device))
    }

    /// Puts each row of so many values in host memory on a grid of its own; returns 1 for each value where its grid reaches, and
    /// 0 beyond.
    pub fn rows_in_place(self, values: &mut [f32], features: usize) -> Vec<f32> {
        let mut inside = vec![0.0; values.len()];
        let rows = values.par_chunks_mut(features).zip(inside.par_chunks_mut(features));
        rows.with_min_len(ROWS).for_each(|(row, inside)| {
            let (low, high) = one_pass::ends_of(row);
            let (scale, zero) = self.scale_and_zero_of(low, high);
            let (scale, zero) = (f32x8::splat(scale), f32x8::splat(zero));
            one_pass::each_to_two(row, inside, |values| self.eight(values, scale, zero));
        });
        inside
    }

    /// [`Self::scale_and_zero`] of one pair.
    fn scale_and_zero_of(self, low: f32, high: f32) -> (f32, f32) {
        let (_, most) = self.ends();
        let (low, high) = (low.min(0.0), high.max(0.0));
        match self.symmetric {
            true => ((high.max(-low) / most).max(SCALE_MIN), 0.0),
            false => {
                let scale = ((high - low) / most).max(SCALE_MIN);
                (scale, (-low / scale).round_ties_even())
            }
        }
    }
}

/// `[n]` to `[1, …, n]`.
fn spread<const D: usize>(values: Tensor<1>) -> Tensor<D> {
    let mut shape = [1; D];
    shape[D - 1] = values.dims()[0];
    values.reshape(shape)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::{autodiff, close, plain, values};
    use super::*;

    pub fn numbers(value: &Value) -> Vec<f32> {
        match value.as_array() {
            Some(list) => list.iter().flat_map(numbers).collect(),
            None => vec![value.as_f64().unwrap() as f32],
        }
    }

    /// By hand: three levels of 1 between -1 and 1; four levels of 1 between -1 and 2, zero the second of them.
    #[test]
    fn two_bits_by_hand() {
        let input = Tensor::<1>::from_floats([-2.0, -0.6, 0.4, 1.2, 9.0], &plain());
        let bounds = |low: f32, high: f32| Bounds {
            low: Tensor::from_floats([low], &plain()),
            high: Tensor::from_floats([high], &plain()),
        };
        let on =
            |symmetric, low, high| values(Grid { bits: 2, symmetric }.fake_quantise(input.clone(), &bounds(low, high)));
        close(&on(true, -1.0, 0.5), &[-1.0, -1.0, 0.0, 1.0, 1.0], 1e-6);
        close(&on(false, -1.0, 2.0), &[-1.0, -1.0, 0.0, 1.0, 2.0], 1e-6);
        close(&on(false, 0.0, 0.0), &[0.0; 5], 1e-6);
    }

    /// PyTorch's values and gradients, `tests/reference/fake_quantise.py`.
    #[test]
    fn values_and_gradients_are_those_of_pytorch() {
        let text = include_str!("../../tests/reference/fake_quantise.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let tensor = |value: &Value, device: &burn::tensor::Device| {
            let data = burn::tensor::TensorData::new(numbers(value), [4, 3]);
            Tensor::<2>::from_data(data, device)
        };
        let upstream = tensor(&all["upstream"], &autodiff());
        for case in all["cases"].as_array().unwrap() {
            let grid = Grid { bits: case["bits"].as_u64().unwrap() as u32, symmetric: case["scheme"] == "symmetric" };
            let edge = |name: &str| Tensor::<1>::from_floats(numbers(&case[name]).as_slice(), &plain());
            let bounds = Bounds { low: edge("low"), high: edge("high") };
            let input = tensor(&all["input"], &autodiff()).require_grad();
            let output = grid.fake_quantise(input.clone(), &bounds);
            close(&values(output.clone()), &numbers(&case["values"]), 2e-6);
            close(&values(grid.quantise(&input, &bounds)), &numbers(&case["values"]), 2e-6);
            let gradients = (output * upstream.clone()).sum().backward();
            close(&values(input.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 2e-6);
        }
    }

    /// On a GPU the grid is Burn's operations; on the CPU it is one pass. They are the same to the bit, also far outside.
    #[test]
    fn one_pass_is_what_burns_operations_are() {
        let numbers: Vec<f32> = (0..12 * 11).map(|number| ((number * 37 % 97) as f32 - 48.0) * 0.31).collect();
        let mut numbers = numbers;
        numbers[5] = 3e12;
        numbers[77] = -3e12;
        let input = Tensor::<2>::from_data(TensorData::new(numbers, [12, 11]), &plain());
        for (symmetric, per_channel) in [(true, true), (true, false), (false, true), (false, false)] {
            let grid = Grid { bits: 4, symmetric };
            let bounds = Bounds::of(&input.clone().clamp(-9.3, 7.7), per_channel);
            let (at_once, ones) = grid.on_grid_at_once(input.clone(), &bounds);
            let (one_by_one, inside) = grid.on_grid(input.clone(), &bounds);
            assert_eq!(values(at_once), values(one_by_one));
            assert_eq!(values(ones), values(inside()));
        }
    }

    /// PyTorch's, a channel for each row: `tests/reference/fake_quantise_per_token.py`.
    #[test]
    fn rows_and_their_gradients_are_those_of_pytorch() {
        let text = include_str!("../../tests/reference/fake_quantise_per_token.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let shape = [6, 11];
        let tensor = |value: &Value| Tensor::<2>::from_data(TensorData::new(numbers(value), shape), &autodiff());
        for case in all["cases"].as_array().unwrap() {
            let grid = Grid { bits: case["bits"].as_u64().unwrap() as u32, symmetric: case["scheme"] == "symmetric" };
            let input = tensor(&all["input"]).require_grad();
            let output = grid.fake_quantise_rows(input.clone());
            close(&values(output.clone()), &numbers(&case["values"]), 2e-5);
            close(&values(grid.fake_quantise_rows(input.clone().inner())), &numbers(&case["values"]), 2e-5);
            let gradients = (output * tensor(&all["upstream"])).sum().backward();
            close(&values(input.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 2e-6);
        }
    }

    #[test]
    fn rows_in_one_pass_are_what_burns_operations_are() {
        for (rows, features) in [(70, 13), (3, 8), (1, 1), (40, 100)] {
            let number = |at: usize| ((at * 37 % 97) as f32 - 30.0) * 0.31 * (at / features + 1) as f32;
            let numbers: Vec<f32> = (0..rows * features).map(number).collect();
            let input = Tensor::<2>::from_data(TensorData::new(numbers, [rows, features]), &plain());
            for (bits, symmetric) in [(2, true), (2, false), (5, false), (8, true), (16, false), (16, true)] {
                let grid = Grid { bits, symmetric };
                let (by_operations, inside) = grid.rows(input.clone());
                let (at_once, inside_at_once) = grid.rows_at_once(input.clone());
                assert_eq!(values(at_once), values(by_operations), "{bits} bits, symmetric {symmetric}");
                let inside = values(inside());
                assert_eq!(values(inside_at_once), inside);
                assert!(!symmetric || inside.iter().all(|inside| *inside == 1.0), "all are inside: {bits} bits");
            }
        }
    }

    /// By hand: two bits, so a step is the row's greatest size; the second row does not feel the first one's outlier.
    #[test]
    fn a_row_does_not_depend_on_those_beside_it() {
        let input = Tensor::<2>::from_floats([[100.0, 1.0, -49.0], [0.3, -0.1, 0.2]], &plain());
        let quantised = Grid { bits: 2, symmetric: true }.fake_quantise_rows(input);
        close(&values(quantised), &[100.0, 0.0, 0.0, 0.3, 0.0, 0.3], 1e-6);
    }

    #[test]
    fn bounds_are_of_all_values_or_of_each_channel() {
        let input = Tensor::<3>::from_floats([[[1.0, -5.0], [2.0, 3.0]], [[-1.0, 0.0], [0.5, 7.0]]], &autodiff());
        let (all, each) = (Bounds::of(&input, false), Bounds::of(&input, true));
        assert_eq!((values(all.low), values(all.high)), (vec![-5.0], vec![7.0]));
        assert_eq!((values(each.low), values(each.high)), (vec![-1.0, -5.0], vec![2.0, 7.0]));
        assert!(!has_graph(&each_low(&input)), "bounds have no graph");
    }

    fn each_low(input: &Tensor<3>) -> Tensor<1> {
        Bounds::of(input, true).low
    }
}
