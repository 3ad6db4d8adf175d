//! Tests of checks: contradictions are reported at their key.

use super::*;

/// Keys of the problems of an experiment with these lines in its tables.
fn problems(pipeline: &str, model: &str, dataset: &str) -> Vec<String> {
    let text = format!(
        "[model.vision-language]\n{model}\n[dataset.image-text]\n{dataset}\n[pipeline.vision-language]\n{pipeline}\n"
    );
    let experiment: Experiment = toml::from_str(&text).unwrap();
    let mut problems = Problems::default();
    check(experiment.pipeline.settings().unwrap(), &experiment, &mut problems);
    check_model(experiment.model_settings().unwrap(), &mut problems);
    problems.iter().map(|problem| problem.key.clone()).collect()
}

#[test]
fn the_defaults_and_the_published_size_are_valid() {
    assert_eq!(problems("", "", ""), [""; 0]);
    assert_eq!(problems("sequence_length = 320", "preset = \"nano\"", "image_size = 224"), [""; 0]);
    assert_eq!(problems("trainable = [\"language\"]\nlora_rank = 8\nlora_alpha = 4.0", "", ""), [""; 0]);
}

/// Those that no test of the command shows.
#[test]
fn contradictions_are_reported_at_their_key() {
    let pipeline = |key: &str| format!("{PIPELINE}.{key}");
    let model = |key: &str| format!("{MODEL}.{key}");
    for (settings, shape, key) in [
        ("trainable = [\"vision\", \"vision\"]", "", pipeline("trainable")),
        ("lora_alpha = 4.0", "", pipeline("lora_alpha")),
        ("sequence_length = 17", "", pipeline("sequence_length")),
        ("", "vision_heads = 3", model("vision_hidden_size")),
        ("", "hidden_size = 66", model("hidden_size")),
        ("", "language_weights = \"/etc\"", model("language_weights")),
    ] {
        assert_eq!(problems(settings, shape, ""), [key], "{settings} {shape}");
    }
}

#[test]
fn suggested_sizes_are_accepted() {
    assert_eq!([nearest_multiple(50, 8), nearest_multiple(3, 8), nearest_multiple(48, 32)], [48, 8, 64]);
    for suggested in [48, 64] {
        assert_eq!(problems("", "", &format!("image_size = {suggested}")), [""; 0]);
    }
}
