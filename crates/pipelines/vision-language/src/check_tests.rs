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

#[test]
fn contradictions_are_reported_at_their_key() {
    let pipeline = |key: &str| format!("{PIPELINE}.{key}");
    let model = |key: &str| format!("{MODEL}.{key}");
    let image_size = || "dataset.image-text.image_size".to_owned();
    let alternating = "[pipeline.vision-language.selective]\nschedule = \"alternating\"\nalternate_for = 200";
    for (settings, shape, data, key) in [
        ("trainable = []", "", "", pipeline("trainable")),
        ("trainable = [\"vision\", \"vision\"]", "", "", pipeline("trainable")),
        ("trainable = [\"vision\"]\nlora_rank = 4", "", "", pipeline("lora_rank")),
        ("lora_alpha = 4.0", "", "", pipeline("lora_alpha")),
        ("sequence_length = 200", "", "", pipeline("sequence_length")),
        ("sequence_length = 17", "", "", pipeline("sequence_length")),
        ("max_new_tokens = 55", "", "", pipeline("max_new_tokens")),
        (alternating, "", "", pipeline("selective.alternate_for")),
        ("", "", "image_size = 50", image_size()),
        ("", "pixel_shuffle = 4", "", image_size()),
        ("", "vision_heads = 3", "", model("vision_hidden_size")),
        ("", "hidden_size = 66", "", model("hidden_size")),
        ("", "vision_weights = \"/none/vit\"", "", model("vision_weights")),
        ("", "language_weights = \"/etc\"", "", model("language_weights")),
    ] {
        assert_eq!(problems(settings, shape, data), [key], "{settings} {shape} {data}");
    }
}

#[test]
fn suggested_sizes_are_accepted() {
    assert_eq!([nearest_multiple(50, 8), nearest_multiple(3, 8), nearest_multiple(48, 32)], [48, 8, 64]);
    for suggested in [48, 64] {
        assert_eq!(problems("", "", &format!("image_size = {suggested}")), [""; 0]);
    }
}
