//! Is what contradicts itself said at its key?

use super::*;

/// What is said of an experiment with these lines in its tables: keys and messages.
fn told(pipeline: &str, model: &str, dataset: &str) -> Vec<(String, String)> {
    let text = format!(
        "[model.vision-language]\n{model}\n[dataset.image-text]\n{dataset}\n[pipeline.vision-language]\n{pipeline}\n"
    );
    let experiment: Experiment = toml::from_str(&text).unwrap();
    let mut problems = Problems::default();
    check(experiment.pipeline.settings().unwrap(), &experiment, &mut problems);
    check_model(experiment.model_settings().unwrap(), &mut problems);
    problems.iter().map(|problem| (problem.key.clone(), problem.message.clone())).collect()
}

#[test]
fn the_defaults_and_the_published_size_are_right() {
    assert_eq!(told("", "", ""), []);
    assert_eq!(told("sequence_length = 320", "preset = \"nano\"", "image_size = 224"), []);
    assert_eq!(told("trained = [\"language\"]\nlora_rank = 8\nlora_alpha = 4.0", "", ""), []);
}

#[test]
fn what_contradicts_itself_is_said_at_its_key() {
    let pipeline = |key: &str| format!("{PIPELINE}.{key}");
    let model = |key: &str| format!("{MODEL}.{key}");
    let alternating = "[pipeline.vision-language.selective]\nschedule = \"alternating\"\nalternate_for = 200";
    for (settings, shape, data, key, part) in [
        ("trained = []", "", "", pipeline("trained"), "nothing would be trained"),
        ("trained = [\"vision\", \"vision\"]", "", "", pipeline("trained"), "names a part twice"),
        ("trained = [\"vision\"]\nlora_rank = 4", "", "", pipeline("lora_rank"), "`trained` does not name it"),
        ("lora_alpha = 4.0", "", "", pipeline("lora_alpha"), "`lora_rank` is 0"),
        ("sequence_length = 200", "", "", pipeline("sequence_length"), "200 tokens, and the model has 128 positions"),
        ("sequence_length = 17", "", "", pipeline("sequence_length"), "a picture takes 9: there is no room"),
        ("answer_tokens = 55", "", "", pipeline("answer_tokens"), "55 tokens of answer do not fit in the 55"),
        (alternating, "", "", pipeline("selective.alternate_for"), "more than the 100 steps of a turn"),
        (
            "",
            "",
            "image_size = 50",
            "dataset.image-text.image_size".to_owned(),
            "50 pixels are no whole number of patches of 8",
        ),
        (
            "",
            "pixel_shuffle = 4",
            "",
            "dataset.image-text.image_size".to_owned(),
            "6 patches along a side are no whole number of squares of 4",
        ),
        ("", "vision_heads = 3", "", model("vision_width"), "64 cannot be shared by 3 heads"),
        ("", "width = 66", "", model("width"), "66 cannot be shared by 4 heads"),
        ("", "vision_weights = \"/none/vit\"", "", model("vision_weights"), "there is no file /none/vit"),
        ("", "language_weights = \"/etc\"", "", model("language_weights"), "/etc is not a file"),
    ] {
        let told = told(settings, shape, data);
        assert_eq!(told.len(), 1, "{settings} {shape} {data}: {told:?}");
        assert_eq!(told[0].0, key);
        assert!(told[0].1.contains(part), "{told:?}");
    }
}

#[test]
fn sizes_that_are_advised_are_accepted() {
    assert_eq!([nearest_multiple(50, 8), nearest_multiple(3, 8), nearest_multiple(48, 32)], [48, 8, 64]);
    for advised in [48, 64] {
        assert_eq!(told("", "", &format!("image_size = {advised}")), []);
    }
}
