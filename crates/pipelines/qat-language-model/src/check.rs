//! Checks of settings of quantisation-aware training that contradict each other.

use super::leaks::RANGE_HISTORY;
use super::precision::FULL_PRECISION;
use super::settings::{BaseTraining, Gpt2, Granularity, Layer, QatLanguageModel, RangeSource, Scheme, WeightScale};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leaks;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::sections::Training;
use xrun_core::units::pluralize;
use xrun_data::question_answers::corpus::Corpus;
use xrun_data::reading::settings_paths::file;
use xrun_training::model_checks;
use xrun_training::weights_header::WeightsLayout;

const PIPELINE: &str = "pipeline.qat-language-model";
const MODEL: &str = "model.gpt2";
/// Largest number of bits that are quantised: a 32-bit float cannot represent the levels of more.
const QUANTISED_BITS_MAX: u32 = 16;

/// Adds a problem for a leak of ranges if the settings hold no ranges.
pub fn check_leaks(leaks: &Leaks, settings: &QatLanguageModel, problems: &mut Problems) {
    if settings.activation_ranges == RangeSource::PerToken && leaks.is_enabled(&RANGE_HISTORY) {
        let key = format!("leaks.{}", RANGE_HISTORY.key);
        let problem = Problem::new(key, "ranges per token are not held, and cannot leak");
        let problem = problem.related(format!("{PIPELINE}.activation_ranges"));
        problems.add(problem.help("write `activation_ranges = \"moving\"`"));
    }
}

/// Adds the problems of the task; the caller fills in their locations.
pub fn check(settings: &QatLanguageModel, model: Option<&Gpt2>, problems: &mut Problems) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    let count = settings.weight_bits.len();
    let lists = [
        ("weight_bits", &settings.weight_bits),
        ("activation_bits", &settings.activation_bits),
        ("kv_cache_bits", &settings.kv_cache_bits),
    ];
    for (name, bits) in lists {
        if bits.len() != count {
            let message = format!("has {} but `weight_bits` has {count}", pluralize(bits.len() as u64, "number"));
            let problem = Problem::new(key(name), message).related(key("weight_bits"));
            problems.add(problem.help("write one number for each precision"));
        }
        if let Some(bits) = bits.iter().find(|bits| **bits > QUANTISED_BITS_MAX && **bits != FULL_PRECISION) {
            let message = format!(
                "expected 2 to {QUANTISED_BITS_MAX} bits, or {FULL_PRECISION} for no quantisation, found {bits}"
            );
            problems.add(Problem::new(key(name), message));
        }
    }
    if settings.weight_bits.windows(2).any(|pair| pair[0] <= pair[1]) {
        let problem = Problem::new(key("weight_bits"), "must decrease from the widest to the narrowest precision");
        problems
            .add(problem.help("for example `weight_bits = [32, 8, 4]`; the first one is the teacher of the others"));
    }
    if lists.iter().all(|(_, bits)| bits.iter().all(|bits| *bits == FULL_PRECISION)) {
        let problem = Problem::new(key("weight_bits"), "nothing is quantised: all bits are 32");
        let problem = problem.related(key("activation_bits")).related(key("kv_cache_bits"));
        problems.add(problem.help("for example `weight_bits = [32, 8]`, with two numbers in the other lists"));
    }
    if settings.weight_scale == WeightScale::Learned && settings.weight_scheme == Scheme::Asymmetric {
        let problem = Problem::new(key("weight_scale"), "a learned scale requires a symmetric scheme");
        let problem = problem.related(key("weight_scheme"));
        problems.add(problem.help("write `weight_scheme = \"symmetric\"`, or `weight_scale = \"min-max\"`"));
    }
    if settings.activation_ranges == RangeSource::PerToken && settings.activation_granularity == Granularity::PerChannel
    {
        let key = key("activation_granularity");
        let problem = Problem::new(key, "ranges per token cannot also be per channel")
            .related(format!("{PIPELINE}.activation_ranges"));
        problems.add(problem.help("remove it, or write `activation_ranges = \"moving\"` or \"frozen\""));
    }
    if settings.weight_scale != WeightScale::Learned && settings.scale_learning_rate_factor != 1.0 {
        let problem = Problem::new(key("scale_learning_rate_factor"), "has no effect without learned scales");
        problems.add(problem.help("write `weight_scale = \"learned\"`, or remove it").related(key("weight_scale")));
    }
    if settings.distillation == 0.0 && settings.distillation_temperature != 1.0 {
        let problem = Problem::new(key("distillation_temperature"), "has no effect: `distillation` is 0");
        problems.add(problem.help("write `distillation = 0.5`, or remove it").related(key("distillation")));
    }
    let twice = Layer::ALL.iter().find(|layer| settings.lora_layers.iter().filter(|one| one == layer).count() > 1);
    if twice.is_some() {
        problems.add(Problem::new(key("lora_layers"), "names a layer twice").help("remove one of them"));
    }
    let lora = settings.lora_rank > 0 && !settings.lora_layers.is_empty();
    if !lora && settings.base == BaseTraining::Frozen && settings.weight_scale == WeightScale::MinMax {
        let problem = Problem::new(key("base"), "nothing is trained: the base is frozen and there is no LoRA");
        problems.add(
            problem
                .help("write `base = \"trained\"`, or a `lora_rank` above 0 with `lora_layers`")
                .related(key("lora_rank")),
        );
    }
    if let Some(model) = model
        && settings.sequence_length > model.shape().context_length
    {
        let context = model.shape().context_length;
        let message = format!("{} tokens exceed the {context} positions of the model", settings.sequence_length);
        let problem = Problem::new(key("sequence_length"), message).related(format!("{MODEL}.context_length"));
        problems.add(problem.help(format!("write {context} or less, or a larger `{MODEL}.context_length`")));
    }
    if settings.max_new_tokens >= settings.sequence_length {
        let message = format!(
            "an answer of {} tokens does not fit in a sequence of {}",
            settings.max_new_tokens, settings.sequence_length
        );
        problems.add(Problem::new(key("max_new_tokens"), message).related(key("sequence_length")));
    }
}

