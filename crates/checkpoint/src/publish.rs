//! How a new image takes the place of the previous one.
//!
//! Order: the new file is written and flushed under a temporary name, renamed over the old name, and the directory is
//! flushed. Whenever the power goes, the name leads to the whole old image or to the whole new one:
//! - before the rename is durable it leads to the old file, which the dump has not touched;
//! - afterwards to the new file, all bytes of which were durable before the rename was asked for.
//!
//! Relies on [`Directory`]'s promises of rename and flush, and on [`remove_then_free`]: neither a start nor a save waits until
//! the space of a large file is free.

use quire_device::{DeviceError, Directory, remove_then_free};

const MARK: &str = ".tmp-";

/// Name of the file that this process writes a new image `name` to.
pub(crate) fn temporary_name(name: &str) -> String {
    format!("{name}{MARK}{}", std::process::id())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a file called `name` would be taken for what an interrupted dump of some image has left.
pub fn is_temporary_name(name: &str) -> bool {
    name.rsplit_once(MARK).is_some_and(|(_, number)| is_number(number))
}

/// What dumps and copies of the image `name` that were interrupted have left, or are writing now.
///
/// # Errors
/// The directory can't be listed.
pub fn temporary_files(directory: &dyn Directory, name: &str) -> Result<Vec<String>, DeviceError> {
    let is_ours = |found: &String| {
        let rest = found.strip_prefix(name);
        rest.and_then(|rest| rest.strip_prefix(MARK)).is_some_and(is_number)
    };
    Ok(directory.list()?.into_iter().filter(is_ours).collect())
}

/// Removes what dumps and copies of `name` that were interrupted (a crash, a power cut) have left. Returns how many files.
/// Their names are gone then; their space is given back in the background.
///
/// Call it when no thread is dumping to this name, such as when a server starts.
///
/// # Errors
/// The directory can't be listed, or a file not be removed.
pub fn remove_stale(directory: &dyn Directory, name: &str) -> Result<usize, DeviceError> {
    let found = temporary_files(directory, name)?;
    for file in &found {
        remove_then_free(directory, file)?;
        tracing::info!(file = directory.path_of(file), "removed what an interrupted save had left");
    }
    Ok(found.len())
}

/// A file under its temporary name; removed again unless it is published.
pub(crate) struct TemporaryFile<'a> {
    directory: &'a dyn Directory,
    temporary: String,
    published: bool,
}

impl<'a> TemporaryFile<'a> {
    /// Makes sure that the temporary name is free.
    pub(crate) fn new(directory: &'a dyn Directory, name: &str) -> Self {
        Self::called(directory, temporary_name(name))
    }

    /// One of several files of `name`, which a start removes with the others if they are never published.
    pub(crate) fn numbered(directory: &'a dyn Directory, name: &str, number: usize) -> Self {
        Self::called(directory, format!("{}{number:03}", temporary_name(name)))
    }

    fn called(directory: &'a dyn Directory, temporary: String) -> Self {
        // Left by a failed removal, or by a process of the same number. Creating says it if it can't be removed.
        let _ = remove_then_free(directory, &temporary);
        Self { directory, temporary, published: false }
    }

    pub(crate) fn name(&self) -> &str {
        &self.temporary
    }

    /// Puts the (flushed) file in place of `name`.
    pub(crate) fn publish(mut self, name: &str) -> Result<(), DeviceError> {
        self.directory.rename(&self.temporary, name)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        match remove_then_free(self.directory, &self.temporary) {
            Ok(()) => {}
            Err(error) if error.is_missing() => {}
            Err(error) => tracing::warn!(%error, "an unfinished image could not be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::MemoryDirectory;

    #[test]
    fn only_leftovers_of_this_image_are_removed() {
        let memory = MemoryDirectory::new();
        for name in ["a", "a.tmp-", "a.tmp-12", "a.tmp-12x", "b.tmp-3", "a.tmp-7"] {
            memory.put(name, b"x");
        }
        assert!(is_temporary_name("b.tmp-3") && is_temporary_name("a.tmp-12") && !is_temporary_name("a.tmp-12x"));
        assert_eq!(remove_stale(&memory, "a").unwrap(), 2);
        let mut left = memory.list().unwrap();
        left.sort();
        assert_eq!(left, ["a", "a.tmp-", "a.tmp-12x", "b.tmp-3"]);
    }
}
