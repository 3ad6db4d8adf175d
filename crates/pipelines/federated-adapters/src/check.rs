//! Checks of settings of federated adapters that contradict each other.

use super::prepare::pretrains;
use super::settings::{Aggregation, AudioAdapters, EncoderKind, FederatedAdapters, NodeOptimizer, Partition, Server};
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_data::reading::settings_paths::file;
use xrun_data::sound_clips::library::Library;
use xrun_training::weights_header::WeightsLayout;

const PIPELINE: &str = "pipeline.federated-adapters";
const MODEL: &str = "model.audio-adapters";

/// Adds the problems of the task; the caller fills in their locations.
pub fn check(settings: &FederatedAdapters, experiment: &Experiment, problems: &mut Problems) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    let per_round = settings.nodes_per_round();
    if per_round > settings.nodes {
        let message = format!("{per_round} nodes per round exceed the {} nodes of the experiment", settings.nodes);
        let problem = Problem::new(key("nodes_per_round"), message).related(key("nodes"));
        problems.add(problem.help(format!("write {} or less, or more `nodes`", settings.nodes)));
    }
    if per_round < settings.nodes && settings.local_steps.is_none() {
        let message = "rounds with different nodes have unequal lengths without `local_steps`";
        let problem = Problem::new(key("nodes_per_round"), message).related(key("local_epochs"));
        problems.add(problem.help("add `local_steps`, the steps of a node in a round, which replace `local_epochs`"));
    }
    if settings.partition != Partition::ByColumn
        && settings.partition_column != FederatedAdapters::default().partition_column
    {
        let problem = Problem::new(key("partition_column"), "has no effect without `partition = \"by-column\"`");
        problems.add(problem.help("write `partition = \"by-column\"`, or remove it").related(key("partition")));
    }
    if settings.aggregation == Aggregation::None {
        if !matches!(settings.server, Server::Average(_)) {
            let problem = Problem::new(key("server"), "has no effect: nothing is averaged");
            problems.add(problem.help("remove it, or write another `aggregation`").related(key("aggregation")));
        }
        if settings.drop_rate > 0.0 {
            let problem = Problem::new(key("drop_rate"), "has no effect: no results are sent");
            problems.add(problem.help("remove it, or write another `aggregation`").related(key("aggregation")));
        }
    }
    let twice = (1..settings.personal.len()).any(|at| settings.personal[..at].contains(&settings.personal[at]));
    if twice {
        problems.add(Problem::new(key("personal"), "names a part twice").help("remove one of them"));
    }
    if settings.pooled_weight == 0.0 && settings.tokens_weight == 0.0 {
        let problem = Problem::new(key("pooled_weight"), "nothing is trained: both weights are 0");
        problems.add(problem.help("write a weight above 0 for one of them").related(key("tokens_weight")));
    }
    if experiment.training.gradient_accumulation > 1 {
        let message = "a step of a node is one batch: accumulation could span several nodes";
        let problem = Problem::new("training.gradient_accumulation", message);
        let help = "write a larger `training.batch_size`; `limits.batch_size` splits it on the device";
        problems.add(problem.help(help).related("training.batch_size"));
    }
    if settings.node_optimizer == NodeOptimizer::Kept && experiment.optimizer.running_copies() == 0 {
        let message = "\"kept\" has no effect: an optimiser with `momentum = 0` has no state";
        let problem = Problem::new(key("node_optimizer"), message).related("optimizer.sgd.momentum");
        problems.add(problem.help("remove it, or write a `momentum` above 0"));
    }
    let options = experiment.loader_settings::<Library>();
    let (Ok(model), Some(options)) = (experiment.model_settings::<AudioAdapters>(), options) else { return };
    if pretrains(model) && !options.public_classes {
        let message = "the encoder has no training data: the data set has no public classes";
        let problem = Problem::new(format!("{MODEL}.encoder"), message).related(options.section);
        problems.add(problem.help("name a file of `weights`, or write `encoder = \"statistics\"`"));
    }
}

/// Adds the problems of the model.
pub fn check_model(model: &AudioAdapters, problems: &mut Problems) {
    let key = |name: &str| format!("{MODEL}.{name}");
    if let Some(weights) = &model.weights {
        file(&key("weights"), weights, problems);
        if model.encoder == EncoderKind::SpectrogramTransformer {
            let layout = WeightsLayout::ast(model.hidden_size, model.layers, model.patch_size, model.encoder_tokens());
            layout.check(&key("weights"), weights, problems);
        }
    }
    for (name, width, heads, of) in [
        ("heads", model.hidden_size, model.heads, "hidden_size"),
        ("pool_heads", model.pooled.output_size, model.pool_heads, "pooled.output_size"),
        ("pool_heads", model.tokens.output_size, model.pool_heads, "tokens.output_size"),
    ] {
        let needed = name != "heads" || model.encoder == EncoderKind::SpectrogramTransformer;
        if needed && width % heads != 0 {
            let problem =
                Problem::new(key(name), format!("a hidden size of {width} is not divisible by {heads} heads"));
            problems.add(problem.help("write a divisor of the hidden size").related(key(of)));
        }
    }
    if model.pooled.latents != 1 {
        let message = format!("{} vectors: `pooled_prompt_embeds` is a single one", model.pooled.latents);
        problems.add(Problem::new(key("pooled.latents"), message).help("write 1, or remove it"));
    }
    if model.encoder == EncoderKind::SpectrogramTransformer && model.patches().contains(&0) {
        let message =
            format!("a patch of {} does not fit {} bands and {} frames", model.patch_size, model.bands, model.frames);
        let problem = Problem::new(key("patch_size"), message).related(key("bands")).related(key("frames"));
        problems.add(problem.help("write a smaller `patch_size`"));
    }
    if model.encoder == EncoderKind::Statistics && model.weights.is_some() {
        let problem = Problem::new(key("weights"), "statistics have no weights").related(key("encoder"));
        problems.add(problem.help("remove it, or write `encoder = \"spectrogram-transformer\"`"));
    }
}
