//! Which segments a directory holds, by their headers, and which files are damaged.
//!
//! Relies on `header` for what a header says. Version 1 wrote zeros into the header of a spare, so that zeros mean either
//! a spare or a header that was lost. They are believed only where nothing of a later version is there, and if the records
//! behind them show that the image holds them all, or if the file is nothing but zeros beside segments of version 1.

use std::sync::Arc;

use quire_device::{Device, DeviceError, Directory};

use super::error::LogError;
use super::format::{OLDEST_VERSION, SegmentHeader, SegmentMeta, VERSION, index_of, is_unfinished, name_of};
use super::header::{self, HeaderArea};

/// A segment in use.
#[derive(Clone)]
pub struct Segment {
    /// Its file's name.
    pub name: String,
    /// What its header says.
    pub meta: SegmentMeta,
    pub(crate) salt: u64,
    pub(crate) device: Arc<dyn Device>,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
}

/// A file that isn't what it was.
#[derive(Clone, Debug)]
pub struct DamagedFile {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub error: LogError,
}

/// A file whose header is all zeros.
struct BlankFile {
    name: String,
    device: Arc<dyn Device>,
}

/// What a directory holds of a log.
pub struct DirectoryScan {
    /// Segments in use, in the order of their records.
    pub segments: Vec<Segment>,
    /// Names of files that hold nothing and say so.
    pub spares: Vec<String>,
    /// Names of files with a header of zeros that hold nothing either.
    pub blank_spares: Vec<String>,
    /// Files that are neither. Nothing may be written while there is one.
    pub damaged: Vec<DamagedFile>,
    /// Names of files that were being made when everything ended.
    pub unfinished: Vec<String>,
    /// The highest number of any of them; 0 if there is none.
    pub highest_index: u64,
    blanks: Vec<BlankFile>,
    /// The lowest version of a segment in use; the highest one of any file.
    versions: (u32, u32),
}

impl DirectoryScan {
    /// Looks at all segments of `directory`, of which an image holds the records up to `position`.
    ///
    /// # Errors
    /// A segment can't be read, is damaged, or was written in a version of the format that isn't known here.
    pub fn of(directory: &dyn Directory, position: u64) -> Result<Self, LogError> {
        let scan = Self::with_damage(directory, Some(position))?;
        match scan.damaged.first() {
            Some(damaged) => Err(damaged.error.clone()),
            None => Ok(scan),
        }
    }

