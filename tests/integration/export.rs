//! Do exported tables hold what the lines hold? Read back with another implementation than the one that wrote them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet2::FallibleStreamingIterator;
use parquet2::encoding::Encoding;
use parquet2::encoding::hybrid_rle::HybridRleDecoder;
use parquet2::page::{DataPage, Page, split_buffer};
use parquet2::read::{Decompressor, get_page_iterator, read_metadata};
use parquet2::schema::types::PhysicalType;
use serde_json::Value;

use crate::workplace::{Workplace, lines_with, redacted_names, text};

const EXPERIMENT: &str = "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n";

fn workplace() -> Workplace {
    let workplace = Workplace::new();
    workplace.file("trial.toml", EXPERIMENT);
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    workplace
}

/// Columns by name; `Value::Null` is null.
type Columns = BTreeMap<String, Vec<Value>>;

fn parquet(path: &Path) -> Columns {
    let mut file = File::open(path).unwrap();
    let metadata = read_metadata(&mut file).unwrap();
    let mut columns = Columns::new();
    for field in metadata.schema_descr.fields() {
        columns.insert(field.name().to_owned(), Vec::new());
    }
    for group in &metadata.row_groups {
        for chunk in group.columns() {
            let name = chunk.descriptor().path_in_schema[0].clone();
            let physical = chunk.physical_type();
            let pages = get_page_iterator(chunk, &mut file, None, Vec::new(), usize::MAX).unwrap();
            let mut pages = Decompressor::new(pages, Vec::new());
            let mut dictionary = Vec::new();
            while let Some(page) = pages.next().unwrap() {
                match page {
                    Page::Dict(page) => dictionary = plain(&page.buffer, physical),
                    Page::Data(page) => columns.get_mut(&name).unwrap().extend(values(page, physical, &dictionary)),
                }
            }
        }
    }
    columns
}

fn values(page: &DataPage, physical: PhysicalType, dictionary: &[Value]) -> Vec<Value> {
    let (_, levels, buffer) = split_buffer(page).unwrap();
    let there = HybridRleDecoder::try_new(levels, 1, page.num_values()).unwrap();
    let there: Vec<bool> = there.map(|level| level.unwrap() == 1).collect();
    let count = there.iter().filter(|there| **there).count();
    let present: Vec<Value> = match page.encoding() {
        Encoding::Plain => plain(buffer, physical),
        Encoding::RleDictionary | Encoding::PlainDictionary if count == 0 => Vec::new(),
        Encoding::RleDictionary | Encoding::PlainDictionary => {
            let indices = HybridRleDecoder::try_new(&buffer[1..], buffer[0].into(), count).unwrap();
            indices.map(|index| dictionary[index.unwrap() as usize].clone()).collect()
        }
        other => panic!("encoding {other:?}"),
    };
    assert_eq!(present.len(), count);
    let mut present = present.into_iter();
    there.into_iter().map(|there| if there { present.next().unwrap() } else { Value::Null }).collect()
}

fn plain(mut buffer: &[u8], physical: PhysicalType) -> Vec<Value> {
    let mut values = Vec::new();
    while !buffer.is_empty() {
        let length = match physical {
            PhysicalType::ByteArray => {
                let (length, rest) = buffer.split_at(4);
                buffer = rest;
                u32::from_le_bytes(length.try_into().unwrap()) as usize
            }
            _ => 8,
        };
        let (bytes, rest) = buffer.split_at(length);
        buffer = rest;
        values.push(match physical {
            PhysicalType::Int64 => i64::from_le_bytes(bytes.try_into().unwrap()).into(),
            PhysicalType::Double => f64::from_le_bytes(bytes.try_into().unwrap()).into(),
            PhysicalType::ByteArray => std::str::from_utf8(bytes).unwrap().into(),
            other => panic!("type {other:?}"),
        });
    }
    values
}

fn csv(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = text(path);
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    lines
        .map(|cells| {
            assert_eq!(cells.len(), header.len());
            header.iter().cloned().zip(cells).collect()
        })
        .collect()
}

