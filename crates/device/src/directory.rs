//! Where files have names, and what makes a new file appear at once and durably.

use std::sync::Arc;

use crate::device::Device;
use crate::error::{DeviceError, DeviceOperation};

/// A directory of files. Creating, renaming and removing are durable only after [`Directory::sync`].
pub trait Directory: Send + Sync {
    /// What messages should call the file `name`: its path.
    fn path_of(&self, name: &str) -> String;

    /// A new, empty file, to be written and read.
    ///
    /// # Errors
    /// There is one of that name, or the directory refuses.
    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// An existing file, to be read.
    ///
    /// # Errors
    /// There is none ([`DeviceError::is_missing`]), or the directory refuses.
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// An existing file, to be written and read.
    ///
    /// # Errors
    /// As [`Directory::open`].
    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError>;

    /// Gives the file `from` the name `to`, in place of whatever had it. At any instant `to` is either the old file or
    /// the new one, whole.
    ///
    /// # Errors
    /// There is no such file, or the directory refuses.
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError>;

    /// Gives the file `from` a second name `to`, or where that isn't possible makes a copy of it under that name.
    ///
    /// # Errors
    /// There is no such file, there is one named `to`, or the directory refuses.
    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError>;

    /// Removes a file.
    ///
    /// # Errors
    /// There is no such file, or the directory refuses.
    fn remove(&self, name: &str) -> Result<(), DeviceError>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// The device fails.
    fn sync(&self) -> Result<(), DeviceError>;

    /// Names of all files, in no order.
    ///
    /// # Errors
    /// The directory refuses.
    fn list(&self) -> Result<Vec<String>, DeviceError>;

    /// Bytes that may still be written, if the directory can say. A hint: others write too.
    fn free_bytes(&self) -> Option<u64>;
}

/// Refuses names that would lead out of the directory.
///
/// # Errors
/// `name` is empty, `.`, `..`, or has a slash or a zero byte in it.
///
/// ```
/// use quire_device::{DeviceOperation, check_name};
///
/// assert!(check_name(DeviceOperation::Open, "data").is_ok());
/// assert!(check_name(DeviceOperation::Open, "../data").is_err());
/// ```
pub fn check_name(action: DeviceOperation, name: &str) -> Result<(), DeviceError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(DeviceError::from_errno(action, format!("{name:?}"), crate::errno::EINVAL));
    }
    Ok(())
}
