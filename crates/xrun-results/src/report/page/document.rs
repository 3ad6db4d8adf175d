//! Frame of every HTML page: head, style sheet, and a policy that forbids scripts and network access.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Formats a message whose backticks mark code.
pub fn code(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// HTML document. `style` follows the common style sheet and is not escaped, so it must not contain foreign text.
/// `source` names the files that the page was written from.
pub fn document(title: &str, style: &str, content: &Markup, source: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Forbids loading and scripts, whatever a name contains.
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
    fn backticks_become_escaped_code() {
        let text = code("`limits.a` and `<b>`; alone: `").into_string();
        assert_eq!(text, "<code>limits.a</code> and <code>&lt;b&gt;</code>; alone: <code></code>");
    }
}
