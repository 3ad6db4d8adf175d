//! What does the server's model make of sounds of a person's own? The pooled output, and the classes whose targets are nearest.

use std::path::Path;

use serde::Serialize;

use super::adapters::Adapters;
use super::encoding::Encoding;
use super::sounds::Sounds;
use super::target_tensors::TargetTensors;
use crate::nn::Tensor;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::sound_clips::library::Role;

/// Classes that are named for each sound.
const NEAREST: usize = 5;

/// The plain network with the server's adapters, and what its outputs are made with and compared with.
#[derive(Debug)]
pub struct Model<'a> {
    /// Of the server, on the plain device.
    pub network: Adapters,
    /// Makes the tokens that the adapters see.
    pub encoding: &'a Encoding,
    /// Of all classes of the data.
    pub targets: &'a TargetTensors,
    /// Names the classes, and makes spectra as those of clips.
    pub sounds: &'a Sounds,
}

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Classes that are learnt, the nearest target first.
    nearest: Vec<Near<'a>>,
    /// The pooled output.
    embedding: &'a [f32],
}

#[derive(Serialize)]
struct Near<'a> {
    class: &'a str,
    /// Of the pooled output with the target of the class.
    cosine: f32,
}

impl Model<'_> {
    /// Answers about each file, which is a sound.
    ///
    /// # Errors
    /// An answer cannot be written.
    pub fn predict(
        &self,
        asked: &PredictRequest<'_>,
        told: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError> {
        let library = self.sounds.store().library();
        let learnt = &library.classes[library.classes_of(Role::Nodes)];
        for files in asked.files.chunks(asked.limits.batch_size) {
            let mut rows = Vec::new();
            let wrong: Vec<Option<String>> = files.iter().map(|path| self.encode(path, &mut rows).err()).collect();
            let count = wrong.iter().filter(|wrong| wrong.is_none()).count();
            let (pooled, cosines) = self.outputs(&rows, count);
            let width = pooled.len() / count.max(1);
            let all = library.classes.len();
            let mut answers = pooled.chunks(width.max(1)).zip(cosines.chunks(all.max(1)));
            for (path, wrong) in files.iter().zip(wrong) {
                let item = Item::file(path);
                let answer = if wrong.is_none() { answers.next() } else { None };
                let Some((embedding, cosines)) = answer else {
                    told.failed(item, &wrong.unwrap_or_else(|| "the model said nothing of it".into()))?;
                    continue;
                };
                // Classes that are learnt come first.
                let near =
                    learnt.iter().zip(cosines).map(|(class, cosine)| Near { class: &class.name, cosine: *cosine });
                let mut nearest: Vec<Near<'_>> = near.collect();
                nearest.sort_by(|one, other| other.cosine.total_cmp(&one.cosine));
                nearest.truncate(NEAREST);
                let words: Vec<String> =
                    nearest.iter().map(|near| format!("{} {:.2}", near.class, near.cosine)).collect();
                told.answered(item, &Answer { nearest, embedding }, &words.join(", "))?;
            }
        }
        Ok(serde_json::json!({ "classes": learnt.iter().map(|class| &class.name).collect::<Vec<_>>() }))
    }

    /// Adds the encoder's tokens of a sound.
    fn encode(&self, path: &Path, rows: &mut Vec<f32>) -> Result<(), String> {
        let spectrum = self.sounds.store().log_mel_of(path)?;
        let made: Vec<f32> =
            self.encoding.encode(&spectrum, self.encoding.device()).into_data().iter::<f32>().collect();
        self.sounds.rounded(&made).extend(rows);
        Ok(())
    }

    /// Of so many sounds: the pooled outputs, and their cosines with the targets of all classes.
    fn outputs(&self, rows: &[f32], count: usize) -> (Vec<f32>, Vec<f32>) {
        if count == 0 {
            return (Vec::new(), Vec::new());
        }
        let outputs = self.network.forward(self.encoding.on_device(rows, 0, count, self.encoding.device()));
        let numbers = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().collect();
        (numbers(outputs.pooled.clone()), numbers(self.targets.cosines(outputs).pooled))
    }
}