    /// The same, and damaged files are only noted. Without a position the first segment says what the image must hold.
    ///
    /// # Errors
    /// A segment can't be read, or was written in a version of the format that isn't known here.
    pub fn with_damage(directory: &dyn Directory, position: Option<u64>) -> Result<Self, LogError> {
        let mut scan = Self {
            segments: Vec::new(),
            spares: Vec::new(),
            blank_spares: Vec::new(),
            damaged: Vec::new(),
            unfinished: Vec::new(),
            highest_index: 0,
            blanks: Vec::new(),
            versions: (u32::MAX, 0),
        };
        let names = directory.list()?;
        for name in &names {
            if is_unfinished(name) {
                scan.unfinished.push(name.clone());
            }
            let Some(index) = index_of(name) else { continue };
            scan.highest_index = scan.highest_index.max(index);
            match scan.add(directory, name, index, &names) {
                Ok(()) => {}
                // The server that writes the log has given the file another name in between.
                Err(LogError::Device(error)) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        scan.sort();
        let position = position.or_else(|| scan.segments.first().map(|first| first.meta.first_sequence - 1));
        scan.judge_blanks(position.unwrap_or(0))?;
        scan.spares.sort();
        scan.damaged.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(scan)
    }

    /// A segment that was begun and never written to begins with the same record as the next one.
    pub(crate) fn sort(&mut self) {
        self.segments.sort_by_key(|segment| (segment.meta.first_sequence, segment.meta.index));
    }

    fn add(&mut self, directory: &dyn Directory, name: &str, index: u64, names: &[String]) -> Result<(), LogError> {
        let device = directory.open(name)?;
        let area = header::read(&*device)?;
        match area {
            HeaderArea::Blank => self.blanks.push(BlankFile { name: name.to_owned(), device }),
            HeaderArea::Spare => {
                self.versions.1 = VERSION;
                self.spares.push(name.to_owned());
            }
            HeaderArea::OtherVersion(found) => {
                let (oldest, newest) = (OLDEST_VERSION, VERSION);
                return Err(LogError::Version { file: directory.path_of(name), found, oldest, newest });
            }
            HeaderArea::Damaged => {
                let file = directory.path_of(name);
                self.note_damage(name, LogError::Header { file });
            }
            HeaderArea::Segment(header) => self.add_segment(device, name, index, &header, names)?,
        }
        Ok(())
    }

    fn add_segment(
        &mut self,
        device: Arc<dyn Device>,
        name: &str,
        index: u64,
        header: &SegmentHeader,
        names: &[String],
    ) -> Result<(), LogError> {
        let (oldest, newest) = self.versions;
        self.versions = (oldest.min(header.version.get()), newest.max(header.version.get()));
        let (file, meta) = (device.name().to_owned(), header.meta());
        let original = name_of(meta.index);
        // Version 1 could leave a segment that an image covers under the name of the next use of its file.
        if meta.index != index && names.contains(&original) {
            self.note_damage(name, LogError::Copy { file, original });
            return Ok(());
        }
        let bytes = device.len()?;
        if bytes < meta.segment_bytes {
            self.note_damage(name, LogError::Short { file, bytes, expected: meta.segment_bytes });
        }
        let (name, salt, file_bytes) = (name.to_owned(), header.salt.get(), bytes.min(meta.segment_bytes));
        self.segments.push(Segment { name, meta, salt, device, file_bytes });
        Ok(())
    }

    fn note_damage(&mut self, name: &str, error: LogError) {
        self.damaged.push(DamagedFile { name: name.to_owned(), error });
    }

    /// Decides whether files with a header of zeros are spares.
    fn judge_blanks(&mut self, position: u64) -> Result<(), DeviceError> {
        let (oldest, newest) = self.versions;
        for blank in std::mem::take(&mut self.blanks) {
            let spare = newest <= OLDEST_VERSION
                && match header::last_sequence_behind(&*blank.device)? {
                    Some(last) => last <= position,
                    None => oldest == OLDEST_VERSION && header::is_all_zeros(&*blank.device)?,
                };
            if spare {
                self.blank_spares.push(blank.name);
            } else {
                let file = blank.device.name().to_owned();
                self.note_damage(&blank.name, LogError::NoHeader { file });
            }
        }
        Ok(())
    }

    /// Names of files that are no use as they are. Those with a header of zeros must be gone before there is any header of
    /// this version, since beside one zeros are damage.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.unfinished.iter().chain(&self.blank_spares).cloned().collect()
    }

    /// Whether all segments are of this dataset.
    pub(crate) fn check_dataset(&self, expected: u64) -> Result<(), LogError> {
        match self.segments.iter().find(|segment| segment.meta.dataset != expected) {
            Some(other) => {
                let (file, found) = (other.path().to_owned(), other.meta.dataset);
                Err(LogError::OtherDataset { file, found, expected })
            }
            None => Ok(()),
        }
    }
}

/// Whether `directory` holds a log, be it damaged.
///
/// # Errors
/// The directory refuses.
pub fn has_log(directory: &dyn Directory) -> Result<bool, LogError> {
    Ok(directory.list()?.iter().any(|name| index_of(name).is_some()))
}

impl Segment {
    /// Bytes of the file that may hold records, the header counted.
    pub fn bytes(&self) -> u64 {
        self.file_bytes
    }

    /// What messages call it.
    pub fn path(&self) -> &str {
        self.device.name()
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Segment").field("name", &self.name).field("meta", &self.meta).finish_non_exhaustive()
    }
}
