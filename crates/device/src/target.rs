//! The file behind a queue, and what became of it.
//!
//! Relies on nothing. A file whose flush failed is poisoned: its queues refuse further writes.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use quire_sys::transfer::{Direction, TransferError};

use crate::error::{Action, DeviceError};

/// A file that transfers are made on, and the error that poisoned it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) file: Arc<File>,
    pub(crate) poison: OnceLock<DeviceError>,
}

impl Target {
    /// The error of a transfer on this file.
    pub(crate) fn error(&self, direction: Direction, error: &TransferError) -> DeviceError {
        let action = match direction {
            Direction::Read => Action::Read,
            Direction::Write => Action::Write,
        };
        DeviceError::new(action, &self.name, &error.source).at(error.offset, error.len as u64)
    }

    /// Whether writing still makes sense.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        self.poison.get().cloned().map_or(Ok(()), Err)
    }
}
