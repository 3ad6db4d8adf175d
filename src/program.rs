//! The program: its kinds of pipelines, models and data sets, and what happens when it is called.
//!
//! A program of one's own that has everything of xrun and a pipeline more:
//!
//! ```no_run
//! # use xrun::pipelines::dummy::Dummy as Mine;
//! xrun::count_heap!();
//!
//! fn main() -> std::process::ExitCode {
//!     xrun::Program::new().built_in().pipeline::<Mine>().main()
//! }
//! ```
//!
//! One with a command line of its own registers its kinds first of all. Here it forecasts what an experiment needs, for
//! which it is started once more:
//!
//! ```standalone_crate
//! use xrun::probe;
//! use xrun::{Program, experiment::read};
//!
//! xrun::count_heap!();
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     Program::new().built_in().register();
//!     let folder = tempfile::tempdir()?;
//!     let file = folder.path().join("quick.toml");
//!     std::fs::write(&file, "[pipeline.dummy]\n[training]\nmax_steps = 20\n")?;
//!     let experiment = read::read(&file, &[], std::iter::empty()).map_err(|_| "it is written wrong")?.experiment;
//!     let probe = probe::probe(&file, &[], &experiment, 8, &|| false)?;
//!     println!("{:?}", probe.demand);
//!     Ok(())
//! }
//! ```

use std::process::ExitCode;

use crate::backend::Burn;
use crate::backend::visible::{ORDER_BY_BUS, ORDER_VARIABLE};
use crate::dataset::kind::DatasetKind;
use crate::experiment::kinds::Kinds;
use crate::experiment::pipeline::{ModelKind, PipelineKind};
use crate::heap;
use crate::results::built::{self, Built, has_other_kinds};
use crate::stop::EXIT_OUT_OF_MEMORY;
use crate::{child, cli, device, invocation};

/// What a program knows. A kind of a name that is there already takes its place.
#[derive(Debug, Default)]
pub struct Program {
    kinds: Kinds,
    /// Kinds of other crates are among them.
    others: bool,
}

impl Program {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the kinds that xrun itself brings.
    pub fn built_in(self) -> Self {
        Self { kinds: self.kinds.and(xrun_pipelines::kinds()), ..self }
    }

    /// Adds a pipeline.
    pub fn pipeline<P: PipelineKind>(self) -> Self {
        Self { kinds: self.kinds.pipeline::<P>(), others: true }
    }

    /// Adds a model.
    pub fn model<M: ModelKind>(self) -> Self {
        Self { kinds: self.kinds.model::<M>(), others: true }
    }

    /// Adds a data set.
    pub fn dataset<D: DatasetKind>(self) -> Self {
        Self { kinds: self.kinds.dataset::<D>(), others: true }
    }

    /// Makes the kinds known to whatever reads experiments in this process. Before the first is read, and before the program
    /// reads a command line of its own; for use without xrun's.
    ///
    /// A forecast and a sweep start the program again. That process answers xrun's command line here, and ends.
    ///
    /// # Panics
    /// When an experiment or its schema was read before, and one of the kinds was not known then.
    pub fn register(self) {
        built::register(BUILT);
        if self.others {
            has_other_kinds();
        }
        self.kinds.register();
        device::register(&Burn);
        if child::is_child_of_this_program() {
            std::process::exit(i32::from(cli::answer()));
        }
    }

    /// Reads the command line, does what it says, and answers with the exit code. To be called first in `main`.
    ///
    /// # Panics
    /// When another thread runs: variables of the environment are set for the GPU's driver and for CubeCL. And when the program
    /// does not count its heap ([`count_heap!`](crate::count_heap)): every verdict would be that memory is bounded.
    pub fn main(self) -> ExitCode {
        let alone = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) == 1;
        assert!(alone, "`Program::main` was called after a thread was started");
        // SAFETY: no other thread runs that could read the environment.
        unsafe { prepare_environment() };
        assert!(
            heap::is_counted(),
            "this program does not count its heap: put `xrun::count_heap!();` into its main.rs"
        );
        heap::keep_free_pages();
        heap::end_where_refused(EXIT_OUT_OF_MEMORY, REFUSED);
        invocation::is_called(&std::env::args_os().next().unwrap_or_default());
        self.register();
        cli::main()
    }
}

/// How xrun was built; its build script knows the sources.
const BUILT: Built = Built {
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

/// Said by a program for which the system has no memory.
const REFUSED: &str = "error: out of memory: the system gave no more (`ulimit -v`, or no room in memory and swap); what was written so \
    far is whole. With more memory, or a smaller `training.batch_size`, `xrun resume` goes on with a run from its last checkpoint\n";

/// Sets the variable that numbers GPUs as `nvidia-smi` does, unless it is set. A
/// program that trains on a GPU without [`Program::main`] calls it first of all.
///
/// # Safety
/// No other thread may run: it could read the environment.
pub unsafe fn prepare_environment() {
    if std::env::var_os(ORDER_VARIABLE).is_none() {
        // SAFETY: as the caller promised.
        unsafe { std::env::set_var(ORDER_VARIABLE, ORDER_BY_BUS) };
    }
}
