//! Page of `xrun ui`: a frame that its script fills.

use maud::html;

use crate::report::page::document::{self, SCRIPT, frame, thick_lines};

const STYLE: &str = include_str!("ui.css");
const OWN_SCRIPT: &str = include_str!("ui.js");

fn script() -> String {
    format!("{SCRIPT}\n{OWN_SCRIPT}")
}

/// Content security policy of the page: its script, and requests to this server.
pub fn policy() -> String {
    format!(
        "{}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        document::policy(&script())
    )
}

/// HTML text of the page.
pub fn html() -> String {
    let body = html! {
        main.list {
            header {
                div.title { h1 { "Runs" } span.status #status { "reading…" } }
                p.bad #lost hidden { "The server does not answer; this is the last list." }
            }
            div.bar-of-tools {
                input #filter type="search" placeholder="filter: name, tag, verdict growing, learning_rate > 0.01" aria-label="filter";
                select #state aria-label="state" { option value="" { "all states" } }
                select #sort-by aria-label="order" { }
                label { input #trials type="checkbox"; " trials of sweeps" }
                button #compare type="button" disabled { "compare chosen" }
                button #clear type="button" disabled { "clear" }
            }
            div #figure { }
            div #scatter { }
            div.wide #runs { }
            div #sweeps { }
            footer { "Written by xrun " (env!("CARGO_PKG_VERSION")) "; reads only." }
        }
    };
    // The directive on frames is not allowed in a page.
    let policy = policy().replace("; frame-ancestors 'none'", "");
    frame("xrun: runs", &format!("{STYLE}{}", thick_lines()), &body, &script(), &policy)
}
