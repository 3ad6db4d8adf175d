//! Checks of the settings of few-shot reference detection.

use super::prepare::MAPS;
use super::settings::{FewshotDetection, ReferenceDetector};
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_data::boxes::library::Library;
use xrun_training::backbone::{self, Layers};
use xrun_training::model_checks;

/// Total stride of the backbone, of which sides are multiples.
const STRIDE: usize = 16;
/// Section of the pipeline's keys.
const PIPELINE: &str = "pipeline.fewshot-detection";

/// Adds the problems of the pipeline's settings; the caller adds their locations.
pub fn check(settings: &FewshotDetection, experiment: &Experiment, problems: &mut Problems) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    match (settings.auto_episodes, settings.episodes) {
        (true, Some(count)) => {
            let message =
                format!("{count} conflicts with `auto_episodes`, which takes the number of episodes from the data");
            let problem = Problem::new(key("episodes"), message);
            problems
                .add(problem.help("write `auto_episodes = false`, or remove `episodes`").related(key("auto_episodes")));
        }
        (false, None) => {
            let problem = Problem::new(key("auto_episodes"), "is false, but `episodes` is missing");
            problems.add(problem.help("add `episodes = 100`, or write `auto_episodes = true`"));
        }
        _ => {}
    }
    let found = backbone::check(experiment, &key("image_size"), settings.image_size, problems);
    if let (Some(Layers::Transformer(_)), Some(backbone)) = (found.map(|found| found.layers), &experiment.backbone) {
        let message = format!("has one feature map; `fewshot-detection` needs those of strides {MAPS:?}");
        let problem = Problem::new(format!("backbone.{}", backbone.kind()), message);
        problems.add(problem.help("write [backbone.resnet] or [backbone.efficientnet-lite]"));
    }
    if let Some(backbone) = experiment.backbone.as_ref().filter(|backbone| backbone.settings().stride.is_some()) {
        let message = format!("has no effect on `fewshot-detection`, which takes the features of strides {MAPS:?}");
        problems.add(Problem::new(backbone.key("stride"), message).help("remove the key"));
    }
    if let (Some(backbone), Ok(model)) = (&experiment.backbone, experiment.model_settings::<ReferenceDetector>()) {
        let own = ReferenceDetector::default();
        let changed = [("channels", model.channels != own.channels), ("blocks_per_stage", model.blocks_per_stage != 0)];
        for (name, _) in changed.into_iter().filter(|(_, is_changed)| *is_changed) {
            let problem = Problem::new(format!("model.reference-detector.{name}"), "has no effect on a backbone");
            problems.add(problem.help("remove the key").related(format!("backbone.{}", backbone.kind())));
        }
    }
    for (name, side) in [("image_size", settings.image_size), ("reference_size", settings.reference_size)] {
        if !side.is_multiple_of(STRIDE) {
            let near = side.next_multiple_of(STRIDE);
            let message = format!("expected a multiple of {STRIDE}, found {side}");
            problems.add(Problem::new(key(name), message).help(format!("for example `{name} = {near}`")));
        }
    }
    // The number of classes of a generated data set is known before it is generated.
    let classes = experiment.loader_settings::<Library>().and_then(|options| options.train_class_count);
    if let Some(classes) = classes.filter(|classes| settings.n_way > *classes) {
        let message = format!("{} exceeds the {} training classes that are generated", settings.n_way, classes);
        let problem = Problem::new(key("n_way"), message).related(experiment.dataset_key("train_classes"));
        problems.add(problem.help(format!("write at most {classes}, or generate more classes")));
    }
}

/// Adds the problems of the model's settings.
pub fn check_model(model: &ReferenceDetector, problems: &mut Problems) {
    const MODEL_SECTION: &str = "model.reference-detector";
    for (name, widths) in [("channels", &model.channels[..]), ("pyramid_channels", &[model.pyramid_channels])] {
        model_checks::groups(MODEL_SECTION, name, widths, model.norm_groups, problems);
    }
}
