//! The exit code of the library's answer.

fn main() -> std::process::ExitCode {
    xrun::cli::main()
}
