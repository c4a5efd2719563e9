//! The data of a temporary image, written as an RDB file to a client that has asked for one (SYNC), on a thread of its own.
//!
//! Relies on `transfer` for the way to the client. A client knows from the frame when it has all: its mark, or its length, is told only of
//! data whose pages were all verified.

use std::io::{self, Write};
use std::time::Duration;

use quire_rdb::Writer;
use quire_store::{OpenError, RestoreStep, Store, StoreConfig, TemporaryImage};

use super::export::{ExportError, ExportSummary, export};
use crate::transfer::{ChunkSender, TransferFrame};

/// How often it is looked whether the image is verified.
const VERIFY_POLL: Duration = Duration::from_millis(2);

/// Why a file could not be sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the data can't be read back: {0}")]
    Open(#[from] OpenError),
    #[error("the data {0}")]
    Export(#[from] ExportError),
    #[error("the data can't be sent: {0}")]
    Write(#[from] io::Error),
    #[error("the client is gone")]
    Gone,
}

/// Sends the whole data of `image`.
///
/// # Errors
/// In words for the log, and for the client if nothing was sent yet.
pub fn send(
    image: TemporaryImage,
    config: StoreConfig,
    frame: &TransferFrame,
    out: &mut ChunkSender,
) -> Result<(), String> {
    let sent = open(image, config).and_then(|mut store| send_store(&mut store, frame, out));
    let summary = sent.map_err(|error| error.to_string())?;
    let ExportSummary { keys, expired, libraries } = summary;
    tracing::info!(keys, expired, libraries, "an RDB file of the data was made for a client");
    Ok(())
}

fn open(image: TemporaryImage, config: StoreConfig) -> Result<Store, SendError> {
    let (mut store, report) = Store::open_temporary(config, image)?;
    // A key whose time has come by now was there when the data was fixed.
    store.set_now_ms(report.created_unix_ms.cast_signed());
    Ok(store)
}

fn send_store(store: &mut Store, frame: &TransferFrame, out: &mut ChunkSender) -> Result<ExportSummary, SendError> {
    if let Some(mark) = &frame.end_mark {
        write_begin(frame, format_args!("EOF:{mark}"), out)?;
        let (summary, _) = export(store, &mut *out, |_, _| {})?;
        verify(store, out)?;
        out.write_all(mark.as_bytes())?;
        return Ok(summary);
    }
    // The store does not change, so the second time the file is what it was the first time.
    let (_, counter) = export(store, ByteCounter { bytes: 0, out }, |_, _| {})?;
    let ByteCounter { bytes, out } = counter;
    verify(store, out)?;
    write_begin(frame, format_args!("{bytes}"), out)?;
    let (summary, _) = export(store, &mut *out, |_, _| {})?;
    Ok(summary)
}

/// What is before the file: how its end is known.
fn write_begin(frame: &TransferFrame, end: std::fmt::Arguments<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{}${end}\r\n", frame.head)
}

/// Waits until the whole image is known to be what was written.
fn verify(store: &mut Store, out: &ChunkSender) -> Result<(), SendError> {
    while store.restore_step(1)? == RestoreStep::Waiting {
        if !out.is_wanted() {
            return Err(SendError::Gone);
        }
        std::thread::sleep(VERIFY_POLL);
    }
    Ok(())
}

/// Counts bytes as long as the client is there that is to be told how many they are.
struct ByteCounter<'o> {
    bytes: u64,
    out: &'o mut ChunkSender,
}

impl Write for ByteCounter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.out.is_wanted() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of libraries alone, in its frame: it is small enough for a reply.
pub fn libraries_in_frame(texts: &[Vec<u8>], unix_s: i64, frame: &TransferFrame) -> io::Result<Vec<u8>> {
    let mark = frame.end_mark.as_deref().unwrap_or_default();
    let mut out = Vec::new();
    write_begin(frame, format_args!("EOF:{mark}"), &mut out)?;
    let created_s = unix_s.to_string();
    let mut writer = Writer::new(out, &[("redis-ver", "7.0.15"), ("redis-bits", "64"), ("ctime", &created_s)]);
    texts.iter().for_each(|text| writer.function(text));
    let mut out = writer.finish()?;
    out.extend_from_slice(mark.as_bytes());
    Ok(out)
}
