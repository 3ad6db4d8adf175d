//! The exit code of the library's answer.

use xrun::device::visible::{ORDER_BY_BUS, ORDER_VARIABLE};

fn main() -> std::process::ExitCode {
    if std::env::var_os(ORDER_VARIABLE).is_none() {
        // SAFETY: no other thread runs yet that could read the environment.
        unsafe { std::env::set_var(ORDER_VARIABLE, ORDER_BY_BUS) };
    }
    // For CubeCL, which looks nowhere else.
    if let Some(toolkit) = xrun::device::toolkit_of_environment(xrun::data::cache::folder) {
        // SAFETY: as above.
        unsafe { std::env::set_var(xrun::device::toolkit::ROOT_VARIABLE, toolkit) };
    }
    xrun::cli::main()
}
