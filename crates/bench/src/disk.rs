//! What the disk can do by itself: a sequential direct write of the same amount, to set dump rates beside, and a read of the same
//! file, for restores.
//!
//! Relies on the file system taking direct writes; several large writes are in flight at once, as in a dump, and the
//! time ends when `fsync` has returned.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_sys::buffer::Buffer;
use quire_sys::rw::RwFlags;

use quire_rng::SplitMix64;

/// Bytes of one write, as large as the dumper's.
const BLOCK_BYTES: usize = 2 << 20;
/// Writes in flight.
const IN_FLIGHT: usize = 4;
/// Blocks of the file whose durable writes are timed.
const DURABLE_BLOCKS: u64 = 256;

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
    let written =
        each_block(&mut buffers, blocks, |buffer, block| file.write_all_at(buffer, block * BLOCK_BYTES as u64))
            .and_then(|()| file.sync_all());
    let elapsed = started.elapsed();
    drop(file);
    std::fs::remove_file(&path)?;
    written.with_context(|| format!("writing {}", path.display()))?;
    Ok((blocks * BLOCK_BYTES as u64) as f64 / elapsed.as_secs_f64())
}

/// Durable writes of `bytes` each that the disk under `dir` does in a second, one at a time, over a file that is there; the file is
/// removed.
///
/// # Errors
/// When the file cannot be written.
pub fn durable_writes_per_s(dir: &Path, bytes: usize, time: Duration) -> anyhow::Result<f64> {
    let path = dir.join("durable-write.tmp");
    let file = create_direct(&path)?;
    let mut buffer = Buffer::new(bytes).context("memory for durable writes")?;
    fill(std::slice::from_mut(&mut buffer));
    let written = overwrite_durably(&file, &buffer, time);
    drop(file);
    std::fs::remove_file(&path)?;
    written.with_context(|| format!("writing {}", path.display()))
}

fn overwrite_durably(file: &File, block: &[u8], time: Duration) -> std::io::Result<f64> {
    let offset = |count: u64| count % DURABLE_BLOCKS * block.len() as u64;
    (0..DURABLE_BLOCKS).try_for_each(|number| file.write_all_at(block, offset(number)))?;
    file.sync_all()?;
    let (began, mut count) = (Instant::now(), 0);
    while count == 0 || began.elapsed() < time {
        if quire_sys::rw::write_at(file, block, offset(count), RwFlags::DURABLE)? != block.len() {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Random bytes: a device may make short work of zeros.
fn fill(buffers: &mut [Buffer]) {
    let mut rng = SplitMix64::new(11);
    for word in buffers.iter_mut().flat_map(|buffer| buffer.chunks_exact_mut(8)) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
}

/// Seconds that one sequential direct read of the file `path` takes, from its first byte to its last.
///
/// # Errors
/// When the file cannot be read.
pub fn raw_read_s(path: &Path) -> anyhow::Result<f64> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    quire_sys::file::try_direct(&file, false);
    let bytes = file.metadata()?.len();
    let mut buffers = Buffer::several(IN_FLIGHT, BLOCK_BYTES).context("memory for the raw read")?;
    // First touches of memory are no part of what the disk does.
    fill(&mut buffers);
    let started = Instant::now();
    let read = each_block(&mut buffers, bytes.div_ceil(BLOCK_BYTES as u64), |buffer, block| {
        let start = block * BLOCK_BYTES as u64;
        let len = BLOCK_BYTES.min((bytes - start) as usize);
        let mut read = 0;
        // Whole blocks are asked for: a direct read can't end within one, but where the file does.
        while read < len {
            read += match file.read_at(&mut buffer[read..], start + read as u64)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                bytes => bytes,
            };
        }
        Ok(())
    });
    read.with_context(|| format!("reading {}", path.display()))?;
    Ok(started.elapsed().as_secs_f64())
}

/// Calls `work` for each of so many blocks, with as many buffers in use at once as there are.
fn each_block(
    buffers: &mut [Buffer],
    blocks: u64,
    work: impl Fn(&mut Buffer, u64) -> std::io::Result<()> + Sync,
) -> std::io::Result<()> {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (next, work) = (&next, &work);
        let workers: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| {
                scope.spawn(move || {
                    loop {
                        let block = next.fetch_add(1, Ordering::Relaxed);
                        if block >= blocks {
                            return Ok(());
                        }
                        work(buffer, block)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a thread at the disk does not panic"))
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
    fn a_file_that_ends_within_a_block_is_read_whole() {
        let dir = tempfile::tempdir_in(".").unwrap();
        for bytes in [1, BLOCK_BYTES, 2 * BLOCK_BYTES + 777] {
            let path = dir.path().join("file");
            std::fs::write(&path, vec![7; bytes]).unwrap();
            assert!(raw_read_s(&path).unwrap() > 0.0);
        }
        assert!(raw_read_s(&dir.path().join("none")).is_err());
    }

    #[test]
    fn raw_writes_leave_no_file_behind() {
        let dir = tempfile::tempdir_in(".").unwrap();
        assert!(raw_write_bytes_per_s(dir.path(), 5 << 20).unwrap() > 0.0);
        assert!(durable_writes_per_s(dir.path(), 4096, Duration::ZERO).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
