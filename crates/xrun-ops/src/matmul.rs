//! Matrix products on the calling thread, written or added in place.
//!
//! The `gemm` crate is the one that burn-flex multiplies with.

use gemm::Parallelism;

/// A matrix that is read: a strided view of values.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows that begin `row_stride` values apart.
    ///
    /// # Panics
    /// There are too few values.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(holds(values.len(), rows, columns, row_stride), "a matrix lies within its values");
        Self { values, rows, columns, row_stride, column_stride: 1 }
    }

    /// Some rows of a matrix that is not transposed.
    pub fn rows(self, first: usize, count: usize) -> Self {
        Self::new(&self.values[first * self.row_stride..], count, self.columns, self.row_stride)
    }

    /// Rows for columns.
    pub fn transposed(self) -> Self {
        let Self { rows, columns, row_stride, column_stride, .. } = self;
        Self { rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride, ..self }
    }
}

/// A matrix that is written.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Rows that begin `row_stride` values apart.
    ///
    /// # Panics
    /// There are too few values, or rows overlap.
    pub fn new(values: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(holds(values.len(), rows, columns, row_stride), "a matrix lies within its values");
        assert!(rows < 2 || row_stride >= columns, "rows lie beside each other");
        Self { values, rows, columns, row_stride }
    }
}

/// Whether the last value of such a matrix is one of `count`.
fn holds(count: usize, rows: usize, columns: usize, row_stride: usize) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * row_stride + columns <= count
}

/// The treatment of values that are there before a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// They are overwritten.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// Writes or adds `left · right`. Sums are taken in an order that depends on the sizes alone.
///
/// # Panics
/// The sizes do not fit.
pub fn multiply(to: MatrixMut<'_>, left: Matrix<'_>, right: Matrix<'_>, accumulate: Accumulate) {
    assert!(left.columns == right.rows, "the factors fit each other");
    assert!(to.rows == left.rows && to.columns == right.columns, "the product fits its place");
    let stride = |stride: usize| stride as isize;
    // SAFETY: each matrix lies within its values, which was checked when it was made; `to` is borrowed for writing, so it
    // overlaps no other, and its rows do not overlap each other.
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
    fn products_of_views_are_as_by_hand() {
        // [1 2; 3 4] in rows that are three apart, times [5 6; 7 8], which is stored by columns.
        let left = Matrix::new(&[1.0, 2.0, 9.0, 3.0, 4.0], 2, 2, 3);
        let right = Matrix::new(&[5.0, 7.0, 6.0, 8.0], 2, 2, 2).transposed();
        let mut found = [1.0; 6];
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Accumulate::Overwrite);
        assert_eq!(found, [19.0, 22.0, 1.0, 1.0, 43.0, 50.0]);
        multiply(MatrixMut::new(&mut found, 2, 2, 4), left, right, Accumulate::Add);
        assert_eq!(found, [38.0, 44.0, 1.0, 1.0, 86.0, 100.0]);
    }

    #[test]
    #[should_panic(expected = "within its values")]
    fn a_matrix_larger_than_its_values_is_refused() {
        Matrix::new(&[1.0; 5], 2, 3, 3);
    }
}
