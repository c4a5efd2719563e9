//! `book`: the documents as one book, by mdBook. The pages stay where links in the repository find them, all over the tree; here they
//! are put together, each at its own path below one folder, so that the same links lead from page to page.
//!
//! Relies on `docs/SUMMARY.md`, which lists the pages, and on `docs/book.toml`. mdBook is not needed for anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
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
    let html = book.join("book");
    let broken = broken_links(&html)?;
    if !broken.is_empty() {
        bail!("the book has {} links that lead nowhere:\n  {}", broken.len(), broken.join("\n  "));
    }
    println!("book: {}", html.join("index.html").display());
    Ok(())
}

/// Links of the built pages that lead to no file of the book, or to no place of a page. Those to other sites are not looked at.
fn broken_links(html: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for page in html_below(html)? {
        let text = std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
        pages.insert(page, text);
    }
    let mut broken = BTreeSet::new();
    for (page, text) in &pages {
        let attributes = [" href=\"", " src=\""].map(|name| text.split(name).skip(1)).into_iter().flatten();
        for link in attributes.filter_map(|rest| rest.split('"').next()).filter(|link| is_inside(link)) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            // The page of a 404 is served from anywhere.
            let folder = if path.starts_with('/') { html } else { page.parent().unwrap_or(html) };
            let target =
                if path.is_empty() { page.clone() } else { normal(&folder.join(path.trim_start_matches('/'))) };
            let has_place = |text: &String| place.is_empty() || text.contains(&format!("id=\"{place}\""));
            if !(target.exists() && pages.get(&target).is_none_or(has_place)) {
                broken.insert(format!("{}: {link}", page.strip_prefix(html).unwrap_or(page).display()));
            }
        }
    }
    Ok(broken.into_iter().collect())
}

fn is_inside(link: &str) -> bool {
    !link.is_empty()
        && !link.contains("://")
        && !["mailto:", "data:", "javascript:"].iter().any(|kind| link.starts_with(kind))
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir { _ = normal.pop() } else { normal.push(part) }
    }
    normal
}

fn html_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(html_below(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "html") {
            found.push(path);
        }
    }
    Ok(found)
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
            let Some(target) = links::resolve(&page, &link.path) else { continue };
            for file in shown(&target)? {
                write(&source.join(&file), std::fs::read(&file)?)?;
            }
        }
        write(&source.join(as_index(&page.to_string_lossy())), as_index(&text))?;
    }
    Ok(())
}

/// What a link to `target` shows that is no page: the file, or those of a folder.
fn shown(target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if target.is_dir() {
        for entry in std::fs::read_dir(target).with_context(|| format!("listing {}", target.display()))? {
            files.push(entry?.path());
        }
    } else {
        files.push(target.to_owned());
    }
    files.retain(|file| file.is_file() && file.extension().is_none_or(|ending| ending != "md"));
    Ok(files)
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

    #[test]
    fn links_of_the_built_book_lead_somewhere_or_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| super::write(&dir.path().join(name), text).unwrap();
        write(
            "a.html",
            "<h1 id=\"here\"></h1> <a href=\"#here\"> <a href=\"b/c.html#there\"> <a href=\"https://x.y/z\"> <img src=\"b/p.svg\">",
        );
        write("b/c.html", "<h2 id=\"there\"></h2> <a href=\"../a.html#gone\"> <a href=\"../b\"> <a href=\"none.rs\">");
        write("b/p.svg", "");
        assert_eq!(broken_links(dir.path()).unwrap(), ["b/c.html: ../a.html#gone", "b/c.html: none.rs"]);
    }
}
