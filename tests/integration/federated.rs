//! Federated adapters as a user meets them: what is wrong with sounds and with settings is said by name, before anything runs.

use crate::workplace::{Output, Workplace, redacted, text, wav};

const MINE: &str = "[pipeline.federated-adapters]\nnodes = 2\n[model.audio-adapters]\nencoder = \"statistics\"\n\
                    [dataset.sound-clips]\nsource = \"directory\"\npath = \"sounds\"\n";

/// Two classes, of each a clip in each of five folds: a tenth of a second at 16 kHz.
fn sounds(workplace: &Workplace) {
    std::fs::create_dir_all(workplace.path("sounds/audio")).unwrap();
    let mut table = String::from("filename,fold,target,category\n");
    for number in 0..10 {
        let (fold, target) = (number % 5 + 1, number / 5);
        table += &format!("{number}.wav,{fold},{target},{}\n", ["bell", "horn"][target]);
        std::fs::write(workplace.path(&format!("sounds/audio/{number}.wav")), wav(1_600, 1)).unwrap();
    }
    std::fs::write(workplace.path("sounds/meta.csv"), table).unwrap();
    workplace.file("mine.toml", MINE);
}

fn check(workplace: &Workplace, set: &[&str]) -> Output {
    let overrides = set.iter().flat_map(|text| ["-s", text]);
    workplace.xrun(&["check", "mine.toml"].into_iter().chain(overrides).collect::<Vec<_>>())
}

/// Other faults of clips and of the table are tested where they are read.
#[test]
fn a_directory_of_sounds_is_correct_and_what_is_broken_in_it_is_named_or_left_out() {
    let workplace = Workplace::new();
    sounds(&workplace);
    assert_eq!(check(&workplace, &[]).code, 0);
    std::fs::write(workplace.path("sounds/audio/3.wav"), &wav(1_600, 1)[..500]).unwrap();
    let output = check(&workplace, &[]);
    assert!(output.code == 2 && output.err.contains("3.wav"), "{output:?}");
    let output = check(&workplace, &["dataset.sound-clips.on_invalid=\"skip\""]);
    assert_eq!(output.code, 0, "{output:?}");
    let table = workplace.path("sounds/meta.csv");
    std::fs::write(&table, text(&table).replace("4.wav,5", "4.wav,five")).unwrap();
    let output = check(&workplace, &[]);
    assert!(output.code == 2 && output.err.contains("meta.csv"), "{output:?}");
}

#[test]
fn settings_that_contradict_each_other_are_refused_with_what_to_write() {
    let workplace = Workplace::new();
    sounds(&workplace);
    let mut messages = String::new();
    for set in [
        &["pipeline.federated-adapters.nodes_per_round=1"][..],
        &["pipeline.federated-adapters.nodes_per_round=3"],
        &["pipeline.federated-adapters.nodes=3"],
        &["training.gradient_accumulation=2"],
        &["model.audio-adapters.encoder=\"spectrogram-transformer\""],
        &["model.audio-adapters.pool_heads=5"],
        &["model.audio-adapters.pooled.latents=2"],
        &[
            "pipeline.federated-adapters.partition=\"by-column\"",
            "pipeline.federated-adapters.partition_column=\"folds\"",
        ],
        &["limits.frame_cache=\"1 MiB\""],
        &["leaks.validation_with_graph=true"],
    ] {
        let output = check(&workplace, set);
        assert_eq!(output.code, 2, "{set:?}: {output:?}");
        messages += &output.err;
    }
    insta::assert_snapshot!(messages);
}

/// Problems that only the data and the draw show, when the plan is made.
#[test]
fn partitions_and_targets_that_cannot_be_had_end_the_plan_with_the_reason() {
    let workplace = Workplace::new();
    sounds(&workplace);
    std::fs::write(workplace.path("targets.safetensors"), b"no targets").unwrap();
    let mut messages = String::new();
    for set in [
        &["pipeline.federated-adapters.partition=\"dirichlet\"", "pipeline.federated-adapters.min_clips_per_node=5"][..],
        &[
            "pipeline.federated-adapters.partition=\"dirichlet\"",
            "pipeline.federated-adapters.dirichlet_alpha=0.001",
            "pipeline.federated-adapters.nodes=4",
            "pipeline.federated-adapters.min_clips_per_node=2",
        ],
        &["pipeline.federated-adapters.min_clips_per_node=7"],
        &["dataset.sound-clips.target_embeddings=\"targets.safetensors\""],
    ] {
        let overrides = set.iter().flat_map(|text| ["-s", *text]);
        let output = workplace.xrun(&["--dry-run", "mine.toml"].into_iter().chain(overrides).collect::<Vec<_>>());
        assert!((1..=2).contains(&output.code), "{set:?}: {output:?}");
        messages += &output.err;
    }
    insta::assert_snapshot!(redacted(&messages));
}
