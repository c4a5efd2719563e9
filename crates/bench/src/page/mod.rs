//! `quire report`: one static page that sets each paper's figures beside ours and the peers', with goals, bounds and plots.
//!
//! Relies on the contract in [`crate::report`], and on plots lying beside the JSON of their runs. The page needs no network and has no
//! script: style and plots are part of it. What it is made from is not trusted: text is escaped, plots keep what draws.

mod bar;
mod claims;
mod document;
mod figure;
mod plot;
mod results;
mod section;

use std::path::PathBuf;

use anyhow::Context;

use results::Results;

/// What the command does, in a line.
pub const ABOUT: &str =
    "Write one static page of what was measured: papers' figures, ours and the peers', goals, bounds, plots";
/// The page's name in its folder.
const PAGE: &str = "index.html";

/// What the page is made from.
#[derive(Debug, Clone, clap::Args)]
pub struct PageArgs {
    /// The folder with the JSON files of runs (`quire bench … --json`), and their plots
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    pub from: PathBuf,
    /// The folder to write the page to, as index.html
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes the page and says where it is.
///
/// # Errors
/// When the folder can't be read or holds no run, or when the page can't be written.
pub fn run(args: &PageArgs) -> anyhow::Result<()> {
    let results = Results::read(&args.from)?;
    let page = document::html(&results).into_string();
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let path = args.out.join(PAGE);
    std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    for (file, why) in &results.left_out {
        quire_sys::outln!("left out: {file}: {why}")?;
    }
    let (runs, plots) = (results.runs.len(), results.plots.len());
    quire_sys::outln!("{}: {runs} runs, {plots} plots; open it in a browser", path.display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_of_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let kept = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results"));
        run(&PageArgs { from: kept, out: dir.path().join("made/here") }).unwrap();
        let page = std::fs::read_to_string(dir.path().join("made/here/index.html")).unwrap();
        for part in
            ["<!DOCTYPE html>", "id=\"server\"", "cut_stall_us", "<svg", "goal missed", "goal reached", "3.08 ×"]
        {
            assert!(page.contains(part), "{part}");
        }
        for part in ["<script", "src=", "@import", "url(", "javascript:"] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_folder_without_runs_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let args = PageArgs { from: dir.path().to_owned(), out: dir.path().to_owned() };
        let told = run(&args).unwrap_err().to_string();
        assert!(told.contains("holds no run") && told.contains("--json"), "{told}");
    }
}
