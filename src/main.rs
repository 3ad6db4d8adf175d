//! The exit code of the library's answer.

use xrun::device::visible::{ORDER_BY_BUS, ORDER_VARIABLE};

fn main() -> std::process::ExitCode {
    if std::env::var_os(ORDER_VARIABLE).is_none() {
        // SAFETY: no other thread runs yet that could read the environment.
        unsafe { std::env::set_var(ORDER_VARIABLE, ORDER_BY_BUS) };
    }
    xrun::cli::main()
}
