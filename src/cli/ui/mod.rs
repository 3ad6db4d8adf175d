//! `xrun ui`: a local page with all runs and sweeps.

mod catalog;
mod curves;
mod page;
mod server;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::files::{file, layout};
use crate::report;
use crate::report::compare::{self, RUNS_MAX};
use crate::report::page::document::{SCRIPT, policy};
use crate::report::run_report;
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::table;
use catalog::Catalog;
use server::{Answer, BODY_BYTES_MAX, Server};

pub const HELP: &str = "\
The page is served on 127.0.0.1 only, below a random path; it reads results and changes nothing. Ctrl-C ends it.
On another machine: ssh -L PORT:127.0.0.1:PORT MACHINE, and --port PORT there.

Exit codes:
    1  the port cannot be used
    2  invalid command line";

#[derive(Clone, Debug, Args)]
pub struct UiArguments {
    /// Port to listen on. Default: a free one.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    #[command(flatten)]
    results: Results,
}

pub fn run(arguments: &UiArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    let port = arguments.port.unwrap_or(0);
    let server = Server::bind(port).map_err(|error| Failure::Failed(format!("port {port} cannot be used: {error}")))?;
    terminal.print(&server.address());
    terminal.info(&format!("serving {}; Ctrl-C ends it", results.display()));
    let pages = Pages { catalog: Mutex::new(Catalog::new(results)), page: page::html() };
    server.serve(&|path| pages.answer(path)).map_err(Failure::failed)?;
    Ok(0)
}

/// Pages below the token.
struct Pages {
    catalog: Mutex<Catalog>,
    page: String,
}

impl Pages {
    fn answer(&self, path: &str) -> Answer {
        if path.is_empty() {
            return Answer::page(self.page.clone(), page::policy());
        }
        if path == "runs.json" {
            let mut catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
            // Texts, numbers and lists always serialise.
            return Answer::json(serde_json::to_vec(catalog.listing()).unwrap_or_default());
        }
        let answer = match path.split_once('/') {
            Some(("report", name)) => self.directory(name, ".html").map(|run| report(&run)),
            Some(("sweep", name)) => self.directory(name, ".html").map(|sweep| sweep_report(&sweep)),
            Some(("curves", name)) => self
                .directory(name, ".json")
                .map(|run| Answer::json(serde_json::to_vec(&curves::read(&run)).unwrap_or_default())),
            Some(("compare", name)) => self.compared(name),
            _ => None,
        };
        answer.unwrap_or_else(|| Answer::message(404, "no such page; the run may be removed"))
    }

    /// Directory of a listed run or sweep, by its id. No other path is ever read.
    fn directory(&self, name: &str, extension: &str) -> Option<PathBuf> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.directory(name.strip_suffix(extension)?).map(Path::to_path_buf)
    }

    fn compared(&self, names: &str) -> Option<Answer> {
        let ids = names.strip_suffix(".html")?.split('+').take(RUNS_MAX + 1);
        let runs: Vec<PathBuf> = ids.map(|id| self.directory(id, "")).collect::<Option<_>>()?;
        if !(2..=RUNS_MAX).contains(&runs.len()) {
            return None;
        }
        Some(match compare::gather(&runs) {
            Ok(compared) => own_page(compare::html(&compared, &compare::View::default())),
            Err(error) => Answer::message(500, &error.to_string()),
        })
    }
}

/// Page that xrun has just written, with its own script.
fn own_page(text: String) -> Answer {
    Answer::page(text, format!("{}; frame-ancestors 'none'", policy(SCRIPT)))
}

/// Policy of a page from a file in a run's directory, which may be from someone else: no scripts, and another origin, which
/// cannot read this one.
const STORED_POLICY: &str =
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Report of a run, written now from its records; the file in its directory where they are missing.
fn report(run: &Path) -> Answer {
    let has = |name: &str| run.join(name).is_file();
    // Results are often kept without the files that curves are drawn from.
    if !(has(layout::METRICS) && has(layout::MEMORY))
        && let Ok(bytes) = file::bytes(&run.join(layout::REPORT), BODY_BYTES_MAX as u64)
        && let Ok(text) = String::from_utf8(bytes)
    {
        return Answer::page(text, STORED_POLICY.into());
    }
    match run_report::open(run) {
        Ok(mut view) => {
            view.judge_if_missing();
            own_page(report::page::html(&view))
        }
        Err(error) => Answer::message(500, &error.to_string()),
    }
}

fn sweep_report(sweep: &Path) -> Answer {
    match SweepRecord::read(sweep) {
        Ok(record) => own_page(crate::sweep::page::html(&table::read(sweep, &record))),
        Err(error) => Answer::message(500, &error.to_string()),
    }
}
