//! Matrix products on the calling thread, written or accumulated in place, by the `gemm` crate as in burn-flex.

use gemm::Parallelism;

/// Read-only matrix: a strided view of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Creates a view of rows that start `row_stride` values apart.
    ///
    /// # Panics
    /// There are too few values.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(fits(values.len(), rows, columns, row_stride), "{rows} x {columns} exceed {} values", values.len());
        Self { values, rows, columns, row_stride, column_stride: 1 }
    }

    /// Returns `count` rows from `first` on, of a matrix that is not transposed.
    pub fn rows(self, first: usize, count: usize) -> Self {
        Self::new(&self.values[first * self.row_stride..], count, self.columns, self.row_stride)
    }

    /// Returns the transpose, without a copy.
    pub fn transposed(self) -> Self {
        let Self { rows, columns, row_stride, column_stride, .. } = self;
        Self { rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride, ..self }
    }
}

/// Writable matrix.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Creates a view of rows that start `row_stride` values apart.
    ///
    /// # Panics
    /// There are too few values, or rows overlap.
    pub fn new(values: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(fits(values.len(), rows, columns, row_stride), "{rows} x {columns} exceed {} values", values.len());
        assert!(rows < 2 || row_stride >= columns, "rows overlap");
        Self { values, rows, columns, row_stride }
    }
}

/// Returns `true` if a strided matrix lies within `count` values.
fn fits(count: usize, rows: usize, columns: usize, row_stride: usize) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * row_stride + columns <= count
}

/// Treatment of the values that a product is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// Overwrites them.
    Overwrite,
    /// Adds the product to them.
    Add,
}

/// Writes or adds `left · right`. The order of summation depends on the sizes alone.
///
/// # Panics
/// The sizes do not match.
pub fn multiply(to: MatrixMut<'_>, left: Matrix<'_>, right: Matrix<'_>, accumulate: Accumulate) {
    assert!(left.columns == right.rows, "inner sizes differ");
    assert!(to.rows == left.rows && to.columns == right.columns, "the size of the product differs");
    let stride = |stride: usize| stride as isize;
    // SAFETY: the constructors check that each matrix lies within its slice and that rows of `to` do not overlap; `to` is
    // borrowed mutably, so it aliases neither factor.
    unsafe {
        gemm::gemm(
            to.rows,
            to.columns,
            left.columns,
            to.values.as_mut_ptr(),
            1,
            stride(to.row_stride),
            accumulate == Accumulate::Add,
            left.values.as_ptr(),
            stride(left.column_stride),
            stride(left.row_stride),
            right.values.as_ptr(),
            stride(right.column_stride),
            stride(right.row_stride),
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
    fn products_of_strided_views() {
        // [1 2; 3 4] with a row stride of 3, times [5 6; 7 8] in column-major order.
        let left = Matrix::new(&[1.0, 2.0, 9.0, 3.0, 4.0], 2, 2, 3);
        let right = Matrix::new(&[5.0, 7.0, 6.0, 8.0], 2, 2, 2).transposed();
        let mut found = [1.0; 6];
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Accumulate::Overwrite);
        assert_eq!(found, [19.0, 22.0, 1.0, 1.0, 43.0, 50.0]);
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Accumulate::Add);
        assert_eq!(found, [38.0, 44.0, 1.0, 1.0, 86.0, 100.0]);
    }

    #[test]
    #[should_panic(expected = "2 x 3")]
    fn a_matrix_larger_than_its_slice_is_refused() {
        Matrix::new(&[1.0; 5], 2, 3, 3);
    }
}
