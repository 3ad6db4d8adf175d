//! Does a step train each precision as it says, with no more passes than it needs?

use std::path::Path;

use super::*;
use crate::data::question_answers::generate::generate_in;
use crate::data::question_answers::settings::Generated;
use crate::nn::tests::values;
use crate::pipelines;

const STEPS_BEFORE: u64 = 6;

fn opened(folder: &Path, policy: &str) -> QatLanguageModel {
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let path = generate_in(&generated, folder).unwrap();
    let text = format!(
        "[pipeline.qat-language-model]
        sequence_length = 48
        weight_bits = [32, 3, 2]
        activation_bits = [32, 8, 8]
        key_value_bits = [32, 8, 8]
        policy = \"{policy}\"
        pretraining_steps = {STEPS_BEFORE}
        calibration_batches = 1
        ranges = \"frozen\"
        lora_rank = 2
        [model.gpt2]
        layers = 1
        heads = 2
        width = 16
        context = 48
        [dataset.question-answers]
        source = \"file\"
        path = {path:?}
        vocabulary_size = 300
        [training]
        epochs = 10
        accumulation = 2
        [limits]
        batch_size = 2
        workers = 0
        prefetch = 1"
    );
    let experiment: Experiment = toml::from_str(&text).unwrap();
    let ledger = Ledger::default();
    let (_, prepared) = pipelines::prepare(&experiment, &ledger).unwrap();
    let pipelines::Prepared::QatLanguageModel(prepared) = prepared else { unreachable!() };
    let mut task = QatLanguageModel::open(*prepared, &experiment, Kind::Cpu, &ledger, 1).unwrap();
    for step in 1..=STEPS_BEFORE {
        task.train_step(step, 0.05, &mut Entered::default()).unwrap();
    }
    task
}

#[derive(Default)]
struct Entered(Vec<&'static str>);

impl Phases for Entered {
    fn enter(&mut self, name: &'static str) {
        self.0.push(name);
    }
}

impl Entered {
    fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|entered| **entered == name).count()
    }
}

/// Two batches a step. A pass of the widest precision that trains it has its logits, too.
#[test]
fn a_narrow_precision_alone_has_a_teacher_and_a_sandwich_teaches_itself() {
    let folder = tempfile::tempdir().unwrap();
    let passes = |policy: &str, steps: u64| {
        let (mut task, mut entered) = (opened(folder.path(), policy), Entered::default());
        for step in 1..=steps {
            task.train_step(STEPS_BEFORE + step, 1e-3, &mut entered).unwrap();
        }
        (entered.count("forward_backward"), entered.count("teacher"))
    };
    assert_eq!(passes("cyclic", 3), (6, 4), "full, 3 bits, 2 bits");
    assert_eq!(passes("sandwich", 3), (18, 0));
}

#[test]
fn a_sandwich_is_the_sum_of_its_precisions_each_as_when_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut task = opened(folder.path(), "sandwich");
    task.begin_quantisation().unwrap();
    let (mut losses, mut parts, mut squares) = (0.0, Vec::new(), 0.0);
    for at in 0..3 {
        let mut gathered =
            Gathered { gradients: GradientsAccumulator::new(), parts: Vec::new(), sequences: 0, batch: String::new() };
        for number in 2 * STEPS_BEFORE..2 * STEPS_BEFORE + 2 {
            let batch = task.validation.batches.train(number).unwrap();
            let part = Part { at: Some(at), share: 0.5, teaches: false };
            task.train(&batch, part, &mut None, &mut gathered, &mut Entered::default()).unwrap();
        }
        for (name, value) in gathered.parts {
            let value = f64::from(values(value)[0]);
            match name {
                "loss" => losses += value / 2.0,
                name => parts.push((name, value)),
            }
        }
        let (_, norm) = gradients::clip(task.network().unwrap(), gathered.gradients.grads(), None);
        squares += f64::from(values(norm.unwrap())[0]).powi(2);
    }
    task.clip_norm = Some(1e9);
    let report = task.train_step(STEPS_BEFORE + 1, 0.0, &mut Entered::default()).unwrap();
    let close = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 1e-4 * expected, "{found}, expected {expected}");
        assert!(expected > 1e-4);
    };
    assert_eq!(report.kind, "sandwich");
    close(report.loss, losses);
    close(report.gradient_norm.unwrap(), squares.sqrt());
    for (name, count) in [("cross_entropy", 6), ("divergence", 4)] {
        let all: Vec<f64> = parts.iter().filter(|(part, _)| *part == name).map(|(_, value)| *value).collect();
        assert_eq!(all.len(), count, "{name}");
        let found = report.values.iter().find(|(part, _)| *part == name).unwrap().1;
        close(found, all.iter().sum::<f64>() / count as f64);
    }
}
