//! Matrix products on the calling thread, written or accumulated in place, by the `gemm` crate as in burn-flex.

use std::mem::MaybeUninit;

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
        Self::strided(values, [rows, columns], [row_stride, 1])
    }

    /// Creates a view of rows and columns that start so many values apart.
    ///
    /// # Panics
    /// There are too few values.
    pub fn strided(values: &'a [f32], [rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) -> Self {
        let needed = last_offset([rows, columns], [row_stride, column_stride]).map_or(0, |last| last + 1);
        assert!(needed <= values.len(), "{rows} x {columns} exceed {} values", values.len());
        Self { values, rows, columns, row_stride, column_stride }
    }

    /// Returns the number of rows and of columns.
    pub fn size(self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Returns `count` rows from `first` on.
    pub fn rows(self, first: usize, count: usize) -> Self {
        let Self { columns, row_stride, column_stride, .. } = self;
        Self::strided(&self.values[first * row_stride..], [count, columns], [row_stride, column_stride])
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
        let needed = last_offset([rows, columns], [row_stride, 1]).map_or(0, |last| last + 1);
        assert!(needed <= values.len(), "{rows} x {columns} exceed {} values", values.len());
        assert!(rows < 2 || row_stride >= columns, "rows overlap");
        Self { values, rows, columns, row_stride }
    }
}

/// Returns the offset of the last value of a strided matrix; `None` if it is empty.
fn last_offset([rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) -> Option<usize> {
    Some(rows.checked_sub(1)? * row_stride + columns.checked_sub(1)? * column_stride)
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
    assert!(to.rows == left.rows && to.columns == right.columns, "the size of the product differs");
    // SAFETY: `MatrixMut::new` checks that the matrix lies within its slice and that its rows do not overlap; its values are
    // initialised, and borrowed mutably.
    unsafe { gemm(to.values.as_mut_ptr(), to.row_stride, left, right, accumulate) }
}

/// Writes `left · right` row by row to as many values, and returns them.
///
/// # Panics
/// The sizes do not match.
pub fn write_product<'a>(to: &'a mut [MaybeUninit<f32>], left: Matrix<'_>, right: Matrix<'_>) -> &'a mut [f32] {
    assert!(to.len() == left.rows * right.columns, "the size of the product differs");
    // SAFETY: `to` has the values of `left.rows` rows, and is borrowed mutably; `Overwrite` does not read them.
    unsafe { gemm(to.as_mut_ptr().cast(), right.columns, left, right, Accumulate::Overwrite) };
    // SAFETY: each value of the product has been written.
    unsafe { to.assume_init_mut() }
}

/// Writes or adds `left · right`.
///
/// # Safety
/// Rows of the product, `row_stride` values apart, are writable at `to`, do not overlap, and are borrowed by nothing else. To be added
/// to, their values are initialised.
unsafe fn gemm(to: *mut f32, row_stride: usize, left: Matrix<'_>, right: Matrix<'_>, accumulate: Accumulate) {
    assert!(left.columns == right.rows, "inner sizes differ");
    let stride = |stride: usize| stride as isize;
    // SAFETY: the constructors check that each factor lies within its slice; the caller promises the same of the product, which
    // overlaps neither. With `read_dst` unset, it is not read before it is written.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            to,
            1,
            stride(row_stride),
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

    /// A product without an inner dimension is zero, also where it overwrites nothing.
    #[test]
    fn a_product_is_written_to_new_memory() {
        let mut found = [MaybeUninit::uninit(); 4];
        let right = Matrix::new(&[5.0, 6.0, 7.0, 8.0], 2, 2, 2);
        let left = Matrix::strided(&[1.0, 3.0, 2.0, 4.0], [2, 2], [1, 2]);
        assert_eq!(write_product(&mut found, left, right), [19.0, 22.0, 43.0, 50.0]);
        assert_eq!(write_product(&mut found[..2], left.rows(1, 1), right), [43.0, 50.0]);
        assert_eq!(write_product(&mut found, Matrix::new(&[], 2, 0, 0), Matrix::new(&[], 0, 2, 2)), [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "2 x 3")]
    fn a_matrix_larger_than_its_slice_is_refused() {
        Matrix::new(&[1.0; 5], 2, 3, 3);
    }
}
