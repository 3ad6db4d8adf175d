//! Attention of each token to itself and those before it, in host memory: what [`super::transformer::attend`] computes, head by
//! head, and its gradient.
//!
//! `P = softmax(Q Kᵀ / √d)`, `O = P V` (Vaswani et al. 2017). Back: `V' = Pᵀ O'`, `P' = O' Vᵀ`,
//! `S' = P (P' − Σ P P') / √d`, `Q' = S' K`, `K' = S'ᵀ Q`. Each sequence is computed by one thread.

use rayon::prelude::*;
use wide::f32x8;

use super::one_pass;
use super::product::{Into, Matrix, MatrixMut, multiply};
use super::rows::{Rows, change, dot};

/// How tokens lie: in sequences, whose tokens stand one under the other; and the columns of a head beside each other.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Tokens of a sequence.
    pub length: usize,
    /// Heads.
    pub count: usize,
    /// Columns of a head.
    pub size: usize,
}

/// Queries, keys or values: some columns of rows.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The rows.
    pub rows: &'a Rows,
    /// The first of these columns.
    pub from: usize,
}

/// What attention looks at.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    /// What asks.
    pub queries: Columns<'a>,
    /// What is asked.
    pub keys: Columns<'a>,
    /// What is answered.
    pub values: Columns<'a>,
}

impl Heads {
    /// Columns of all heads.
    fn width(self) -> usize {
        self.count * self.size
    }

    fn factor(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }
}

impl<'a> Columns<'a> {
    /// One head of one sequence, both by their number: `[length, size]`.
    fn head(self, (sequence, head, heads): (usize, usize, Heads)) -> Matrix<'a> {
        let step = self.rows.width;
        let from = sequence * heads.length * step + self.from + head * heads.size;
        Matrix::new(&self.rows.values[from..], heads.length, heads.size, step)
    }
}

/// What each token sees, `[tokens, heads · size]`, and the shares by which it sees, `[sequences, heads, length, length]`.
pub fn forward(looked: Looked<'_>, heads: Heads) -> (Rows, Vec<f32>) {
    let Heads { length, count, size } = heads;
    let (tokens, width, pairs) = (looked.queries.rows.count(), heads.width(), length * length);
    let mut output = Rows::zeros(tokens, width);
    let mut shares = vec![0.0; tokens * count * length];
    let sequences = output.values.par_chunks_mut(length * width).zip(shares.par_chunks_mut(count * pairs));
    sequences.enumerate().for_each(|(sequence, (output, shares))| {
        for (head, shares) in shares.chunks_exact_mut(pairs).enumerate() {
            let at = (sequence, head, heads);
            let scores = MatrixMut::new(shares, length, length, length);
            multiply(scores, looked.queries.head(at), looked.keys.head(at).transposed(), Into::Replaced);
            for (token, row) in shares.chunks_exact_mut(length).enumerate() {
                let (seen, future) = row.split_at_mut(token + 1);
                softmax(seen, heads.factor());
                future.fill(0.0);
            }
            let to = MatrixMut::new(&mut output[head * size..], length, size, width);
            multiply(to, Matrix::new(shares, length, length, length), looked.values.head(at), Into::Replaced);
        }
    });
    (output, shares)
}

