//! What every page has around its content: the head, the style, and that nothing is loaded and nothing runs.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// A sentence in which backticks mark what is typed, as the terminal shows it.
pub fn code(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// A whole page. `style` comes after that of all pages and is not escaped: no text of others may stand in it. `source`
/// says what the page was written from.
pub fn document(title: &str, style: &str, content: &Markup, source: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Nothing is loaded and nothing runs, whatever stands in a name.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { main {
                (content)
                footer { "Written by xrun " (env!("CARGO_PKG_VERSION")) " from " (source) "." }
            } }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_code_and_is_escaped() {
        let text = code("`limits.a` and `<b>`; alone: `").into_string();
        assert_eq!(text, "<code>limits.a</code> and <code>&lt;b&gt;</code>; alone: <code></code>");
    }
}
