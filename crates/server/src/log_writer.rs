//! The log of writes as the server keeps it: which commands go into it, and what clients must wait for.
//!
//! A record is what one request did: the effect of its command (`effects`), or of all commands of a transaction, with the time
//! by which they were run. What commands don't do themselves goes into the log as DEL: keys that expire, whichever command
//! meets them; and as HDEL: fields of hashes. Only commands that changed something are logged.
//!
//! Relies on `quire-wal` for the log itself. Knows neither sockets nor saves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Waker;
use quire_device::{DeviceError, Directory};
use quire_store::{ExpiredKey, Store};
use quire_wal::{Log, LogError, LogIdentity, LogOptions, LogStats, NextSegment, SyncPolicy};

use crate::config::{AppendSync, Config};

/// How long logged writes may wait for a stalled device before further ones have to wait, as in Redis.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The number of a record that never becomes durable, since the log has failed.
pub const LOST: u64 = u64::MAX;
/// Between two attempts to make a file for which there was no room.
const RETRY_FILES_EVERY: Duration = Duration::from_secs(1);
/// Between two looks whether the log is durable, at the end of the server.
const SETTLE_POLL: Duration = Duration::from_millis(1);
/// So much may wait, however short.
const MOST_WAITING_BYTES: usize = 64 << 20;
/// Names of expired keys, or of fields, that one record holds.
const EXPIRED_BYTES: usize = 1 << 20;
/// Files that are kept to be used again.
const MOST_SPARES: usize = 2;

/// The log of writes.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    /// The image with which the log comes in force, until it has.
    awaited_epoch: Option<u64>,
    /// A command that writes was run since the last record was closed, whether it has changed anything or not.
    wrote: bool,
    /// The last record whose sender was replied to before it was durable, as the policy said then.
    told: u64,
    /// When it was last tried to make a file for which there was no room.
    retried: Option<Instant>,
    /// Where its files lie, for messages.
    pub directory: String,
    /// Path of the image that it continues.
    pub image: PathBuf,
    /// Times that writes had to wait because the device was behind.
    pub delayed: u64,
    /// Now, too.
    pub behind: bool,
}

fn sync_of(sync: AppendSync) -> SyncPolicy {
    match sync {
        AppendSync::Always => SyncPolicy::Always,
        AppendSync::EverySecond => SyncPolicy::EverySecond,
        AppendSync::Never => SyncPolicy::Never,
    }
}

impl LogWriter {
    /// Begins to log, from record `next_sequence` on. A log that isn't in force yet takes records before it has a file.
    ///
    /// # Errors
    /// The device or the system refuses.
    pub fn start(
        directory: &Arc<dyn Directory>,
        config: &Config,
        identity: LogIdentity,
        next_sequence: u64,
        waker: Option<Arc<Waker>>,
    ) -> Result<Self, LogError> {
        // While the server runs no client waits for the device.
        let begin = if identity.in_force { Log::start } else { Log::begin };
        let options = LogOptions {
            segment_bytes: config.log_segment_bytes,
            most_spares: MOST_SPARES,
            sync: sync_of(config.appendfsync),
            most_waiting_bytes: MOST_WAITING_BYTES,
            longest_wait: LONGEST_WAIT,
        };
        let notify = move || {
            if let Some(waker) = &waker {
                // If the loop is gone there is none to wake.
                let _ = waker.wake();
            }
        };
        let log = begin(directory, options, identity, next_sequence, Box::new(notify))?;
        let awaited_epoch = (!identity.in_force).then_some(identity.base_epoch);
        let (directory, image) = (directory.path_of(""), config.image_path());
        Ok(Self {
            log,
            awaited_epoch,
            wrote: false,
            told: 0,
            retried: None,
            directory,
            image,
            delayed: 0,
            behind: false,
        })
    }

