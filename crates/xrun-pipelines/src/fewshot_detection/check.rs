//! Which settings of few-shot reference detection contradict each other?

use super::settings::{Model, Settings};
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_data::boxes::library::Library;

/// The backbone halves a picture this many times over, so sides are multiples of it.
const STRIDE: usize = 16;
/// Where the pipeline's keys stand.
const PIPELINE: &str = "pipeline.fewshot-detection";

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &Settings, experiment: &Experiment, problems: &mut Problems) {
    let key = |name: &str| format!("{PIPELINE}.{name}");
    match (settings.auto_episodes, settings.episodes) {
        (true, Some(count)) => {
            let message = format!("{count} episodes are asked for, and `auto_episodes` counts them from the data");
            let problem = Problem::new(key("episodes"), message);
            problems.add(
                problem.help("write `auto_episodes = false`, or leave `episodes` out").related(key("auto_episodes")),
            );
        }
        (false, None) => {
            let problem = Problem::new(key("auto_episodes"), "is false, and `episodes` does not say how many instead");
            problems.add(problem.help("add `episodes = 100`, or write `auto_episodes = true`"));
        }
        _ => {}
    }
    for (name, side) in [("image_size", settings.image_size), ("reference_size", settings.reference_size)] {
        if !side.is_multiple_of(STRIDE) {
            let near = side.next_multiple_of(STRIDE);
            let message = format!("expected a multiple of {STRIDE}, found {side}");
            problems.add(Problem::new(key(name), message).help(format!("for example `{name} = {near}`")));
        }
    }
    // The classes of a generated set are known before it is generated.
    let classes = experiment.dataset_options::<Library>().and_then(|options| options.train_classes);
    if let Some(classes) = classes.filter(|classes| settings.n_way > *classes) {
        let message = format!("an episode of {} classes, and {classes} are generated to train on", settings.n_way);
        let problem = Problem::new(key("n_way"), message).related(experiment.dataset_key("train_classes"));
        problems.add(problem.help(format!("write {classes} or less, or generate more classes")));
    }
}

/// The same for the model.
pub fn check_model(model: &Model, problems: &mut Problems) {
    const MODEL: &str = "model.reference-detector";
    let groups = model.norm_groups;
    let uneven = |channels: usize| groups > 0 && !channels.is_multiple_of(groups);
    let widths = [("channels", model.channels.as_slice()), ("pyramid_channels", &[model.pyramid_channels])];
    for (name, widths) in widths {
        if let Some(width) = widths.iter().copied().find(|width| uneven(*width)) {
            let message = format!("{width} channels cannot be split into {groups} groups of one size");
            let problem = Problem::new(format!("{MODEL}.{name}"), message).related(format!("{MODEL}.norm_groups"));
            problems.add(problem.help(format!("for example {}", width.next_multiple_of(groups))));
        }
    }
}
