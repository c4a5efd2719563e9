//! `quire doctor --file FILE`: what the system's page cache holds of a file, and where in it.
//!
//! Relies on `cachestat`, or on `mincore` where the kernel refuses it; neither changes the cache. What a pool holds in the memory of
//! another process is not to be seen from here, so it is said where that process tells it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use quire_sys::file::open_regular;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::page_cache::{self, CachedPages};
use serde_json::json;

use quire_units::format_bytes;

/// Parts that the file is shown in.
const PARTS: u64 = 64;
const HELD_TWICE: &str = "what a pool in the memory of a running process holds of the file can't be seen from outside; that process tells it: \
                          Map::held_twice_bytes in Rust, PRAGMA quire_held_twice_bytes in SQLite";
const HIT_RATIOS: &str = "of a pool and its second tier its process tells them: Pool::stats in Rust, quire_pool_paths() in C, \
                          PRAGMA quire_stats (pool_hit_ratio, tier_hit_ratio) in SQLite";

/// What was found.
#[derive(Debug, PartialEq)]
struct FileResidency {
    bytes: u64,
    /// Pages in the cache in each part.
    parts: Vec<PartPages>,
    asked_by: AskedBy,
    /// Sums over all parts. Only `cached` where `mincore` was asked.
    all: CachedPages,
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PartPages {
    pages: u64,
    cached: u64,
}

/// How the kernel was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedBy {
    Cachestat,
    Mincore,
}

impl AskedBy {
    fn name(self) -> &'static str {
        match self {
            Self::Cachestat => "cachestat",
            Self::Mincore => "mincore",
        }
    }

    fn ask(self, file: &File, offset: u64, len: u64) -> io::Result<CachedPages> {
        match self {
            Self::Cachestat => page_cache::cached_pages(file, offset, len),
            Self::Mincore => {
                let cached = page_cache::resident_pages(file, offset, len)?;
                Ok(CachedPages { cached, ..CachedPages::default() })
            }
        }
    }
}

