//! Names that the declaration of each pipeline and model uses.

pub use xrun_core::bounded::ledger::Ledger;
pub use xrun_core::dataset::error::{DataError, InvalidItems};
pub use xrun_core::dataset::open_dataset::SampleType;
pub use xrun_core::experiment::Experiment;
pub use xrun_core::experiment::pipeline::{InspectedData, Inspection};
pub use xrun_core::experiment::pipeline::{ModelKind, Opening, PipelineFacts, PipelineKind, Prepared, PytorchModule};
pub use xrun_core::problem::Problems;
pub use xrun_core::settings::backbone::BackboneUse;
pub use xrun_core::settings::rung::{DATA_AND_MICRO_BATCH, Rung};
pub use xrun_core::settings::sections::MICRO_BATCH_SIZE;
pub use xrun_core::settings::variant::{Kind, Paths};
pub use xrun_core::task::{Task, TaskError, TaskFacts};

pub use crate::pipeline_crate;

/// Completes the crate of a pipeline: `register_kinds`, [`Prepared`] by `open` of its module `training`, which needs Burn, and each model
/// by its name, what it does with a backbone, its check and its keys that are paths: `Gpt2: "gpt2", None, check_model, [weights];`. The
/// crate has the feature `train`.
#[macro_export]
macro_rules! pipeline_crate {
    ($pipeline:ty, $prepared:ty, $($model:ty: $name:expr, $backbone:ident, $check:expr, [$($path:ident),*];)+) => {
        /// Registers the pipeline and the models of this crate.
        pub fn register_kinds() {
            xrun_core::experiment::pipeline::Pipeline::register::<$pipeline>();
            $(xrun_core::experiment::pipeline::Model::register::<$model>();)+
        }

        $(impl $crate::declaration::ModelKind for $model {
            fn kind() -> &'static $crate::declaration::Kind<dyn $crate::declaration::ModelKind> {
                const {
                    let backbone = $crate::declaration::BackboneUse::$backbone;
                    &$crate::declaration::Kind::<dyn $crate::declaration::ModelKind>::new::<Self>($name, backbone)
                }
            }

            fn check(&self, problems: &mut $crate::declaration::Problems) {
                $check(self, problems);
            }

            fn paths(&mut self) -> $crate::declaration::Paths<'_> {
                vec![$((stringify!($path), &mut self.$path)),*]
            }
        })+

        #[cfg(feature = "train")]
        use training::open;
        #[cfg(not(feature = "train"))]
        use $crate::without_burn::open;

        impl Prepared for $prepared {
            fn open(self: Box<Self>, opening: Opening<'_>) -> Result<Box<dyn Task>, TaskError> {
                Ok(Box::new(open(*self, opening)?))
            }
        }

        /// Registers kinds for experiments of unit tests.
        #[cfg(test)]
        #[ctor::ctor(unsafe)]
        fn register() {
            register_kinds();
            xrun_core::pipelines::register_kinds();
            xrun_data::register_kinds();
        }

        #[cfg(test)]
        xrun_core::count_heap!();
    };
}
