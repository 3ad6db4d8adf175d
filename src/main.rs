//! Program `xrun` with the built-in pipelines.

xrun::count_heap!();

fn main() -> std::process::ExitCode {
    xrun::Program::new().built_in().main()
}
