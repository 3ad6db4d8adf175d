//! Facts of the data for the plan, before anything is on a device. The data is opened once, for the plan and the task.

use std::path::Path;
use std::sync::Arc;

use super::buffers::Buffers;
use super::clips::ClipLoader;
use super::leaks;
use super::metrics::METRICS;
use super::rounds::Rounds;
use super::settings::{AudioAdapters, EncoderKind, FederatedAdapters, NodeOptimizer, Partition};
use super::sizes;
use super::trained_encoder;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::digest::{digest, digest_of_file};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::InspectedData;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::{TaskError, TaskFacts};
use xrun_core::units::pluralize;
use xrun_data::sound_clips::library::{ClassSplit, Library};
use xrun_data::sound_clips::store::ClipStore;
use xrun_data::sound_clips::targets::TargetEmbeddings;
use xrun_data::sound_clips::{ClipCounts, partition};
use xrun_training::data_facts::lowered_validation;

/// Section of the pipeline's keys.
const PIPELINE: &str = "pipeline.federated-adapters";
/// Minimum number of steps of a probe, after which allocators have settled.
const PROBE_STEPS_MIN: u64 = 8;
/// Maximum number of nodes with separate digests in the manifest; more nodes have a common one.
const NODE_DIGESTS_MAX: usize = 20;

/// Opened data and settings of the task.
#[derive(Debug)]
pub struct Prepared {
    /// Settings of the task.
    pub settings: FederatedAdapters,
    /// Settings of the model.
    pub model: AudioAdapters,
    /// Schedule of nodes and steps.
    pub rounds: Rounds,
    /// Training clips of each node, by their number in the data set.
    pub nodes: Vec<Vec<u32>>,
    /// Clips of the data set.
    pub clip_loader: Arc<ClipLoader>,
    /// Target vectors of all classes.
    pub targets: TargetEmbeddings,
    /// Buffers of the task.
    pub buffers: Buffers,
}

/// Opens the data and registers the index and the caches in the ledger.
///
/// # Errors
/// The data, the targets or a file of weights cannot be read, or a node has too few clips.
pub fn prepare(
    settings: &FederatedAdapters,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let model: &AudioAdapters = experiment.model_settings()?;
    let library: Library = experiment.open_dataset()?;
    let data = experiment.loader_settings::<Library>().unwrap_or_default();
    let seed = experiment.experiment.seed;
    let targets = TargetEmbeddings::open(&data, &library, sizes::targets(model), seed)?;
    let nodes = nodes(settings, &library, seed)?;
    let mut digests = vec![
        (experiment.dataset_name().to_owned(), library.digest.clone()),
        ("targets".into(), targets.digest.clone()),
    ];
    if let Some(weights) = &model.weights {
        digests.push(("weights".into(), digest_of_file(Path::new(weights))?));
    }
    digests.extend(digests_of_nodes(&nodes, &library));
    let size = experiment.batch_size();
    let clips: Vec<u64> = nodes.iter().map(|clips| clips.len() as u64).collect();
    let validated = |clips: Vec<u32>| clips.len().min(experiment.validation.batches.saturating_mul(size)) as u64;
    let held_out = validated(library.clips_of(ClassSplit::Federated, Split::Validation));
    let unseen = validated(library.all_of(ClassSplit::Unseen));
    let clips_used = clips.iter().sum::<u64>() + held_out + unseen;
    let buffers = Buffers::new(settings, model, &data, &library, experiment, clips_used);
    let first_use_steps = clips.iter().map(|clips| clips.div_ceil(size as u64)).sum();
    let cache = &buffers.embedding_cache;
    let caches_all = cache.working_set_bytes.is_some_and(|bytes| bytes <= cache.cap.bytes);
    let rounds = Rounds::new(settings, clips, size, seed);
    let [held_out, unseen] = [held_out, unseen].map(|clips| clips.div_ceil(size as u64));
    let skipped = library.skipped.clone();
    let lowered = lowered_settings(settings, experiment, &library.summary());
    let made = trained_encoder::made(settings, model, &library.digest, seed);
    let store = ClipStore::new(library, &data, &experiment.limits, [model.bands, model.frames], ledger)?;
    let owners = PlannedBuffer::all(&[&store.buffers, &buffers]);
    let clip_loader = ClipLoader::new(store, &buffers.embedding_cache, data.embedding_dtype, ledger);
    let of_round = settings.nodes_per_round() as u64;
    let models = if settings.personal().is_empty() { 1 } else { nodes.len() as u64 };
    let mut facts = TaskFacts {
        owners,
        data_digests: digests,
        data_skipped: skipped,
        lowered,
        trained_parameters: Some(sizes::parameters(model)),
        batch_items: size as u64,
        batch_keys: &["training.batch_size"],
        // Whole rounds of one step each: a round has its sum, and what nodes keep.
        probe_steps: PROBE_STEPS_MIN.div_ceil(of_round) * of_round,
        stages: &["round", "local_epoch"],
        captures: captures(settings),
        made,
        validation_batches: models * (held_out + unseen),
        epoch_validation_batches: of_round * held_out,
        first_use_steps: if caches_all { first_use_steps } else { 0 },
        probe_overrides: vec!["pipeline.federated-adapters.local_steps=1".into()],
        ..TaskFacts::new(rounds.steps(), METRICS)
    };
    let clip_loader = Arc::new(clip_loader);
    let (settings, model) = (settings.clone(), model.clone());
    let prepared = Prepared { settings, model, rounds, nodes, clip_loader, targets, buffers };
    leaks::plan(&mut facts, &prepared, experiment);
    Ok((facts, prepared))
}

