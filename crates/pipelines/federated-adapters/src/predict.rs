//! Prediction: pooled outputs of the server's model for the given sounds, and the classes with the nearest targets.

use std::path::Path;

use serde::Serialize;

use super::network::Adapters;
use super::training::FederatedModule;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::sound_clips::library::ClassSplit;
use xrun_training::nn::Tensor;

/// Number of classes in an answer.
const NEAREST: usize = 5;

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Trained classes, the nearest target first.
    nearest: Vec<NearestClass<'a>>,
    /// Pooled output.
    embedding: &'a [f32],
}

#[derive(Serialize)]
struct NearestClass<'a> {
    class: &'a str,
    /// Cosine similarity of the pooled output and the target of the class.
    cosine: f32,
}

impl FederatedModule {
    /// Answers about each file, which is a sound. `network` is on the inner device.
    ///
    /// # Errors
    /// An answer cannot be written.
    pub(super) fn answer_files(
        &self,
        network: &Adapters,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError> {
        let library = &self.clip_loader.store.library;
        let trained_classes = &library.classes[library.classes_of(ClassSplit::Federated)];
        for files in request.files.chunks(request.limits.batch_size) {
            let mut rows = Vec::new();
            let failures: Vec<Option<String>> = files.iter().map(|path| self.encode(path, &mut rows).err()).collect();
            let count = failures.iter().filter(|failure| failure.is_none()).count();
            let (pooled, cosines) = self.outputs(network, &rows, count);
            let width = pooled.len() / count.max(1);
            let all = library.classes.len();
            let mut answers = pooled.chunks(width.max(1)).zip(cosines.chunks(all.max(1)));
            for (path, failure) in files.iter().zip(failures) {
                let item = Item::file(path);
                let answer = if failure.is_none() { answers.next() } else { None };
                let Some((embedding, cosines)) = answer else {
                    sink.failed(item, &failure.unwrap_or_else(|| "the model gave no answer".into()))?;
                    continue;
                };
                // Trained classes precede the others in the rows of cosines.
                let by_class = trained_classes
                    .iter()
                    .zip(cosines)
                    .map(|(class, cosine)| NearestClass { class: &class.name, cosine: *cosine });
                let mut nearest: Vec<NearestClass<'_>> = by_class.collect();
                nearest.sort_by(|one, other| other.cosine.total_cmp(&one.cosine));
                nearest.truncate(NEAREST);
                let words: Vec<String> =
                    nearest.iter().map(|near| format!("{} {:.2}", near.class, near.cosine)).collect();
                sink.answered(
                    item,
                    &Answer { nearest, embedding },
                    &format!("nearest by cosine: {}", words.join(", ")),
                )?;
            }
        }
        Ok(serde_json::json!({ "classes": trained_classes.iter().map(|class| &class.name).collect::<Vec<_>>() }))
    }

    /// Appends the embedding of a sound to `rows`.
    fn encode(&self, path: &Path, rows: &mut Vec<f32>) -> Result<(), String> {
        let spectrum = self.clip_loader.store.log_mel_of(path)?;
        let tokens: Vec<f32> =
            self.frozen_encoder.encode(&spectrum, self.frozen_encoder.device()).into_data().iter::<f32>().collect();
        self.clip_loader.rounded(&tokens).extend(rows);
        Ok(())
    }

    /// Pooled outputs of `count` sounds, and their cosine similarities with the targets of all classes.
    fn outputs(&self, network: &Adapters, rows: &[f32], count: usize) -> (Vec<f32>, Vec<f32>) {
        if count == 0 {
            return (Vec::new(), Vec::new());
        }
        let outputs = network.forward(self.frozen_encoder.on_device(rows, 0, count, self.frozen_encoder.device()));
        let numbers = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().collect();
        (numbers(outputs.pooled.clone()), numbers(self.targets.cosines(outputs).pooled))
    }
}
