//! The pipeline trains on any data set of texts with answers, such as this one in memory that no registry lists.

use std::any::Any;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::Dataset;
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind};
use xrun_core::dataset::open_dataset::{AnyDataset, SampleType};
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::Opening;
use xrun_core::settings::variant::Kind;
use xrun_core::units::Bytes;
use xrun_data::question_answers::corpus::Corpus;
use xrun_data::question_answers::files::Paragraphs;
use xrun_data::question_answers::settings::LoaderSettings;
use xrun_data::question_answers::squad::{Answer, Paragraph, Question, QuestionLocation};
use xrun_data::tokenizer::{Vocabulary, Words};
use xrun_training::nn::testing::Silent;

const CACHE_BYTES: u64 = 4321;
const VOCABULARY: usize = 300;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct InMemory {}

/// Paragraphs of one sentence for each number.
#[derive(Debug)]
struct Towns;

impl Paragraphs for Towns {
    fn paragraph(&self, place: &QuestionLocation) -> Result<Paragraph, DataError> {
        let (town, trade) = (place.offset, ["baker", "tailor", "miller"][place.offset as usize % 3]);
        let answers = vec![Answer { text: trade.into(), answer_start: 2 }];
        let question = Question { id: town.to_string(), question: format!("Who lives in town {town}?"), answers };
        Ok(Paragraph { context: format!("A {trade} lives in town {town}."), qas: vec![question] })
    }

    fn path(&self) -> &Path {
        Path::new("memory")
    }
}

fn vocabulary() -> Vocabulary {
    Vocabulary { files: None, size: VOCABULARY }
}

impl DatasetKind for InMemory {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        const FACTS: DatasetFacts = DatasetFacts { sample_type: SampleType::of::<Corpus>(), limit_keys: &[] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("in-memory", FACTS) }
    }

    fn loader_settings(&self) -> Box<dyn Any> {
        let (vocabulary, example_cache) = (vocabulary(), Bytes(CACHE_BYTES));
        let settings = LoaderSettings { section: "dataset.in-memory", vocabulary, example_cache, ..Default::default() };
        Box::new(settings)
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        let place = |number| QuestionLocation { offset: number, length: 0, question: 0, article: 0 };
        let places = [(0..8).map(place).collect(), (8..10).map(place).collect()];
        let tokenizer = vocabulary().tokenizer(|| {
            let mut words = Words::default();
            words.add("A baker lives in town 1. Who lives in town 2?", 2)?;
            Ok(words)
        })?;
        let (train, digest) = (Box::new(Towns), "towns".to_owned());
        let skipped = InvalidItems::default();
        Ok(Box::new(Corpus {
            train,
            validation: None,
            places,
            tokenizer,
            digest,
            skipped,
            articles: 1,
            opening_bytes: 0,
        }))
    }
}

#[test]
fn an_unregistered_data_set_of_texts_with_answers_is_trained_on_and_validated_with() {
    let text = "
        [pipeline.qat-language-model]
        sequence_length = 48
        max_new_tokens = 4
        calibration_batches = 1
        [model.gpt2]
        layers = 1
        heads = 2
        hidden_size = 16
        context_length = 48
        [training]
        batch_size = 2
        [validation]
        batches = 1
        [limits]
        workers = 0
        prefetch = 1";
    let mut experiment: Experiment = toml::from_str(text).unwrap();
    experiment.dataset = Some(Dataset::new(InMemory {}));
    let ledger = Ledger::default();
    let (facts, prepared) = experiment.prepare(&ledger).unwrap();
    assert_eq!(facts.data_digests, [("in-memory".to_owned(), "towns".to_owned())]);
    assert_eq!(facts.batches_per_epoch, 4, "eight questions, batches of two");
    let cache = facts.owners.iter().find(|owner| owner.name == "example_cache").unwrap();
    assert_eq!((cache.key.as_deref(), cache.bytes), (Some("dataset.in-memory.example_cache"), CACHE_BYTES));
    let mut task = prepared
        .open(Opening { experiment: &experiment, device: DeviceKind::Cpu, ledger: &ledger, first_step: 1 })
        .unwrap();
    let report = task.train_step(1, 1e-3, &mut Silent).unwrap();
    assert!(report.loss.is_finite());
    task.validate(&mut Silent).unwrap();
}
