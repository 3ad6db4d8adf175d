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

use std::process::ExitCode;

use crate::data::kind::{self, AnyDataset, DatasetKind};
use crate::data::question_answers::QuestionAnswers;
use crate::data::reference_video::ReferenceVideo;
use crate::device::visible::{ORDER_BY_BUS, ORDER_VARIABLE};
use crate::experiment::pipeline::{AnyModel, AnyPipeline, ModelKind, PipelineKind, any_model, any_pipeline};
use crate::pipelines::dummy::Dummy;
use crate::pipelines::fewshot_detection::{FewshotDetection, ReferenceDetector};
use crate::pipelines::qat_language_model::{Gpt2, QatLanguageModel};
use crate::settings::chosen::Family;
use crate::{cli, data, device};

/// What a program knows. A kind of a name that is there already takes its place.
#[derive(Default)]
pub struct Program {
    pipelines: Vec<&'static dyn AnyPipeline>,
    models: Vec<&'static dyn AnyModel>,
    datasets: Vec<&'static dyn AnyDataset>,
}

impl Program {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What xrun itself brings. One line for each kind, and no other place lists them.
    pub fn built_in(self) -> Self {
        self.pipeline::<FewshotDetection>()
            .pipeline::<QatLanguageModel>()
            .pipeline::<Dummy>()
            .model::<ReferenceDetector>()
            .model::<Gpt2>()
            .dataset::<ReferenceVideo>()
            .dataset::<QuestionAnswers>()
    }

    /// Adds a pipeline.
    pub fn pipeline<P: PipelineKind>(mut self) -> Self {
        self.pipelines.push(any_pipeline::<P>());
        self
    }

    /// Adds a model.
    pub fn model<M: ModelKind>(mut self) -> Self {
        self.models.push(any_model::<M>());
        self
    }

    /// Adds a data set.
    pub fn dataset<D: DatasetKind>(mut self) -> Self {
        self.datasets.push(kind::any::<D>());
        self
    }

    /// Makes the kinds known to whatever reads experiments in this process. Before the first is read; for use without the
    /// command line.
    ///
    /// # Panics
    /// When an experiment or its schema was read before, and one of the kinds was not known then.
    pub fn register(self) {
        self.pipelines.into_iter().for_each(|kind| <dyn AnyPipeline>::registered().add(kind));
        self.models.into_iter().for_each(|kind| <dyn AnyModel>::registered().add(kind));
        self.datasets.into_iter().for_each(|kind| <dyn AnyDataset>::registered().add(kind));
    }

    /// Reads the command line, does what it says, and answers with the exit code. To be called first in `main`, before a
    /// thread is started: variables of the environment are set for the backend.
    pub fn main(self) -> ExitCode {
        if std::env::var_os(ORDER_VARIABLE).is_none() {
            // SAFETY: no other thread runs yet that could read the environment.
            unsafe { std::env::set_var(ORDER_VARIABLE, ORDER_BY_BUS) };
        }
        // For CubeCL, which looks nowhere else.
        if let Some(toolkit) = device::toolkit_of_environment(data::cache::folder) {
            // SAFETY: as above.
            unsafe { std::env::set_var(device::toolkit::ROOT_VARIABLE, toolkit) };
        }
        self.register();
        cli::main()
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.pipelines.iter().map(|kind| kind.name()).collect();
        write!(formatter, "Program of {}", names.join(", "))
    }
}
