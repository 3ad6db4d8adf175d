//! From the path of a file to a checked experiment, or to everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::expand::expand;
use super::layers::{self, Layer};
use super::merge::Merged;
use super::pipeline::Model;
use super::{Experiment, check, overrides, pattern, schema, walk, walk_sweep};
use crate::dataset::Dataset;
use crate::problem::{Place, Problem, Problems};

/// An experiment in which every value is known and allowed.
#[derive(Clone, Debug)]
pub struct Checked {
    /// All layers together, with defaults filled in.
    pub experiment: Experiment,
    /// Where each value came from, by dotted key: `experiments/x.toml:12`, `command line`, `default`.
    pub origins: BTreeMap<String, String>,
    /// The bytes of the experiment's own file.
    pub text: Vec<u8>,
    /// Every file that was read: the experiment's own and those that it extends.
    pub files: Vec<PathBuf>,
    /// The key that names the data, and where it was set.
    pub data: (String, Option<Place>),
    /// Where the values of the data set were set, by dotted key; those that are defaults are not there.
    pub places: BTreeMap<String, Place>,
}

/// Reads and checks an experiment file. `command_line` are `key=value` overrides, `environment` all variables.
///
/// # Errors
/// Everything that is wrong, at once, each with its place.
pub fn read(
    path: &Path,
    command_line: &[String],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Checked, Problems> {
    let (checked, of_disk) = read_as_written(path, command_line, environment)?;
    if of_disk.is_empty() { Ok(checked) } else { Err(of_disk) }
}

/// As [`read`], and with it what is wrong with the files and folders that it names, where nothing else is wrong.
///
/// # Errors
/// Something is wrong that is written.
pub fn read_as_written(
    path: &Path,
    command_line: &[String],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(Checked, Problems), Problems> {
    let set = |_: &[Layer], schema: &Value, problems: &mut Problems| {
        overrides::from_command_line(command_line, schema, problems)
    };
    let mut loaded = Loaded::new(path, environment.collect(), set);
    let (experiment, origins, of_disk) = loaded.check_as_written()?;
    let data = loaded.data(&experiment);
    let places = loaded.places(origins.keys().filter(|key| key.starts_with("dataset.")));
    Ok((Checked { experiment, origins, text: loaded.files.text, files: loaded.files.paths, data, places }, of_disk))
}

/// All layers of an experiment, each checked by itself.
pub(super) struct Loaded {
    files: layers::Files,
    pub(super) layers: Vec<Layer>,
    problems: Problems,
    doubtful: BTreeSet<String>,
    environment: BTreeMap<String, String>,
    name: Option<String>,
}

impl Loaded {
    /// Reads the files and puts the environment over them; `set` gives the layers above those, from the ones below.
    pub(super) fn new(
        path: &Path,
        environment: BTreeMap<String, String>,
        set: impl FnOnce(&[Layer], &Value, &mut Problems) -> Vec<Layer>,
    ) -> Self {
        let schema = schema::shared();
        let mut files = layers::load(path);
        let mut problems = std::mem::take(&mut files.problems);
        let mut layers = std::mem::take(&mut files.layers);
        layers.extend(overrides::from_environment(environment.iter(), schema, &mut problems));
        layers.iter_mut().for_each(|layer| walk_sweep::gather(&mut layer.entries, schema));
        let mut above = set(&layers, schema, &mut problems);
        above.iter_mut().for_each(|layer| walk_sweep::gather(&mut layer.entries, schema));
        layers.extend(above);

        let mut findings = walk::Findings::default();
        for layer in &mut layers {
            let found = walk::walk(&mut layer.entries, schema);
            findings.problems.extend(found.problems);
            findings.doubtful.extend(found.doubtful);
        }
        layers::keep_last_kinds(&mut layers, schema);
        let name = path.file_stem().map(|stem| pattern::name_from(&stem.to_string_lossy()));
        if let (Some(start), false) = (&files.start, files.incomplete) {
            walk::missing(&Merged::new(&layers, None).union(), schema, start, &mut findings);
        }
        problems.extend(findings.problems);
        Self { files, layers, problems, doubtful: findings.doubtful, environment, name }
    }

    /// Puts the layers together and looks at the whole.
    pub(super) fn check(&mut self) -> Result<(Experiment, BTreeMap<String, String>), Problems> {
        let (experiment, origins, of_disk) = self.check_as_written()?;
        if of_disk.is_empty() { Ok((experiment, origins)) } else { Err(of_disk) }
    }

    /// The same, and what is wrong on the disk where nothing is wrong that is written.
    fn check_as_written(&mut self) -> Result<(Experiment, BTreeMap<String, String>, Problems), Problems> {
        let mut problems = std::mem::take(&mut self.problems);
        let merged = Merged::new(&self.layers, self.name.as_deref());
        let extracted = if self.files.incomplete { None } else { merged.extract().ok() };
        let Some(experiment) = extracted else {
            if problems.is_empty() {
                // The schema let it pass and the types did not; they say what they miss.
                if let Err(problem) = merged.extract() {
                    problems.add(problem);
                }
            }
            return Err(in_order(problems, &self.layers));
        };
        let (experiment, found) = self.whole(experiment, &merged);
        found.into_iter().for_each(|problem| problems.add(problem));
        let is_written_right = problems.left_out == 0 && problems.iter().all(|problem| problem.is_of_disk);
        let problems = in_order(problems, &self.layers);
        if !is_written_right {
            return Err(problems);
        }
        let origins = merged.origins(&experiment);
        Ok((experiment, origins, problems))
    }

    fn data(&self, experiment: &Experiment) -> (String, Option<Place>) {
        let merged = Merged::new(&self.layers, self.name.as_deref());
        let key = experiment.dataset.as_ref().map_or_else(String::new, |data| format!("dataset.{}.path", data.name()));
        let place = merged.place(&key);
        (key, place)
    }

    fn places<'a>(&self, keys: impl Iterator<Item = &'a String>) -> BTreeMap<String, Place> {
        let merged = Merged::new(&self.layers, self.name.as_deref());
        keys.filter_map(|key| Some((key.clone(), merged.place(key)?))).collect()
    }

    /// The experiment with one more layer above, whose values were checked by themselves.
    pub(super) fn with(&self, above: Layer) -> Result<Experiment, Vec<Problem>> {
        let mut layers = self.layers.clone();
        layers.push(above);
        layers::keep_last_kinds(&mut layers, schema::shared());
        let merged = Merged::new(&layers, self.name.as_deref());
        let experiment = merged.extract().map_err(|problem| vec![problem])?;
        let (experiment, found) = self.whole(experiment, &merged);
        if found.is_empty() { Ok(experiment) } else { Err(found) }
    }

    /// Looks for values that contradict one another.
    fn whole(&self, mut experiment: Experiment, merged: &Merged<'_>) -> (Experiment, Vec<Problem>) {
        let mut whole = Problems::default();
        let written = locate(&mut experiment, merged, &self.environment, &mut whole);
        let mut found = Problems::default();
        check::check(&experiment, &mut found);
        for mut problem in found.iter().cloned() {
            match written.iter().find(|(key, _)| problem.key == *key) {
                // Nothing to look for on the disk: the path itself is wrong, and that is said already.
                Some((_, None)) => continue,
                Some((_, Some(written))) if written.contains("${") => {
                    let help = format!(
                        "the path is written as {written}: set the environment variable to the folder that has it, or \
                         name another place with `-s {}=PATH`",
                        problem.key
                    );
                    problem.help = Some(help.into());
                }
                // The help is about files that name a path; this one was typed.
                Some((key, Some(written)))
                    if problem.help.is_some()
                        && Path::new(written).is_relative()
                        && merged.layer(key).is_some_and(|layer| layer.folder.is_none()) =>
                {
                    let help =
                        "a relative path on the command line or in the environment is meant from the current folder";
                    problem.help = Some(help.into());
                }
                _ => {}
            }
            whole.add(problem);
        }
        let found = placed(whole, merged, &self.doubtful, self.files.start.as_ref());
        (experiment, found)
    }
}

/// Reads an experiment that this program wrote out in full. The environment does not change it: what ran is what
/// the file says.
///
/// # Errors
/// As [`read`].
pub fn read_resolved(path: &Path, command_line: &[String]) -> Result<Checked, Problems> {
    let (checked, of_disk) = read_as_written(path, command_line, std::iter::empty())?;
    // A run that has a checkpoint needs the weights no more that it started from; where they are needed, they are looked for.
    let needed = of_disk.iter().any(|problem| problem.key != INITIAL_WEIGHTS);
    if needed { Err(of_disk) } else { Ok(checked) }
}

/// A key that names a file or folder, and how the path was written; `None` where it names none.
type Written = (String, Option<String>);

/// The key that names weights to start from.
pub const INITIAL_WEIGHTS: &str = "training.initial_weights";

/// Makes the paths of data and model absolute: a relative one is meant from the file that names it, or, in the
/// environment and on the command line, from the current folder.
fn locate(
    experiment: &mut Experiment,
    merged: &Merged<'_>,
    environment: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> Vec<Written> {
    let variable = |name: &str| environment.get(name).cloned();
    let data = experiment.dataset.iter_mut().flat_map(Dataset::paths);
    let model = experiment.model.iter_mut().flat_map(Model::paths);
    let weights = experiment.training.initial_weights.iter_mut().map(|path| (INITIAL_WEIGHTS.to_owned(), path));
    let mut all = Vec::new();
    for (key, path) in data.chain(model).chain(experiment.pipeline.paths()).chain(weights) {
        let folder = merged.layer(&key).and_then(|layer| layer.folder.clone()).unwrap_or_default();
        let absolute = expand(path, &variable).and_then(|expanded| {
            match std::path::absolute(folder.join(expanded)).map(PathBuf::into_os_string).map(OsString::into_string) {
                Ok(Ok(text)) => Ok(text),
                Ok(Err(_)) => Err("this name is not UTF-8".into()),
                Err(error) => Err(format!("this names nothing: {error}")),
            }
        });
        match absolute {
            Ok(absolute) => all.push((key, Some(std::mem::replace(path, absolute)))),
            Err(message) => {
                let mut problem = Problem::new(key.as_str(), message);
                if path.contains("${") {
                    problem = problem.help(format!(
                        "`-s {key}=PATH` names the place without a variable; look for a comment in the file that says \
                         where to get the data"
                    ));
                }
                problems.add(problem);
                all.push((key, None));
            }
        }
    }
    all
}

/// Gives problems that were found in the whole their places, and leaves out those that follow from another mistake.
fn placed(problems: Problems, merged: &Merged<'_>, doubtful: &BTreeSet<String>, start: Option<&Place>) -> Vec<Problem> {
    let unknown = |key: &str| {
        doubtful.iter().any(|doubt| {
            key == doubt
                || key.strip_prefix(doubt.as_str()).is_some_and(|rest| doubt.is_empty() || rest.starts_with('.'))
        })
    };
    let mut found = Vec::new();
    for problem in problems.iter() {
        let mut problem = problem.clone();
        if unknown(&problem.key) || problem.related.iter().any(|related| unknown(&related.key)) {
            continue;
        }
        for related in &mut problem.related {
            related.place = merged.exact_place(&related.key);
        }
        if problem.place.is_none() {
            // The key itself, or the one that it contradicts, or the section.
            let elsewhere = || problem.related.iter().find_map(|related| related.place.clone());
            let place = merged.exact_place(&problem.key).or_else(elsewhere);
            problem.place = place.or_else(|| merged.place(&problem.key)).or_else(|| start.cloned());
        }
        let main = problem.place.clone();
        problem.related.retain(|related| related.place.is_some() && related.place != main);
        found.push(problem);
    }
    found
}

/// As a person reads: file by file in the order of the layers, from top to bottom.
fn in_order(problems: Problems, layers: &[Layer]) -> Problems {
    let rank = |problem: &Problem| match &problem.place {
        Some(place) => {
            let layer = layers.iter().position(|layer| layer.source == place.source);
            (layer.unwrap_or(layers.len()), place.span.start)
        }
        None => (0, 0),
    };
    let mut list: Vec<Problem> = problems.iter().cloned().collect();
    list.sort_by_key(|problem| rank(problem));
    let mut sorted = Problems::default();
    sorted.left_out = problems.left_out;
    list.into_iter().for_each(|problem| sorted.add(problem));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{render, resolved};
    use proptest::prelude::*;

    const SAMPLE: &str = include_str!("../../../../tests/experiments/valid/every_key.toml");

    fn read_text(text: &[u8], overrides: &[String]) -> Result<Checked, Problems> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample.toml");
        crate::files::write::replace(&path, text).unwrap();
        read(&path, overrides, std::iter::empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_text_makes_checking_panic(text in "(\\PC|[\\[\\]=\".#\n\t]){0,200}") {
            if let Err(problems) = read_text(text.as_bytes(), &[]) {
                prop_assert!(render::text(&problems, true, Some(40)).len() > 20);
            }
        }

        #[test]
        fn a_sample_with_bytes_changed_is_read_or_refused_with_places(
            changes in proptest::collection::vec((0..SAMPLE.len(), any::<u8>()), 1..4),
            cut in 0..SAMPLE.len(),
        ) {
            let mut bytes = SAMPLE.as_bytes().to_vec();
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            if cut % 3 == 0 {
                bytes.truncate(cut);
            }
            if let Err(problems) = read_text(&bytes, &[]) {
                let shown = render::text(&problems, false, None);
                prop_assert!(!shown.contains('\u{1b}'), "drives the terminal");
                prop_assert!(render::json(&problems).as_array().is_some_and(|list| !list.is_empty()));
            }
        }

        #[test]
        fn no_override_makes_checking_panic(text in "[a-z._=\\[\\]\"0-9 -]{0,40}") {
            let _ = read_text(b"[pipeline.dummy]\n", &[text]);
        }

        #[test]
        fn numbers_that_are_taken_come_back_from_the_resolved_file(
            seed in any::<u32>(),
            rate in 0.0..1000.0f64,
            cache in any::<u64>().prop_map(|bytes| bytes / 2),
        ) {
            let text = format!(
                "[pipeline.dummy]\n[experiment]\nseed = {seed}\n[optimizer.sgd]\nlearning_rate = {rate:?}\n[limits]\nframe_cache = {cache}\n"
            );
            let checked = read_text(text.as_bytes(), &[]).unwrap();
            let again = read_text(resolved::to_toml(&checked.experiment, None).as_bytes(), &[]).unwrap();
            prop_assert_eq!(&checked.experiment, &again.experiment);
            prop_assert_eq!(checked.experiment.optimizer.learning_rate(), rate);
            prop_assert_eq!(checked.experiment.limits.frame_cache.0, cache);
        }
    }
}
