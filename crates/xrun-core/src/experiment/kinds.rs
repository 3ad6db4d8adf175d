//! Registration of the pipelines, models and data sets of a program.

use super::pipeline::{ModelKind, PipelineKind};
use crate::dataset::kind::DatasetKind;
use crate::settings::variant::{Kind, Section};

/// List of kinds to register. A later kind replaces an earlier one of the same name.
#[derive(Default)]
pub struct Kinds {
    pipelines: Vec<&'static Kind<dyn PipelineKind>>,
    models: Vec<&'static Kind<dyn ModelKind>>,
    datasets: Vec<&'static Kind<dyn DatasetKind>>,
}

impl Kinds {
    /// Adds a pipeline.
    pub fn pipeline<P: PipelineKind>(mut self) -> Self {
        self.pipelines.push(P::kind());
        self
    }

    /// Adds a model.
    pub fn model<M: ModelKind>(mut self) -> Self {
        self.models.push(M::kind());
        self
    }

    /// Adds a data set.
    pub fn dataset<D: DatasetKind>(mut self) -> Self {
        self.datasets.push(D::kind());
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
        self.pipelines.into_iter().for_each(|kind| <dyn PipelineKind>::registry().add(kind));
        self.models.into_iter().for_each(|kind| <dyn ModelKind>::registry().add(kind));
        self.datasets.into_iter().for_each(|kind| <dyn DatasetKind>::registry().add(kind));
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.pipelines.iter().map(|kind| kind.name)).finish()
    }
}