fn lines(path: &Path) -> Vec<Value> {
    text(path).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The value of a line that stands in a column, by the line's own names.
fn of_memory<'a>(line: &'a Value, column: &str) -> &'a Value {
    let inside = |prefix: &str, unit: &str| column.strip_prefix(prefix)?.strip_suffix(unit);
    if let Some(owner) = inside("owner_", "_bytes") {
        return &line["owners"][owner];
    }
    if let Some(phase) = inside("phase_", "_us") {
        return &line["phases_us"][phase];
    }
    let name = column.strip_suffix("_bytes").unwrap_or(column);
    for group in ["device", "driver", "container"] {
        if let Some(inside) = name.strip_prefix(group).and_then(|name| name.strip_prefix('_')) {
            return &line[group][inside];
        }
    }
    if line["host"].get(name).is_some() { &line["host"][name] } else { &line[name] }
}

#[test]
fn parquet_holds_every_number_of_the_lines() {
    let workplace = workplace();
    let said = workplace.xrun(&["export", "latest", "--to", "parquet", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let written = said.json();
    assert_eq!((&written[0]["table"], &written[0]["rows"]), (&"metrics".into(), &300.into()), "{written}");
    let run = workplace.latest("trial");

    let all = lines(&run.join("metrics.jsonl"));
    let steps: Vec<&Value> = all.iter().filter(|line| line["kind"] == "train").collect();
    let table = parquet(&run.join("export/metrics.parquet"));
    let mut value_columns = 0;
    for (name, column) in &table {
        assert_eq!(column.len(), 300, "{name}");
        for (line, value) in steps.iter().zip(column) {
            match name.strip_prefix("value_") {
                Some(inside) => assert_eq!(&line["values"][inside], value, "{name}"),
                None => assert_eq!(&line[name], value, "{name}"),
            }
        }
        value_columns += usize::from(name.starts_with("value_"));
    }
    assert_eq!(value_columns, steps[0]["values"].as_object().unwrap().len());

    let validations: Vec<&Value> = all.iter().filter(|line| line["kind"] == "validation").collect();
    let table = parquet(&run.join("export/validation.parquet"));
    assert!(!validations.is_empty() && table.keys().any(|name| name.starts_with("metric_")), "{table:?}");
    for (name, column) in &table {
        assert_eq!(column.len(), validations.len());
        for (line, value) in validations.iter().zip(column) {
            let expected = name.strip_prefix("metric_").map_or(&line[name], |inside| &line["metrics"][inside]);
            assert_eq!(expected, value, "{name}");
        }
    }

    let samples = lines(&run.join("memory.jsonl"));
    let table = parquet(&run.join("export/memory.parquet"));
    assert!(table.contains_key("owner_metrics_lines_bytes"), "{:?}", table.keys());
    for (name, column) in &table {
        assert_eq!(column.len(), samples.len());
        for (line, value) in samples.iter().zip(column) {
            assert_eq!(of_memory(line, name), value, "{name}");
        }
    }
    assert!(table["anonymous_bytes"].contains(&Value::Null), "slower sources are null between");
}

#[test]
fn csv_holds_the_same_and_goes_where_it_is_asked_to() {
    let workplace = workplace();
    let said = workplace.xrun(&["export", "--to", "csv", "--output", "tables", "--tables", "metrics,memory", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let written = said.json();
    assert_eq!(written[0]["rows"], 300);
    assert!(!workplace.path("tables/validation.csv").exists());
    let run = workplace.latest("trial");
    let steps: Vec<Value> =
        lines(&run.join("metrics.jsonl")).into_iter().filter(|line| line["kind"] == "train").collect();
    let rows = csv(&workplace.path("tables/metrics.csv"));
    assert_eq!(rows.len(), steps.len());
    for (line, row) in steps.iter().zip(&rows) {
        assert_eq!(line["loss"].as_f64().unwrap(), row["loss"].parse::<f64>().unwrap());
        assert_eq!(line["step"].to_string(), row["step"]);
    }
    let samples = lines(&run.join("memory.jsonl"));
    for (line, row) in samples.iter().zip(csv(&workplace.path("tables/memory.csv"))) {
        for (name, cell) in row {
            match of_memory(line, &name) {
                Value::Null => assert_eq!(cell, "", "{name}"),
                Value::String(word) => assert_eq!(*word, cell, "{name}"),
                value => assert_eq!(value.to_string(), cell, "{name}"),
            }
        }
    }
}

#[test]
fn many_rows_become_many_row_groups_and_damaged_lines_are_counted() {
    let workplace = workplace();
    let run = workplace.latest("trial");
    let line = |step: u64| {
        let part = if step.is_multiple_of(2) { format!("\"part\":{step}.5") } else { String::new() };
        format!(
            "{{\"kind\":\"train\",\"step\":{step},\"epoch\":1,\"batch\":\"dummy\",\"loss\":{step}.25,\
             \"learning_rate\":0.1,\"gradient_norm\":null,\"gradient_norm_median\":null,\"values\":{{{part}}}}}\n"
        )
    };
    let mut all: String = (1..=40_000).map(line).collect();
    all.push_str("{\"kind\":\"tr\n{\"kind\":\"train\",\"step\":5");
    std::fs::write(run.join("metrics.jsonl"), all).unwrap();
    let said = workplace.xrun(&["export", "latest", "--to", "parquet", "--tables", "metrics", "--json"]);
    let written = said.json();
    assert_eq!((&written[0]["rows"], &written[0]["lines_left_out"]), (&40_000.into(), &1.into()), "{written}");
    let path = run.join("export/metrics.parquet");
    let groups = read_metadata(&mut File::open(&path).unwrap()).unwrap().row_groups.len();
    assert_eq!(groups, 3, "blocks of 16,384 rows");
    let table = parquet(&path);
    assert_eq!(table["step"].len(), 40_000);
    for (at, step) in (1..=40_000u64).enumerate() {
        assert_eq!(table["step"][at], step);
        assert_eq!(table["loss"][at], step as f64 + 0.25);
        let part = if step.is_multiple_of(2) { Value::from(step as f64 + 0.5) } else { Value::Null };
        assert_eq!(table["value_part"][at], part);
        assert_eq!(table["gradient_norm"][at], Value::Null);
    }
}

#[test]
fn a_table_without_its_lines_is_left_out_and_named() {
    let workplace = workplace();
    let run = workplace.latest("trial");
    std::fs::remove_file(run.join("memory.jsonl")).unwrap();
    let said = workplace.xrun(&["export", "latest", "--to", "csv"]);
    assert_eq!((said.code, text(&run.join("export/metrics.csv")).lines().count()), (0, 301), "{said:?}");
    let mut messages = lines_with(&said.err, "memory.jsonl") + "\n";
    assert!(!run.join("export/memory.csv").exists(), "not measured is not nothing");
    let said = workplace.xrun(&["export", "latest", "--to", "parquet", "--tables", "memory"]);
    assert_eq!(said.code, 1, "{said:?}");
    messages += &said.err;
    let said = workplace.xrun(&["export", "nobody", "--to", "csv"]);
    assert_eq!(said.code, 2, "{said:?}");
    messages += &said.err;
    insta::assert_snapshot!(redacted_names(&messages));
    assert_eq!(workplace.xrun(&["export", "latest"]).code, 2, "--to is needed");
}

#[test]
fn weights_are_exported_with_their_configuration() {
    let workplace = workplace();
    let run = workplace.latest("trial");
    let said = workplace.xrun(&["export", "trial", "--to", "weights", "--output", "model", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let step = said.json()["step"].as_u64().unwrap();
    let checkpoint = run.join(format!("checkpoints/step_{step:08}/model.safetensors"));
    assert_eq!(std::fs::read(workplace.path("model/model.safetensors")).unwrap(), std::fs::read(checkpoint).unwrap());
    let config: Value = serde_json::from_str(&text(&workplace.path("model/config.json"))).unwrap();
    let best = crate::workplace::json(&run.join("summary.json"))["best"].clone();
    assert_eq!((&config["step"], &config["metrics"]["score"]), (&best["step"], &best["value"]));
    assert_eq!((&config["pytorch"], &config["pipeline"]["dummy"]["steps_per_epoch"]), (&Value::Null, &100.into()));
    assert!(!workplace.path("model/model.py").exists(), "the dummy has no network");
    let said = workplace.xrun(&["export", "trial", "--to", "csv", "--checkpoint", "last"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(workplace.xrun(&["export", "trial", "--to", "weights", "--checkpoint", "7"]).code, 1);
}
