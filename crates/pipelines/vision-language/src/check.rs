//! Checks of settings of a vision-language model that contradict each other.

use super::settings::{Component, VisionLanguage, VisionLanguageModel};
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::backbone::Backbone;
use xrun_data::image_text::library::Library;
use xrun_data::image_text::settings::LoaderSettings;
use xrun_data::reading::settings_paths::file;
use xrun_training::backbone::{self, Pretrained};
use xrun_training::model_checks;
use xrun_training::weights_header::WeightsLayout;

const PIPELINE: &str = "pipeline.vision-language";
const MODEL: &str = "model.vision-language";
/// Minimum number of text tokens, for a question and an answer.
const TEXT_MIN: usize = 8;

/// Adds the problems of the task; the caller fills in their locations.
pub fn check(settings: &VisionLanguage, experiment: &Experiment, problems: &mut Problems) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    settings.selective.check(&key("selective"), problems);
    let weights = experiment.backbone.as_ref().map(Backbone::settings);
    let settings = &settings.on(weights.as_ref());
    let trained = &settings.trainable;
    if trained.is_empty() {
        let problem = Problem::new(key("trainable"), "is empty: nothing is trained");
        problems.add(problem.help("name one or more of \"vision\", \"projector\" and \"language\""));
    }
    if (1..trained.len()).any(|at| trained[..at].contains(&trained[at])) {
        problems.add(Problem::new(key("trainable"), "names a part twice").help("remove one of them"));
    }
    if settings.lora_rank > 0 && !trained.contains(&Component::Language) {
        let problem = Problem::new(key("lora_rank"), "LoRA is not trained: `trainable` lacks the language part");
        problems.add(problem.help("add \"language\" to `trainable`, or write 0").related(key("trainable")));
    }
    if settings.lora_rank == 0 && settings.lora_alpha != VisionLanguage::default().lora_alpha {
        let problem = Problem::new(key("lora_alpha"), "has no effect without LoRA: `lora_rank` is 0");
        problems.add(problem.help("write a `lora_rank` above 0, or remove it").related(key("lora_rank")));
    }
    if let (Ok(model), Some(options)) =
        (experiment.model_settings::<VisionLanguageModel>(), experiment.loader_settings::<Library>())
    {
        let key = format!("{}.image_size", options.section);
        let architecture = backbone::check(experiment, &key, options.image_size, problems);
        let backbone = weights.zip(architecture).map(|(weights, architecture)| Pretrained { architecture, weights });
        if let Some(backbone) = &experiment.backbone {
            check_no_effect(model, backbone, problems);
        }
        // The sizes of a backbone that cannot be read are unknown.
        if backbone.is_some() || experiment.backbone.is_none() {
            let own = || format!("{MODEL}.patch_size");
            let patches = experiment.backbone.as_ref().map_or_else(own, |backbone| backbone.key("weights"));
            check_lengths(settings, model, backbone.as_ref(), &patches, &options, problems);
        }
        check_weights(model, experiment.backbone.as_ref(), &options, problems);
    }
}

/// Adds a problem for each key of the vision transformer that has a value although there is a backbone.
fn check_no_effect(model: &VisionLanguageModel, backbone: &Backbone, problems: &mut Problems) {
    let sizes = [
        ("patch_size", model.patch_size),
        ("vision_hidden_size", model.vision_hidden_size),
        ("vision_layers", model.vision_layers),
        ("vision_heads", model.vision_heads),
        ("vision_weights", model.vision_weights.as_ref().map(|_| 0)),
    ];
    for (name, _) in sizes.iter().filter(|(_, value)| value.is_some()) {
        let problem = Problem::new(format!("{MODEL}.{name}"), "has no effect on a backbone");
        problems.add(problem.help("remove the key").related(format!("backbone.{}", backbone.kind())));
    }
}

