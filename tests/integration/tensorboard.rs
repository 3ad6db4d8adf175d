//! Does an event file hold what the lines hold? Read back by a reader of its own, and by TensorBoard's where Python has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::workplace::{Workplace, end, python, text, unsealed, wait_until};

/// Value by tag and step.
type Scalars = BTreeMap<(String, u64), f32>;

/// CRC-32C bit by bit, masked: written apart from the program's table.
fn masked(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The events of a file, as far as they are whole.
fn records(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while rest.len() >= 12 {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let length = usize::try_from(u64::from_le_bytes(rest[..8].try_into().unwrap())).unwrap();
        assert_eq!(number(8), masked(&rest[..8]));
        if rest.len() < 16 + length {
            break;
        }
        let event = &rest[12..12 + length];
        assert_eq!(number(12 + length), masked(event));
        found.push(event);
        rest = &rest[16 + length..];
    }
    found
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return value;
            }
        }
    }
    fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (first, rest) = bytes.split_at(count);
        *bytes = rest;
        first
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        found.push((
            key >> 3,
            match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Number(u64::from_le_bytes(taken(&mut bytes, 8).try_into().unwrap())),
                5 => Field::Number(u64::from(u32::from_le_bytes(taken(&mut bytes, 4).try_into().unwrap()))),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    Field::Bytes(taken(&mut bytes, length))
                }
                other => panic!("wire type {other}"),
            },
        ));
    }
    found
}

fn scalars(bytes: &[u8]) -> Scalars {
    let mut found = Scalars::new();
    for event in records(bytes) {
        let (mut step, mut summaries) = (0, Vec::new());
        for (number, field) in fields(event) {
            match (number, field) {
                (2, Field::Number(value)) => step = value,
                (5, Field::Bytes(summary)) => summaries.push(summary),
                _ => {}
            }
        }
        for (_, value) in summaries.into_iter().flat_map(fields) {
            let Field::Bytes(value) = value else { panic!("a value is a message") };
            let (mut tag, mut number) = (String::new(), None);
            for (field, inner) in fields(value) {
                match (field, inner) {
                    (1, Field::Bytes(name)) => tag = String::from_utf8(name.to_vec()).unwrap(),
                    (2, Field::Number(bits)) => number = Some(f32::from_bits(u32::try_from(bits).unwrap())),
                    _ => {}
                }
            }
            found.extend(number.map(|number| ((tag, step), number)));
        }
    }
    found
}

fn exported(workplace: &Workplace, run: &str) -> PathBuf {
    let answer = workplace.exits(0, &["export", run, "--to", "tensorboard", "--json"]).json();
    let path = PathBuf::from(answer["path"].as_str().unwrap());
    if path.is_absolute() { path } else { workplace.directory.path().join(path) }
}

/// Values in the lines of the metrics.
fn expected(run: &Path) -> Scalars {
    let mut found = Scalars::new();
    for line in unsealed(&text(&run.join("metrics.jsonl"))).lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let step = line["step"].as_u64().unwrap();
        let mut add =
            |tag: String, value: &Value| found.extend(value.as_f64().map(|value| ((tag, step), value as f32)));
        match line["kind"].as_str().unwrap() {
            "train" => ["loss", "learning_rate", "gradient_norm"]
                .iter()
                .for_each(|name| add(format!("train/{name}"), &line[name])),
            _ => line["metrics"]
                .as_object()
                .unwrap()
                .iter()
                .for_each(|(name, value)| add(format!("validation/{name}"), value)),
        }
    }
    found
}

fn trial() -> Workplace {
    let workplace = Workplace::new();
    let leak = "leak_per_step = \"64 KiB\"\nleak_in_ledger = true\n";
    workplace.finished("trial", &format!("[pipeline.dummy]\nsteps_per_epoch = 20\n{leak}[training]\nepochs = 2\n"));
    workplace
}

#[test]
fn every_number_of_the_lines_is_in_the_event_file() {
    let workplace = trial();
    let bytes = std::fs::read(exported(&workplace, "trial")).unwrap();
    let found = scalars(&bytes);
    let expected = expected(&workplace.latest("trial"));
    assert!(expected.len() > 100);
    for (place, value) in &expected {
        assert_eq!(found.get(place), Some(value), "{place:?}");
    }
    assert_eq!(found[&("memory_owners/dummy_leak_bytes".to_owned(), 40)], 40.0 * 65536.0);
    assert!(found[&("memory/heap_bytes".to_owned(), 40)] > 40.0 * 65536.0);
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("brain.Event:2") && text.contains("leak_in_ledger = true"));
    // Wherever a kill or a full disk cuts it off, the records before are whole.
    let all = records(&bytes).len();
    for cut in (0..bytes.len()).step_by(97) {
        assert!(records(&bytes[..cut]).len() < all);
    }
    let again = std::fs::read(exported(&workplace, "trial")).unwrap();
    assert_eq!(bytes, again, "a second export replaces the first and says the same");
    let shown = workplace.xrun(&["show", "trial", "--json"]).json();
    assert_eq!(shown["damage"], serde_json::json!([]), "{shown}");
}

