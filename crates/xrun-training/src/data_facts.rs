//! Facts of the data that several pipelines report alike.

use xrun_core::experiment::Experiment;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::units::pluralize;
use xrun_data::tokenizer::{Tokenizer, Vocabulary};

/// Reason why a model depends on its data, if its vocabulary was learnt from them.
pub const LEARNED: &str = "the vocabulary was learned from that (`encoder` and `merges` of the data set name one that does not \
                           depend on the data)";

/// `validation.batches`, if the data has fewer held-out items, named `noun`.
pub fn lowered_validation(experiment: &Experiment, held_out: u64, noun: &str) -> Option<LoweredSetting> {
    let size = experiment.batch_size() as u64;
    let because = format!("the data has {}, {size} per batch", pluralize(held_out, noun));
    LoweredSetting::detect("validation.batches", experiment.validation.batches as u64, held_out.div_ceil(size), because)
}

/// `vocabulary_size`, if `texts` have fewer pairs to merge.
pub fn lowered_vocabulary(
    experiment: &Experiment,
    vocabulary: &Vocabulary,
    tokenizer: &Tokenizer,
    texts: &str,
) -> Option<LoweredSetting> {
    let key = experiment.dataset_key("vocabulary_size");
    let because = format!("{texts} have no more pairs to merge");
    let learnt = vocabulary.files.is_none();
    LoweredSetting::detect(&key, vocabulary.size as u64, tokenizer.size() as u64, because).filter(|_| learnt)
}
