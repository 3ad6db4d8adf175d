//! Generation of the manual of the experiment file, `docs/reference.md`, from the schema.

use std::fmt::Write;

use serde_json::Value;

use xrun::experiment::schema;
use xrun::experiment::shape::{self, Shape};

const HEAD: &str = "# The experiment file

Generated from the code's types by `cargo test --no-default-features --test integration -- schemas`; do not edit.

An experiment is a TOML file. Values come in layers of ascending precedence: defaults, the files named by `extends`,
the file itself, environment variables (`XRUN__LIMITS__WORKERS=2`: two underscores between section and key), and
`-s limits.workers=2` on the command line. `xrun check --resolved --origins FILE` prints all values with their origins.
Sizes are integers of bytes or text with a unit (`\"300 MiB\"`, `\"1.5 GB\"`), durations are text with a unit (`\"30 s\"`,
`\"2h 30m\"`). Of a choice between kinds (`[optimizer.adamw]`), exactly one table is present.

| Section | Meaning |
|---|---|
";

/// Manual as Markdown.
pub fn reference() -> String {
    let schema = schema::shared();
    let mut text = HEAD.to_owned();
    let mut body = String::new();
    for (section, part) in properties(schema) {
        let anchor = section.replace('.', "");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| [`{section}`](#{anchor}) | {} |", cell(first_sentence(shape::description(part))));
        write_section(&mut body, part, section, 2);
    }
    text + &body
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn write_section(text: &mut String, schema: &Value, path: &str, level: usize) {
    let _ = write!(text, "\n{} `{path}`\n\n{}\n", "#".repeat(level), shape::description(schema));
    let Shape::Table { properties, kinds } = shape::parse(schema) else {
        let _ = writeln!(text, "\nExpects {}.", shape::parse(schema).words());
        return;
    };
    if kinds {
        let names: Vec<String> = properties.keys().map(|kind| format!("`[{path}.{kind}]`")).collect();
        let otherwise = shape::default_kind(schema).map(|kind| format!(" Default: `[{path}.{kind}]`."));
        let _ = writeln!(text, "\nOne of: {}.{}", names.join(", "), otherwise.unwrap_or_default());
    }
    let (tables, values): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(_, part)| matches!(shape::parse(part), Shape::Table { .. }));
    if !values.is_empty() {
        text.push_str("\n| Key | Values | Default | Meaning |\n|---|---|---|---|\n");
    }
    for (key, part) in values {
        let default = part.get("default").map_or("-".to_owned(), |default| format!("`{}`", shape::toml(default)));
        let takes = cell(&shape::parse(part).words());
        let _ = writeln!(text, "| `{key}` | {takes} | {} | {} |", cell(&default), cell(&meaning(part)));
    }
    for (key, part) in tables {
        write_section(text, part, &format!("{path}.{key}"), (level + 1).min(5));
    }
}

/// Description of a key and of each of its choices.
fn meaning(schema: &Value) -> String {
    let mut text = shape::description(schema).to_owned();
    for word in shape::choices(schema).iter().filter(|word| !word.description.is_empty()) {
        let _ = write!(text, " `{}`: {}", word.value, word.description);
    }
    text
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Text of a table cell, without line breaks and with escaped bars.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
