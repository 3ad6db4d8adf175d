//! Tests of secrets that are masked and values that are kept.

use super::*;

fn line(line: &str) -> String {
    mask_arguments(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ")
}

#[test]
fn values_of_secret_names_are_masked_on_a_command_line() {
    for (given, masked) in [
        ("a --api-key X9", "a --api-key ***"),
        ("a --api-key=X9 b", "a --api-key=*** b"),
        ("a --wandb_api_key abc", "a --wandb_api_key ***"),
        ("a --hftoken abc", "a --hftoken ***"),
        ("a --hf-token abc --lr 3", "a --hf-token *** --lr 3"),
        ("a --password 1234", "a --password ***"),
        ("a --dbPasswd=1234", "a --dbPasswd=***"),
        ("a --auth user", "a --auth ***"),
        ("env WANDB_API_KEY=abc a", "env WANDB_API_KEY=*** a"),
        ("env AWS_SECRET_ACCESS_KEY=a/b+c AWS_ACCESS_KEY_ID=q", "env AWS_SECRET_ACCESS_KEY=*** AWS_ACCESS_KEY_ID=***"),
        ("wandb login 0123456789abcdef", "wandb login ***"),
        ("-s pipeline.command.values.api_key=abc", "-s pipeline.command.values.api_key=***"),
        ("a https://user:pa@ss@host/x", "a https://***@host/x"),
        ("a x?token=abc12345&n=3", "a x?token=***&n=3"),
    ] {
        assert_eq!(line(given), masked);
    }
    let shell = mask_arguments(&["sh".into(), "-c".into(), "API_KEY='x y' python a.py --token abc --n 3".into()]);
    assert_eq!(shell[2], "API_KEY=*** python a.py --token *** --n 3");
}

#[test]
fn harmless_names_are_not_masked() {
    for given in [
        "a --tokenizer gpt2",
        "a --tokenizer=gpt2",
        "a --key-frames 3",
        "a --max-tokens 512",
        "a --max-token 512",
        "a --author me",
        "a --authors me",
        "a --pad-token <pad>",
        "a --eos_token </s>",
        "a --image-key jpg",
        "a --sort-key=name",
        "a --keep 3",
        "a --monkey jim",
        "a --token-count 5",
        "a --token",
        "a --token --verbose",
        "a --api-key $KEY",
        "a -s training.epochs=3",
        "a https://host/x@y",
        "a git@github.com:a/b.git",
        "a ssh://git@host/a",
        "a commit 0123456789012345678901234567890123456789",
        "a key=lambda",
        "a --checkpoint_key teacher --model_key a --placeholder_token <cat> --initializer_token toy --instance_token sks --modifier_token a --chosen_key a --response_key a --obs-key a --gt_key a --eod-token a --eot_token a --think_token a --key loss trainer.key=abc --auth-type oauth --api_key_env WANDB_API_KEY --secretary x --rejected_key a --ckpt_key a --messages_key a --data_key a --tgt_key a --bbox_key a",
    ] {
        assert_eq!(line(given), given);
    }
}

#[test]
fn known_tokens_are_masked_and_source_code_is_kept() {
    let letters = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    for token in [
        format!("hf_{letters}"),
        format!("ghp_{letters}"),
        format!("github_pat_{letters}"),
        "AKIAIOSFODNN7EXAMPLE".into(),
        format!("sk-proj-{letters}"),
        "xoxb-123456789012-abcdef".into(),
    ] {
        assert_eq!(mask_text(&format!("+x = f(\"{token}\")")), "+x = f(\"***\")");
    }
    for (given, masked) in [
        ("+TOKEN=abcdefg1", "+TOKEN=***"),
        ("-----BEGIN RSA PRIVATE KEY-----\n+abc\n-----END RSA", "-----BEGIN RSA PRIVATE KEY-----***-----END RSA"),
    ] {
        assert_eq!(mask_text(given), masked);
    }
    for code in [
        "+tokens = tokenizer(text, key=len)",
        "+sorted(x, key=lambda a: a.b)",
        "+password = os.environ[\"PASSWORD\"]",
        "+password = \"abc\"",
        "+api_key = args.api_key",
        "+for key in d: token = d[key]",
        "+max_token=512",
    ] {
        assert_eq!(mask_text(code), code);
    }
}

#[test]
fn a_known_secret_is_masked_as_a_whole_word() {
    assert_eq!(mask_known("a hunter22 b=hunter22,xhunter22", "hunter22"), "a *** b=***,xhunter22");
    assert_eq!(mask_known("auto train", "train"), "auto train");
}

#[test]
fn an_experiment_without_secrets_is_unchanged() {
    let plain = "# a\n[pipeline.command]\nprogram = [\"a\", \"{values.api_key}\"]\n[training]\nseed = 3\n";
    assert_eq!(mask_experiment(plain), plain);
    let secret = "[pipeline.command]\nprogram = [\"a\", \"--token\", \"t\"]\n[pipeline.command.values]\napi_key = \"k\"\nlr = 0.1\n";
    let masked: Value = toml::from_str(&mask_experiment(secret)).unwrap();
    let command = &masked["pipeline"]["command"];
    assert_eq!((&command["values"]["api_key"], &command["values"]["lr"]), (&MASK.into(), &0.1.into()));
    assert_eq!(command["program"][2], MASK);
}

#[test]
fn files_with_secrets_are_recognised_by_name() {
    for path in [
        ".env",
        "a/.env.local",
        "prod.env",
        "a/server.PEM",
        "x.key",
        "my_secrets.yaml",
        "secrets/a.txt",
        ".ssh/config",
        "id_rsa",
    ] {
        assert!(is_secret_file(path), "{path}");
    }
    for path in ["src/main.rs", "keys.py", "environment.yml", "tokenizer.json", "a/model.keys"] {
        assert!(!is_secret_file(path), "{path}");
    }
}

#[test]
fn a_bare_key_is_masked_if_its_value_looks_like_a_key() {
    let key = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(mask_text(&format!("wandb.login(key=\"{key}\")")), "wandb.login(key=***)");
    assert_eq!(mask_value("key", key), MASK);
    assert_eq!(mask_text("best = max(runs, key=\"loss\")"), "best = max(runs, key=\"loss\")");
}
