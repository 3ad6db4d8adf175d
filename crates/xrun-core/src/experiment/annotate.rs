//! Problems of an experiment as GitHub annotations and as SARIF.

use serde_json::{Value, json};

use crate::printable::escape;
use crate::problem::{Problem, Problems};

/// GitHub workflow commands, one line per problem, which GitHub shows at the line of the file.
pub fn github(file: &str, problems: &Problems) -> String {
    let mut text = String::new();
    for problem in problems.iter() {
        let (file, line, column) = location(file, problem);
        let help = problem.help.as_ref().map_or_else(String::new, |help| format!("\nhelp: {help}"));
        let message = format!("{}{help}", message(problem));
        text.push_str(&format!(
            "::error file={},line={line},col={column},title={}::{}\n",
            property(&file),
            property(if problem.key.is_empty() { "xrun check" } else { &problem.key }),
            escaped(&message)
        ));
    }
    if problems.left_out > 0 {
        text.push_str(&format!("::error file={}::{} more problems\n", property(file), problems.left_out));
    }
    text
}

/// SARIF 2.1.0 results, one per problem.
pub fn sarif_results(file: &str, problems: &Problems) -> Vec<Value> {
    let result = |problem: &Problem| {
        let (file, line, column) = location(file, problem);
        let help = problem.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
        json!({
            "ruleId": RULE,
            "level": "error",
            "message": { "text": format!("{}{help}", message(problem)) },
            "locations": [{ "physicalLocation": {
                "artifactLocation": { "uri": uri(&file) },
                "region": { "startLine": line, "startColumn": column },
            } }],
        })
    };
    problems.iter().map(result).collect()
}

/// SARIF 2.1.0 log with these results.
pub fn sarif(results: Vec<Value>) -> Value {
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "xrun",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{
                    "id": RULE,
                    "shortDescription": { "text": "An experiment file, or a file that it names, is invalid" },
                }],
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

const RULE: &str = "experiment";

fn message(problem: &Problem) -> String {
    match problem.key.as_str() {
        "" => escape(&problem.message).into_owned(),
        key => format!("`{}`: {}", escape(key), escape(&problem.message)),
    }
}

/// File, line and column of a problem. For the command line and the environment, the first line of the checked file.
fn location(file: &str, problem: &Problem) -> (String, usize, usize) {
    match problem.location.as_ref().filter(|location| std::path::Path::new(&location.source.name).is_file()) {
        Some(location) => {
            let (line, column) = location.line_and_column();
            (location.source.name.clone(), line, column)
        }
        None => (file.to_owned(), 1, 1),
    }
}

/// Text with the escapes of GitHub's workflow commands.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// Relative URI reference of a path, with percent-encoding.
fn uri(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(byte)),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_break_out_of_the_command() {
        let mut problems = Problems::default();
        problems.add(Problem::new("a:b,c", "50 % of it\n::error::forged").help("two\nlines"));
        let text = github("exp,1.toml", &problems);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("::error file=exp%2C1.toml,line=1,col=1,title=a%3Ab%2Cc::"), "{text}");
        assert!(text.contains("50 %25 of it") && text.contains("%0Ahelp: two%0Alines"), "{text}");
    }

    #[test]
    fn paths_are_percent_encoded() {
        assert_eq!(uri("experiments/a b%ü.toml"), "experiments/a%20b%25%C3%BC.toml");
    }
}
