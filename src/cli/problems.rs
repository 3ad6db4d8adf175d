//! Rendering of problems: as text with excerpts, and as JSON.

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use crate::printable::escape;
use crate::problem::{Location, Problem, Problems};
use crate::units::pluralize;

/// Maximum length of a line in an excerpt; longer ones are data or hostile.
const LINE_MAX: usize = 500;

/// Problems with excerpts of the files, wrapped at `width` characters, optionally with colours.
pub fn text(problems: &Problems, coloured: bool, width: Option<usize>) -> String {
    let width = width.unwrap_or(DEFAULT_TERM_WIDTH);
    let renderer = if coloured { Renderer::styled() } else { Renderer::plain() }.term_width(width);
    let mut text = String::new();
    for problem in problems.iter() {
        text.push_str(&renderer.render(&[group(problem)]));
        text.push_str("\n\n");
    }
    if problems.left_out > 0 {
        text.push_str(&format!("… and {} more\n\n", problems.left_out));
    }
    let count = problems.iter().count() + problems.left_out;
    text.push_str(&pluralize(count as u64, "problem"));
    text.push('\n');
    text
}

fn group(problem: &Problem) -> Group<'_> {
    let title = match problem.typed() {
        "" => escape(&problem.message).into_owned(),
        key => format!("`{}`: {}", escape(key), escape(&problem.message)),
    };
    let mut group = Group::with_title(Level::ERROR.primary_title(title));
    if let Some(location) = &problem.location {
        let related =
            problem.related.iter().filter_map(|related| related.location.as_ref().map(|location| (related, location)));
        let (same_text, other_texts): (Vec<_>, Vec<_>) =
            related.partition(|(_, other)| other.source == location.source);
        let mut snippet = excerpt(location, AnnotationKind::Primary.span(underlined(location)));
        for (related, other) in same_text {
            let label = format!("`{}` is set here", escape(&related.key));
            if is_short_line(other) {
                snippet = snippet.annotation(AnnotationKind::Context.span(underlined(other)).label(label));
            }
        }
        group = group.element(snippet);
        for (related, other) in other_texts {
            let label = format!("`{}` is set here", escape(&related.key));
            group = group.element(excerpt(other, AnnotationKind::Context.span(underlined(other)).label(label)));
        }
    }
    match &problem.help {
        Some(help) => group.element(Level::HELP.message(escape(help).into_owned())),
        None => group,
    }
}

fn excerpt<'a>(location: &'a Location, annotation: Annotation<'a>) -> Snippet<'a, Annotation<'a>> {
    let path = escape(&location.source.name).into_owned();
    if is_short_line(location) {
        return Snippet::source(location.source.text.as_str()).path(path).annotation(annotation);
    }
    let (line, _) = location.line_and_column();
    Snippet::source("…").path(path).line_start(line).annotation(AnnotationKind::Primary.span(0..0))
}

/// Byte range to underline: the first line of a location, within the text and at character boundaries.
fn underlined(location: &Location) -> std::ops::Range<usize> {
    let text = &location.source.text;
    let start = text.floor_char_boundary(location.span.start);
    let end = text.floor_char_boundary(location.span.end).max(start);
    let line_end = text[start..end].find('\n').map_or(end, |length| start + length);
    start..line_end
}

fn is_short_line(location: &Location) -> bool {
    let text = &location.source.text;
    let start = text.floor_char_boundary(location.span.start);
    let before = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let after = text[start..].find('\n').map_or(text.len(), |length| start + length);
    after - before <= LINE_MAX
}

/// Problems as an array of objects with `key`, `message`, `help`, `layer`, `line` and `column` (from 1).
pub fn json(problems: &Problems) -> Value {
    problems.iter().map(problem_json).collect()
}

fn problem_json(problem: &Problem) -> Value {
    let location = problem.location.as_ref();
    let at = location.map(Location::line_and_column);
    let related: Vec<&str> = problem.related.iter().map(|related| related.key.as_str()).collect();
    json!({
        "key": problem.key,
        "message": problem.message,
        "help": problem.help,
        "layer": location.map(|location| &location.source.name),
        "line": at.map(|(line, _)| line),
        "column": at.map(|(_, column)| column),
        "related": related,
    })
}
