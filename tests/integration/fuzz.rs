//! Fuzz test with a few inputs for each target of `.ci/fuzz`.

use xrun::panics;
use xrun::seed::generator;

#[path = "../../fuzz/image_text.rs"]
mod image_text;
#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/samples.rs"]
mod samples;
#[path = "../../fuzz/targets.rs"]
mod targets;

const INPUTS: u64 = 40;

#[test]
fn no_mutated_input_is_a_finding() {
    for target in targets::TARGETS {
        let directory = tempfile::tempdir().unwrap();
        let mut run_input = (target.open)(directory.path());
        assert!(target.weight > 0);
        for number in 0..INPUTS {
            let mut random = generator(1, target.name, number);
            let outcome = panics::caught(|| run_input(&mut random));
            let reproduce = format!(".ci/fuzz --only {} --from {number} --inputs 1", target.name);
            assert!(matches!(outcome, Ok(Ok(_))), "{reproduce}: {outcome:?}");
        }
    }
}
