//! xrun with its own pipelines.

fn main() -> std::process::ExitCode {
    xrun::Program::new().built_in().main()
}
