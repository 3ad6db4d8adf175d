//! Registration of the pipelines, models and data sets of a program.

use super::pipeline::{AnyModel, AnyPipeline, ModelKind, PipelineKind, any_model, any_pipeline};
use crate::dataset::kind::{self, AnyDataset, DatasetKind};
use crate::settings::variant::RegisteredKind;

/// List of kinds to register. A later kind replaces an earlier one of the same name.
#[derive(Default)]
pub struct Kinds {
    pipelines: Vec<&'static dyn AnyPipeline>,
    models: Vec<&'static dyn AnyModel>,
    datasets: Vec<&'static dyn AnyDataset>,
}

impl Kinds {
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

    /// Appends other kinds.
    pub fn and(mut self, others: Self) -> Self {
        self.pipelines.extend(others.pipelines);
        self.models.extend(others.models);
        self.datasets.extend(others.datasets);
        self
    }

    /// Registers the kinds for this process. Must be called before the first experiment is read.
    ///
    /// # Panics
    /// If an experiment or its schema was read before, and one of the kinds is new.
    pub fn register(self) {
        self.pipelines.into_iter().for_each(|kind| <dyn AnyPipeline>::registry().add(kind));
        self.models.into_iter().for_each(|kind| <dyn AnyModel>::registry().add(kind));
        self.datasets.into_iter().for_each(|kind| <dyn AnyDataset>::registry().add(kind));
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.pipelines.iter().map(|kind| kind.name())).finish()
    }
}
