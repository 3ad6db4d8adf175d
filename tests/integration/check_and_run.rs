//! `xrun check` accepts what a run accepts, and refuses what it refuses: examples of docs/data.md, and files that are wrong.

use std::path::Path;

use serde_json::json;

use crate::workplace::{Output, Workplace, wav};

/// A run up to its first step.
fn run(workplace: &Workplace, file: &str) -> Output {
    workplace.xrun(&[file, "--dry-run", "-s", "memory.probe=false", "--device", "cpu"])
}

/// Compares both exit codes, and returns whether the file is accepted.
fn agree(workplace: &Workplace, file: &str) -> bool {
    let (check, run) = (workplace.xrun(&["check", file]), run(workplace, file));
    assert_eq!(check.code == 0, run.code == 0, "{file}: {check:?}\n{run:?}");
    check.code == 0
}

/// Fenced block number `number` of a language below a heading of docs/data.md.
fn block(heading: &str, language: &str, number: usize) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/data.md")).unwrap();
    let below = text.split_once(&format!("\n{heading}")).unwrap_or_else(|| panic!("no heading {heading}")).1;
    let begin = format!("```{language}\n");
    let blocks = below.split(&begin).skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.nth(number).unwrap_or_else(|| panic!("no block {number} of {language} below {heading}"))
}

fn image(workplace: &Workplace, name: &str, (width, height): (u32, u32)) {
    let path = workplace.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 7])).save(path).unwrap();
}

const FEWSHOT: &str = "[pipeline.fewshot-detection]\n[model.reference-detector]\n";
const CLASSIFICATION: &str = "[pipeline.image-classification]\nimage_size = 32\n[model.resnet]\n";
const QAT: &str =
    "[pipeline.qat-language-model]\nsequence_length = 64\npretraining_steps = 0\n[model.gpt2]\npreset = \"tiny\"\n";
const FEDERATED: &str = "[pipeline.federated-adapters]\nnodes = 2\n[model.audio-adapters]\nencoder = \"statistics\"\n";
const VISION: &str = "[pipeline.vision-language]\nsequence_length = 128\n[model.vision-language]\npreset = \"tiny\"\n";

#[test]
fn every_example_of_the_manual_of_data_is_accepted_or_refused_by_both() {
    let workplace = Workplace::new();
    // COCO: one image is too few for few-shot detection.
    workplace.put("mydata/annotations.json", block("### COCO", "json", 0).as_bytes());
    image(&workplace, "mydata/frames/clip1/0000.jpg", (640, 480));
    image(&workplace, "mydata/crops/cup_0.jpg", (40, 40));
    workplace.file("coco.toml", &format!("{FEWSHOT}{}", block("### COCO", "toml", 0)));
    assert!(!agree(&workplace, "coco.toml"));
    // Symlinks into the directory that is named, with images of two classes.
    let links = block("### COCO", "toml", 0);
    workplace.file("coco_classes.toml", &format!("{CLASSIFICATION}{links}"));
    assert!(!agree(&workplace, "coco_classes.toml"));
    // YOLO: the same two classes in four images.
    let yolo = Workplace::new();
    yolo.put("mydata/data.yaml", b"names: [cup, ball]\n");
    for (name, class) in [("a", 0), ("b", 0), ("c", 1), ("d", 1)] {
        image(&yolo, &format!("mydata/images/{name}.jpg"), (40, 30));
        let line = "1 0.5 0.25 0.2 0.1".replacen('1', &class.to_string(), 1);
        yolo.put(&format!("mydata/labels/{name}.txt"), line.as_bytes());
    }
    yolo.file("yolo.toml", &format!("{CLASSIFICATION}{}", block("### YOLO", "toml", 0)));
    assert!(agree(&yolo, "yolo.toml"));
    // A directory for each class; with one image of each nothing can be held out.
    let directories = Workplace::new();
    for (name, accepted) in [("cat/1.jpg", false), ("dog/2.png", false), ("cat/3.jpg", true)] {
        image(&directories, &format!("mydata/{name}"), (40, 30));
        let file = format!("{}.toml", name.replace(['/', '.'], "_"));
        directories.file(&file, &format!("{CLASSIFICATION}[dataset.image-folder]\npath = \"mydata\"\n"));
        assert_eq!(agree(&directories, &file), accepted, "{name}");
    }
    // Questions: SQuAD's form has one article, and the rows two.
    for (number, name, accepted) in [(0, "qa.json", false), (1, "rows.jsonl", true)] {
        workplace.put(name, block("## Questions and answers", "json", number).as_bytes());
        let data = format!("[dataset.question-answers]\nsource = \"file\"\npath = \"{name}\"\nvocabulary_size = 300\n");
        let file = format!("{name}.toml");
        workplace.file(&file, &format!("{QAT}{data}validation_fraction = 0.5\n"));
        assert_eq!(agree(&workplace, &file), accepted, "{name}");
    }
    // Sounds: one clip is too few; with three more of another class and fold it is not.
    let table = block("## Sound clips", "text", 1);
    let more = "1-2-A-1.wav,2,40,helicopter,2,A\n1-3-A-2.wav,1,1,rain,3,A\n1-4-A-2.wav,2,1,rain,4,A\n";
    for (name, table, accepted) in [("one", table.clone(), false), ("four", format!("{table}{more}"), true)] {
        workplace.put(&format!("{name}/meta.csv"), table.as_bytes());
        for (pitch, line) in (1..).zip(table.lines().skip(1)) {
            workplace.put(&format!("{name}/audio/{}", line.split(',').next().unwrap()), &wav(16_000, pitch));
        }
        let data = format!("[dataset.sound-clips]\nsource = \"directory\"\npath = \"{name}\"\nvalidation_fold = 2\n");
        workplace.file(&format!("{name}.toml"), &format!("{FEDERATED}{data}"));
        assert_eq!(agree(&workplace, &format!("{name}.toml")), accepted, "{name}");
    }
    // Conversations: the second line of the manual has an image that is cut off.
    let lines = block("## Images with conversations", "json", 0);
    image(&workplace, "images/7.jpg", (40, 30));
    image(&workplace, "images/8.jpg", (40, 30));
    let first = lines.lines().next().unwrap();
    for (name, text, accepted) in
        [("manual", lines.clone(), false), ("two", format!("{first}\n{}\n", first.replace("7.jpg", "8.jpg")), true)]
    {
        workplace.put(&format!("{name}.jsonl"), text.as_bytes());
        let data =
            format!("[dataset.image-text]\nsource = \"messages\"\npath = \"{name}.jsonl\"\nvocabulary_size = 300\n");
        workplace.file(&format!("{name}.toml"), &format!("{VISION}{data}validation_fraction = 0.5\n"));
        assert_eq!(agree(&workplace, &format!("{name}.toml")), accepted, "{name}");
    }
}