/// Prints what is known of the file at `path`.
pub fn run(path: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let file = open_regular(path).with_context(|| format!("opening {}", path.display()))?;
    let found = look(&file).with_context(|| format!("asking for the cached pages of {}", path.display()))?;
    if as_json {
        quire_sys::outln!("{}", found.json(path))?;
    } else {
        quire_sys::out!("{}", found.words(path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for every part of the file.
fn look(file: &File) -> io::Result<FileResidency> {
    match look_by(file, AskedBy::Cachestat) {
        // The kernel is older than the call, or a filter of system calls doesn't know it or refuses it.
        Err(error) if matches!(error.raw_os_error(), Some(ENOSYS | EOPNOTSUPP | EPERM)) => {
            look_by(file, AskedBy::Mincore)
        }
        found => found,
    }
}

/// Not permitted.
const EPERM: i32 = 1;
/// No such system call.
const ENOSYS: i32 = 38;
/// Not for files of this file system.
const EOPNOTSUPP: i32 = 95;

fn look_by(file: &File, asked_by: AskedBy) -> io::Result<FileResidency> {
    let bytes = file.metadata()?.len();
    let page_bytes = PAGE_SIZE as u64;
    let pages = bytes.div_ceil(page_bytes);
    let part_pages = pages.div_ceil(PARTS).max(1);
    let (mut parts, mut all) = (Vec::new(), CachedPages::default());
    for first in (0..pages).step_by(part_pages as usize) {
        let pages = part_pages.min(pages - first);
        let offset = first * page_bytes;
        let found = asked_by.ask(file, offset, (pages * page_bytes).min(bytes - offset))?;
        parts.push(PartPages { pages, cached: found.cached });
        all.cached += found.cached;
        all.dirty += found.dirty;
        all.writeback += found.writeback;
        all.evicted += found.evicted;
        all.recently_evicted += found.recently_evicted;
    }
    Ok(FileResidency { bytes, parts, asked_by, all })
}

impl FileResidency {
    /// Bytes of so many pages; the last page of a file may have fewer, which the whole file does not exceed.
    fn bytes_of(&self, pages: u64) -> u64 {
        (pages * PAGE_SIZE as u64).min(self.bytes)
    }

    fn share(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { self.bytes_of(self.all.cached) as f64 / self.bytes as f64 }
    }

    /// A character for each part: all of it, some of it, nothing.
    fn map(&self) -> String {
        let mark = |part: &PartPages| match part.cached {
            0 => '.',
            cached if cached >= part.pages => '#',
            _ => '+',
        };
        self.parts.iter().map(mark).collect()
    }

    fn words(&self, path: &Path) -> String {
        let size_of = |pages| format_bytes(self.bytes_of(pages));
        let mut text = format!("{}: {}\n", path.display(), format_bytes(self.bytes));
        let mut line = |name: &str, value: &str| {
            text.push_str(&format!("{name:<18} {value}\n"));
        };
        let by = self.asked_by.name();
        line("in the page cache", &format!("{}, {:.1} % ({by})", size_of(self.all.cached), 100.0 * self.share()));
        match self.asked_by {
            AskedBy::Cachestat => {
                line("of this, dirty", &size_of(self.all.dirty));
                line("being written", &size_of(self.all.writeback));
                let lately = size_of(self.all.recently_evicted);
                line("evicted since", &format!("{}, {lately} of it lately", size_of(self.all.evicted)));
            }
            AskedBy::Mincore => line("of this, dirty", "not known: this kernel has no cachestat (Linux 6.5)"),
        }
        if !self.parts.is_empty() {
            line("from start to end", &format!("{} (# all, + some, . nothing)", self.map()));
        }
        line("in memory twice", HELD_TWICE);
        line("hit ratios", HIT_RATIOS);
        text
    }

    fn json(&self, path: &Path) -> serde_json::Value {
        let by_cachestat = |pages| (self.asked_by == AskedBy::Cachestat).then(|| self.bytes_of(pages));
        let share = |part: &PartPages| part.cached as f64 / part.pages as f64;
        json!({
            "file": path.display().to_string(),
            "bytes": self.bytes,
            "asked_by": self.asked_by.name(),
            "cached_bytes": self.bytes_of(self.all.cached),
            "cached_share": self.share(),
            "dirty_bytes": by_cachestat(self.all.dirty),
            "writeback_bytes": by_cachestat(self.all.writeback),
            "evicted_bytes": by_cachestat(self.all.evicted),
            "recently_evicted_bytes": by_cachestat(self.all.recently_evicted),
            "cached_share_of_parts": self.parts.iter().map(share).collect::<Vec<f64>>(),
            "held_twice_bytes": null,
            "held_twice_reason": HELD_TWICE,
            "hit_ratios_reason": HIT_RATIOS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn both_ways_to_ask_find_the_same_pages_in_the_same_parts() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.write_all_at(&vec![1; 640 * PAGE_SIZE], 0).unwrap();
        file.sync_all().unwrap();
        let whole = look_by(&file, AskedBy::Mincore).unwrap();
        assert_eq!((whole.parts.len(), whole.bytes, whole.all.cached), (64, 640 * PAGE_SIZE as u64, 640));
        assert!(whole.map().chars().all(|mark| mark == '#'), "{}", whole.map());
        // Of pieces that reach beyond what is dropped the cache may keep more.
        page_cache::drop_range(&file, 0, 640 * PAGE_SIZE as u64);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 600 * PAGE_SIZE as u64).unwrap();
        let rest = look_by(&file, AskedBy::Mincore).unwrap();
        assert!((1..640).contains(&rest.all.cached) && rest.map().contains('.'), "{}", rest.map());
        match look_by(&file, AskedBy::Cachestat) {
            Err(error) => quire_sys::testing::skipped_even_in_ci(error),
            Ok(found) => assert_eq!(found.parts, rest.parts),
        }
    }

    #[test]
    fn parts_are_marked_by_what_is_cached_of_them() {
        let part = |cached| PartPages { pages: 4, cached };
        let found = FileResidency {
            bytes: 12 * 4096 - 100,
            parts: vec![part(4), part(1), part(0)],
            asked_by: AskedBy::Mincore,
            all: CachedPages { cached: 5, ..CachedPages::default() },
        };
        assert_eq!(found.map(), "#+.");
        let json = found.json(Path::new("/x"));
        assert_eq!((&json["cached_bytes"], &json["dirty_bytes"]), (&(5 * 4096).into(), &serde_json::Value::Null));
        assert_eq!(json["cached_share_of_parts"], json!([1.0, 0.25, 0.0]));
        assert!(found.words(Path::new("/x")).contains("not known"), "{}", found.words(Path::new("/x")));
    }

    #[test]
    fn a_file_without_bytes_has_no_parts() {
        let found = look(&tempfile::tempfile_in(".").unwrap()).unwrap();
        assert_eq!((found.parts.len(), found.share(), found.map()), (0, 0.0, String::new()));
        assert!(found.words(Path::new("/x")).contains("0 B, 0.0 %"), "{}", found.words(Path::new("/x")));
    }
}
