//! What is each file of a run directory called? The only place with these names.

use std::path::{Path, PathBuf};

/// The author's file, byte for byte.
pub const EXPERIMENT: &str = "experiment.toml";
/// The experiment with every value, itself runnable.
pub const RESOLVED: &str = "resolved.toml";
/// What ran, where, on what.
pub const MANIFEST: &str = "manifest.json";
/// What was to happen, and who may hold how much.
pub const PLAN: &str = "plan.json";
/// Training and validation numbers, a line each.
pub const METRICS: &str = "metrics.jsonl";
/// Memory samples, a line each.
pub const MEMORY: &str = "memory.jsonl";
/// Memory by epoch, for spreadsheets.
pub const MEMORY_EPOCHS: &str = "memory_epochs.csv";
/// The trace on a time line, for ui.perfetto.dev.
pub const PERFETTO: &str = "memory.perfetto.json";
/// Is memory growing, how fast, and who holds it?
pub const VERDICT: &str = "verdict.json";
/// A memory limit ended the run: who held what, and what would fit.
pub const POST_MORTEM: &str = "post_mortem.json";
/// What people wrote down of it.
pub const NOTES: &str = "notes.json";
/// The newest process, and what is needed to say who killed it.
pub const PROCESS: &str = "process.json";
/// By which xrun knows that this user created the folder, and that the programs that it names are those of then.
pub const CREATOR: &str = "creator.hmac";
/// What was said during the run.
pub const LOG: &str = "log.txt";
/// The page for people.
pub const REPORT: &str = "report.html";
/// Written last, by rename: its presence says that the run ended, its content how.
pub const SUMMARY: &str = "summary.json";
/// Weights, optimiser state, loop state.
pub const CHECKPOINTS: &str = "checkpoints";
/// Pictures of the last validation, with what was found drawn in.
pub const PICTURES: &str = "pictures";
/// Inside it: which pictures, and what they show.
pub const PICTURES_INDEX: &str = "index.json";
/// What the last validation found, in COCO's results form.
pub const DETECTIONS: &str = "detections.json";
/// What there was to find in it, in COCO's form.
pub const GROUND_TRUTH: &str = "ground_truth.json";
/// Tables for other tools, when asked for.
pub const EXPORT: &str = "export";
/// Event files of a run that TensorBoard shows while it goes on, when asked for.
pub const TENSORBOARD: &str = "tensorboard";
/// Held by the process that writes into the directory.
pub const LOCK: &str = "run.lock";
/// Room kept free on the disk for the last records; there only while a process writes into the directory.
pub const RESERVE: &str = ".reserve";
/// Below an experiment's folder: its sweeps.
pub const SWEEPS: &str = "sweeps";
/// Below an experiment's folder: runs that `xrun reproduce` made, apart so that `latest` and the experiment's name go on
/// to mean what was reproduced.
pub const REPRODUCTIONS: &str = "reproductions";
/// Of a sweep: what is swept, all points, and the order of the runs.
pub const SWEEP: &str = "sweep.toml";
/// Of a sweep: the experiment that its points are made of, with every value.
pub const BASE: &str = "base.toml";
/// Of a sweep: the folders of its runs, `0003-1` for the first repeat of the third point.
pub const POINTS: &str = "points";
/// Of a sweep of mode tpe: a line for each point that was chosen.
pub const PROPOSALS: &str = "proposals.jsonl";
/// Of a sweep: what each point needs, and what is asked for it.
pub const SWEEP_MEMORY: &str = "memory.toml";
/// Of a sweep: a line for each process that ended.
pub const PROCESSES: &str = "processes.jsonl";
/// Of a sweep: a row a point, for spreadsheets.
pub const TABLE_CSV: &str = "table.csv";
/// Of a sweep: a row a point with its runs, for programs.
pub const TABLE_JSON: &str = "table.json";
/// Of a sweep that Slurm runs: what was asked of it for each run.
pub const SLURM: &str = "slurm.toml";
/// Of a sweep that Slurm runs: the script of the job array.
pub const SLURM_SCRIPT: &str = "slurm.sh";
/// Of a sweep that Slurm runs: what the jobs said before xrun began.
pub const SLURM_SAID: &str = "slurm";
/// Points at the newest run of an experiment.
pub const LATEST: &str = "latest";

/// Below `results/`: committed results, a folder an experiment, found as `reference/<experiment>`.
pub const REFERENCE: &str = "reference";
/// Of a run that `xrun reproduce` made: what it was compared with, and what differed.
pub const REPRODUCTION: &str = "reproduction.json";

/// Checkpoints that `xrun eval` validated once more, a folder each time.
pub const EVALUATIONS: &str = "evaluations";
/// Inside one: on what, and what came of it.
pub const EVALUATION: &str = "evaluation.json";

/// What `xrun predict` answered about files, a folder each time.
pub const PREDICTIONS: &str = "predictions";
/// Inside one: an answer a line.
pub const ANSWERS: &str = "predictions.jsonl";
/// Inside one: which checkpoint answered, and about how much. Written last.
pub const PREDICTION: &str = "prediction.json";

/// Inside a checkpoint: weights in safetensors.
pub const WEIGHTS: &str = "model.safetensors";
/// Inside a checkpoint: the optimiser's running values.
pub const OPTIMIZER: &str = "optimizer.bpk";
/// Inside a checkpoint: where the loop stood. Written last; its presence says that the checkpoint is whole.
pub const LOOP_STATE: &str = "state.json";

/// `checkpoints/step_00000100`.
pub fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join(CHECKPOINTS).join(format!("step_{step:08}"))
}

/// The step in a checkpoint folder's name.
pub fn checkpoint_step(name: &str) -> Option<u64> {
    name.strip_prefix("step_")?.parse().ok()
}