#[test]
fn wrong_files_are_refused_by_both() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments/invalid");
    let workplace = Workplace::new();
    for entry in std::fs::read_dir(&directory).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let file = entry.path();
        // A run leaves a sweep out; `sweep` refuses it.
        if entry.file_name().to_string_lossy().starts_with("sweep_") {
            continue;
        }
        assert!(!agree(&workplace, file.to_str().unwrap()), "{}", file.display());
    }
}

#[test]
fn weights_scripts_and_partitions_that_do_not_fit_are_refused_by_both() {
    let workplace = Workplace::new();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let weights = reference.join("gpt2_tiny.safetensors");
    let article = |name: &str| {
        let asked = json!({ "id": name, "question": "Who?", "answers": [json!({ "text": name, "answer_start": 0 })] });
        json!({ "title": name, "paragraphs": [{ "context": format!("{name} has a cat."), "qas": [asked] }] })
    };
    workplace.put("qa.json", json!({ "data": [article("Ann"), article("Bob")] }).to_string().as_bytes());
    // The file has 11 tokens, and the bytes alone are 257.
    let shape = "layers = 2\nheads = 2\nhidden_size = 8\ncontext_length = 8\n";
    let qat = QAT
        .replace("preset = \"tiny\"\n", shape)
        .replace("sequence_length = 64", "sequence_length = 8\nmax_new_tokens = 4");
    let data = "[dataset.question-answers]\nsource = \"file\"\npath = \"qa.json\"\nvalidation_fraction = 0.5\nvocabulary_size = 300\n";
    workplace.file("fits.toml", &format!("{qat}{data}"));
    workplace.file("weights.toml", &format!("{qat}weights = \"{}\"\n{data}", weights.display()));
    assert!(!agree(&workplace, "weights.toml"));
    // Thirty nodes for two clips to train on.
    let table = "filename,fold,target,category\na.wav,1,0,rain\nb.wav,1,1,dog\nc.wav,2,0,rain\nd.wav,2,1,dog\n";
    workplace.put("clips/meta.csv", table.as_bytes());
    for (pitch, name) in (1..).zip(["a", "b", "c", "d"]) {
        workplace.put(&format!("clips/audio/{name}.wav"), &wav(16_000, pitch));
    }
    let clips = "[dataset.sound-clips]\nsource = \"directory\"\npath = \"clips\"\nvalidation_fold = 2\n";
    workplace
        .file("nodes.toml", &format!("{}{clips}", FEDERATED.replace("nodes = 2", "nodes = 30\npartition = \"iid\"")));
    assert!(!agree(&workplace, "nodes.toml"));
    workplace.file("targets.toml", &format!("{FEDERATED}{clips}target_embeddings = \"{}\"\n", weights.display()));
    assert!(!agree(&workplace, "targets.toml"));
    // A generated set has fewer classes than an episode asks for.
    let ways = "[pipeline.fewshot-detection]\nn_way = 9\n[model.reference-detector]\n[dataset.synthetic-video]\ntrain_classes = 4\n";
    workplace.file("ways.toml", ways);
    assert!(!agree(&workplace, "ways.toml"));
    // A command is run at once.
    workplace.file("script.toml", "[pipeline.command]\nprogram = [\"sh\", \"none.sh\"]\n");
    let (check, run) = (workplace.xrun(&["check", "script.toml"]), workplace.xrun(&["script.toml"]));
    assert!(check.code != 0 && run.code != 0, "{check:?}\n{run:?}");
    workplace.put("none.sh", b"true\n");
    let (check, run) = (workplace.xrun(&["check", "script.toml"]), workplace.xrun(&["script.toml"]));
    assert_eq!((check.code, run.code), (0, 0), "{check:?}\n{run:?}");
}
