//! Tests of batches: targets, weights, micro-batches, schedule of the mask, epochs and validation batches.

use std::collections::BTreeSet;

use super::super::prepare::Prepared;
use super::super::prepare::tests::{Made, prepared};
use super::super::selective::Normalise;
use super::*;
use xrun_core::dataset::sample::HostImage;
use xrun_data::image_text::store::Text;

fn example(prompt: &[u32], answer: &[u32], grey: u8) -> Example {
    let image = HostImage { width: 2, height: 2, rgb: vec![grey; 12].into() };
    let text =
        Text { prompt: prompt.to_vec(), answer: answer.to_vec(), answer_text: String::new(), question: String::new() };
    Example { image, text }
}

fn weighed(kinds: &[TokenKind], masked: &[bool], weight: f32) -> WeighedAnswer {
    let weights = masked.iter().map(|masked| if *masked { weight } else { 1.0 }).collect();
    WeighedAnswer { weights, masked: masked.to_vec(), kinds: kinds.to_vec(), fields: Vec::new() }
}

/// Two rows: a prompt of three tokens with an answer of two, and one of two with an answer of four that fills the row.
fn by_hand(structure_weight: f32) -> ExampleBatch {
    use TokenKind::{Key, Structure, Value};
    let mut batch = ExampleBatch::empty(2, 6, 2, 9, "by hand");
    let first = weighed(&[Structure, Value, Value], &[true, false, false], structure_weight);
    batch.push(&example(&[1, 2, 3], &[4, 5], 10), 70, &first, 9);
    let second =
        weighed(&[Structure, Key, Structure, Value, Value], &[true, false, true, false, false], structure_weight);
    batch.push(&example(&[1, 2], &[3, 4, 5, 6], 20), 71, &second, 9);
    batch
}

