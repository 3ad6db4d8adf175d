//! How well do adapters find the targets of clips that were held out? Without autodiff, one batch at a time.

use std::sync::Arc;

use super::adapters::{Adapters, Conditioning};
use super::encoding::Encoding;
use super::loss::loss;
use super::prepare::Prepared;
use super::retrieval::{Answers, mean};
use super::settings::{Loss, batch_size};
use super::sounds::Sounds;
use super::target_tensors::TargetTensors;
use super::training::FederatedModule;
use crate::nn::Tensor;
use crate::nn::module_task::Evaluation;
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::TaskError;
use xrun_data::sound_clips::library::Role;

/// What every validation uses again.
#[derive(Debug)]
pub struct Validation {
    sounds: Arc<Sounds>,
    /// Clips of the classes that are learnt, which no node has.
    held_out: Vec<u32>,
    /// Clips of classes that no training has.
    unheard: Vec<u32>,
    /// Classes that are learnt, which come first.
    classes: usize,
    first_unheard: usize,
    unheard_classes: usize,
    all_classes: usize,
    /// Classes that each node has clips of.
    of_node: Vec<Vec<usize>>,
    batch_size: usize,
    /// Clips that are on the device at once.
    part_size: usize,
    loss: Loss,
    batch: Holding,
}

/// What an output is made with and compared with.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// What makes tokens of clips.
    pub encoding: &'a Encoding,
    /// The targets of all classes.
    pub targets: &'a TargetTensors,
}

/// What a model said of clips that are held out.
#[derive(Clone, Debug)]
pub struct HeldOutAnswers {
    /// Answers by the pooled output.
    pub pooled: Answers,
    /// Answers by the output of tokens.
    pub tokens: Answers,
    /// Of unheard classes, among all.
    pub unheard: Answers,
    loss_pooled: f64,
    loss_tokens: f64,
    clips: f64,
}

/// A batch's outputs on the host: cosines with the targets of all classes, row by row.
struct Rows<'a> {
    classes: &'a [u32],
    pooled: Vec<f32>,
    tokens: Vec<f32>,
    losses: [f64; 2],
}

impl Validation {
    /// Chooses the clips that every validation looks at. Its buffer enters the ledger.
    pub fn new(prepared: &Prepared, experiment: &Experiment, ledger: &Ledger) -> Self {
        let library = prepared.sounds.store().library();
        let batch_size = batch_size(&experiment.training);
        let most = experiment.validation.episodes.saturating_mul(batch_size);
        let limited = |mut clips: Vec<u32>| {
            // From all over the list, which goes by class.
            let kept = clips.len().min(most);
            (0..kept).for_each(|at| clips[at] = clips[at * clips.len() / kept]);
            clips.truncate(kept);
            clips
        };
        let class_of = |clip: &u32| library.clips[*clip as usize].class as usize;
        let of_node = |clips: &Vec<u32>| {
            let mut classes: Vec<usize> = clips.iter().map(class_of).collect();
            classes.sort_unstable();
            classes.dedup();
            classes
        };
        let unheard = library.classes_of(Role::Unheard);
        Self {
            held_out: limited(library.clips_of(Role::Nodes, Split::Validation)),
            unheard: limited(library.all_of(Role::Unheard)),
            classes: library.classes_of(Role::Nodes).len(),
            first_unheard: unheard.start,
            unheard_classes: unheard.len(),
            all_classes: library.classes.len(),
            of_node: prepared.nodes.iter().map(of_node).collect(),
            batch_size,
            part_size: experiment.limits.batch_size.min(batch_size),
            loss: prepared.settings.loss,
            batch: prepared.buffers.validation_batch.register(ledger),
            sounds: prepared.sounds.clone(),
        }
    }

    /// Classes that nodes learn.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Hands the rows of all clips to `see`, and the outputs that they come from to `output`.
    fn each(
        &self,
        clips: &[u32],
        network: &Adapters,
        means: Means<'_>,
        mut output: impl FnMut(&Conditioning) -> Result<(), TaskError>,
        mut see: impl FnMut(&Rows<'_>),
    ) -> Result<(), TaskError> {
        for clips in clips.chunks(self.batch_size) {
            let batch = self.sounds.batch(clips.to_vec(), "")?;
            self.batch.set(1, batch.held_bytes());
            let tokens = means.encoding.tokens(&batch, &self.sounds);
            for from in (0..batch.size()).step_by(self.part_size) {
                let to = (from + self.part_size).min(batch.size());
                let classes = &batch.classes[from..to];
                let outputs = network.forward(means.encoding.on_device(&tokens, from, to, means.encoding.device()));
                output(&outputs)?;
                let targets = means.targets.of(classes);
                let losses = [
                    loss(outputs.pooled.clone(), targets.pooled, self.loss),
                    loss(outputs.tokens.clone(), targets.tokens, self.loss),
                ];
                let numbers = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().collect();
                let losses: Vec<f64> = Tensor::cat(losses.into(), 0).into_data().iter::<f32>().map(f64::from).collect();
                let cosines = means.targets.cosines(outputs);
                let (pooled, tokens) = (numbers(cosines.pooled), numbers(cosines.tokens));
                see(&Rows { classes, pooled, tokens, losses: [losses[0], losses[1]] });
            }
            self.batch.set(0, 0);
        }
        Ok(())
    }

    /// The cosines of each clip of a batch with the targets of all classes.
    fn by_clip<'a>(&self, classes: &'a [u32], rows: &'a [f32]) -> impl Iterator<Item = (usize, &'a [f32])> {
        classes.iter().map(|class| *class as usize).zip(rows.chunks(self.all_classes))
    }