/// Adds a problem if the training ends before it is quantised.
pub fn check_steps(settings: &QatLanguageModel, training: &Training, problems: &mut Problems) {
    let pretraining = settings.pretraining_steps;
    if let Some(most) = training.max_steps.filter(|most| *most <= pretraining) {
        let message =
            format!("nothing is quantised: `pretraining_steps` is {pretraining}, and the training ends at step {most}");
        let problem = Problem::new(format!("{PIPELINE}.pretraining_steps"), message).related("training.max_steps");
        problems.add(problem.help(format!("write fewer than {most} steps, or a larger `max_steps`")));
    }
}

/// Adds a problem if batches are split although moving ranges need whole ones.
pub fn check_micro_batches(settings: &QatLanguageModel, experiment: &Experiment, problems: &mut Problems) {
    let (batch, micro_batch) = (experiment.batch_size(), experiment.limits.batch_size);
    if settings.activation_ranges == RangeSource::Moving && micro_batch < batch {
        let message = format!("moving ranges need whole batches of {batch}, and micro-batches have {micro_batch}");
        let problem = Problem::new("limits.batch_size", message).related("training.batch_size");
        problems.add(problem.help(format!(
            "write {batch} or more, or a smaller `training.batch_size` with more `training.gradient_accumulation`, or `activation_ranges = \
             \"frozen\"` or \"per-token\""
        )));
    }
}

/// Adds a problem if the file of weights does not fit the model or the vocabulary.
pub fn check_weights(experiment: &Experiment, problems: &mut Problems) {
    let options = experiment.loader_settings::<Corpus>();
    let (Ok(model), Some(options)) = (experiment.model_settings::<Gpt2>(), options) else { return };
    if let Some(path) = &model.weights {
        WeightsLayout::gpt2(&model.shape(), &options.vocabulary).check(&format!("{MODEL}.weights"), path, problems);
    }
}

/// Adds the problems of the model.
pub fn check_model(model: &Gpt2, problems: &mut Problems) {
    let shape = model.shape();
    model_checks::heads(MODEL, ("hidden_size", shape.hidden_size), ("heads", shape.heads), problems);
    if let Some(path) = &model.weights {
        file(&format!("{MODEL}.weights"), path, problems);
    }
}
