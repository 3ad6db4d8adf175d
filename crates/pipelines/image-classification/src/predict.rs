//! Answers about images: the most probable classes of each.

use serde::Serialize;
use serde_json::Value;

use super::batch::BatchLoader;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::reading::decoding::decode_bytes;
use xrun_data::reading::named_image::read_image_file;
use xrun_data::transform;

/// Number of classes in an answer.
const TOP: usize = 5;

/// Line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Most probable class.
    class: &'a str,
    /// Probability of `class`, 0..1.
    probability: f64,
    /// At most [`TOP`] classes, the most probable first.
    top: &'a [Scored<'a>],
}

#[derive(Serialize)]
struct Scored<'a> {
    class: &'a str,
    probability: f64,
}

/// Classifies each file, which is an image. `logits` returns `[n, classes]` for pixels `[n, S, S, 3]`.
///
/// # Errors
/// An answer cannot be written.
pub fn predict(
    batches: &BatchLoader,
    request: &PredictRequest<'_>,
    sink: &mut dyn PredictionSink,
    logits: impl Fn(&[u8]) -> Result<Vec<f32>, TaskError>,
) -> Result<Value, TaskError> {
    let (side, classes) = (batches.settings.image_size, &batches.labels.classes);
    for files in request.files.chunks(request.limits.batch_size) {
        let mut pixels = Vec::with_capacity(files.len() * side * side * 3);
        let read: Vec<Result<(), String>> = files
            .iter()
            .map(|path| {
                let bytes = read_image_file(path, request.limits.decode_memory)?;
                let image = decode_bytes(&bytes, batches.library.exif_orientation, request.limits.decode_memory.0)?;
                pixels.extend_from_slice(&transform::letterbox(&image, side).0.rgb);
                Ok(())
            })
            .collect();
        let logits = if pixels.is_empty() { Vec::new() } else { logits(&pixels)? };
        let mut rows = logits.chunks(classes.len());
        for (path, read) in files.iter().zip(read) {
            let item = Item::file(path);
            let row = read.and_then(|()| rows.next().ok_or_else(|| "the model gave no answer".into()));
            let top = match row {
                Ok(row) => top(row, classes),
                Err(reason) => {
                    sink.failed(item, &reason)?;
                    continue;
                }
            };
            let Some(first) = top.first() else { continue };
            let summary: Vec<String> = top.iter().map(|one| format!("{} {:.2}", one.class, one.probability)).collect();
            let answer = Answer { class: first.class, probability: first.probability, top: &top };
            sink.answered(item, &answer, &summary.join(", "))?;
        }
    }
    Ok(serde_json::json!({ "classes": classes }))
}

/// Returns the most probable classes in descending order; equal ones in the order of the classes.
fn top<'a>(logits: &[f32], classes: &'a [String]) -> Vec<Scored<'a>> {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f64> = logits.iter().map(|logit| f64::from(logit - highest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    let scored = classes.iter().zip(exponentials).map(|(class, value)| Scored { class, probability: value / sum });
    let mut all: Vec<Scored<'a>> = scored.collect();
    all.sort_by(|one, other| other.probability.total_cmp(&one.probability));
    all.truncate(TOP);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: e^1, e^2 and e^3 over their sum are 0.090031, 0.244728 and 0.665241.
    #[test]
    fn probabilities_are_the_softmax_and_the_highest_comes_first() {
        let classes = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        let found = top(&[2.0, 3.0, 1.0], &classes[..3]);
        let expected = [("b", 0.665_241), ("a", 0.244_728), ("c", 0.090_031)];
        for (found, (class, probability)) in found.iter().zip(expected) {
            assert_eq!(found.class, class);
            assert!((found.probability - probability).abs() < 1e-6, "{}", found.probability);
        }
        let equal: Vec<&str> = top(&[0.5; 6], &classes).iter().map(|one| one.class).collect();
        assert_eq!(equal, ["a", "b", "c", "d", "e"]);
    }
}
