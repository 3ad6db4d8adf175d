//! Program: its kinds of pipelines, models and data sets, and its entry point.
//!
//! A program with everything of xrun and an additional pipeline:
//!
//! ```no_run
//! # use xrun::pipelines::dummy::settings::Dummy as Mine;
//! xrun::count_heap!();
//!
//! fn main() -> std::process::ExitCode {
//!     xrun::Program::new().built_in().pipeline::<Mine>().main()
//! }
//! ```
//!
//! A program with its own command line must register its kinds first. This one forecasts the memory of an experiment, for which
//! it is started a second time:
//!
//! ```standalone_crate
//! use xrun::run::{observer::Silent, prepare::Planned};
//! use xrun::{Program, experiment::read};
//!
//! xrun::count_heap!();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     Program::new().built_in().register();
//!     let directory = tempfile::tempdir()?;
//!     let file = directory.path().join("quick.toml");
//!     std::fs::write(&file, "[pipeline.dummy]\n[training]\nmax_steps = 20\n")?;
//!     let experiment = read::read(&file, &[], std::iter::empty()).map_err(|_| "invalid experiment")?.experiment;
//!     let probe = Planned::new(experiment, Silent)?.measure(&file, &[])?;
//!     println!("{:?}", probe.demand);
//!     Ok(())
//! }
//! ```

use std::process::ExitCode;

use crate::backend::visible::{ORDER_BY_BUS, ORDER_VARIABLE};
use crate::backend::{Burn, TOOLKIT_VARIABLE, cuda};
use crate::dataset::kind::{Dataset, DatasetKind};
use crate::exit::EXIT_OUT_OF_MEMORY;
use crate::experiment::pipeline::{Model, ModelKind, Pipeline, PipelineKind};
use crate::heap;
use crate::results::build_info::{self, BuildInfo, register_foreign_kinds};
use crate::{child, cli, device, invocation};

/// Program with the kinds that were added, each in place of an earlier one with the same name. They must be added before an
/// experiment or its schema is read.
#[derive(Debug, Default)]
pub struct Program {
    /// True if kinds of other crates were added.
    has_external_kinds: bool,
}

impl Program {
    /// Creates a program without kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the built-in kinds of xrun. This is the only list of its pipelines.
    pub fn built_in(self) -> Self {
        xrun_fewshot_detection::register_kinds();
        xrun_qat_language_model::register_kinds();
        xrun_federated_adapters::register_kinds();
        xrun_vision_language::register_kinds();
        xrun_image_classification::register_kinds();
        crate::pipelines::register_kinds();
        crate::data::register_kinds();
        self
    }

    /// Adds a pipeline.
    pub fn pipeline<P: PipelineKind>(self) -> Self {
        Pipeline::register::<P>();
        Self { has_external_kinds: true }
    }

    /// Adds a model.
    pub fn model<M: ModelKind>(self) -> Self {
        Model::register::<M>();
        Self { has_external_kinds: true }
    }

    /// Adds a data set.
    pub fn dataset<D: DatasetKind>(self) -> Self {
        Dataset::register::<D>();
        Self { has_external_kinds: true }
    }

    /// Completes the registration in this process, for a program with its own command line. Must be called before the program
    /// reads its command line or an experiment.
    ///
    /// Forecasts and sweeps start the program again with xrun's command line. In such a process this function runs it and does
    /// not return.
    pub fn register(self) {
        build_info::register(BUILT);
        if self.has_external_kinds {
            register_foreign_kinds();
        }
        device::register(&Burn);
        if child::is_child_of_this_program() {
            std::process::exit(i32::from(cli::run_from_args()));
        }
    }

    /// Runs xrun's command line and returns the exit code. Must be called first in `main`.
    ///
    /// # Panics
    /// If another thread is running, because environment variables are set for the GPU driver; or if the program does not count
    /// its heap ([`count_heap!`](crate::count_heap)), because then every verdict would be that memory is bounded.
    pub fn main(self) -> ExitCode {
        let alone = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) == 1;
        assert!(alone, "`Program::main` was called after a thread was started");
        // SAFETY: no other thread is running that could read the environment.
        unsafe { prepare_environment() };
        assert!(heap::is_counted(), "this program does not count its heap: add `xrun::count_heap!();` to its main.rs");
        heap::retain_free_pages();
        heap::exit_on_allocation_failure(EXIT_OUT_OF_MEMORY, OUT_OF_MEMORY);
        invocation::set_program_name(&std::env::args_os().next().unwrap_or_default());
        self.register();
        cli::main()
    }
}

/// Facts about the build of xrun, from its build script.
const BUILT: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    source_digest: env!("XRUN_SOURCE_DIGEST"),
    commit: env!("XRUN_BUILT_COMMIT"),
    with_changes: env!("XRUN_BUILT_WITH_CHANGES"),
    lock_file: include_str!("../Cargo.lock"),
    features: &[
        ("train", cfg!(feature = "train")),
        ("cuda", cfg!(feature = "cuda")),
        ("vulkan", cfg!(feature = "vulkan")),
    ],
};

/// Message of a program whose heap allocation failed.
const OUT_OF_MEMORY: &str = "error: out of memory: the system refused an allocation (`ulimit -v`, or memory and swap are full); \
    results written so far are intact. `xrun resume` continues from the last checkpoint, with more memory or a smaller \
    `training.batch_size`\n";

/// Sets environment variables unless they are set: one that numbers GPUs as `nvidia-smi` does, and in a build for NVIDIA GPUs one that
/// names a CUDA toolkit. A program that trains on a GPU without [`Program::main`] must call it first.
///
/// # Safety
/// No other thread may be running, since it could read the environment.
pub unsafe fn prepare_environment() {
    if std::env::var_os(ORDER_VARIABLE).is_none() {
        // SAFETY: guaranteed by the caller.
        unsafe { std::env::set_var(ORDER_VARIABLE, ORDER_BY_BUS) };
    }
    if std::env::var_os(TOOLKIT_VARIABLE).is_none()
        && let Some(toolkit) = cuda::toolkit()
    {
        // SAFETY: guaranteed by the caller.
        unsafe { std::env::set_var(TOOLKIT_VARIABLE, toolkit) };
    }
}