    /// What a node's own model knows: answers for all held-out clips, by the pooled output.
    pub fn of_node(&self, network: &Adapters, means: Means<'_>) -> Result<Answers, TaskError> {
        let mut answers = Answers::new(self.classes, self.classes);
        self.each(
            &self.held_out,
            network,
            means,
            |_| Ok(()),
            |rows| {
                for (class, cosines) in self.by_clip(rows.classes, &rows.pooled) {
                    answers.add(class, &cosines[..self.classes]);
                }
            },
        )?;
        Ok(answers)
    }

    /// What a model knows of held-out clips and of unheard classes.
    pub fn evaluate(
        &self,
        network: &Adapters,
        means: Means<'_>,
        evaluation: &mut Evaluation<'_, FederatedModule>,
    ) -> Result<HeldOutAnswers, TaskError> {
        evaluation.enter("validation");
        let mut evaluated = HeldOutAnswers {
            pooled: Answers::new(self.classes, self.classes),
            tokens: Answers::new(self.classes, self.classes),
            unheard: Answers::new(self.unheard_classes, self.all_classes),
            loss_pooled: 0.0,
            loss_tokens: 0.0,
            clips: self.held_out.len() as f64,
        };
        let output = |output: &Conditioning| evaluation.output(output);
        self.each(&self.held_out, network, means, output, |rows| {
            for (class, cosines) in self.by_clip(rows.classes, &rows.pooled) {
                evaluated.pooled.add(class, &cosines[..self.classes]);
            }
            for (class, cosines) in self.by_clip(rows.classes, &rows.tokens) {
                evaluated.tokens.add(class, &cosines[..self.classes]);
            }
            evaluated.loss_pooled += rows.losses[0];
            evaluated.loss_tokens += rows.losses[1];
        })?;
        evaluation.enter("validation_unheard");
        self.each(
            &self.unheard,
            network,
            means,
            |_| Ok(()),
            |rows| {
                for (class, cosines) in self.by_clip(rows.classes, &rows.pooled) {
                    evaluated.unheard.add(class - self.first_unheard, cosines);
                }
            },
        )?;
        Ok(evaluated)
    }

    /// `evaluated` has what each node's model said, or what the only one said; `alone` what each node's own model said at the end
    /// of its last turn, with no clips before its first.
    pub fn metrics(
        &self,
        evaluated: &[HeldOutAnswers],
        alone: &[Answers],
        drift: Option<f64>,
    ) -> Vec<(String, Option<f64>)> {
        let of_all = |of: &dyn Fn(&HeldOutAnswers) -> Option<f64>| mean(evaluated.iter().filter_map(of));
        let right = |answers: &Answers| answers.right(0..self.classes, |class| class);
        let of_nodes: Vec<f64> = self
            .of_node
            .iter()
            .enumerate()
            .filter_map(|(node, classes)| {
                let evaluated = evaluated.get(node).or(evaluated.first())?;
                evaluated.pooled.right(classes.iter().copied(), |class| class)
            })
            .collect();
        let percent = |choices: usize| (choices > 0).then(|| 100.0 / choices as f64);
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let unheard = |evaluated: &HeldOutAnswers| {
            evaluated.unheard.right(0..self.unheard_classes, |class| class + self.first_unheard)
        };
        let chance_unheard = percent(self.all_classes).filter(|_| !self.unheard.is_empty());
        let named = [
            ("retrieval", of_all(&|evaluated| right(&evaluated.pooled))),
            ("retrieval_tokens", of_all(&|evaluated| right(&evaluated.tokens))),
            ("retrieval_node_mean", mean(of_nodes.iter().copied())),
            ("retrieval_node_least", of_nodes.iter().copied().reduce(f64::min)),
            ("retrieval_local", mean(alone.iter().filter_map(right))),
            ("chance", percent(self.classes)),
            ("retrieval_unheard", of_all(&unheard)),
            ("chance_unheard", chance_unheard),
            ("loss_pooled", of_all(&|evaluated| finite(evaluated.loss_pooled / evaluated.clips))),
            ("loss_tokens", of_all(&|evaluated| finite(evaluated.loss_tokens / evaluated.clips))),
            ("drift", drift),
        ];
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
