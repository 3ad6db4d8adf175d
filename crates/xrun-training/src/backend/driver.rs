//! Access to the NVIDIA driver (libcuda), to check it and its GPUs before CubeCL uses them: CubeCL panics on its own thread if one
//! of them fails.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::library::SharedLibrary;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::panics::messages;

const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// Attributes of the compute capability, from the manual of `cuDeviceGetAttribute`.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const NAME_BYTES: usize = 256;

/// The initialised driver.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    library: SharedLibrary,
    /// CUDA version, as 12000 for 12.0.
    pub version: c_int,
}

/// Minimum CUDA version of the driver, as 12000 for 12.0.
const VERSION_MIN: c_int = 12_000;

type GetInt = unsafe extern "C" fn(*mut c_int) -> c_int;
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type GetBytes = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Release = unsafe extern "C" fn(c_int) -> c_int;
type GetErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

impl Driver {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    /// It is not installed, too old, or fails.
    pub fn start() -> Result<Self, Unavailable> {
        let Some(library) = SharedLibrary::open_first(NAMES) else {
            return Err(Unavailable::absent(
                "the NVIDIA driver (libcuda.so.1) is not installed or not visible here",
                "install it; in a container request the GPU with `--gpus all`",
            ));
        };
        let mut version = 0;
        let mut driver = Self { library, version };
        // SAFETY: the signatures are those of the driver's manual; the pointer is to an int.
        unsafe {
            driver.call::<GetInt>(c"cuDriverGetVersion", |get| get(&raw mut version))?;
            driver.call::<Init>(c"cuInit", |init| init(0))?;
        }
        driver.version = version;
        if version < VERSION_MIN {
            return Err(Unavailable::unusable(
                format!("the NVIDIA driver supports only CUDA {}.{}", version / 1000, version % 1000 / 10),
                "update it to version 525 or newer (CUDA 12.0)",
            ));
        }
        Ok(driver)
    }

    /// Calls a function by name.
    ///
    /// # Safety
    /// As for [`SharedLibrary::function`].
    unsafe fn call<F: Copy>(&self, name: &CStr, call: impl FnOnce(F) -> c_int) -> Result<(), Unavailable> {
        // SAFETY: guaranteed by the caller.
        let function = unsafe { self.library.function::<F>(name) };
        let shown = name.to_string_lossy();
        let Some(function) = function else {
            let what = format!("the NVIDIA driver lacks {shown}");
            return Err(Unavailable::unusable(what, "update the driver to version 525 or newer (CUDA 12.0)"));
        };
        match call(function) {
            0 => Ok(()),
            code => {
                let name = self.error_name(code);
                let cure = messages::meaning(&name).unwrap_or_default();
                Err(Unavailable::unusable(format!("the NVIDIA driver failed: {shown} returned {name} ({code})"), cure))
            }
        }
    }

    /// Name of an error, such as `CUDA_ERROR_SYSTEM_NOT_READY`.
    fn error_name(&self, code: c_int) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the signature is that of the driver's manual.
        let name = unsafe { self.library.function::<GetErrorName>(c"cuGetErrorName") };
        // SAFETY: the argument points to a pointer, which is set to a string that is never freed.
        let found = name.is_some_and(|name| unsafe { name(code, &raw mut text) } == 0);
        match found && !text.is_null() {
            // SAFETY: a C string, as above.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "CUDA_ERROR_UNKNOWN".into(),
        }
    }

    /// Number of GPUs, without those that `CUDA_VISIBLE_DEVICES` hides.
    ///
    /// # Errors
    /// The driver fails.
    pub fn count(&self) -> Result<u32, Unavailable> {
        let mut count = 0;
        // SAFETY: the signature is that of the driver's manual; the pointer is to an int.
        unsafe { self.call::<GetInt>(c"cuDeviceGetCount", |get| get(&raw mut count)) }?;
        Ok(u32::try_from(count).unwrap_or_default())
    }

    /// Compute capability of the GPU with CUDA's index, as 90 for 9.0.
    ///
    /// # Errors
    /// The driver fails.
    pub fn capability(&self, index: u32) -> Result<u32, Unavailable> {
        let device = self.device(index)?;
        let attribute = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: the signature is that of the driver's manual; the pointer is to an int.
            unsafe {
                self.call::<GetAttribute>(c"cuDeviceGetAttribute", |get| get(&raw mut value, attribute, device))
            }?;
            Ok(u32::try_from(value).unwrap_or_default())
        };
        Ok(attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?)
    }

    /// Name of the GPU with CUDA's index, and the size of its memory in bytes.
    ///
    /// # Errors
    /// The driver fails.
    pub fn name_and_memory(&self, index: u32) -> Result<(String, u64), Unavailable> {
        let device = self.device(index)?;
        let mut name = [0; NAME_BYTES];
        let mut bytes = 0;
        // SAFETY: the signatures are those of the driver's manual; the buffer has the given length.
        unsafe {
            let length = NAME_BYTES as c_int;
            self.call::<GetName>(c"cuDeviceGetName", |get| get(name.as_mut_ptr(), length, device))?;
            self.call::<GetBytes>(c"cuDeviceTotalMem_v2", |get| get(&raw mut bytes, device))?;
        }
        name[NAME_BYTES - 1] = 0;
        // SAFETY: the last byte is zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok((name, bytes as u64))
    }

    /// Checks that a context can be created on the GPU with CUDA's index, and releases it.
    ///
    /// # Errors
    /// The memory of the GPU is full, or the driver fails.
    pub fn check_context(&self, index: u32) -> Result<(), Unavailable> {
        let device = self.device(index)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the signatures are those of the driver's manual; the context is released and never used.
        unsafe {
            self.call::<Retain>(c"cuDevicePrimaryCtxRetain", |retain| retain(&raw mut context, device)).map_err(
                |missing| match messages::cause(&missing.what) {
                    messages::Cause::OutOfMemory { .. } => Unavailable::unusable(
                        missing.what,
                        "the GPU's memory is full; `nvidia-smi` lists the processes that use it",
                    ),
                    _ => missing,
                },
            )?;
            self.call::<Release>(c"cuDevicePrimaryCtxRelease_v2", |release| release(device))
        }
    }

    fn device(&self, index: u32) -> Result<c_int, Unavailable> {
        let mut device = 0;
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: the signature is that of the driver's manual; the pointer is to an int.
        unsafe { self.call::<GetDevice>(c"cuDeviceGet", |get| get(&raw mut device, index)) }?;
        Ok(device)
    }
}
