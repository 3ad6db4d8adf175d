//! Names that the declaration of each pipeline and model uses.

pub use xrun_core::bounded::ledger::Ledger;
pub use xrun_core::dataset::error::{DataError, InvalidItems};
pub use xrun_core::dataset::open_dataset::SampleType;
pub use xrun_core::experiment::Experiment;
pub use xrun_core::experiment::inspect::{InspectedData, Inspection};
pub use xrun_core::experiment::pipeline::{ModelKind, Opening, PipelineFacts, PipelineKind, Prepared, PytorchModule};
pub use xrun_core::problem::Problems;
pub use xrun_core::settings::sections::MICRO_BATCH_SIZE;
pub use xrun_core::settings::variant::{Kind, Paths};
pub use xrun_core::task::{Task, TaskError, TaskFacts};

/// Opens the prepared state of a pipeline by the `open` of its module `training`, which needs Burn.
macro_rules! opened_by_training {
    ($prepared:ty) => {
        #[cfg(not(feature = "train"))]
        use crate::without_burn::open;
        #[cfg(feature = "train")]
        use training::open;

        impl Prepared for $prepared {
            fn open(self: Box<Self>, opening: Opening<'_>) -> Result<Box<dyn Task>, TaskError> {
                Ok(Box::new(open(*self, opening)?))
            }
        }
    };
}

pub(crate) use opened_by_training;
