//! What does the NVIDIA driver (libcuda) say before anything is computed: does it start, which GPUs has it, do they open?
//!
//! CubeCL asks the same and panics on a thread of its own where the answer is no. So it is asked first, without CubeCL.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::library::Library;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::panics::messages;

const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// The compute capability's attributes, by the manual of `cuDeviceGetAttribute`.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const NAME_BYTES: usize = 256;

/// The driver, started.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    library: Library,
}

/// The oldest that is tried, by the CUDA that it is of, as 12000 for 12.0.
const VERSION_MIN: c_int = 12_000;

type Get1 = unsafe extern "C" fn(*mut c_int) -> c_int;
type Start = unsafe extern "C" fn(c_uint) -> c_int;
type Get2 = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type Get3 = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type GetBytes = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Release = unsafe extern "C" fn(c_int) -> c_int;
type Words = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

impl Driver {
    /// Loads the driver and starts it.
    ///
    /// # Errors
    /// It is not there, or says why it does not start.
    pub fn start() -> Result<Self, Unavailable> {
        let Some(library) = Library::first(NAMES) else {
            return Err(Unavailable::absent(
                "the NVIDIA driver (libcuda.so.1) is not installed or not visible here",
                "install it, and in a container ask for the GPU (`--gpus all`)",
            ));
        };
        let mut number = 0;
        let driver = Self { library };
        // SAFETY: the signatures of the driver's manual; the pointer is to an int.
        unsafe {
            driver.call::<Get1>(c"cuDriverGetVersion", |get| get(&raw mut number))?;
            driver.call::<Start>(c"cuInit", |start| start(0))?;
        }
        if number < VERSION_MIN {
            return Err(Unavailable::unusable(
                format!("the NVIDIA driver is of CUDA {}.{}", number / 1000, number % 1000 / 10),
                "update it: CUDA 12.0 or newer is needed, which is driver 525",
            ));
        }
        Ok(driver)
    }

    /// Calls a function by name.
    ///
    /// # Safety
    /// As for [`Library::function`].
    unsafe fn call<F: Copy>(&self, name: &CStr, call: impl FnOnce(F) -> c_int) -> Result<(), Unavailable> {
        // SAFETY: the caller's promise.
        let function = unsafe { self.library.function::<F>(name) };
        let shown = name.to_string_lossy();
        let Some(function) = function else {
            let what = format!("the NVIDIA driver has no {shown}");
            return Err(Unavailable::unusable(what, "update the driver: CUDA 12.0 or newer is needed"));
        };
        match call(function) {
            0 => Ok(()),
            code => {
                let name = self.error(code);
                let cure = messages::meaning(&name).unwrap_or_default();
                Err(Unavailable::unusable(format!("the NVIDIA driver fails: {shown} gives {name} ({code})"), cure))
            }
        }
    }

    /// The name of an error: `CUDA_ERROR_SYSTEM_NOT_READY`.
    fn error(&self, code: c_int) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the signature of the driver's manual.
        let name = unsafe { self.library.function::<Words>(c"cuGetErrorName") };
        // SAFETY: it points to a pointer, which is set to a string that is never freed.
        let found = name.is_some_and(|name| unsafe { name(code, &raw mut text) } == 0);
        match found && !text.is_null() {
            // SAFETY: a C string, as above.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "CUDA_ERROR_UNKNOWN".into(),
        }
    }

    /// How many GPUs it counts, those that `CUDA_VISIBLE_DEVICES` hides left out.
    pub fn count(&self) -> Result<u32, Unavailable> {
        let mut count = 0;
        // SAFETY: the signature of the driver's manual; the pointer is to an int.
        unsafe { self.call::<Get1>(c"cuDeviceGetCount", |get| get(&raw mut count)) }?;
        Ok(u32::try_from(count).unwrap_or_default())
    }

    /// The compute capability of a GPU by CUDA's number, as 90 for 9.0.
    pub fn capability(&self, number: u32) -> Result<u32, Unavailable> {
        let device = self.device(number)?;
        let attribute = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: the signature of the driver's manual; the pointer is to an int.
            unsafe { self.call::<Get3>(c"cuDeviceGetAttribute", |get| get(&raw mut value, attribute, device)) }?;
            Ok(u32::try_from(value).unwrap_or_default())
        };
        Ok(attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?)
    }

    /// What a GPU is called and how many bytes it has, by CUDA's number.
    pub fn name_and_memory(&self, number: u32) -> Result<(String, u64), Unavailable> {
        let device = self.device(number)?;
        let mut name = [0; NAME_BYTES];
        let mut bytes = 0;
        // SAFETY: the signatures of the driver's manual; there is room for as many bytes as is said, with the zero.
        unsafe {
            let room = NAME_BYTES as c_int;
            self.call::<GetName>(c"cuDeviceGetName", |get| get(name.as_mut_ptr(), room, device))?;
            self.call::<GetBytes>(c"cuDeviceTotalMem_v2", |get| get(&raw mut bytes, device))?;
        }
        name[NAME_BYTES - 1] = 0;
        // SAFETY: it ends with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok((name, bytes as u64))
    }

    /// Whether a context opens on a GPU, by CUDA's number. It is closed again.
    pub fn opens(&self, number: u32) -> Result<(), Unavailable> {
        let device = self.device(number)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the signatures of the driver's manual; what was retained is released, and nothing used it.
        unsafe {
            self.call::<Retain>(c"cuDevicePrimaryCtxRetain", |retain| retain(&raw mut context, device)).map_err(
                |missing| match messages::cause(&missing.what) {
                    messages::Cause::OutOfMemory { .. } => Unavailable::unusable(
                        missing.what,
                        "the GPU's memory is full; `nvidia-smi` shows whose processes hold it",
                    ),
                    _ => missing,
                },
            )?;
            self.call::<Release>(c"cuDevicePrimaryCtxRelease_v2", |release| release(device))
        }
    }

    fn device(&self, number: u32) -> Result<c_int, Unavailable> {
        let mut device = 0;
        let number = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: the signature of the driver's manual; the pointer is to an int.
        unsafe { self.call::<Get2>(c"cuDeviceGet", |get| get(&raw mut device, number)) }?;
        Ok(device)
    }
}