#[test]
fn a_target_is_the_next_token_and_only_answers_have_weights() {
    use TokenKind::{Key, Structure, Value};
    let batch = by_hand(0.0);
    // The last token of the prompt predicts the first one of the answer.
    assert_eq!(batch.inputs, [1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 6]);
    assert_eq!(batch.targets, [2, 3, 4, 5, 9, 9, 2, 3, 4, 5, 6, 9]);
    assert_eq!(batch.weights, [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
    let kinds = [None, None, Some(Structure), Some(Value), Some(Value), None];
    assert_eq!(batch.kinds[..6], kinds);
    assert_eq!(batch.kinds[6..], [None, Some(Structure), Some(Key), Some(Structure), Some(Value), Some(Value)]);
    assert_eq!(batch.selected(), [3, 4, 8, 10, 11]);
    assert_eq!(batch.answered(), [2, 3, 4, 7, 8, 9, 10, 11]);
    assert_eq!((batch.answer_tokens(), batch.masked(), batch.numbers.as_slice()), (8, 3, [70, 71].as_slice()));
    assert_eq!(batch.images, [[10; 12], [20; 12]].concat());
    assert_eq!(batch.sums(), StepSums { weighted_loss: 0.0, weights: 5.0, tokens: 8, selected: 5 });
    assert_eq!(batch.sums().divisor(Normalise::Answer), Some(8.0));
}

#[test]
fn masked_tokens_are_counted_regardless_of_their_weight() {
    let full = by_hand(1.0);
    assert_eq!((full.selected().len(), full.masked()), (8, 3));
    assert_eq!(full.sums().masked_fraction(), Some(0.375));
    let soft = by_hand(0.25);
    assert_eq!((soft.sums().weights, soft.sums().selected), (5.75, 5));
}

#[test]
fn micro_batches_are_rows_and_add_up() {
    let batch = by_hand(0.25);
    assert!(matches!(batch.micro_batches(2).next(), Some(Cow::Borrowed(_))), "a whole batch is not copied");
    let parts: Vec<_> = batch.micro_batches(1).collect();
    let mut sums = StepSums::default();
    parts.iter().for_each(|part| sums.add(&part.sums()));
    assert_eq!((parts.len(), sums), (2, batch.sums()));
    assert_eq!([parts[0].masked(), parts[1].masked()], [1, 2]);
    let joined = |part: fn(&ExampleBatch) -> Vec<i32>| parts.iter().flat_map(|one| part(one)).collect::<Vec<_>>();
    assert_eq!(joined(|part| part.inputs.clone()), batch.inputs);
    assert_eq!(joined(|part| part.targets.clone()), batch.targets);
    assert_eq!(parts[1].images, [20; 12]);
    assert_eq!((parts[1].numbers.as_slice(), &*parts[1].description), ([71].as_slice(), "by hand"));
}

#[test]
fn the_mask_is_switched_by_steps_and_not_by_batches() {
    let made = Made::new();
    let masked = |selective: &str, accumulation: usize| -> Vec<bool> {
        let pipeline = format!("[pipeline.vision-language.selective]\n{selective}");
        let training = format!("batch_size = 4\ngradient_accumulation = {accumulation}");
        let (_, prepared) = prepared(&made.experiment(&pipeline, &training)).unwrap();
        (0..8).map(|number| prepared.batches.training_batch(number).unwrap().masked() > 0).collect()
    };
    let after = |steps: usize| (0..8).map(|number| number >= steps).collect::<Vec<_>>();
    assert_eq!(masked("after_step = 3", 1), after(3));
    assert_eq!(masked("after_step = 3", 2), after(6));
    assert_eq!(masked("schedule = \"always\"", 2), [true; 8]);
    let turns = masked("schedule = \"alternating\"\nalternate_every = 2\nalternate_for = 1", 2);
    assert_eq!(turns, [false, false, true, true, false, false, true, true]);
}

#[test]
fn an_epoch_has_every_example_once_within_the_declared_bytes() {
    let made = Made::new();
    let (_, prepared) = prepared(&made.experiment("", "batch_size = 4")).unwrap();
    let (batches, length) = (&prepared.batches, prepared.batches.shape.length);
    let count = batches.store.count(Split::Train);
    assert_eq!((count, batches.per_epoch()), (19, 5));
    let mut numbers = Vec::new();
    for number in 0..5 {
        let batch = batches.training_batch(number).unwrap();
        assert!(batch.deep_size() <= batch_bytes_max(length, 16, 4), "{}", batch.deep_size());
        assert_eq!(batch.numbers, batches.example_numbers(number));
        numbers.extend(batch.numbers);
    }
    assert_eq!(numbers.len(), 20);
    let distinct: BTreeSet<u64> = numbers[..19].iter().copied().collect();
    assert_eq!(distinct.len(), 19, "the last row belongs to the next epoch");
    assert_eq!(batches.training_batch(3).unwrap(), batches.training_batch(3).unwrap());
    assert_ne!(batches.example_numbers(0), batches.example_numbers(5), "another order in another epoch");
}

#[test]
fn longest_first_puts_the_batch_with_most_tokens_first() {
    let made = Made::new();
    for mask in ["none", "structure"] {
        let of = |first: &str| {
            let text = format!("{first}[pipeline.vision-language.selective]\nmask = {mask:?}\nschedule = \"always\"");
            prepared(&made.experiment(&text, "batch_size = 4")).unwrap().1
        };
        let (drawn, longest) = (of(""), of("longest_first = true\n"));
        let tokens =
            |number: u64, prepared: &Prepared| prepared.batches.training_batch(number).unwrap().selected().len();
        // The four longest examples, counted in another way than the selection does.
        let one = |at: u64| {
            let store = &drawn.batches.store;
            let on = mask != "none";
            let examples = [store.example(Split::Train, at).unwrap()];
            drawn.batches.assemble(&examples, &[at], on, "one").unwrap().0.selected().len()
        };
        let mut each: Vec<usize> = (0..19).map(one).collect();
        each.sort_unstable();
        assert_eq!(tokens(0, &longest), each[15..].iter().sum::<usize>(), "{mask}");
        assert!(tokens(0, &longest) > tokens(0, &drawn), "{mask}: the test needs a difference");
        for number in 1..6 {
            assert_eq!(longest.batches.example_numbers(number), drawn.batches.example_numbers(number));
        }
    }
    let many = prepared(&made.experiment("longest_first = true", "batch_size = 40")).unwrap().1;
    let numbers = many.batches.example_numbers(0);
    assert_eq!((numbers.len(), numbers[0]), (40, numbers[19]), "fewer examples than rows repeat");
}

#[test]
fn validation_batches_are_repeatable_and_end_with_the_split() {
    let made = Made::new();
    let (_, prepared) = prepared(&made.experiment("", "batch_size = 4")).unwrap();
    let batches = &prepared.batches;
    let sizes = |split| [0, 1, 2].map(|number| batches.held_out(split, number).unwrap().1.len());
    assert_eq!((sizes(Split::Validation), sizes(Split::Unseen)), ([4, 1, 0], [0, 0, 0]));
    let numbers: BTreeSet<u64> =
        (0..2).flat_map(|number| batches.held_out_numbers(Split::Validation, number)).collect();
    assert_eq!(numbers, (0..5).collect());
    let (_, examples) = batches.held_out(Split::Validation, 0).unwrap();
    assert_eq!(examples, batches.held_out(Split::Validation, 0).unwrap().1);
    let numbers = batches.held_out_numbers(Split::Validation, 0);
    let (batch, weighed) = batches.assemble(&examples, &numbers, false, "validation batch 0").unwrap();
    assert_eq!((batch.masked(), batch.numbers.as_slice(), weighed.len()), (0, numbers.as_slice(), 4));
    let held = validation_bytes(&batch, &examples, &weighed);
    assert!(held <= prepared.buffers.validation_batch.cap.bytes, "{held}");
    assert_eq!(batches.store.tokenizer.decode(&examples[0].text.prompt), {
        format!("question: {}\nanswer: ", examples[0].text.question)
    });
}
