//! Reading a log back: the records that an image lacks, in order, to the last one that is whole.
//!
//! Relies on `directory_scan` for the segments and on `record_scanner` for records; the rules are at the head of `format`. What it returned
//! is made durable before the log goes on, so that a record which was only in the system's cache can't vanish later while
//! those behind it stay.
//!
//! A damaged log is refused, or read as far as it goes ([`Recovery::of_damaged`]): what is read is whole and in order, and the
//! caller sets the damaged files aside when an image holds it.

use quire_device::{Directory, remove_then_free};

use super::base_image::BaseImage;
use super::directory_scan::{DirectoryScan, Segment};
use super::error::LogError;
use super::format::index_of;
use super::record::Record;
use super::record_scanner::{RecordLocation, RecordScanner};
use super::salvage::salvage;
use super::segment_pool::make_spare;

/// The end of a record that was being written when everything ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Path of the segment.
    pub file: String,
    /// Where the record begins.
    pub offset: u64,
    /// Bytes that it would take.
    pub bytes: u64,
    /// Its number.
    pub sequence: u64,
}

/// How reading a log ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// The number that the next record gets.
    pub next_sequence: u64,
    /// Records that were returned.
    pub records: u64,
    /// Segments in use, whether the image covers them or not.
    pub segments: usize,
    /// What was cut off.
    pub torn: Option<TornTail>,
    /// Names of segments that were begun while logging was being switched on, and never came in force.
    pub ignored: Vec<String>,
    /// What was found to be damaged, if that is accepted.
    pub damage: Vec<LogError>,
    /// Names of the files that were not read, or not to their ends, because of that.
    pub damaged_files: Vec<String>,
}

/// A log that is being read.
pub struct Recovery {
    base: BaseImage,
    /// Names of files of no use.
    leftovers: Vec<String>,
    /// Segments that the image covers.
    covered: Vec<Segment>,
    segments: Vec<Segment>,
    /// Index of the segment that is read.
    current: usize,
    scanner: Option<RecordScanner>,
    /// The number of the record that comes next, those in the image counted.
    expected: u64,
    /// Where the record lies that was returned last.
    last_offset: u64,
    accept_damaged: bool,
    recovered: RecoverySummary,
}

impl Recovery {
    /// Looks at the log in `directory` and checks that it continues the image.
    ///
    /// # Errors
    /// The segments can't be read, are damaged, belong to other data, or begin behind the end of the image.
    pub fn open(directory: &dyn Directory, base: BaseImage) -> Result<Self, LogError> {
        Self::of_scan(DirectoryScan::of(directory, base.position)?, base, false)
    }

    /// The same, and damaged files are read as far as possible. [`RecoverySummary::damage`] tells what is wrong.
    ///
    /// # Errors
    /// The segments can't be read or belong to other data.
    pub fn of_damaged(directory: &dyn Directory, base: BaseImage) -> Result<Self, LogError> {
        let mut scan = DirectoryScan::with_damage(directory, Some(base.position))?;
        for damaged in &scan.damaged {
            if matches!(damaged.error, LogError::Header { .. } | LogError::NoHeader { .. }) {
                scan.segments.extend(salvage(directory, &damaged.name, base)?);
            }
        }
        scan.sort();
        Self::of_scan(scan, base, true)
    }

    fn of_scan(scan: DirectoryScan, base: BaseImage, accept_damaged: bool) -> Result<Self, LogError> {
        let leftovers = scan.leftovers();
        let DirectoryScan { mut segments, damaged, .. } = scan;
        let mut recovered = RecoverySummary { segments: segments.len(), ..RecoverySummary::default() };
        for damaged in damaged {
            recovered.damaged_files.push(damaged.name);
            recovered.damage.push(damaged.error);
        }
        let mut recovery = Self {
            base,
            leftovers,
            covered: Vec::new(),
            segments: Vec::new(),
            current: 0,
            scanner: None,
            expected: base.position.saturating_add(1),
            last_offset: 0,
            accept_damaged,
            recovered,
        };
        recovery.check(&mut segments)?;
        // What the image holds needs no reading.
        let covered = (1..segments.len()).filter(|&next| segments[next].meta.first_sequence <= recovery.expected).max();
        recovery.segments = segments.split_off(covered.unwrap_or(0));
        recovery.covered = segments;
        recovery.begin()?;
        Ok(recovery)
    }

    /// Path and base epoch of the first segment, if the log begins right behind the image: nothing in it tells then whether there were
    /// writes between both, which were not logged.
    pub fn begins_behind_image(&self) -> Option<(&str, u64)> {
        let first = self.covered.first().or(self.segments.first())?;
        (first.meta.first_sequence == self.base.position + 1).then(|| (first.path(), first.meta.base_epoch))
    }

