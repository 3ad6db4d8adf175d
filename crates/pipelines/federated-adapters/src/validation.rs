//! Validation: retrieval and losses on held-out clips, on the inner device, one batch at a time.

use std::sync::Arc;

use super::clips::ClipLoader;
use super::frozen_encoder::FrozenEncoder;
use super::loss::loss;
use super::network::{Adapters, Conditioning};
use super::prepare::Prepared;
use super::retrieval::{ConfusionMatrix, mean};
use super::settings::Loss;
use super::target_tensors::TargetTensors;
use super::training::FederatedModule;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::TaskError;
use xrun_data::sound_clips::library::ClassSplit;
use xrun_training::nn::Tensor;
use xrun_training::nn::captured::Pass;
use xrun_training::nn::module_task::Evaluation;
use xrun_training::nn::step::TrainState;

/// Clips and state of all validations of a run.
#[derive(Debug)]
pub struct Validation {
    clip_loader: Arc<ClipLoader>,
    /// Held-out clips of trained classes.
    held_out: Vec<u32>,
    /// Clips of untrained classes.
    unseen: Vec<u32>,
    /// Number of trained classes, which come first.
    pub trained_classes: usize,
    first_unseen: usize,
    unseen_classes: usize,
    all_classes: usize,
    /// Classes of the clips of each node.
    node_classes: Vec<Vec<usize>>,
    batch_size: usize,
    /// Number of clips of a micro-batch.
    micro_batch_size: usize,
    loss: Loss,
    batch_registration: Registration,
}

/// Encoder and targets of an evaluation, and what captures its passes.
#[derive(Clone, Copy)]
pub struct EvaluationInputs<'a> {
    /// Network in training, with the memory of the one that is evaluated if passes are captured.
    pub trained: &'a TrainState<Adapters>,
    /// Frozen encoder.
    pub encoder: &'a FrozenEncoder,
    /// Targets of all classes.
    pub targets: &'a TargetTensors,
}

/// Results of a model on the clips of a validation.
#[derive(Clone, Debug)]
pub struct ModelEvaluation {
    /// Retrieval by the pooled output.
    pub pooled: ConfusionMatrix,
    /// Retrieval by the tokens.
    pub tokens: ConfusionMatrix,
    /// Retrieval of untrained classes by the pooled output, among all classes.
    pub unseen: ConfusionMatrix,
    loss_pooled: f64,
    loss_tokens: f64,
    clips: f64,
}

/// Progress of an evaluation.
enum Progress<'a> {
    /// The embeddings of a batch were computed, and not taken from the cache.
    FirstUse,
    /// The outputs of a micro-batch were computed; `None` in a captured pass, which no callback sees.
    Output { outputs: Option<&'a Conditioning>, ends_batch: bool },
}

/// Results of a micro-batch on the host.
struct MicroBatchResult<'a> {
    classes: &'a [u32],
    /// Cosine similarities of the pooled outputs, `[clips, classes]`.
    pooled: Vec<f32>,
    /// Cosine similarities of the tokens, `[clips, classes]`.
    tokens: Vec<f32>,
    /// Losses of the pooled outputs and of the tokens.
    losses: [f64; 2],
}

impl Validation {
    /// Selects the clips of all validations. Registers the buffer in the ledger.
    pub fn new(prepared: &Prepared, experiment: &Experiment, ledger: &Ledger) -> Self {
        let library = &prepared.clip_loader.store.library;
        let batch_size = experiment.batch_size();
        let most = experiment.validation.batches.saturating_mul(batch_size);
        let limited = |mut clips: Vec<u32>| {
            // Takes clips at even distances, because the list is ordered by class.
            let count = clips.len().min(most);
            (0..count).for_each(|at| clips[at] = clips[at * clips.len() / count]);
            clips.truncate(count);
            clips
        };
        let class_of = |clip: &u32| library.clips[*clip as usize].class as usize;
        let classes_of = |clips: &Vec<u32>| {
            let mut classes: Vec<usize> = clips.iter().map(class_of).collect();
            classes.sort_unstable();
            classes.dedup();
            classes
        };
        let unseen = library.classes_of(ClassSplit::Unseen);
        Self {
            held_out: limited(library.clips_of(ClassSplit::Federated, Split::Validation)),
            unseen: limited(library.all_of(ClassSplit::Unseen)),
            trained_classes: library.classes_of(ClassSplit::Federated).len(),
            first_unseen: unseen.start,
            unseen_classes: unseen.len(),
            all_classes: library.classes.len(),
            node_classes: prepared.nodes.iter().map(classes_of).collect(),
            batch_size,
            micro_batch_size: experiment.limits.batch_size.min(batch_size),
            loss: prepared.settings.loss,
            batch_registration: prepared.buffers.validation_batch.register(ledger),
            clip_loader: prepared.clip_loader.clone(),
        }
    }

