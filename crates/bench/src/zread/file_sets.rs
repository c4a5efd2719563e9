//! Filebench's `videoserver` and `webserver`, made anew: what their threads do, on fewer and smaller files.
//!
//! Relies on the parent having written the files. As in the dissertation, the video server has no limit of bandwidth.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_rng::SplitMix64;

use super::read_loads::ReadBuffer;
use super::spec::{Counters, TrialSpec};

/// The thread that replaces videos writes so much at a time, one video in each interval.
const WRITE_BYTES: usize = 1 << 20;
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);
/// A web server's thread appends so much to the log after so many files.
const LOG_BYTES: usize = 16 << 10;
const FILES_A_LINE: u64 = 10;
/// The log begins anew after so many lines of a thread, so that a long run does not fill the disk.
const MOST_LINES: u64 = 2048;

/// Reads a whole file by reads of the buffer's length.
fn read_whole(spec: &TrialSpec, number: usize, buffer: &mut ReadBuffer, counters: &Counters) -> anyhow::Result<()> {
    let mut file = spec.open(number)?;
    loop {
        let count = file.read(buffer.bytes()).context("reading a file")?;
        if count == 0 || counters.is_done() {
            return Ok(());
        }
        counters.add(0, count as u64);
    }
}

/// A thread of the video server: the first replaces videos that are not watched, the others read.
pub fn videos(spec: &TrialSpec, number: usize, counters: &Counters) -> anyhow::Result<()> {
    if number == 0 {
        return replace(spec, counters);
    }
    let mut rng = SplitMix64::new(spec.seed ^ (number as u64) << 32);
    let mut buffer = ReadBuffer::new(spec.block_bytes);
    counters.begin();
    while !counters.is_done() {
        read_whole(spec, rng.below(spec.files as u64) as usize, &mut buffer, counters)?;
        counters.add(1, 0);
    }
    Ok(())
}

fn replace(spec: &TrialSpec, counters: &Counters) -> anyhow::Result<()> {
    let path = spec.dir.join("passive");
    let bytes = vec![7; WRITE_BYTES];
    let mut begun = Instant::now();
    let mut written = spec.file_bytes;
    let mut file = None;
    counters.begin();
    while !counters.is_done() {
        if written >= spec.file_bytes {
            if begun.elapsed() < REPLACE_INTERVAL && file.is_some() {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            begun = Instant::now();
            written = 0;
            let _ = std::fs::remove_file(&path);
            file = Some(File::create(&path).context("making a video")?);
        }
        if let Some(file) = &mut file {
            file.write_all(&bytes).context("writing a video")?;
            written += WRITE_BYTES as u64;
        }
    }
    Ok(())
}

/// A thread of the web server.
pub fn web(spec: &TrialSpec, number: usize, counters: &Counters) -> anyhow::Result<()> {
    let mut rng = SplitMix64::new(spec.seed ^ (number as u64) << 32);
    let mut buffer = ReadBuffer::new(spec.block_bytes);
    let log = File::create(spec.dir.join(format!("log-{number}"))).context("opening the log")?;
    let line = vec![b'l'; LOG_BYTES];
    let mut done = 0_u64;
    counters.begin();
    while !counters.is_done() {
        read_whole(spec, rng.below(spec.files as u64) as usize, &mut buffer, counters)?;
        counters.add(1, 0);
        done += 1;
        if done.is_multiple_of(FILES_A_LINE) {
            let at = done / FILES_A_LINE % MOST_LINES * LOG_BYTES as u64;
            log.write_all_at(&line, at).context("writing the log")?;
        }
    }
    Ok(())
}
