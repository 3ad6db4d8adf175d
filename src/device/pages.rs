//! In which pages does the pool take memory from a GPU?
//!
//! As CubeCL 0.10 does with sub-slices (`memory_management/memory_manage.rs`, `MemoryManagement::from_configuration`): the
//! largest page is a quarter of the GPU's memory, each smaller kind a quarter of the one above, down to 8 to 32 MiB. A tensor
//! goes into a page of the smallest kind that takes it; one that is larger than the largest page cannot be had at all.

/// The share of a GPU's memory that is its largest page.
const LARGEST_SHARE: u64 = 4;
const SMALLEST_TO_DIVIDE: u64 = 32 << 20;
/// Of a CUDA device.
const ALIGNMENT: u64 = 512;

/// A kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The size of a page, in bytes.
    pub bytes: u64,
    /// Tensors up to this size go into it.
    pub tensor_max: u64,
}

/// The kinds of pages on a CUDA device with so many bytes, smallest first.
pub fn of_cuda(memory: u64) -> Vec<Page> {
    let largest = memory / LARGEST_SHARE;
    let mut pages = Vec::new();
    let (mut bytes, mut divided) = (largest, 1);
    while bytes >= SMALLEST_TO_DIVIDE {
        bytes = (bytes / 4).next_multiple_of(ALIGNMENT);
        pages.push(Page { bytes, tensor_max: bytes / (1 << divided) });
        divided += 1;
    }
    pages.reverse();
    let largest = largest / ALIGNMENT * ALIGNMENT;
    pages.push(Page { bytes: largest, tensor_max: largest });
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured with CubeCL 0.10 on a stand-in for a GPU of 81,559 MiB: pages that were reserved, and what went into them.
    #[test]
    fn pages_are_those_that_cubecl_takes() {
        let pages = of_cuda(81_559 << 20);
        assert_eq!(pages.len(), 6);
        assert_eq!(pages[0].bytes, 20_879_360);
        assert_eq!(pages[1].bytes + pages[0].bytes, 104_395_776);
        assert!(pages[0].tensor_max < 1 << 20 && pages[1].tensor_max > 4 << 20, "{pages:?}");
        assert_eq!(pages[5].bytes, 81_559 * (1 << 20) / 4);
        assert_eq!(of_cuda(64 << 20), [Page { bytes: 16 << 20, tensor_max: 16 << 20 }], "too little to divide");
    }
}
