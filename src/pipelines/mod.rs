//! Pipelines that xrun has, each in its folder. `src/program.rs` lists them; `docs/add-a-pipeline.md` goes through adding one.

pub mod command;
pub mod dummy;
pub mod federated_adapters;
pub mod fewshot_detection;
pub mod leaks;
pub mod qat_language_model;
pub mod vision_language;
#[cfg(not(feature = "train"))]
mod without_burn;
