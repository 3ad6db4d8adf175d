//! Names of the files and directories of a run, a sweep and a checkpoint.

use std::path::{Path, PathBuf};

/// The user's experiment file, byte for byte.
pub const EXPERIMENT: &str = "experiment.toml";
/// The experiment with all values, itself a runnable file.
pub const RESOLVED: &str = "resolved.toml";
/// Program, machine, data and command of the run.
pub const MANIFEST: &str = "manifest.json";
/// Planned steps, and the buffers with their caps.
pub const PLAN: &str = "plan.json";
/// Training and validation records, one per line.
pub const METRICS: &str = "metrics.jsonl";
/// Memory samples, one per line.
pub const MEMORY: &str = "memory.jsonl";
/// Verdict on memory growth.
pub const VERDICT: &str = "verdict.json";
/// Functions whose allocations stay alive, if growth of the heap was suspected.
pub const ALLOCATIONS: &str = "allocations.json";
/// Contents of the buffers, and settings that would fit, when a memory limit ended the run.
pub const POST_MORTEM: &str = "post_mortem.json";
/// Line and holder of the growth of a watched Python program.
pub const EXPLANATION: &str = "explanation.json";
/// Notes and tags of the user.
pub const NOTES: &str = "notes.json";
/// Latest process, with the data needed to find out what killed it.
pub const PROCESS: &str = "process.json";
/// Proof that this user created the directory and that the programs named in it are unchanged (HMAC).
pub const CREATOR: &str = "creator.hmac";
/// Messages of the run.
pub const LOG: &str = "log.txt";
/// Report as an HTML page.
pub const REPORT: &str = "report.html";
/// Outcome of the run. Written last: its presence means that the run has ended.
pub const SUMMARY: &str = "summary.json";
/// Directory of the checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// Directory of the images of the last validation, with the predictions drawn in.
pub const IMAGES: &str = "images";
/// Inside it: list of the images with their captions.
pub const IMAGES_INDEX: &str = "index.json";
/// Results of the last validation by class.
pub const CLASSES: &str = "classes.json";
/// Detections of the last validation, in COCO's results format.
pub const DETECTIONS: &str = "detections.json";
/// Ground truth of the last validation, in COCO's format.
pub const GROUND_TRUTH: &str = "ground_truth.json";
/// Directory of `xrun export`.
pub const EXPORT: &str = "export";
/// Directory of TensorBoard event files.
pub const TENSORBOARD: &str = "tensorboard";
/// Lock of the process that writes into the directory.
pub const LOCK: &str = "run.lock";
/// Disk space reserved for the last records; exists only while a process writes into the directory.
pub const DISK_RESERVE: &str = ".reserve";
/// Below an experiment's directory: its sweeps.
pub const SWEEPS: &str = "sweeps";
/// Below an experiment's directory: runs of `xrun reproduce`, kept apart so that `latest` still names the original.
pub const REPRODUCTIONS: &str = "reproductions";
/// In a sweep: axes, trials, and the order of the runs.
pub const SWEEP: &str = "sweep.toml";
/// In a sweep: the experiment that the trials vary, with all values.
pub const BASE: &str = "base.toml";
/// In a sweep: directories of the runs; `0003-1` is the first repeat of the third trial.
pub const TRIALS: &str = "trials";
/// In a sweep: directories of interrupted runs that could not be resumed and were started again.
pub const INTERRUPTED: &str = "interrupted";
/// In a sweep of method `tpe`: one line per proposed trial.
pub const PROPOSALS: &str = "proposals.jsonl";
/// In a sweep: memory needs and requests of each trial.
pub const SWEEP_MEMORY: &str = "memory.toml";
/// In a sweep: one line per ended process.
pub const PROCESSES: &str = "processes.jsonl";
/// In a sweep: one row per trial, as CSV.
pub const TABLE_CSV: &str = "table.csv";
/// In a sweep: one entry per trial with its runs, as JSON.
pub const TABLE_JSON: &str = "table.json";
/// In a sweep on Slurm: resources requested for each run.
pub const SLURM: &str = "slurm.toml";
/// In a sweep on Slurm: script of the job array.
pub const SLURM_SCRIPT: &str = "slurm.sh";
/// In a sweep on Slurm: output of the jobs before xrun started.
pub const SLURM_OUTPUT: &str = "slurm";
/// Symlink to the newest run of an experiment.
pub const LATEST: &str = "latest";

/// Below `results/`: names of the runs of each experiment that has very many.
pub const INDEX: &str = ".index";
/// Below `results/`: committed results, one directory per experiment, addressed as `reference/<experiment>`.
pub const REFERENCE: &str = "reference";
/// In a run of `xrun reproduce`: the comparison with the original.
pub const REPRODUCTION: &str = "reproduction.json";

/// Directory of `xrun eval`, with one directory per evaluation.
pub const EVALUATIONS: &str = "evaluations";
/// Inside an evaluation: its inputs and metrics.
pub const EVALUATION: &str = "evaluation.json";

/// Directory of `xrun predict`, with one directory per call.
pub const PREDICTIONS: &str = "predictions";
/// Inside a call: one answer per line.
pub const ANSWERS: &str = "predictions.jsonl";
/// Inside a call: the checkpoint and the number of answers. Written last.
pub const PREDICTION: &str = "prediction.json";

/// Beside the checkpoints: prefix of one that a resume found damaged, which only the user removes.
pub const DAMAGED: &str = ".damaged-";
/// Inside a checkpoint: weights in safetensors.
pub const WEIGHTS: &str = "model.safetensors";
/// Inside a checkpoint: state of the optimiser.
pub const OPTIMIZER: &str = "optimizer.bpk";
/// Inside a checkpoint: state of the training loop. Written last: its presence means that the checkpoint is complete.
pub const LOOP_STATE: &str = "state.json";

/// Path of a checkpoint: `checkpoints/step_00000100`.
pub fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join(CHECKPOINTS).join(format!("step_{step:08}"))
}

/// Step in the name of a checkpoint's directory.
pub fn checkpoint_step(name: &str) -> Option<u64> {
    name.strip_prefix("step_")?.parse().ok()
}