    /// Whether the segments belong to the data; drops those that never came in force.
    fn check(&mut self, segments: &mut Vec<Segment>) -> Result<(), LogError> {
        let BaseImage { dataset, epoch, .. } = self.base;
        for at in 0..segments.len() {
            let (file, meta) = (segments[at].path().to_owned(), segments[at].meta);
            if meta.dataset != dataset {
                return Err(LogError::OtherDataset { file, found: meta.dataset, expected: dataset });
            }
            if meta.base_epoch > epoch {
                if meta.in_force {
                    return Err(LogError::OldImage { file, found: meta.base_epoch, image: epoch });
                }
                self.recovered.ignored = segments.drain(at..).map(|segment| segment.name).collect();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stands before the first record of the current segment.
    fn begin(&mut self) -> Result<(), LogError> {
        let Some(segment) = self.segments.get(self.current) else {
            self.scanner = None;
            return Ok(());
        };
        let found = segment.meta.first_sequence;
        if found > self.expected {
            let before = match self.current.checked_sub(1) {
                Some(before) => self.segments[before].path().to_owned(),
                None => "an earlier segment".to_owned(),
            };
            let gap = LogError::Gap { file: segment.path().to_owned(), found, expected: self.expected, before };
            return self.stop_at(gap);
        }
        self.scanner = Some(RecordScanner::new(segment));
        Ok(())
    }

    /// Nothing behind this can be read: an error, unless damage is accepted.
    fn stop_at(&mut self, damage: LogError) -> Result<(), LogError> {
        if !self.accept_damaged {
            return Err(damage);
        }
        self.recovered.damage.push(damage);
        for segment in &self.segments[self.current..] {
            if !self.recovered.damaged_files.contains(&segment.name) {
                self.recovered.damaged_files.push(segment.name.clone());
            }
        }
        (self.scanner, self.current) = (None, self.segments.len());
        Ok(())
    }

    /// The next record that the image lacks; `None` behind the last one.
    ///
    /// # Errors
    /// The device fails, records are missing, or a record that was durable isn't what was written.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let Some(place) = self.advance()? else { return Ok(None) };
        self.recovered.records += 1;
        Ok(self.scanner.as_ref().map(|scanner| scanner.record(&place)))
    }

    fn advance(&mut self) -> Result<Option<RecordLocation>, LogError> {
        while let Some(scanner) = &mut self.scanner {
            // Where a later segment begins an earlier reader has cut this one off.
            let until = self.segments.get(self.current + 1).map_or(u64::MAX, |next| next.meta.first_sequence);
            if scanner.expected() < until
                && let Some(place) = scanner.step()?
            {
                if place.sequence <= self.base.position {
                    continue;
                }
                self.expected = place.sequence.saturating_add(1);
                self.last_offset = place.offset;
                return Ok(Some(place));
            }
            self.end_segment(until)?;
        }
        Ok(None)
    }

    /// The current segment has no further record; goes on in the next one.
    fn end_segment(&mut self, until: u64) -> Result<(), LogError> {
        let segment = &self.segments[self.current];
        if let Some(scanner) = &mut self.scanner
            && scanner.expected() < until
        {
            let (file, offset, sequence) = (segment.path().to_owned(), scanner.at(), scanner.expected());
            if scanner.is_damaged(self.base.position)? {
                return self.stop_at(LogError::Damaged { file, offset, sequence });
            }
            if until == u64::MAX {
                let torn = scanner.torn_bytes()?;
                self.recovered.torn = torn.map(|bytes| TornTail { file, offset, bytes, sequence });
            }
        }
        self.current += 1;
        self.begin()
    }

    /// Where the record lies that was returned last, for messages: its segment's path and its first byte there.
    pub fn place(&self) -> (String, u64) {
        let path = self.segments.get(self.current).map_or_else(String::new, |segment| segment.path().to_owned());
        (path, self.last_offset)
    }

    /// Bytes read and bytes that may have to be read.
    pub fn progress(&self) -> (u64, u64) {
        let bytes = |segments: &[Segment]| segments.iter().map(Segment::bytes).sum::<u64>();
        let done = bytes(&self.segments[..self.current.min(self.segments.len())]);
        let total = bytes(&self.segments);
        // A file that was cut short may end before its records begin.
        ((done + self.scanner.as_ref().map_or(0, RecordScanner::at)).min(total), total)
    }

    /// How reading went, if nothing is to be written behind it.
    pub fn end(mut self) -> RecoverySummary {
        self.recovered.next_sequence = self.expected;
        self.recovered
    }

    /// Makes durable what was read, so that the log can go on behind it; makes spares of segments that the image covers; and
    /// removes those that never came in force: their numbers will be given again. The image's directory must be this one.
    ///
    /// # Errors
    /// The device fails.
    pub fn finish(mut self, directory: &dyn Directory) -> Result<RecoverySummary, LogError> {
        for segment in &self.segments {
            segment.device.flush()?;
        }
        if self.recovered.records == 0 {
            self.covered.append(&mut self.segments);
        }
        // Damaged files are set aside when an image holds what was read of them.
        let damaged = &self.recovered.damaged_files;
        self.covered.retain(|segment| !damaged.contains(&segment.name));
        self.recovered.ignored.retain(|name| !damaged.contains(name));
        if !self.covered.is_empty() || !self.recovered.ignored.is_empty() || !self.leftovers.is_empty() {
            // The image may have got its name just before a crash, and what it covers is given up only when that stays.
            directory.sync()?;
        }
        for name in &self.leftovers {
            remove_then_free(directory, name)?;
        }
        if !self.leftovers.is_empty() {
            directory.sync()?;
        }
        for segment in &self.covered {
            let spare = |device: std::sync::Arc<dyn quire_device::Device>| {
                make_spare(&*device, index_of(&segment.name).unwrap_or(segment.meta.index), device.len()?)
            };
            if let Err(error) = directory.open_to_write(&segment.name).and_then(spare) {
                // It only takes space, and the next image or start tries again.
                tracing::warn!(%error, "a log segment that is no longer needed can't be taken back");
            }
        }
        for name in &self.recovered.ignored {
            remove_then_free(directory, name)?;
        }
        if !self.recovered.ignored.is_empty() {
            directory.sync()?;
        }
        Ok(self.end())
    }
}
