//! Where the data stands that a log is applied to.

use super::survey::Survey;

/// What the log is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Which dataset it is.
    pub dataset: u64,
    /// The image's number in its history.
    pub epoch: u64,
    /// The last record whose effect is in the image.
    pub position: u64,
}

impl Base {
    /// What a log goes with that is read from its own beginning; `None` if there is no log.
    pub fn of_all(survey: &Survey) -> Option<Self> {
        let first = survey.segments.first()?.meta;
        let epoch = survey.segments.iter().map(|segment| segment.meta.base_epoch).max()?;
        Some(Self { dataset: first.dataset, epoch, position: first.first_sequence - 1 })
    }
}
