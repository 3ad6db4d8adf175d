//! How is everything that is wrong with an experiment shown: to a person, with excerpts, and to a program?

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use crate::printable::escape;
use crate::problem::{Place, Problem, Problems};

/// Of a line longer than this no excerpt is shown: it is data, or hostile.
const LINE_MAX: usize = 500;

/// The problems with excerpts of the files, coloured for a terminal or not, and of `width` characters where it has so many.
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
    text.push_str(&match count {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    });
    text.push('\n');
    text
}

fn group(problem: &Problem) -> Group<'_> {
    let title = match problem.typed() {
        "" => escape(&problem.message).into_owned(),
        key => format!("`{}`: {}", escape(key), escape(&problem.message)),
    };
    let mut group = Group::with_title(Level::ERROR.primary_title(title));
    if let Some(place) = &problem.place {
        let here = problem.related.iter().filter_map(|related| related.place.as_ref().map(|place| (related, place)));
        let (here, elsewhere): (Vec<_>, Vec<_>) = here.partition(|(_, other)| other.source == place.source);
        let mut snippet = excerpt(place, AnnotationKind::Primary.span(shown(place)));
        for (related, other) in here {
            let label = format!("`{}` is set here", escape(&related.key));
            if short_line(other) {
                snippet = snippet.annotation(AnnotationKind::Context.span(shown(other)).label(label));
            }
        }
        group = group.element(snippet);
        for (related, other) in elsewhere {
            let label = format!("`{}` is set here", escape(&related.key));
            group = group.element(excerpt(other, AnnotationKind::Context.span(shown(other)).label(label)));
        }
    }
    match &problem.help {
        Some(help) => group.element(Level::HELP.message(escape(help).into_owned())),
        None => group,
    }
}

fn excerpt<'a>(place: &'a Place, annotation: Annotation<'a>) -> Snippet<'a, Annotation<'a>> {
    let path = escape(&place.source.name).into_owned();
    if short_line(place) {
        return Snippet::source(place.source.text.as_str()).path(path).annotation(annotation);
    }
    let (line, _) = place.line_and_column();
    Snippet::source("…").path(path).line_start(line).annotation(AnnotationKind::Primary.span(0..0))
}

/// The bytes to underline: of what spans several lines, the first line; never beyond the text, never within a character.
fn shown(place: &Place) -> std::ops::Range<usize> {
    let text = &place.source.text;
    let start = floor(text, place.span.start);
    let end = floor(text, place.span.end).max(start);
    let line_end = text[start..end].find('\n').map_or(end, |length| start + length);
    start..line_end
}

fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn short_line(place: &Place) -> bool {
    let text = &place.source.text;
    let start = floor(text, place.span.start);
    let before = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let after = text[start..].find('\n').map_or(text.len(), |length| start + length);
    after - before <= LINE_MAX
}

/// The problems as an array of objects with `key`, `message`, `help`, `layer`, `line`, `column` (both from 1).
pub fn json(problems: &Problems) -> Value {
    problems.iter().map(one).collect()
}

fn one(problem: &Problem) -> Value {
    let place = problem.place.as_ref();
    let at = place.map(Place::line_and_column);
    let related: Vec<&str> = problem.related.iter().map(|related| related.key.as_str()).collect();
    json!({
        "key": problem.key,
        "message": problem.message,
        "help": problem.help,
        "layer": place.map(|place| &place.source.name),
        "line": at.map(|(line, _)| line),
        "column": at.map(|(_, column)| column),
        "related": related,
    })
}
