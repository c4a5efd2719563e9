//! `quire docs NAME`: documents, manual pages and completions that are made from the program's own tables and arguments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;
use clap_complete::Shell;

use crate::{args, mount};

/// Prints the document that was named, or writes the pages or completions.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let name: &String = matches.get_one("document").context("a document")?;
    let out = || matches.get_one::<PathBuf>("out").map(PathBuf::as_path).context("--out names the directory");
    match name.as_str() {
        "man" => manual_pages(out()?)?,
        "completions" => completions(out()?)?,
        "metrics" => quire_sys::out!("{}{}", quire_server::metrics_markdown(), mount::metrics_markdown())?,
        "info" => quire_sys::out!("{}", quire_server::info_markdown())?,
        _ => quire_sys::out!("{}", quire_server::compat_markdown())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A page for each command.
fn manual_pages(dir: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(args::command(), dir).with_context(|| format!("writing to {}", dir.display()))
}

fn completions(dir: &Path) -> anyhow::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut args::command(), "quire", dir)
            .with_context(|| format!("writing to {}", dir.display()))?;
    }
    Ok(())
}
