//! Targets are those of the file, and drawn ones are related as their words are.

use std::collections::BTreeMap;

use safetensors::tensor::TensorView;

use super::*;
use crate::sound_clips::library::{Class, ClassSplit};
use xrun_core::dataset::error::InvalidItems;
use xrun_core::files::write;

const SHAPE: TargetShape = TargetShape { tokens: 2, width: 3, pooled_width: 4 };

/// A library whose classes have the words between the dashes of their names.
fn library(names: &[&str]) -> Library {
    let class = |(target, name): (u32, &&str)| Class {
        name: (*name).to_owned(),
        target,
        split: ClassSplit::Federated,
        words: name.split('-').map(str::to_owned).collect(),
    };
    Library {
        directory: "data".into(),
        classes: (0..).zip(names).map(class).collect(),
        clips: Vec::new(),
        columns: Vec::new(),
        validation_fold: 5,
        silent: 0,
        ignored: Vec::new(),
        digest: String::new(),
        skipped: InvalidItems::default(),
        decoding_bytes: 0,
        opening_bytes: 0,
    }
}

fn correlation(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

#[test]
fn classes_that_share_a_word_have_related_targets() {
    let shape = TargetShape { tokens: 8, width: 96, pooled_width: 4096 };
    let library = library(&["flute-steady", "flute-glide", "reed-glide"]);
    let targets = TargetEmbeddings::open(&LoaderSettings::default(), &library, shape, 1).unwrap();
    assert_eq!((targets.prompt_embeds.len(), targets.pooled.len()), (3 * 768, 3 * 4096));
    let [steady, flute, reed] = [0, 1, 2].map(|class| &targets.pooled[class * 4096..][..4096]);
    let power = steady.iter().map(|number| number * number).sum::<f32>() / 4096.0;
    assert!((power - 1.0).abs() < 0.1, "{power}");
    for (one, other, expected) in [(steady, flute, 0.5), (flute, reed, 0.5), (steady, reed, 0.0)] {
        let found = correlation(one, other);
        assert!((found - expected).abs() < 0.06, "{found}, expected {expected}");
    }
    assert!(correlation(&targets.prompt_embeds[..384], &targets.prompt_embeds[384..768]).abs() < 0.2);
    assert_eq!(TargetEmbeddings::open(&LoaderSettings::default(), &library, shape, 1).unwrap(), targets);
    assert_ne!(TargetEmbeddings::open(&LoaderSettings::default(), &library, shape, 2).unwrap().digest, targets.digest);
}

/// A file with these tensors: name, type, shape, bytes.
fn file_of(directory: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> LoaderSettings {
    let views: BTreeMap<&str, TensorView<'_>> = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()))
        .collect();
    let bytes = safetensors::serialize(views, None).unwrap();
    let path = directory.join("targets.safetensors");
    write::replace(&path, &bytes).unwrap();
    LoaderSettings { targets: Some(path), ..LoaderSettings::default() }
}

fn numbers(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn a_file_of_any_float_type_is_read_for_the_classes_of_the_data() {
    let directory = tempfile::tempdir().unwrap();
    // 1, -2, 0.5, 65504, the smallest above 0, and 0: by numpy.float16.
    let half =
        [0x3c00_u16, 0xc000, 0x3800, 0x7bff, 0x0001, 0x0000].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let bfloat = [0x3f80_u16, 0xc000, 0x3f00, 0x0000].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let settings = file_of(
        directory.path(),
        &[
            ("dog.prompt_embeds", Dtype::F16, &[2, 3], half),
            ("dog.pooled_prompt_embeds", Dtype::BF16, &[4], bfloat),
            ("cat.prompt_embeds", Dtype::F32, &[2, 3], numbers(&[6.0; 6])),
            ("cat.pooled_prompt_embeds", Dtype::F64, &[4], [7_f64; 4].iter().flat_map(|n| n.to_le_bytes()).collect()),
            ("owl.prompt_embeds", Dtype::F32, &[1], numbers(&[0.0])),
        ],
    );
    let targets = TargetEmbeddings::open(&settings, &library(&["cat", "dog"]), SHAPE, 1).unwrap();
    assert_eq!((&targets.prompt_embeds[..6], &targets.pooled[..4]), (&[6.0; 6][..], &[7.0; 4][..]));
    assert_eq!(targets.prompt_embeds[6..], [1.0, -2.0, 0.5, 65_504.0, 2f32.powi(-24), 0.0]);
    assert_eq!(targets.pooled[4..], [1.0, -2.0, 0.5, 0.0]);
}

#[test]
fn absent_classes_wrong_shapes_and_non_finite_numbers_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let whole = |name: &'static str, shape: &'static [usize], value: f32| {
        (name, Dtype::F32, shape, numbers(&vec![value; shape.iter().product()]))
    };
    let (tokens, pooled) = ("dog.prompt_embeds", "dog.pooled_prompt_embeds");
    for (tensors, part) in [
        (vec![whole(tokens, &[2, 3], 0.0)], "has no tensor `dog.pooled_prompt_embeds`"),
        (vec![whole(tokens, &[3, 2], 0.0), whole(pooled, &[4], 0.0)], "has the shape [3, 2], expected [2, 3]"),
        (vec![whole(tokens, &[2, 3], f32::NAN), whole(pooled, &[4], 0.0)], "number 0 is NaN"),
        (vec![(tokens, Dtype::U8, &[2, 3], vec![0; 6])], "the type U8"),
    ] {
        let settings = file_of(directory.path(), &tensors);
        let message = TargetEmbeddings::open(&settings, &library(&["dog"]), SHAPE, 1).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("targets.safetensors"), "{message}");
    }
    let settings = file_of(directory.path(), &[]);
    write::replace(settings.targets.as_ref().unwrap(), &[255; 40]).unwrap();
    let message = TargetEmbeddings::open(&settings, &library(&["dog"]), SHAPE, 1).unwrap_err().to_string();
    assert!(message.contains("is no safetensors file"), "{message}");
}
