//! The program: its kinds of pipelines, models and data sets, and what happens when it is called.
//!
//! A program of one's own that has everything of xrun and a pipeline more:
//!
//! ```no_run
//! # use xrun::pipelines::dummy::Dummy as Mine;
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
use crate::data::image_text::ImageText;
use crate::data::kind::{self, AnyDataset, DatasetKind};
use crate::data::question_answers::QuestionAnswers;
use crate::data::reference_video::ReferenceVideo;
use crate::data::sound_clips::SoundClips;
use crate::experiment::pipeline::{AnyModel, AnyPipeline, ModelKind, PipelineKind, any_model, any_pipeline};
use crate::heap;
use crate::pipelines::command::Command;
use crate::pipelines::dummy::Dummy;
use crate::pipelines::federated_adapters::{AudioAdapters, FederatedAdapters};
use crate::pipelines::fewshot_detection::{FewshotDetection, ReferenceDetector};
use crate::pipelines::qat_language_model::{Gpt2, QatLanguageModel};
use crate::pipelines::vision_language::{VisionLanguage, VisionLanguageModel};
use crate::run::fingerprint::has_other_kinds;
use crate::run::stop::EXIT_OUT_OF_MEMORY;
use crate::settings::chosen::Family;
use crate::{child, cli, device, invocation};

/// What a program knows. A kind of a name that is there already takes its place.
#[derive(Default)]
pub struct Program {
    pipelines: Vec<&'static dyn AnyPipeline>,
    models: Vec<&'static dyn AnyModel>,
    datasets: Vec<&'static dyn AnyDataset>,
    /// Kinds of other crates are among them.
    others: bool,
}

impl Program {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What xrun itself brings. One line for each kind, and no other place lists them.
    pub fn built_in(self) -> Self {
        let others = self.others;
        let all = self
            .pipeline::<FewshotDetection>()
            .pipeline::<QatLanguageModel>()
            .pipeline::<FederatedAdapters>()
            .pipeline::<VisionLanguage>()
            .pipeline::<Command>()
            .pipeline::<Dummy>()
            .model::<ReferenceDetector>()
            .model::<Gpt2>()
            .model::<AudioAdapters>()
            .model::<VisionLanguageModel>()
            .dataset::<ReferenceVideo>()
            .dataset::<QuestionAnswers>()
            .dataset::<SoundClips>()
            .dataset::<ImageText>();
        Self { others, ..all }
    }

    /// Adds a pipeline.
    pub fn pipeline<P: PipelineKind>(mut self) -> Self {
        self.pipelines.push(any_pipeline::<P>());
        self.others = true;
        self
    }

    /// Adds a model.
    pub fn model<M: ModelKind>(mut self) -> Self {
        self.models.push(any_model::<M>());
        self.others = true;
        self
    }

    /// Adds a data set.
    pub fn dataset<D: DatasetKind>(mut self) -> Self {
        self.datasets.push(kind::any::<D>());
        self.others = true;
        self
    }

    /// Makes the kinds known to whatever reads experiments in this process. Before the first is read, and before the program
    /// reads a command line of its own; for use without xrun's.
    ///
    /// A forecast and a sweep start the program again. That process answers xrun's command line here, and ends.
    ///
    /// # Panics
    /// When an experiment or its schema was read before, and one of the kinds was not known then.
    pub fn register(self) {
        if self.others {
            has_other_kinds();
        }
        self.pipelines.into_iter().for_each(|kind| <dyn AnyPipeline>::registered().add(kind));
        self.models.into_iter().for_each(|kind| <dyn AnyModel>::registered().add(kind));
        self.datasets.into_iter().for_each(|kind| <dyn AnyDataset>::registered().add(kind));
        device::register(&Burn);
        if child::is_of_this_program() {
            std::process::exit(i32::from(cli::answer()));
        }
    }

    /// Reads the command line, does what it says, and answers with the exit code. To be called first in `main`.
    ///
    /// # Panics
    /// When another thread runs: variables of the environment are set for the GPU's driver and for CubeCL.
    pub fn main(self) -> ExitCode {
        let alone = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) == 1;
        assert!(alone, "`Program::main` was called after a thread was started");
        // SAFETY: no other thread runs that could read the environment.
        unsafe { prepare_environment() };
        heap::keep_free_pages();
        heap::end_where_refused(EXIT_OUT_OF_MEMORY, REFUSED);
        invocation::is_called(&std::env::args_os().next().unwrap_or_default());
        self.register();
        cli::main()
    }
}

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

impl std::fmt::Debug for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.pipelines.iter().map(|kind| kind.name()).collect();
        write!(formatter, "Program of {}", names.join(", "))
    }
}
