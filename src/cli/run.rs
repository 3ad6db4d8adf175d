//! `xrun FILE`: check, plan, train, write down.

use std::path::Path;
use std::time::Instant;

use super::RunArguments;
use super::terminal::{Failure, Terminal};
use super::training::{self, Planned};
use crate::device::Kind;
use crate::experiment::{read, resolved};
use crate::plan::{describe, fit, forecast};
use crate::results::format::LoopState;
use crate::run::launch::{self, Launch};
use crate::run::stop::StopSignal;
use crate::run::{directory, manifest};

pub fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = Terminal { quiet: arguments.display.quiet, verbose: arguments.display.verbose };
    let file = arguments.file.as_deref().ok_or_else(|| Failure::Usage("which file? xrun FILE".into()))?;
    let mut overrides = arguments.overrides.all();
    overrides.extend(arguments.name.iter().map(|name| format!("experiment.name={name:?}")));
    overrides.extend(arguments.fail_on.iter().map(|verdict| format!("memory.fail_on=\"{}\"", verdict.word())));
    let checked = read::read(file, &overrides, super::environment())?;
    let mut experiment = checked.experiment.clone();
    if experiment.sweep.take().is_some() {
        let name = file.display();
        terminal.say(&format!("{name} has a [sweep], which is left out here; `xrun sweep {name}` runs its points"));
    }
    let mut planned = Planned::new(experiment, terminal)?;
    if checked.experiment.memory.probe {
        expect(&mut planned, file, &overrides, terminal);
    }
    let (opened, task) = planned.open(1)?;
    if arguments.dry_run {
        let parameters = task.parameters();
        match arguments.display.json {
            true => terminal.json(&opened.plan.to_file(parameters)),
            false => terminal.answer(&describe::describe(&opened.plan, parameters, &task.device_name())),
        }
        return Ok(0);
    }
    let resolved = resolved::to_toml(&opened.plan.experiment, None);
    let fingerprint = manifest::fingerprint(&resolved, &opened.plan);
    let name = &opened.plan.experiment.experiment.name;
    // Until here a signal ends the program as it ends any other.
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let directory = match &arguments.directory {
        Some(path) => directory::create_at(path),
        None => directory::create(&arguments.results.folder, name, &fingerprint, chrono::Utc::now()),
    };
    let directory = directory.map_err(Failure::failed)?;
    let command = manifest::command();
    let manifest =
        manifest::manifest(&opened.plan, &directory.id, &fingerprint, &opened.chosen, &command, &checked.origins);
    launch::describe(&directory.path, &checked.text, &resolved, &manifest, &opened.plan, task.parameters())
        .map_err(Failure::failed)?;
    let launch = Launch {
        plan: &opened.plan,
        ledger: &opened.ledger,
        directory: &directory,
        state: LoopState::default(),
        segment: 0,
        gpu: opened.gpu(),
        stop_after: arguments.probe,
        started,
    };
    Ok(training::train(launch, task, &stop, &arguments.display, terminal))
}

/// Puts into the plan what memory the run will need. A probe that fails stops nothing: the run will say why better.
fn expect(planned: &mut Planned, file: &Path, overrides: &[String], terminal: Terminal) {
    let probe = match planned.probe(file, overrides) {
        Ok(probe) => probe,
        Err(error) => return terminal.detail(&format!("no forecast of memory: {error}")),
    };
    let plan = &mut planned.plan;
    let expected = forecast::forecast(&plan.to_file(probe.parameters), &plan.experiment, &probe.demand);
    let device = (planned.chosen.kind != Kind::Cpu).then_some(planned.chosen.found.free).flatten();
    let (fits, sentence) = fit::sentence(&expected, &fit::rooms(&plan.experiment.limits, device));
    match fits {
        true => terminal.detail(&format!("plan {sentence}")),
        false => terminal.say(&format!("plan {sentence}; `xrun plan {} --solve limits.batch_size`", file.display())),
    }
    plan.forecast = Some(expected);
}