/// Parts of a step that are captured, as in [`TaskFacts::captures`].
pub fn captures(settings: &FederatedAdapters) -> &'static str {
    match settings.node_optimizer {
        NodeOptimizer::Fresh if settings.proximal == 0.0 => {
            "a pass for each size of a micro-batch, the update, and validations"
        }
        // A turn would begin with other memory: a state of the optimiser that was on the host, and the anchor of the proximal term.
        NodeOptimizer::Fresh | NodeOptimizer::Kept => "",
    }
}

/// Training clips of each node, by their number in the data set.
fn nodes(settings: &FederatedAdapters, library: &Library, seed: u32) -> Result<Vec<Vec<u32>>, DataError> {
    let clips = library.clips_of(ClassSplit::Federated, Split::Train);
    let class = |clip: &u32| library.clips[*clip as usize].class;
    let classes = || clips.iter().map(class).collect::<Vec<u32>>();
    let (nodes, least) = (settings.nodes, settings.min_clips_per_node);
    let dealt = match settings.partition {
        Partition::Iid => partition::iid(clips.len(), nodes, seed)?,
        Partition::ByClass => partition::by_value(&classes(), nodes, "by-class", "classes")?,
        Partition::Dirichlet => partition::dirichlet(&classes(), nodes, settings.dirichlet_alpha, least, seed)?,
        Partition::ByColumn => {
            let name = &settings.partition_column;
            let column = library.column(name).ok_or_else(|| unknown_column(name, &library.summary().columns))?;
            let values: Vec<u32> = clips.iter().map(|clip| column.of_clip[*clip as usize]).collect();
            partition::by_value(&values, nodes, "by-column", "different values")?
        }
    };
    let small = dealt.iter().position(|clips| clips.len() < least);
    if let Some(node) = small {
        let found = dealt[node].len();
        let key = format!("{PIPELINE}.min_clips_per_node");
        return Err(DataError::value(
            key,
            format!(
                "node {node} has {} to train on, fewer than {least}; \
    write {found}, or fewer `nodes`",
                pluralize(found as u64, "clip")
            ),
        ));
    }
    Ok(dealt.into_iter().map(|positions| positions.into_iter().map(|at| clips[at as usize]).collect()).collect())
}

fn unknown_column(name: &str, columns: &[String]) -> DataError {
    let key = format!("{PIPELINE}.partition_column");
    DataError::value(
        key,
        format!(
            "the table has no column `{name}`; it has {}",
            columns.iter().map(|column| format!("`{column}`")).collect::<Vec<_>>().join(", ")
        ),
    )
}

/// Digests of the clips of each node.
fn digests_of_nodes(nodes: &[Vec<u32>], library: &Library) -> Vec<(String, String)> {
    let of = |clips: &[u32]| {
        let files: Vec<&str> = clips.iter().map(|clip| &*library.clips[*clip as usize].file).collect();
        digest(files.join("\n").as_bytes())
    };
    match nodes.len() {
        ..=NODE_DIGESTS_MAX => {
            let one = |(node, clips): (usize, &Vec<u32>)| {
                (format!("node {node} ({})", pluralize(clips.len() as u64, "clip")), of(clips))
            };
            nodes.iter().enumerate().map(one).collect()
        }
        count => {
            let all: Vec<String> = nodes.iter().map(|clips| of(clips)).collect();
            vec![(format!("{count} nodes"), digest(all.join("\n").as_bytes()))]
        }
    }
}

/// Returns the settings for which the data has too few clips: batch size and validation.
pub fn lowered_settings(
    settings: &FederatedAdapters,
    experiment: &Experiment,
    seen: &ClipCounts,
) -> Vec<LoweredSetting> {
    let (train, held_out): (u64, u64) = (seen.train.iter().sum(), seen.held_out.iter().sum());
    let of_node = train / settings.nodes.max(1) as u64;
    let because = format!("{} on {}", pluralize(train, "clip"), pluralize(settings.nodes as u64, "node"));
    let all = [
        LoweredSetting::detect("training.batch_size", experiment.batch_size() as u64, of_node.max(1), because),
        lowered_validation(experiment, held_out, "held-out clip"),
    ];
    all.into_iter().flatten().collect()
}

/// Checks the partition against the inspected data and returns the lowered settings.
///
/// # Errors
/// There are more nodes than classes, the column of the partition is missing, a node has too few clips, or the targets do not fit.
pub fn inspect(
    settings: &FederatedAdapters,
    experiment: &Experiment,
    data: InspectedData,
) -> Result<Vec<LoweredSetting>, DataError> {
    let seen = data.summary::<Library>()?;
    let classes = seen.train.iter().filter(|clips| **clips > 0).count();
    if settings.partition == Partition::ByClass && settings.nodes > classes {
        let key = format!("{PIPELINE}.nodes");
        return Err(DataError::value(
            key,
            format!(
                "{} nodes exceed the number of classes of the data, {classes}; write \
            {classes} or less, or another `partition`",
                settings.nodes,
            ),
        ));
    }
    if settings.partition == Partition::ByColumn && !seen.columns.contains(&settings.partition_column) {
        return Err(unknown_column(&settings.partition_column, &seen.columns));
    }
    // Nodes without clips and files of targets that do not fit are found with the clips themselves.
    let library: Library = data.open(experiment)?;
    let (data, seed) = (experiment.loader_settings::<Library>().unwrap_or_default(), experiment.experiment.seed);
    if let Ok(model) = experiment.model_settings() {
        TargetEmbeddings::open(&data, &library, sizes::targets(model), seed)?;
    }
    nodes(settings, &library, seed)?;
    Ok(lowered_settings(settings, experiment, &seen))
}

/// Returns whether the encoder is trained before the run.
pub fn pretrains(model: &AudioAdapters) -> bool {
    model.encoder == EncoderKind::SpectrogramTransformer && model.weights.is_none()
}
