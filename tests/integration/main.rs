//! Drives the built binary, as a user would.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write samples and stop at what is wrong")]

#[cfg(feature = "train")]
mod backbones;
#[cfg(feature = "train")]
mod check_and_run;
mod checkouts;
mod claims;
#[cfg(feature = "train")]
mod classification;
#[cfg(target_os = "linux")]
mod command;
mod command_line;
mod comparison;
mod contract;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod cuda_absent;
mod damage;
mod data_check;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(all(feature = "train", target_os = "linux"))]
mod documents;
mod early_stopping;
mod evaluation;
#[cfg(feature = "train")]
mod evaluation_of_models;
mod experiments;
mod export;
mod federated;
mod fork;
mod fuzz;
mod habits;
mod hostile;
#[cfg(feature = "train")]
mod hugging_face;
mod interruption;
mod keep;
#[cfg(target_os = "linux")]
mod killed;
mod kinds;
#[cfg(target_os = "linux")]
mod ladder;
#[cfg(feature = "train")]
mod limits;
mod listing;
mod outcomes;
mod plan;
mod prediction;
#[cfg(feature = "train")]
mod prediction_of_models;
#[cfg(target_os = "linux")]
mod privacy;
#[cfg(feature = "train")]
mod quantised_training;
mod reference;
mod reference_manual;
mod removal;
mod reproduction;
mod schemas;
mod search;
mod search_slurm;
mod sweep;
mod sweep_kills;
mod sweep_memory;
mod sweep_slurm;
#[cfg(target_os = "linux")]
mod system_errors;
mod tensorboard;
#[cfg(target_os = "linux")]
mod terminal;
mod tidy;
#[cfg(feature = "train")]
mod tiny_runs;
#[cfg(target_os = "linux")]
mod top;
mod traces;
#[cfg(feature = "train")]
mod training;
mod training_verdict;
mod trust;
mod ui;
mod verdict;
mod verdict_habits;
mod vision_language;
#[cfg(target_os = "linux")]
mod warm_start;
mod watch;
#[cfg(target_os = "linux")]
mod watch_limits;
mod workplace;
