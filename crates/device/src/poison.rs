//! The error after which a file is given up: the first failed flush or durable write.
//!
//! Relies on nothing. The system may have dropped what it could not write, and would report success the next time; so the
//! first such error is the answer for ever.

use std::sync::OnceLock;

use crate::error::DeviceError;

/// Whether a file has been given up, and why.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    cause: OnceLock<DeviceError>,
}

impl Poison {
    /// An error if the file has been given up.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        self.cause.get().cloned().map_or(Ok(()), Err)
    }

    /// Gives the file up, unless that has been done; returns the error that did it.
    pub(crate) fn set(&self, error: DeviceError) -> DeviceError {
        self.cause.get_or_init(|| error).clone()
    }
}