/// The event files of a run that writes them itself, in the order of their names.
fn live(run: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(run.join("tensorboard")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The step behind which each process of a run began, of those that say so: event 7 is the log of a session.
fn restarts(bytes: &[u8]) -> Vec<u64> {
    let step = |event: &[u8]| {
        let all = fields(event);
        let number = |wanted| {
            all.iter().find_map(|(number, field)| match field {
                Field::Number(value) if *number == wanted => Some(*value),
                _ => None,
            })
        };
        all.iter().any(|(number, _)| *number == 7).then(|| number(2).unwrap())
    };
    records(bytes).into_iter().filter_map(step).collect()
}

#[test]
fn a_run_writes_event_files_while_it_goes_on_and_they_are_whole_after_a_kill_and_a_resume() {
    let workplace = Workplace::new();
    let slow = "[experiment]\ntensorboard = true\n[pipeline.dummy]\nsteps_per_epoch = 200\nstep_microseconds = 3000\n\
                [memory]\nprobe = false\n[checkpoint]\nevery_steps = 20\n";
    workplace.file("slow.toml", slow);
    let child = workplace.spawn(&["slow.toml", "-q"]);
    let directory = workplace.path("results/slow/latest/tensorboard");
    let size = || -> u64 {
        let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        files.map(|entry| entry.metadata().map_or(0, |found| found.len())).sum()
    };
    wait_until("events are written", || size() > 30_000);
    end(child);
    let run = workplace.latest("slow");
    let [first] = live(&run).try_into().unwrap();
    let bytes = std::fs::read(&first).unwrap();
    let found = scalars(&bytes);
    // Lines wait for others to be written with them, events do not.
    let written = expected(&run);
    assert!(written.len() > 20);
    written.iter().for_each(|(place, value)| assert_eq!(found.get(place), Some(value), "{place:?}"));
    assert!(restarts(&bytes).is_empty() && String::from_utf8_lossy(&bytes).contains("step_microseconds = 3000"));
    // A kill within a write leaves the beginning of an event.
    std::fs::OpenOptions::new().append(true).open(&first).unwrap().set_len(bytes.len() as u64 - 7).unwrap();
    workplace.exits(0, &["resume", "slow", "-q"]);
    let [_, second] = live(&run).try_into().unwrap();
    let again = std::fs::read(second).unwrap();
    let [from] = restarts(&again).try_into().unwrap();
    assert!(from > 20 && from % 20 == 1, "behind a checkpoint: {from}");
    let mut found = scalars(&std::fs::read(first).unwrap());
    found.retain(|(_, step), _| *step < from);
    found.extend(scalars(&again));
    let all = expected(&run);
    assert!(all.contains_key(&("train/loss".to_owned(), 200)));
    all.iter().for_each(|(place, value)| assert_eq!(found.get(place), Some(value), "{place:?}"));
    // They change no number, and are asked for.
    workplace.finished("plain", "[pipeline.dummy]\n");
    assert!(!workplace.latest("plain").join("tensorboard").exists());
}

/// Prints tag, step and value of all scalars, and the tags of texts.
const READER: &str = "
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'tensors': 0})
events.Reload()
for tag in events.Tags()['scalars']:
    for event in events.Scalars(tag):
        print(tag, event.step, repr(event.value), sep='\t')
for tag in events.Tags()['tensors']:
    print('text', tag, events.Tensors(tag)[0].tensor_proto.string_val[0].decode()[:8].replace('\\n', ' '), sep='\t')
";

#[test]
fn tensorboards_own_reader_reads_the_same() {
    let modules = "tensorboard.backend.event_processing.event_accumulator";
    let Some(python) = python("XRUN_TENSORBOARD_PYTHON", modules) else { return };
    let workplace = trial();
    let path = exported(&workplace, "trial");
    let output = Command::new(&python).args(["-c", READER]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let mut found = Scalars::new();
    for line in output.lines().filter(|line| !line.starts_with("text\t")) {
        let parts: Vec<&str> = line.split('\t').collect();
        found.insert((parts[0].to_owned(), parts[1].parse().unwrap()), parts[2].parse::<f64>().unwrap() as f32);
    }
    let ours = scalars(&std::fs::read(&path).unwrap());
    assert_eq!(found.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    for (place, value) in &ours {
        assert_eq!(found[place], *value, "{place:?}");
    }
    assert!(output.lines().any(|line| line.starts_with("text\texperiment\t```toml")), "{output}");
}
