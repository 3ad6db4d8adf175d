//! Products of matrices in host memory, on the thread that asks for them.
//!
//! The `gemm` crate is the one that the CPU backend multiplies with. Burn's own product makes a tensor of each result; here a
//! result is written, or added, where it belongs.

use gemm::Parallelism;

/// A matrix that is read: a view of some values.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// From a row to the next.
    row_step: usize,
    /// From a column to the next.
    column_step: usize,
}

impl<'a> Matrix<'a> {
    /// Rows that begin `row_step` values apart.
    ///
    /// # Panics
    /// There are too few values.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, row_step: usize) -> Self {
        assert!(holds(values.len(), rows, columns, row_step), "a matrix lies within its values");
        Self { values, rows, columns, row_step, column_step: 1 }
    }

    /// Rows for columns.
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_step: self.column_step, column_step: self.row_step, ..self }
    }
}

/// A matrix that is written.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
}

impl<'a> MatrixMut<'a> {
    /// Rows that begin `row_step` values apart.
    ///
    /// # Panics
    /// There are too few values, or rows overlap.
    pub fn new(values: &'a mut [f32], rows: usize, columns: usize, row_step: usize) -> Self {
        assert!(holds(values.len(), rows, columns, row_step), "a matrix lies within its values");
        assert!(rows < 2 || row_step >= columns, "rows lie beside each other");
        Self { values, rows, columns, row_step }
    }
}

/// Whether the last value of such a matrix is one of `count`.
fn holds(count: usize, rows: usize, columns: usize, row_step: usize) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * row_step + columns <= count
}

/// What becomes of the values that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// They are written over.
    Replaced,
    /// The product is added to them.
    Added,
}

/// Writes or adds `left · right`. Sums are taken in an order that depends on the sizes alone.
///
/// # Panics
/// The sizes do not fit.
pub fn multiply(to: MatrixMut<'_>, left: Matrix<'_>, right: Matrix<'_>, into: Into) {
    assert!(left.columns == right.rows, "the factors fit each other");
    assert!(to.rows == left.rows && to.columns == right.columns, "the product fits its place");
    let step = |step: usize| step as isize;
    // SAFETY: each matrix lies within its values, which was checked when it was made; `to` is borrowed for writing, so it
    // overlaps no other, and its rows do not overlap each other.
    unsafe {
        gemm::gemm(
            to.rows,
            to.columns,
            left.columns,
            to.values.as_mut_ptr(),
            1,
            step(to.row_step),
            into == Into::Added,
            left.values.as_ptr(),
            step(left.column_step),
            step(left.row_step),
            right.values.as_ptr(),
            step(right.column_step),
            step(right.row_step),
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_views_are_as_by_hand() {
        // [1 2; 3 4] in rows that are three apart, times [5 6; 7 8], which is stored by columns.
        let left = Matrix::new(&[1.0, 2.0, 9.0, 3.0, 4.0], 2, 2, 3);
        let right = Matrix::new(&[5.0, 7.0, 6.0, 8.0], 2, 2, 2).transposed();
        let mut found = [1.0; 6];
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Into::Replaced);
        assert_eq!(found, [19.0, 22.0, 1.0, 1.0, 43.0, 50.0]);
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Into::Added);
        assert_eq!(found, [38.0, 44.0, 1.0, 1.0, 86.0, 100.0]);
    }

    #[test]
    #[should_panic(expected = "within its values")]
    fn a_matrix_larger_than_its_values_is_refused() {
        Matrix::new(&[1.0; 5], 2, 3, 3);
    }
}