    /// Logs what has happened: keys that have expired meanwhile, and the command, one that `writes`, if it has `changed`
    /// anything.
    #[inline]
    pub fn note<'w>(
        &mut self,
        store: &mut Store,
        writes: bool,
        changed: bool,
        db: u8,
        words: impl ExactSizeIterator<Item = &'w [u8]>,
    ) {
        if store.has_expired_keys() {
            self.note_expired(store);
        }
        self.wrote |= writes;
        if changed {
            self.log.command(store.now_ms(), db, words.len());
            words.for_each(|word| self.log.word(word));
        }
    }

    /// Logs that keys have expired, and fields. A record has room for 4 GiB, and many may expire at once, so they get records of
    /// their own, unless a transaction has begun, whose record must be whole.
    #[cold]
    pub fn note_expired(&mut self, store: &mut Store) {
        let now_ms = store.now_ms();
        let within = self.log.has_open();
        let mut bytes = 0;
        // Keys belong together while they are of one database and not too long.
        let together = |a: &ExpiredKey, b: &ExpiredKey| {
            bytes += a.key.len();
            let together = a.db == b.db && a.fields.is_empty() && b.fields.is_empty() && bytes < EXPIRED_BYTES;
            bytes = if together { bytes } else { 0 };
            together
        };
        for keys in store.take_expired().chunk_by(together) {
            let first = &keys[0];
            if first.fields.is_empty() {
                let names = keys.iter().map(|expired| &*expired.key);
                self.note_deleted(now_ms, first.db.0, b"DEL", names, within);
            } else {
                self.note_expired_fields(now_ms, first, within);
            }
        }
    }

    /// Logs that fields of a hash have expired.
    fn note_expired_fields(&mut self, now_ms: i64, expired: &ExpiredKey, within: bool) {
        let mut bytes = 0;
        let chunks = expired.fields.chunk_by(|field, _| {
            bytes += field.len();
            let together = bytes < EXPIRED_BYTES;
            bytes = if together { bytes } else { 0 };
            together
        });
        for fields in chunks {
            let names: Vec<&[u8]> = [&*expired.key].into_iter().chain(fields.iter().map(|field| &**field)).collect();
            self.note_deleted(now_ms, expired.db.0, b"HDEL", names.into_iter(), within);
        }
    }

    fn note_deleted<'w>(
        &mut self,
        now_ms: i64,
        db: u8,
        command: &[u8],
        names: impl ExactSizeIterator<Item = &'w [u8]>,
        within: bool,
    ) {
        self.log.command(now_ms, db, 1 + names.len());
        self.log.word(command);
        names.for_each(|name| self.log.word(name));
        if !within {
            self.log.seal();
        }
    }

    /// Whether there is something for [`LogWriter::seal`] to do.
    #[inline]
    pub fn needs_seal(&self) -> bool {
        self.wrote || self.log.has_open()
    }

    /// Makes a record of what was noted, to be done again whole or not at all. Returns what the sender of a command that
    /// writes waits for: this record, or, as its command has changed nothing because of what it found, the last one there
    /// is; [`LOST`] if the log has failed.
    #[inline]
    pub fn seal(&mut self) -> Option<u64> {
        let sealed = self.log.seal();
        if !std::mem::take(&mut self.wrote) {
            return None;
        }
        let lost = self.log.failure().is_some();
        Some(if lost { LOST } else { sealed.unwrap_or(self.log.appended()) })
    }

    /// Makes a record of what was noted; [`LogWriter::seal`] still says what the sender waits for.
    pub fn close(&mut self) {
        self.log.seal();
    }

    /// Hands the records over to the device.
    #[inline]
    pub fn commit(&mut self) {
        self.close();
        self.log.commit();
    }

    /// Whether the log could not be begun at all.
    pub fn never_began(&self) -> bool {
        self.log.failure().is_some() && !self.log.has_begun()
    }

    /// Whether every record was handed over.
    pub fn is_committed(&self) -> bool {
        self.log.is_committed()
    }

    /// The last record.
    #[inline]
    pub fn appended(&self) -> u64 {
        self.log.appended()
    }

    /// The last record that is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Whether record `sequence` would be there after a crash: it is durable, and so is the image with which the log comes
    /// in force.
    pub fn is_safe(&self, sequence: u64) -> bool {
        self.awaited_epoch.is_none() && sequence <= self.log.durable()
    }

    /// Whether a client is told of its write only when that is durable.
    #[inline]
    pub fn holds_replies(&self) -> bool {
        self.log.sync() == SyncPolicy::Always
    }

    /// Why nothing is logged any more.
    pub fn failure(&self) -> Option<&LogError> {
        self.log.failure()
    }

    /// Has the loop woken when more is durable.
    pub fn want_notice(&self) {
        self.log.want_notice();
    }

    /// Has everything made durable soon.
    pub fn hurry(&mut self) {
        self.log.hurry();
    }

    /// Looks whether the device is behind, or the log `full` until an image is complete, so that writes have to wait; counts
    /// when that begins. A client whose write is `refused` doesn't wait.
    pub fn look_behind(&mut self, full: bool, refused: bool) -> bool {
        let behind = !refused && (full || self.log.is_behind());
        self.delayed += u64::from(behind && !self.behind);
        self.behind = behind;
        behind
    }

    /// The last record that clients may rely on: its sender was replied to, durable or not.
    pub fn told(&self) -> u64 {
        if self.holds_replies() { self.told } else { self.log.appended() }
    }

    /// Changes when records are made durable; what is there is soon.
    pub fn set_sync(&mut self, sync: AppendSync) {
        self.told = self.told();
        self.log.set_sync(sync_of(sync));
    }

    /// Whether the log waits for its first image.
    pub fn awaits_image(&self) -> bool {
        self.awaited_epoch.is_some()
    }

    /// Image number `epoch` is durable and holds the effect of all records up to `position`.
    pub fn image_saved(&mut self, epoch: u64, position: u64) {
        // One that was cut before the log began says nothing about it.
        if self.awaited_epoch.is_none_or(|awaited| awaited <= epoch) {
            self.awaited_epoch = None;
            self.log.cover(position);
        }
    }

    /// Whether files that an image covers are still being taken away.
    pub fn is_covering(&self) -> bool {
        self.log.is_covering()
    }

    /// Why there is no room for the log to go on in, if there is none.
    pub fn shortage(&self) -> Option<DeviceError> {
        self.log.shortage()
    }

    /// Whether there are records for which there is no room, so that they are in memory only.
    pub fn stands_still(&self) -> bool {
        self.log.next_segment() == NextSegment::Awaited
    }

    /// Has everything made durable for which there is room, and waits for the device.
    pub fn settle(&mut self) {
        self.log.hurry();
        while self.log.durable() < self.log.appended() && self.log.failure().is_none() && !self.stands_still() {
            std::thread::sleep(SETTLE_POLL);
        }
    }

    /// How far the log's next file is.
    pub fn next_segment(&self) -> NextSegment {
        self.log.next_segment()
    }

    /// Looks from time to time whether there is room again.
    pub fn retry_files(&mut self) {
        if self.shortage().is_some() && self.retried.is_none_or(|tried| tried.elapsed() >= RETRY_FILES_EVERY) {
            self.retried = Some(Instant::now());
            self.log.retry_files();
        }
    }

    /// Bytes of files to be bounded; see [`Log::bounded_bytes`].
    pub fn bounded_bytes(&self) -> u64 {
        self.log.bounded_bytes()
    }

    /// Bytes that wait for the device.
    pub fn waiting_bytes(&self) -> usize {
        self.log.waiting_bytes()
    }

    /// Figures of the log.
    pub fn stats(&self) -> LogStats {
        self.log.stats()
    }

    /// Writes what is left, makes it durable and ends. Waits for the device. What isn't sealed is not logged: half a
    /// transaction, since it is the transaction that ends the log. Returns the last record.
    ///
    /// # Errors
    /// The log has failed, now or before.
    pub fn finish(self) -> Result<u64, LogError> {
        let appended = self.log.appended();
        self.log.finish().map(|()| appended)
    }
}

