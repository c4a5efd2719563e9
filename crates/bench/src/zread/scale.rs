//! How large a run is.
//!
//! Relies on files that fit into memory together with what the processes have for themselves: everything is read from the page cache.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use quire_rng::SplitMix64;

use super::spec::{LoadKind, TrialSpec};
use crate::experiment::CommonArgs;

/// Files and times of the parts that read through `read`.
#[derive(Clone, Debug)]
pub struct ReadScale {
    /// Rounds of every trial.
    pub rounds: usize,
    /// Files of the blocks that are read, and bytes of each.
    pub files: (usize, u64),
    /// Videos, and bytes of each.
    pub videos: (usize, u64),
    /// Files of the web server.
    pub pages: usize,
    /// What of a trial counts, and what goes before.
    pub run_ms: u64,
    /// Time in which files are leased, which does not count.
    pub warm_ms: u64,
    /// All sizes and mixes, or few.
    pub is_full: bool,
}

impl ReadScale {
    /// The scale that was asked for.
    pub fn new(common: &CommonArgs) -> Self {
        Self {
            rounds: common.rounds(5, 3),
            files: common.pick((4, 128 << 20), (2, 32 << 20)),
            videos: common.pick((4, 256 << 20), (2, 32 << 20)),
            pages: common.pick(1000, 200),
            run_ms: common.pick(160, 80),
            warm_ms: common.pick(150, 120),
            is_full: !common.quick,
        }
    }

    /// A trial of blocks in `dir`.
    pub fn blocks(&self, dir: &Path, kind: LoadKind, block_bytes: usize, threads: usize) -> TrialSpec {
        let (files, file_bytes) = self.files;
        let (run_ms, warm_ms) = (self.run_ms, self.warm_ms);
        let dir = dir.to_path_buf();
        TrialSpec { dir, files, file_bytes, threads, block_bytes, kind, processor: None, warm_ms, run_ms, seed: 41 }
    }
}

/// Makes a directory of files that are all in memory afterwards.
///
/// # Errors
/// They can't be written.
pub fn make_files(parent: &Path, name: &str, files: usize, file_bytes: u64) -> anyhow::Result<PathBuf> {
    let dir = parent.join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut rng = SplitMix64::new(7);
    let piece: Vec<u8> = (0..8192).flat_map(|_| rng.next_u64().to_ne_bytes()).collect();
    for number in 0..files {
        let path = dir.join(number.to_string());
        let mut file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let mut left = file_bytes;
        while left > 0 {
            let count = left.min(piece.len() as u64);
            file.write_all(&piece[..count as usize]).context("writing a file")?;
            left -= count;
        }
        // What is dirty would be written while others are measured.
        file.sync_all().context("writing a file")?;
    }
    Ok(dir)
}
