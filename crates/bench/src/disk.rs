//! What the disk can do by itself: a sequential direct write of the same amount, to set dump rates beside.
//!
//! Relies on the file system taking direct writes; several large writes are in flight at once, as in a dump, and the
//! time ends when `fsync` has returned.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use quire_sys::buffer::Buffer;

use quire_rng::SplitMix64;

/// Bytes of one write, as large as the dumper's.
const BLOCK_BYTES: usize = 2 << 20;
/// Writes in flight.
const IN_FLIGHT: usize = 4;

/// Bytes a second of one sequential direct write of `bytes` with fsync at the end, in `dir`; the file is removed.
///
/// # Errors
/// When the file cannot be written.
pub fn raw_write_bytes_per_s(dir: &Path, bytes: u64) -> anyhow::Result<f64> {
    let path = dir.join("raw-write.tmp");
    let file = create_direct(&path)?;
    let mut buffers = Buffer::several(IN_FLIGHT, BLOCK_BYTES).context("memory for the raw write")?;
    fill(&mut buffers);
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64).max(1);
    let started = Instant::now();
    let written = write_blocks(&file, &buffers, blocks).and_then(|()| file.sync_all());
    let elapsed = started.elapsed();
    drop(file);
    std::fs::remove_file(&path)?;
    written.with_context(|| format!("writing {}", path.display()))?;
    Ok((blocks * BLOCK_BYTES as u64) as f64 / elapsed.as_secs_f64())
}

/// Random bytes: a device may make short work of zeros.
fn fill(buffers: &mut [Buffer]) {
    let mut rng = SplitMix64::new(11);
    for word in buffers.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(8)) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
}

fn write_blocks(file: &File, buffers: &[Buffer], blocks: u64) -> std::io::Result<()> {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let next = &next;
        let workers: Vec<_> = buffers
            .iter()
            .map(|buffer| {
                scope.spawn(move || {
                    loop {
                        let block = next.fetch_add(1, Ordering::Relaxed);
                        if block >= blocks {
                            return Ok(());
                        }
                        file.write_all_at(buffer, block * BLOCK_BYTES as u64)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a writing thread does not panic"))
    })
}

/// A new file for direct writes. Where the file system has none, the page cache takes part for the dump and for this
/// alike, and the fsync at the end keeps the comparison fair.
fn create_direct(path: &Path) -> anyhow::Result<File> {
    let file = quire_sys::file::create_new(path).with_context(|| format!("creating {}", path.display()))?;
    quire_sys::file::try_direct(&file, true);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_write_leaves_no_file_behind() {
        let dir = tempfile::tempdir_in(".").unwrap();
        assert!(raw_write_bytes_per_s(dir.path(), 5 << 20).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