    /// Number of batches of an evaluation of one model.
    pub fn batches(&self) -> u64 {
        (self.held_out.len().div_ceil(self.batch_size) + self.unseen.len().div_ceil(self.batch_size)) as u64
    }

    /// Number of batches of an evaluation of a node's own model.
    pub fn batches_of_node(&self) -> u64 {
        self.held_out.len().div_ceil(self.batch_size) as u64
    }

    /// Evaluates `clips` by micro-batches: calls `on_progress` with the outputs of each, and `on_result` with its results.
    fn for_each_micro_batch(
        &self,
        clips: &[u32],
        network: &Adapters,
        inputs: EvaluationInputs<'_>,
        mut on_progress: impl FnMut(Progress<'_>) -> Result<(), TaskError>,
        mut on_result: impl FnMut(&MicroBatchResult<'_>),
    ) -> Result<(), TaskError> {
        for clips in clips.chunks(self.batch_size) {
            let batch = self.clip_loader.batch(clips.to_vec(), "")?;
            self.batch_registration.set(1, batch.deep_size());
            let embeddings = inputs.encoder.embed(&batch, &self.clip_loader);
            if batch.is_first_use() {
                on_progress(Progress::FirstUse)?;
            }
            for from in (0..batch.size()).step_by(self.micro_batch_size) {
                let to = (from + self.micro_batch_size).min(batch.size());
                let classes = &batch.classes[from..to];
                let staged = vec![inputs.encoder.data(&embeddings, from, to), TargetTensors::data(classes)];
                let (mut shown, is_captured) = (None, inputs.trained.captures_passes());
                let found = inputs.trained.outputs(Pass::new(staged), &mut |staged| {
                    let outputs = network.forward(staged.floats());
                    shown = (!is_captured).then(|| outputs.clone());
                    let targets = inputs.targets.select_on_device(staged.ints());
                    let losses = [
                        loss(outputs.pooled.clone(), targets.pooled, self.loss),
                        loss(outputs.token_embeds.clone(), targets.token_embeds, self.loss),
                    ];
                    let cosines = inputs.targets.cosines(outputs);
                    let rows = [cosines.pooled, cosines.token_embeds].map(|cosines| cosines.reshape([-1]));
                    rows.into_iter().chain([Tensor::cat(losses.into(), 0)]).collect()
                })?;
                on_progress(Progress::Output { outputs: shown.as_ref(), ends_batch: to == batch.size() })?;
                let found = <[Vec<f32>; 3]>::try_from(found);
                let [pooled, tokens, losses] = found.unwrap_or_else(|_| unreachable!("a pass has three outputs"));
                let losses = [losses[0], losses[1]].map(f64::from);
                on_result(&MicroBatchResult { classes, pooled, tokens, losses });
            }
            self.batch_registration.set(0, 0);
        }
        Ok(())
    }

    /// Class of each clip with its row of cosine similarities.
    fn cosine_rows<'a>(&self, classes: &'a [u32], rows: &'a [f32]) -> impl Iterator<Item = (usize, &'a [f32])> {
        classes.iter().map(|class| *class as usize).zip(rows.chunks(self.all_classes))
    }

    /// Retrieval of a node's own model on all held-out clips, by the pooled output.
    pub fn evaluate_node(
        &self,
        network: &Adapters,
        inputs: EvaluationInputs<'_>,
    ) -> Result<ConfusionMatrix, TaskError> {
        let mut answers = ConfusionMatrix::new(self.trained_classes, self.trained_classes);
        self.for_each_micro_batch(
            &self.held_out,
            network,
            inputs,
            |_| Ok(()),
            |result| {
                for (class, cosines) in self.cosine_rows(result.classes, &result.pooled) {
                    answers.add(class, &cosines[..self.trained_classes]);
                }
            },
        )?;
        Ok(answers)
    }

    /// Evaluates the model `number` of `count` on held-out clips and on untrained classes.
    pub fn evaluate(
        &self,
        network: &Adapters,
        inputs: EvaluationInputs<'_>,
        (number, count): (usize, usize),
        evaluation: &mut Evaluation<'_, FederatedModule>,
    ) -> Result<ModelEvaluation, TaskError> {
        let (mut done, all) = (number as u64 * self.batches(), count as u64 * self.batches());
        evaluation.enter("validation");
        let mut results = ModelEvaluation {
            pooled: ConfusionMatrix::new(self.trained_classes, self.trained_classes),
            tokens: ConfusionMatrix::new(self.trained_classes, self.trained_classes),
            unseen: ConfusionMatrix::new(self.unseen_classes, self.all_classes),
            loss_pooled: 0.0,
            loss_tokens: 0.0,
            clips: self.held_out.len() as f64,
        };
        let mut advance = |evaluation: &mut Evaluation<'_, FederatedModule>, progress: &Progress<'_>| match progress {
            Progress::FirstUse => evaluation.first_use(),
            Progress::Output { ends_batch, .. } => {
                done += u64::from(*ends_batch);
                evaluation.batch_done(done, all);
            }
        };
        self.for_each_micro_batch(
            &self.held_out,
            network,
            inputs,
            |progress| {
                if let Progress::Output { outputs: Some(outputs), .. } = &progress {
                    evaluation.output(outputs)?;
                }
                advance(evaluation, &progress);
                Ok(())
            },
            |result| {
                for (class, cosines) in self.cosine_rows(result.classes, &result.pooled) {
                    results.pooled.add(class, &cosines[..self.trained_classes]);
                }
                for (class, cosines) in self.cosine_rows(result.classes, &result.tokens) {
                    results.tokens.add(class, &cosines[..self.trained_classes]);
                }
                results.loss_pooled += result.losses[0];
                results.loss_tokens += result.losses[1];
            },
        )?;
        evaluation.enter("validation_unheard");
        self.for_each_micro_batch(
            &self.unseen,
            network,
            inputs,
            |progress| {
                advance(evaluation, &progress);
                Ok(())
            },
            |result| {
                for (class, cosines) in self.cosine_rows(result.classes, &result.pooled) {
                    results.unseen.add(class - self.first_unseen, cosines);
                }
            },
        )?;
        Ok(results)
    }

    /// Computes the metrics. `evaluations` are those of the server's model or of one model per node; `local` are the retrieval
    /// counts of each node's own model at the end of its last turn, empty before its first.
    pub fn metrics(
        &self,
        evaluations: &[ModelEvaluation],
        local: &[ConfusionMatrix],
        drift: Option<f64>,
    ) -> Vec<(String, Option<f64>)> {
        let mean_of = |value: &dyn Fn(&ModelEvaluation) -> Option<f64>| mean(evaluations.iter().filter_map(value));
        let accuracy = |counts: &ConfusionMatrix| counts.accuracy(0..self.trained_classes, |class| class);
        let node_accuracies: Vec<f64> = self
            .node_classes
            .iter()
            .enumerate()
            .filter_map(|(node, classes)| {
                let evaluation = evaluations.get(node).or(evaluations.first())?;
                evaluation.pooled.accuracy(classes.iter().copied(), |class| class)
            })
            .collect();
        let chance = |choices: usize| (choices > 0).then(|| 100.0 / choices as f64);
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let unseen =
            |one: &ModelEvaluation| one.unseen.accuracy(0..self.unseen_classes, |class| class + self.first_unseen);
        let chance_unseen = chance(self.all_classes).filter(|_| !self.unseen.is_empty());
        let named = [
            ("retrieval", mean_of(&|one| accuracy(&one.pooled))),
            ("retrieval_tokens", mean_of(&|one| accuracy(&one.tokens))),
            ("retrieval_node_mean", mean(node_accuracies.iter().copied())),
            ("retrieval_node_least", node_accuracies.iter().copied().reduce(f64::min)),
            ("retrieval_local", mean(local.iter().filter_map(accuracy))),
            ("chance", chance(self.trained_classes)),
            ("retrieval_unheard", mean_of(&unseen)),
            ("chance_unheard", chance_unseen),
            ("loss_pooled", mean_of(&|one| finite(one.loss_pooled / one.clips))),
            ("loss_tokens", mean_of(&|one| finite(one.loss_tokens / one.clips))),
            ("drift", drift),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