#[cfg(test)]
mod tests {
    use quire_device::MemoryDirectory;
    use quire_store::{DbId, ExpiryChange, StoreConfig, hash, string};
    use quire_wal::Recovery;

    use super::*;

    const DB: DbId = DbId(0);

    /// A store with so many keys that have expired, and a log that has not been told.
    fn expired(keys: usize, name_bytes: usize) -> (Store, LogWriter, Arc<dyn Directory>) {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        store.set_noting_expired(true);
        store.set_now_ms(1000);
        let name = |number: usize| format!("{number:0name_bytes$}").into_bytes();
        for number in 0..keys {
            string::set(&mut store, DB, &name(number), b"", ExpiryChange::At(2000)).unwrap();
        }
        store.set_now_ms(3000);
        for number in 0..keys {
            assert_eq!(string::get(&mut store, DB, &name(number)).unwrap(), None);
        }
        let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new());
        let identity = LogIdentity { dataset: store.dataset(), base_epoch: 1, in_force: true };
        let log_writer = LogWriter::start(&directory, &Config::default(), identity, 1, None).unwrap();
        (store, log_writer, directory)
    }

    fn records(directory: &dyn Directory, dataset: u64) -> Vec<(u32, usize)> {
        let base = quire_wal::BaseImage { dataset, epoch: 1, position: 0 };
        let mut recovery = Recovery::open(directory, base).unwrap();
        let mut found = Vec::new();
        while let Some(record) = recovery.next_record().unwrap() {
            found.push((record.commands, record.body().len()));
        }
        found
    }

    #[test]
    fn a_client_whose_write_is_refused_does_not_wait() {
        let (_store, mut log_writer, _directory) = expired(0, 1);
        assert!(log_writer.look_behind(true, false) && !log_writer.look_behind(true, true));
        assert_eq!(log_writer.delayed, 1);
    }

    #[test]
    fn clients_rely_on_what_they_were_told_before_it_was_durable() {
        let (mut store, mut log_writer, _directory) = expired(0, 1);
        let mut write = |log_writer: &mut LogWriter| {
            log_writer.note(&mut store, true, true, 0, [&b"INCR"[..], b"n"].into_iter());
            log_writer.seal()
        };
        assert_eq!((write(&mut log_writer), log_writer.told()), (Some(1), 1));
        log_writer.set_sync(AppendSync::Always);
        assert_eq!((write(&mut log_writer), log_writer.told()), (Some(2), 1));
        log_writer.set_sync(AppendSync::Never);
        assert_eq!(log_writer.told(), 2);
    }

    #[test]
    fn keys_that_expire_at_once_fill_records_of_a_bounded_size() {
        let (mut store, mut log_writer, directory) = expired(500, 9000);
        log_writer.note(&mut store, true, true, 0, [&b"INCR"[..], b"n"].into_iter());
        assert_eq!(log_writer.seal(), Some(log_writer.appended()));
        let dataset = store.dataset();
        let last = log_writer.finish().unwrap();
        let found = records(&*directory, dataset);
        assert!(found.len() as u64 == last && (5..10).contains(&last), "{found:?}");
        assert!(found.iter().all(|(commands, bytes)| *commands == 1 && *bytes < 2 * EXPIRED_BYTES), "{found:?}");
    }

    #[test]
    fn fields_that_expire_fill_records_of_a_bounded_size_with_their_key_in_each() {
        let (mut store, mut log_writer, directory) = expired(0, 1);
        let mut hash = hash::open_mut(&mut store, DB, b"h").unwrap();
        for number in 0..300 {
            let field = format!("{number:09000}");
            hash.set(field.as_bytes(), b"").unwrap();
            hash.set_expiry(field.as_bytes(), Some(4000)).unwrap();
        }
        drop(hash);
        store.set_now_ms(5000);
        while store.expire_step(1000).unwrap().expired > 0 {}
        log_writer.note_expired(&mut store);
        let dataset = store.dataset();
        log_writer.finish().unwrap();
        let found = records(&*directory, dataset);
        assert!((3..10).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|(commands, bytes)| *commands == 1 && *bytes < 2 * EXPIRED_BYTES), "{found:?}");
        assert_eq!(hash::len(&mut store, DB, b"h").unwrap(), 0);
    }

    #[test]
    fn keys_that_expire_within_a_transaction_are_in_its_record() {
        let (mut store, mut log_writer, directory) = expired(0, 4);
        log_writer.note(&mut store, true, true, 0, [&b"INCR"[..], b"n"].into_iter());
        string::set(&mut store, DB, b"gone", b"", ExpiryChange::At(3001)).unwrap();
        store.set_now_ms(3002);
        assert_eq!(string::get(&mut store, DB, b"gone").unwrap(), None);
        log_writer.note(&mut store, true, true, 0, [&b"INCR"[..], b"n"].into_iter());
        assert_eq!(log_writer.seal(), Some(1));
        let dataset = store.dataset();
        log_writer.finish().unwrap();
        assert_eq!(records(&*directory, dataset).iter().map(|found| found.0).collect::<Vec<_>>(), [3]);
    }
}
