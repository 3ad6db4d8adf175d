//! Does a shared library load, and what does it have?

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;

/// A library that is loaded. It stays so for the life of the process, as it would when the backend loads the same one.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut c_void);

impl Library {
    /// Loads it by its name, as the dynamic loader finds it, or by its path.
    pub fn open(name: impl AsRef<OsStr>) -> Option<Self> {
        let name = CString::new(name.as_ref().as_bytes()).ok()?;
        // SAFETY: the name is a C string. Libraries of a driver and of CUDA run nothing of note when they are loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self(handle))
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
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is of a library that stays loaded; the name is a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // SAFETY: of the size of an address, as asserted; the caller knows its type.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }
}
