//! Which segments a directory holds, by their headers.
//!
//! Relies on `format` for what a valid header is. A segment without one is a spare: made or taken ahead of its use.

use std::sync::Arc;

use quire_device::{Device, Directory};
use zerocopy::FromBytes;

use super::error::LogError;
use super::format::{DATA_OFFSET, MAGIC, SegmentHeader, SegmentMeta, VERSION, index_of};

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

/// What a directory holds of a log.
pub struct Survey {
    /// Segments in use, in the order of their records.
    pub segments: Vec<Segment>,
    /// Names of the others.
    pub spares: Vec<String>,
    /// The highest number of any of them; 0 if there is none.
    pub highest_index: u64,
}

impl Survey {
    /// Looks at all segments of `directory`.
    ///
    /// # Errors
    /// A segment can't be read, or was written in a version of the format that isn't known here.
    pub fn of(directory: &dyn Directory) -> Result<Self, LogError> {
        let mut survey = Self { segments: Vec::new(), spares: Vec::new(), highest_index: 0 };
        for name in directory.list()? {
            let Some(index) = index_of(&name) else { continue };
            survey.highest_index = survey.highest_index.max(index);
            match Segment::open(directory, &name, index) {
                Ok(Some(segment)) => survey.segments.push(segment),
                Ok(None) => survey.spares.push(name),
                // The server that writes the log has given the file another name in between.
                Err(LogError::Device(error)) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        survey.spares.sort();
        // A segment that was begun and never written to begins with the same record as the next one.
        survey.segments.sort_by_key(|segment| (segment.meta.first_sequence, segment.meta.index));
        Ok(survey)
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

impl Segment {
    /// The segment in the file `name`; `None` if its header isn't valid.
    fn open(directory: &dyn Directory, name: &str, index: u64) -> Result<Option<Self>, LogError> {
        let device = directory.open(name)?;
        let mut bytes = [0; size_of::<SegmentHeader>()];
        if device.read_at(0, &mut bytes)? < bytes.len() {
            return Ok(None);
        }
        let Ok(header) = SegmentHeader::read_from_bytes(&bytes) else { return Ok(None) };
        if header.magic != MAGIC {
            return Ok(None);
        }
        // The checksum may lie elsewhere in another version.
        if header.version.get() != VERSION {
            let found = header.version.get();
            return Err(LogError::Version { file: directory.path_of(name), found, known: VERSION });
        }
        let fits = header.checksum.get() == header.own_checksum()
            && u64::from(header.data_offset.get()) == DATA_OFFSET
            && header.first_sequence.get() > 0
            && header.index.get() == index;
        if !fits {
            return Ok(None);
        }
        let file_bytes = device.len()?.min(header.segment_bytes.get());
        let (name, salt) = (name.to_owned(), header.salt.get());
        Ok(Some(Self { name, meta: header.meta(), salt, device, file_bytes }))
    }

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
