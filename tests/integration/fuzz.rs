//! A few inputs for each target of `.ci/fuzz`: none panics, none is accepted and then wrong.

use xrun::panics;
use xrun::seed::generator;

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/picture_texts.rs"]
mod picture_texts;
#[path = "../../fuzz/samples.rs"]
mod samples;
#[path = "../../fuzz/targets.rs"]
mod targets;

const INPUTS: u64 = 40;

#[test]
fn mutated_files_of_every_kind_are_refused_or_taken_and_never_wrong() {
    for target in targets::TARGETS {
        let place = tempfile::tempdir().unwrap();
        let mut work = (target.open)(place.path());
        let share = target.share;
        assert!(share > 0);
        for number in 0..INPUTS {
            let mut random = generator(1, target.name, number);
            let answer = panics::caught(|| work(&mut random));
            let again = format!(".ci/fuzz --only {} --from {number} --inputs 1", target.name);
            assert!(matches!(answer, Ok(Ok(_))), "{again}: {answer:?}");
        }
    }
}
