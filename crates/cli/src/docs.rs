//! `quire docs NAME`: documents that are made from the program's own tables.

use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;

/// Prints the document that was named.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let name: &String = matches.get_one("document").context("a document")?;
    let text = if name == "info" { quire_server::info_markdown() } else { quire_server::compat_markdown() };
    quire_sys::out!("{text}")?;
    Ok(ExitCode::SUCCESS)
}
