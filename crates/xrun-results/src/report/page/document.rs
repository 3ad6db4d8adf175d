//! Frame of every HTML page: head, style sheet, the script that shows values under the pointer, and a policy that forbids
//! every other script and network access.

use base64::Engine;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use crate::report::plots::COLOURS;

const STYLE: &str = include_str!("style.css");
/// The only script of a page.
pub const SCRIPT: &str = include_str!("hover.js");

/// Content security policy of a page: one script, by its digest, whatever a name contains, and nothing from a network.
pub fn policy(script: &str) -> String {
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
    format!("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'")
}

/// Style of the eighth line and those after it: colours and dashes repeat with a thicker line.
pub fn thick_lines() -> String {
    let style = |at: usize| {
        let again = at + COLOURS;
        format!(
            "\n.c{again} {{ --c: var(--c{at}); --d: var(--d{at}); --l: var(--l{at}); --thick: 4.5px; --tall: .45rem; }}"
        )
    };
    (1..=COLOURS).map(style).collect()
}

/// Formats a message whose backticks mark code.
pub fn code(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// HTML document. `style` follows the common style sheet and is not escaped, so it must not contain foreign text.
/// `source` names the files that the page was written from.
pub fn document(title: &str, style: &str, content: &Markup, source: &str) -> String {
    let body = html! {
        main {
            (content)
            footer { "Written by xrun " (env!("CARGO_PKG_VERSION")) " from " (source) "." }
        }
    };
    frame(title, style, &body, SCRIPT, &policy(SCRIPT))
}

/// HTML document with a body, a script and a policy, none of which is escaped.
pub fn frame(title: &str, style: &str, body: &Markup, script: &str, policy: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { (body) script { (PreEscaped(script)) } }
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
