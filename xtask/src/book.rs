//! `book`: the documents as one book, by mdBook. The pages stay where links in the repository find them, all over the tree; here they
//! are put together, each at its own path below one folder, so that the same links lead from page to page.
//!
//! Relies on `docs/SUMMARY.md`, which lists the pages, and on `docs/book.toml`. mdBook is not needed for anything else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::links::{self, Link};
use crate::{packages, sources, steps};

const SUMMARY: &str = "docs/SUMMARY.md";
const SETTINGS: &str = "docs/book.toml";

/// Puts the book together and builds it; names what is missing if mdBook is not there.
pub fn run() -> anyhow::Result<()> {
    let book = steps::target_dir()?.join("xtask/book");
    if book.exists() {
        std::fs::remove_dir_all(&book).with_context(|| format!("removing the old {}", book.display()))?;
    }
    assemble(&book)?;
    if !packages::on_path("mdbook") {
        bail!(
            "mdbook is not installed, so the book is put together in {0} and not built. Install it, then run this again:\n  cargo install mdbook",
            book.display()
        );
    }
    let status = Command::new("mdbook").arg("build").arg(&book).status().context("starting mdbook")?;
    if !status.success() {
        bail!("mdbook ended with {status}");
    }
    println!("book: {}", book.join("book/index.html").display());
    Ok(())
}

/// Pages that the book lacks, and links of its pages to what would not be in it.
pub fn faults() -> anyhow::Result<Vec<String>> {
    let pages = pages()?;
    let is_part = |page: &Path| page.starts_with("docs") && page != Path::new(SUMMARY);
    let documents = sources::documents()?;
    let left_out = documents.iter().filter(|page| is_part(page) && !pages.contains(*page));
    let mut faults: Vec<String> =
        left_out.map(|page| format!("{SUMMARY}: {} is no page of the book", page.display())).collect();
    for page in &pages {
        let text = std::fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
        faults.extend(page_faults(page, &links::links(&text), &pages));
    }
    Ok(faults)
}

fn page_faults(page: &Path, links: &[Link], pages: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut faults = Vec::new();
    for link in links {
        let Some(target) = links::resolve(page, &link.path) else { continue };
        let is_document = target.extension().is_some_and(|extension| extension == "md");
        if is_document && !pages.contains(&target) {
            faults.push(format!("{}:{}: {} is no page of the book", page.display(), link.line, target.display()));
        }
    }
    faults
}

/// The pages that the summary lists, below the repository's root.
fn pages() -> anyhow::Result<BTreeSet<PathBuf>> {
    let summary = std::fs::read_to_string(SUMMARY).with_context(|| format!("reading {SUMMARY}"))?;
    Ok(links::links(&summary).iter().filter_map(|link| links::resolve(Path::new(SUMMARY), &link.path)).collect())
}

/// Writes the settings, the summary, the pages and what they show below `book`.
fn assemble(book: &Path) -> anyhow::Result<()> {
    let source = book.join("src");
    write(&book.join("book.toml"), std::fs::read(SETTINGS).with_context(|| format!("reading {SETTINGS}"))?)?;
    let summary = std::fs::read_to_string(SUMMARY).with_context(|| format!("reading {SUMMARY}"))?;
    write(&source.join("SUMMARY.md"), as_index(&from_root(&summary)))?;
    for page in pages()? {
        let text = std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
        for link in links::links(&text) {
            let target = links::resolve(&page, &link.path).filter(|target| target.is_file());
            let is_shown = |target: &PathBuf| target.extension().is_none_or(|extension| extension != "md");
            if let Some(file) = target.filter(is_shown) {
                write(&source.join(&file), std::fs::read(&file)?)?;
            }
        }
        write(&source.join(as_index(&page.to_string_lossy())), as_index(&text))?;
    }
    Ok(())
}

/// The summary with links from the root: that is where it lies in the book.
fn from_root(summary: &str) -> String {
    let mut text = summary.to_owned();
    for link in links::links(summary) {
        if let Some(target) = links::resolve(Path::new(SUMMARY), &link.path) {
            text = text.replace(&format!("]({})", link.path), &format!("]({})", target.display()));
        }
    }
    text
}

/// The text with `index.md` for `README.md`: mdBook gives a README the name of an index, but not in links to it.
fn as_index(text: &str) -> String {
    text.replace("README.md", "index.md")
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
        .with_context(|| format!("making {}", path.display()))?;
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_the_book_names_pages_from_the_root() {
        let summary = "[Quire](../README.md)\n- [Guide](guide/a.md)\n";
        assert_eq!(as_index(&from_root(summary)), "[Quire](index.md)\n- [Guide](docs/guide/a.md)\n");
    }

    #[test]
    fn a_link_to_a_document_that_is_no_page_is_a_fault() {
        let pages = BTreeSet::from([PathBuf::from("docs/a.md"), PathBuf::from("COMPAT.md")]);
        let links = links::links("[a](../COMPAT.md) [b](../x.rs)\n[c](none.md)");
        assert_eq!(
            page_faults(Path::new("docs/a.md"), &links, &pages),
            ["docs/a.md:2: docs/none.md is no page of the book"]
        );
    }
}
