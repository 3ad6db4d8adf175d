//! What would a run say about its data? `xrun check` asks; what was seen is remembered until a file of the data changes.
//!
//! What is remembered depends on the data and its own settings only, so that a change of any other key in an editor costs a
//! look at the times of the files, and nothing is read again.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Pipeline;
use super::fewshot_detection::drawn::{Drawn, drawn_classes};
use super::fewshot_detection::prepare as pictures;
use super::qat_language_model::prepare as questions;
use crate::data::error::{Broken, DataError};
use crate::data::question_answers::corpus::Corpus;
use crate::data::question_answers::settings::Source as QuestionSource;
use crate::data::reference_video::library::Largest;
use crate::data::reference_video::settings::Source as FolderSource;
use crate::data::reference_video::{frames, open};
use crate::data::stamp::stamp;
use crate::data::{Dataset, cache, digest};
use crate::experiment::Experiment;
use crate::results::smaller::Smaller;
use crate::results::{file, seal, write};

/// More looks than this are not remembered.
const LOOKS_MAX: usize = 256;
/// More is no look.
const LOOK_BYTES_MAX: u64 = 1024 * 1024;
/// Looks of other versions say other things.
const FORM: &str = "look 2";

/// What there is to say about data that can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub left_out: Broken,
    pub smaller: Vec<Smaller>,
}

/// What depends on nothing but the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Seen {
    Pictures { left_out: Broken, drawn: Drawn, largest: Option<Largest> },
    Questions { left_out: Broken, train: u64, held_out: u64 },
}

/// Looks at data that people made; what xrun generates is as it should be.
///
/// # Errors
/// All that would end a run before its first step.
pub fn look(experiment: &Experiment) -> Result<Look, DataError> {
    let Some(dataset) = experiment.dataset.as_ref().filter(|dataset| !generated(dataset)) else {
        return Ok(Look::default());
    };
    match (remembered(dataset)?, &experiment.pipeline) {
        (Seen::Pictures { left_out, drawn, largest }, Pipeline::FewshotDetection(settings)) => {
            frames::fits(largest.as_ref(), &experiment.limits)?;
            drawn.enough(settings)?;
            Ok(Look { left_out, smaller: pictures::smaller(settings, &experiment.limits, &drawn) })
        }
        (Seen::Questions { left_out, train, held_out }, Pipeline::QatLanguageModel(settings)) => {
            questions::quantises(settings, &experiment.training, train.div_ceil(experiment.limits.batch_size as u64))?;
            Ok(Look { left_out, smaller: questions::smaller(settings, experiment, [train, held_out]) })
        }
        (Seen::Pictures { left_out, .. } | Seen::Questions { left_out, .. }, _) => {
            Ok(Look { left_out, smaller: Vec::new() })
        }
    }
}

fn generated(dataset: &Dataset) -> bool {
    match dataset {
        Dataset::ReferenceVideo(settings) => settings.source == FolderSource::Generated,
        Dataset::QuestionAnswers(settings) => settings.source == QuestionSource::Generated,
    }
}

fn remembered(dataset: &Dataset) -> Result<Seen, DataError> {
    let place = stamp(dataset).map(|stamp| place(dataset, &stamp));
    if let Some(known) = place.as_ref().and_then(|place| recall(place)) {
        return known;
    }
    let seen = see(dataset);
    if let Some(place) = place {
        keep(&place, &seen);
    }
    seen
}

fn see(dataset: &Dataset) -> Result<Seen, DataError> {
    match dataset {
        Dataset::ReferenceVideo(settings) => {
            let library = open::open(settings)?;
            let drawn = drawn_classes(&library);
            Ok(Seen::Pictures { left_out: library.left_out, drawn, largest: library.largest })
        }
        Dataset::QuestionAnswers(settings) => {
            let ([train, held_out], left_out) = Corpus::look(settings)?;
            Ok(Seen::Questions { left_out, train, held_out })
        }
    }
}

fn place(dataset: &Dataset, stamp: &str) -> PathBuf {
    // Settings always serialise: their keys are strings.
    let settings = serde_json::to_string(dataset).unwrap_or_default();
    let key = format!("{FORM} {} {stamp} {settings}", env!("CARGO_PKG_VERSION"));
    cache::folder().join("looks").join(format!("{}.json", &digest::digest(key.as_bytes())[..32]))
}

fn recall(place: &std::path::Path) -> Option<Result<Seen, DataError>> {
    let bytes = file::bytes(place, LOOK_BYTES_MAX).ok()?;
    seal::check_text(&bytes).ok()?;
    serde_json::from_str(std::str::from_utf8(&bytes).ok()?.lines().next()?).ok()
}

/// A cache that cannot be written is no reason to stop.
fn keep(place: &std::path::Path, seen: &Result<Seen, DataError>) {
    let (Ok(text), Some(folder)) = (serde_json::to_string(seen), place.parent()) else { return };
    if cache::make(folder).is_ok() {
        let _ = write::replace(place, &seal::text(&format!("{text}\n")));
        cache::forget_oldest(folder, LOOKS_MAX);
    }
}
