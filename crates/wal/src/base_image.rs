//! Where the data stands that a log is applied to.

use super::directory_scan::DirectoryScan;

/// What the log is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// Which dataset it is.
    pub dataset: u64,
    /// The image's number in its history.
    pub epoch: u64,
    /// The last record whose effect is in the image.
    pub position: u64,
}

impl BaseImage {
    /// What a log goes with that is read from its own beginning; `None` if there is no log.
    pub fn of_all(scan: &DirectoryScan) -> Option<Self> {
        let first = scan.segments.first()?.meta;
        let epoch = scan.segments.iter().map(|segment| segment.meta.base_epoch).max()?;
        Some(Self { dataset: first.dataset, epoch, position: first.first_sequence - 1 })
    }
}