/// The gradients of queries, keys and values beside each other, `[tokens, 3 · heads · size]`, from that of the output.
pub fn back(looked: Looked<'_>, heads: Heads, shares: &[f32], gradient: &Rows) -> Rows {
    let Heads { length, count, size } = heads;
    let (tokens, width, pairs) = (gradient.count(), heads.width(), length * length);
    let mut found = Rows::zeros(tokens, 3 * width);
    let sequences = found.values.par_chunks_mut(length * 3 * width).zip(shares.par_chunks(count * pairs));
    sequences.enumerate().for_each(|(sequence, (found, shares))| {
        let mut slopes = vec![0.0; pairs];
        let gradient = Columns { rows: gradient, from: 0 };
        for (head, shares) in shares.chunks_exact(pairs).enumerate() {
            let at = (sequence, head, heads);
            let by_pair = Matrix::new(shares, length, length, length);
            let mut write = |part: usize, left: Matrix<'_>, right: Matrix<'_>| {
                let to = MatrixMut::new(&mut found[part * width + head * size..], length, size, 3 * width);
                multiply(to, left, right, Into::Replaced);
            };
            write(2, by_pair.transposed(), gradient.head(at));
            let to = MatrixMut::new(&mut slopes, length, length, length);
            multiply(to, gradient.head(at), looked.values.head(at).transposed(), Into::Replaced);
            for (slopes, shares) in slopes.chunks_exact_mut(length).zip(shares.chunks_exact(length)) {
                let mean = f32x8::splat(dot(slopes, shares));
                let factor = f32x8::splat(heads.factor());
                change(slopes, shares, |slope, share| (slope - mean) * share * factor);
            }
            let slopes = Matrix::new(&slopes, length, length, length);
            write(0, slopes, looked.keys.head(at));
            write(1, slopes.transposed(), looked.queries.head(at));
        }
    });
    found
}

/// Turns scores, times a factor above zero, into shares whose sum is one.
fn softmax(scores: &mut [f32], factor: f32) {
    let (_, most) = one_pass::ends_of(scores);
    let (most, factor) = (f32x8::splat(most), f32x8::splat(factor));
    one_pass::each(scores, |score| ((score - most) * factor).exp());
    let whole = f32x8::splat(1.0 / super::planes::sum(scores));
    one_pass::each(scores, |share| share * whole);
}

#[cfg(test)]
mod tests {
    use super::super::matmul::Factors;
    use super::super::tests::{close, plain, values};
    use super::super::transformer::{Layout, attend};
    use super::*;
    use crate::nn::Tensor;

    /// Sizes that do not fill eights; keys and values that lie elsewhere than queries.
    #[test]
    fn values_and_gradients_are_those_of_burns_operations() {
        let (batch, heads) = (3, Heads { length: 11, count: 2, size: 3 });
        let (tokens, width) = (batch * heads.length, heads.width());
        let drawn = |width: usize, seed: f32| Rows {
            values: (0..tokens * width).map(|at| 2.0 * (at as f32 * 0.731 + seed).sin()).collect(),
            width,
        };
        let (all, others, upstream) = (drawn(3 * width, 0.1), drawn(2 * width, 0.2), drawn(width, 0.3));
        let looked = Looked {
            queries: Columns { rows: &all, from: 0 },
            keys: Columns { rows: &others, from: 0 },
            values: Columns { rows: &others, from: width },
        };
        let leaf = |rows: Rows| Tensor::from_inner(rows.tensor(&plain())).require_grad();
        let leaves = [all.columns(0, width), others.columns(0, width), others.columns(width, width)].map(leaf);
        let at = Layout::new(batch, heads.length, &plain());
        let [query, key, value] = leaves.clone();
        let expected = attend(query, key, value, heads.count, &at, Factors::Float32);
        let weights = Tensor::from_inner(upstream.clone().tensor(&plain()));
        let gradients = (expected.clone() * weights).sum().backward();
        let (found, shares) = forward(looked, heads);
        close(&found.values, &values(expected), 1e-5);
        let found = back(looked, heads, &shares, &upstream);
        for (part, leaf) in leaves.into_iter().enumerate() {
            close(&found.columns(part * width, width).values, &values(leaf.grad(&gradients).unwrap()), 1e-5);
        }
    }

    /// By hand: the first token sees itself; the second has scores 0 and ln 3, and so shares of a quarter and three.
    #[test]
    fn two_tokens_by_hand() {
        let rows = |values: [f32; 2]| Rows { values: values.to_vec(), width: 1 };
        let (queries, keys, answers) = (rows([5.0, 1.0]), rows([0.0, 3.0f32.ln()]), rows([4.0, 8.0]));
        let whole = |rows| Columns { rows, from: 0 };
        let looked = Looked { queries: whole(&queries), keys: whole(&keys), values: whole(&answers) };
        let (output, shares) = forward(looked, Heads { length: 2, count: 1, size: 1 });
        close(&shares, &[1.0, 0.0, 0.25, 0.75], 1e-6);
        close(&output.values, &[4.0, 7.0], 1e-5);
    }
}
