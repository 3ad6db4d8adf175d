//! The program xrun with an additional data set, model and pipeline.

mod perceptron;
mod regression;
mod table;

// Verdicts on memory need the heap in use, which this allocator counts.
xrun::count_heap!();

fn main() -> std::process::ExitCode {
    xrun::Program::new()
        .built_in()
        .dataset::<table::Table>()
        .model::<perceptron::Perceptron>()
        .pipeline::<regression::Regression>()
        .main()
}