/// Adds a problem for each file of weights that does not fit the model, its images or its vocabulary.
fn check_weights(
    model: &VisionLanguageModel,
    backbone: Option<&Backbone>,
    options: &LoaderSettings,
    problems: &mut Problems,
) {
    let (shape, key) = (model.shape(), |name: &str| format!("{MODEL}.{name}"));
    if let (Some(path), None) = (&model.vision_weights, backbone) {
        let patches = shape.patches(options.image_size);
        let layout = WeightsLayout::vit(shape.vision_hidden_size, shape.vision_layers, shape.patch_size, patches);
        layout.check(&key("vision_weights"), path, problems);
    }
    if let Some(path) = &model.language_weights {
        WeightsLayout::gpt2(&shape.language(), &options.vocabulary).check(&key("language_weights"), path, problems);
    }
}

/// Adds the problems of lengths: sequence, image, patches and answer.
fn check_lengths(
    settings: &VisionLanguage,
    model: &VisionLanguageModel,
    backbone: Option<&Pretrained>,
    patches: &str,
    data: &LoaderSettings,
    problems: &mut Problems,
) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    let (shape, side) = (model.shape_on(backbone), data.image_size);
    let or_patches = if backbone.is_none() { ", or another `patch_size`" } else { "" };
    let larger = if backbone.is_none() { "`patch_size` or `pixel_shuffle`" } else { "`pixel_shuffle`" };
    let image_size = || format!("{}.image_size", data.section);
    let length = settings.sequence_length;
    if length > shape.context_length {
        let message = format!("{length} tokens exceed the {} positions of the model", shape.context_length);
        let problem = Problem::new(key("sequence_length"), message).related(format!("{MODEL}.context_length"));
        problems
            .add(problem.help(format!("write {} or less, or a larger `{MODEL}.context_length`", shape.context_length)));
    }
    if !side.is_multiple_of(shape.patch_size) {
        let message = format!("{side} pixels are not divisible into patches of {}", shape.patch_size);
        let near = nearest_multiple(side, shape.patch_size);
        let problem = Problem::new(image_size(), message).help(format!("write {near}{or_patches}"));
        problems.add(problem.related(patches));
        return;
    }
    let (along, shuffle) = (side / shape.patch_size, shape.pixel_shuffle);
    if !along.is_multiple_of(shuffle) {
        let message = format!("{along} patches along a side are not divisible into squares of {shuffle}");
        let near = nearest_multiple(side, shape.patch_size * shuffle);
        let problem = Problem::new(image_size(), message).help(format!("write {near}, or another `pixel_shuffle`"));
        problems.add(problem.related(format!("{MODEL}.pixel_shuffle")).related(patches));
        return;
    }
    let image = shape.image_tokens(side);
    if image + TEXT_MIN >= length {
        let message = format!("{length} tokens leave no room for a text: an image takes {image}");
        let problem = Problem::new(key("sequence_length"), message).related(image_size());
        let help = format!("write a larger one, or a larger {larger}, or a smaller `image_size`");
        problems.add(problem.help(help).related(patches));
        return;
    }
    let text = settings.text_length(&shape, side);
    if settings.max_new_tokens >= text {
        let message = format!(
            "an answer of {} tokens does not fit in the {text} text tokens of a sequence of {length}: the image takes {image}",
            settings.max_new_tokens
        );
        let problem = Problem::new(key("max_new_tokens"), message).related(key("sequence_length"));
        problems.add(problem.help(format!("write less than {text}, or a larger `sequence_length`")));
    }
}

/// Multiple of `of` next to `value`, at least `of` itself.
fn nearest_multiple(value: usize, of: usize) -> usize {
    ((value + of / 2) / of).max(1) * of
}

/// Adds the problems of the model.
pub fn check_model(model: &VisionLanguageModel, problems: &mut Problems) {
    let key = |name: &str| format!("{MODEL}.{name}");
    let shape = model.shape();
    let (vision, heads) = (shape.vision_hidden_size, shape.vision_heads);
    model_checks::heads(MODEL, ("vision_hidden_size", vision), ("vision_heads", heads), problems);
    model_checks::heads(MODEL, ("hidden_size", shape.hidden_size), ("heads", shape.heads), problems);
    for (name, path) in [("vision_weights", &model.vision_weights), ("language_weights", &model.language_weights)] {
        if let Some(path) = path {
            file(&key(name), path, problems);
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
