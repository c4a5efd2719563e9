//! Links of the documents: each leads to a file of the repository, and to a heading of it where it names one.
//!
//! Relies on links written as `[text](target)` in one line. Links to other sites are not looked at: a test needs no network.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;

use crate::sources;

/// A link of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// The line, from 1.
    pub line: usize,
    /// What stands in the parentheses, without the heading.
    pub path: String,
    /// The heading behind `#`, if one is named.
    pub heading: Option<String>,
}

/// The links of a document that lead to files or headings.
pub fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let Some((target, _)) = line[at + 2..].split_once(')') else { continue };
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = match target.split_once('#') {
                Some((path, heading)) => (path, Some(heading.to_owned())),
                None => (target, None),
            };
            found.push(Link { line: index + 1, path: path.to_owned(), heading });
        }
    }
    found
}

/// The lines outside fenced blocks, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The line with blanks for what stands between backticks.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { " ".repeat(part.len()) }).collect()
}

/// The names of a document's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let name = heading_name(line.trim_start_matches('#').trim());
        let mut unique = name.clone();
        let mut count = 0;
        while !names.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}-{count}");
        }
    }
    names
}

fn heading_name(heading: &str) -> String {
    let mut name = String::new();
    for letter in heading.chars() {
        match letter {
            ' ' => name.push('-'),
            '-' | '_' => name.push(letter),
            letter if letter.is_alphanumeric() => name.extend(letter.to_lowercase()),
            _ => {}
        }
    }
    name
}

/// Where `target` leads from the document `from`, below the repository's root; nothing if it leads out of it.
pub fn resolve(from: &Path, target: &str) -> Option<PathBuf> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut path = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Links that lead nowhere.
pub fn faults() -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for document in sources::documents()? {
        let text = std::fs::read_to_string(&document).with_context(|| format!("reading {}", document.display()))?;
        faults.extend(document_faults(&document, &text, |path| std::fs::read_to_string(path).ok()));
    }
    Ok(faults)
}

fn document_faults(document: &Path, text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for link in links(text) {
        let at = format!("{}:{}", document.display(), link.line);
        let Some(path) = resolve(document, &link.path) else {
            faults.push(format!("{at}: {} leads out of the repository", link.path));
            continue;
        };
        let content = if path == document { Some(text.to_owned()) } else { read(&path) };
        // A folder has no content, and no headings.
        if content.is_none() && !path.exists() {
            faults.push(format!("{at}: there is no {}", path.display()));
        } else if let (Some(heading), Some(content)) = (&link.heading, &content)
            && !headings(content).contains(heading)
        {
            faults.push(format!("{at}: {} has no heading #{heading}", path.display()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_only() {
        let text = "[a](b.md#c) `[no](x)` [`d`](../e)\n```\n[no](y)\n```\n[f](https://g) [h](#i)\n";
        let link = |line, path: &str, heading: Option<&str>| Link {
            line,
            path: path.into(),
            heading: heading.map(str::to_owned),
        };
        assert_eq!(links(text), [link(1, "b.md", Some("c")), link(1, "../e", None), link(5, "", Some("i"))]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_fault() {
        let other = "# The `server`: a *first* run, 2 cores\n## Twice\n## Twice\n";
        let read = |path: &Path| (path == Path::new("docs/b.md")).then(|| other.to_owned());
        let faults = |text: &str| document_faults(Path::new("docs/a.md"), text, read).join("\n");
        assert_eq!(faults("# Own\n[a](b.md) [b](b.md#the-server-a-first-run-2-cores) [c](b.md#twice-1) [d](#own)"), "");
        assert_eq!(faults("\n[a](c.md)"), "docs/a.md:2: there is no docs/c.md");
        assert_eq!(faults("[a](b.md#twice-2)"), "docs/a.md:1: docs/b.md has no heading #twice-2");
        assert_eq!(faults("[a](#none)"), "docs/a.md:1: docs/a.md has no heading #none");
        assert!(faults("[a](../../x)").contains("leads out of the repository"));
    }
}
