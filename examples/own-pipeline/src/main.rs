//! xrun with a data set, a model and a pipeline of its own.

mod perceptron;
mod regression;
mod table;

// Verdicts on memory rest on what this counts.
xrun::count_heap!();

fn main() -> std::process::ExitCode {
    xrun::Program::new()
        .built_in()
        .dataset::<table::Table>()
        .model::<perceptron::Perceptron>()
        .pipeline::<regression::Regression>()
        .main()
}
