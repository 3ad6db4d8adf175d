//! Shared libraries that are loaded at run time.

use std::ffi::{CStr, OsStr};

/// Loaded library. It is never unloaded, since the backend loads the same one and keeps it.
#[derive(Clone, Copy, Debug)]
pub struct SharedLibrary(&'static libloading::Library);

impl SharedLibrary {
    /// Loads a library by a name that the dynamic loader searches for, or by a path; `None` if there is none.
    pub fn open(name: impl AsRef<OsStr>) -> Option<Self> {
        // SAFETY: the initialisers of the libraries of drivers and of CUDA have no effect on this program.
        let library = unsafe { libloading::Library::new(name.as_ref()) }.ok()?;
        Some(Self(Box::leak(Box::new(library))))
    }

    /// Loads the first of several names that the dynamic loader finds.
    pub fn open_first(names: &[&str]) -> Option<Self> {
        names.iter().find_map(Self::open)
    }

    /// Address of a function as a value of type `F`; `None` if the library lacks it.
    ///
    /// # Safety
    /// `F` must be the type of a C function with the signature of this function in the library's manual.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Option<F> {
        // SAFETY: the caller guarantees the type of the function; the library stays loaded.
        unsafe { self.0.get::<F>(name.to_bytes_with_nul()) }.ok().map(|function| *function)
    }
}
