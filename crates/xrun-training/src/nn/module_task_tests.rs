//! Order of the hooks of a module and of its callback, and the defaults of a step.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use burn::module::{Param, ParamId};
use burn::optim::GradientsParams;

use super::super::testing::{autodiff, close, values};
use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_data::feed::{self, FeedSettings};

/// Line through 0.
#[derive(Module, Debug)]
struct Line {
    slope: Param<Tensor<1>>,
}

#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, event: impl Into<String>) {
        self.0.borrow_mut().push(event.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

impl Phases for Log {
    fn enter(&mut self, _: &'static str) {}
}

/// Module whose loss is the slope times the batch, a number.
struct Slope(Log);

impl TrainingModule for Slope {
    type Batch = f64;
    type Network = Line;
    type Output = f64;
    const MODEL: &'static str = "line";

    fn before_step(&mut self, number: u64, _: &mut TrainState<Line>, _: &mut dyn Phases) -> Result<(), TaskError> {
        self.0.add(format!("before_step {number}"));
        Ok(())
    }

    fn train(&mut self, batch: &f64, step: &mut Step<'_, Line>) -> Result<(), TaskError> {
        self.0.add(format!("train {batch}"));
        step.micro_batch("error", 1, Vec::new(), |network, _| network.slope.val().mul_scalar(*batch).sum())
    }

    fn update(
        &mut self,
        rate: f64,
        gradients: GradientsParams,
        trained: &mut TrainState<Line>,
    ) -> Result<(), TaskError> {
        self.0.add("update");
        trained.update(rate, gradients)
    }

    fn after_step(&mut self, _: &mut TrainState<Line>, _: &mut dyn Phases) -> Result<(), TaskError> {
        self.0.add("after_step");
        Ok(())
    }

    fn validate(&mut self, _: &Line, evaluation: &mut Evaluation<'_, Self>) -> Result<ValidationReport, TaskError> {
        self.0.add("validate");
        evaluation.output(&7.0)?;
        Ok(ValidationReport::default())
    }
}

/// Callback that writes down the events.
fn logging(log: &Log) -> Callback<Slope> {
    let log = log.clone();
    Box::new(move |event, _| {
        log.add(match event {
            Event::StepStart { step, .. } => format!("on_step_start {step}"),
            Event::BatchEnd { batch, is_last, .. } => format!("on_batch_end {batch} {is_last}"),
            Event::BeforeUpdate(gradients) => {
                close(&values(gradients.get::<1>(ParamId::from(1)).unwrap()), &[1.5], 1e-6);
                "on_before_update".into()
            }
            Event::StepEnd { step, learning_rate, report, .. } => {
                format!("on_step_end {step} {learning_rate} {}", report.loss)
            }
            Event::ValidationStart(_) => "on_validation_start".into(),
            Event::ValidationOutput(7.0) => "on_validation_output".into(),
            Event::ValidationOutput(_) => return Err(TaskError::Rejected("another output".into())),
            Event::ValidationEnd => "on_validation_end".into(),
        });
        Ok(())
    })
}

/// Task with the batches 1, 2, 3, …, two in each step.
fn task(log: &Log) -> ModuleTask<Slope> {
    let text = "[pipeline.dummy]\n[optimizer.sgd]\nmomentum = 0.0\nweight_decay = 0.0\n[training]\ngradient_accumulation = 2\n\
                [limits]\nworkers = 0";
    let experiment: Experiment = toml::from_str(text).unwrap();
    let buffers = feed::Buffers::new(&experiment.limits, 1 << 10);
    let settings = FeedSettings::new(&experiment.limits, &experiment.training, 1);
    let feed = Feed::new(&Ledger::default(), &buffers, settings, Arc::new(|number| Ok(number as f64 + 1.0))).unwrap();
    let slope = Tensor::from_floats([1.0], &autodiff()).require_grad();
    let network = Line { slope: Param::initialized(ParamId::from(1), slope) };
    let device = TensorDevice::open(DeviceKind::Cpu, false).unwrap();
    ModuleTask::new(Slope(log.clone()), network, device, feed, &experiment)
}

#[test]
fn hooks_of_module_and_callback_are_called_in_order() {
    let log = Log::default();
    let mut task = task(&log).with_callbacks(vec![logging(&log)]);
    let report = task.train_step(1, 0.5, &mut log.clone()).unwrap();
    let expected = [
        "on_step_start 1",
        "before_step 1",
        "train 1",
        "on_batch_end 1 false",
        "train 2",
        "on_batch_end 2 true",
        "on_before_update",
        "update",
        "after_step",
        "on_step_end 1 0.5 1.5",
    ];
    assert_eq!(log.take(), expected);
    assert_eq!((report.kind, report.loss, report.items), ("training", 1.5, 2));
    close(&values(task.trained.inner().unwrap().slope.val()), &[1.0 - 0.5 * 1.5], 1e-6);
    assert!(task.predictor().is_none(), "the module does not predict");
    task.validate(&mut log.clone()).unwrap();
    assert_eq!(log.take(), ["on_validation_start", "validate", "on_validation_output", "on_validation_end"]);
}
