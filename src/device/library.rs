//! Does a shared library load?

use std::ffi::CString;

/// The first of the names that the dynamic loader finds.
#[cfg_attr(not(any(feature = "cuda", feature = "vulkan")), expect(dead_code, reason = "asked only of GPU libraries"))]
pub fn first_that_loads(names: &[&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| {
        let Ok(name) = CString::new(*name) else { return false };
        // SAFETY: the name is a C string; the handle stays open for the life of the process, as it would when the
        // backend loads the same library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        !handle.is_null()
    })
}
