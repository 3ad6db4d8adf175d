//! Does a shared library load, and what does it have?

use std::ffi::{CStr, OsStr};

/// A library that is loaded. It stays so for the life of the process, as it would when the backend loads the same one.
#[derive(Clone, Copy, Debug)]
pub struct Library(&'static libloading::Library);

impl Library {
    /// Loads it by its name, as the dynamic loader finds it, or by its path.
    pub fn open(name: impl AsRef<OsStr>) -> Option<Self> {
        // SAFETY: libraries of a driver and of CUDA run nothing of note when they are loaded.
        let library = unsafe { libloading::Library::new(name.as_ref()) }.ok()?;
        Some(Self(Box::leak(Box::new(library))))
    }

    /// The first of the names that the dynamic loader finds.
    pub fn first(names: &[&str]) -> Option<Self> {
        names.iter().find_map(Self::open)
    }

    /// The address of a function as a value of type `F`.
    ///
    /// # Safety
    /// `F` is the type of a C function with the signature that the library's manual gives for this name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        // SAFETY: the caller knows the type of the function; the library stays loaded.
        unsafe { self.0.get::<F>(name.to_bytes_with_nul()) }.ok().map(|function| *function)
    }
}
