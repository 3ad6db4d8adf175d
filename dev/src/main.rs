//! Tools of this repository that are not part of the product: `dev leaks`, `dev launches` and `dev claims`.

mod claims;
mod launches;
mod leak_runs;
mod leaks;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Result of a function of this program.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Tools of the repository of xrun.
#[derive(Debug, Parser)]
enum Arguments {
    /// Verify leak detection on this machine: run leaky experiments and their control runs.
    Leaks(leaks::LeaksArguments),
    /// List the kernels of a step, from two records of the stand-in driver. Fails if one of them loops in few threads.
    Launches(launches::LaunchesArguments),
    /// Copy the compiled kernels of a directory `kernels` of caches into a file that a release ships.
    #[cfg(feature = "cuda")]
    Kernels {
        /// Directory of the database.
        cache: PathBuf,
        /// File to make.
        file: PathBuf,
    },
    /// Answer the claims of reports on memory from the kept results, as Markdown.
    Claims {
        /// Directory of all results, with claims.toml.
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse() {
        Arguments::Leaks(arguments) => leaks::run(&arguments),
        Arguments::Launches(arguments) => launches::run(&arguments),
        #[cfg(feature = "cuda")]
        Arguments::Kernels { cache, file } => export_kernels(&cache, &file).map(|line| (line, true)),
        Arguments::Claims { results } => claims_page(&results).map(|page| (page, true)),
    };
    match outcome {
        Ok((text, as_expected)) => {
            // A reader that has ended wants no more.
            let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
            if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            note(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

/// Writes a line for the person at the terminal.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Makes a file of the kernels in a cache.
#[cfg(feature = "cuda")]
fn export_kernels(cache: &Path, file: &Path) -> Result<String> {
    use cubecl::bundle;
    bundle::export(&[cache], file, &bundle::ExportOptions { namespaces: vec!["cuda".into()], ..Default::default() })?;
    let summary = bundle::SqliteBundle::open(file)?.summary();
    let lines = summary.iter().map(|of| format!("{}: {} kernels, {} MiB", of.namespace, of.entries, of.bytes >> 20));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Page of the answered claims.
fn claims_page(results: &Path) -> Result<String> {
    let claims = claims::Claims::read(&results.join(claims::CLAIMS))?;
    Ok(claims::markdown(&claims.answer(&mut claims::Results::new(results))?))
}
