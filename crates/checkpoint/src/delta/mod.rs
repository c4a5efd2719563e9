//! Deltas: files of only the pages that have changed since an image, or since the delta before.
//!
//! Relies on the same devices, checks and order of publication as images do; what the bytes are is in [`format`](mod@format).

mod file;
pub mod format;
mod target;

use quire_device::{DeviceError, Directory, remove_then_free};

pub(crate) use file::Delta;
pub(crate) use target::DeltaTarget;

/// Most pages of a delta that is read (4 GiB): the table of so many takes 16 MiB meanwhile. Deltas of so many pages were written once.
pub(crate) const MAX_DELTA_PAGES: u32 = 1 << 20;

/// Most pages of a delta that is written (2 GiB). Its table takes 8 MiB meanwhile, beside 6 MiB of buffers for writes: a save takes no more than
/// 16 MiB beyond its budget.
pub const MAX_WRITTEN_DELTA_PAGES: u32 = MAX_DELTA_PAGES / 2;

const _: () = assert!(MAX_WRITTEN_DELTA_PAGES as usize * size_of::<format::DeltaEntry>() <= 8 << 20);

/// Between the image's name and the number of a delta over it.
const MARK: &str = ".delta-";

/// Name of delta `number`, from 1 on, over the image `name`.
pub(crate) fn delta_name(name: &str, number: usize) -> String {
    format!("{name}{MARK}{number}")
}

/// The number of the delta over the image `name` that the file `found` is called as.
fn delta_number(name: &str, found: &str) -> Option<usize> {
    let digits = found.strip_prefix(name)?.strip_prefix(MARK)?;
    let number = digits.parse().ok().filter(|&number| number > 0)?;
    (delta_name(name, number) == found).then_some(number)
}

/// Whether a file called `name` would be taken for a delta over some image.
pub fn is_delta_name(name: &str) -> bool {
    name.rsplit_once(MARK).is_some_and(|(image, _)| delta_number(image, name).is_some())
}

/// Numbers and names of the deltas over the image `name`, in order.
pub(crate) fn find_deltas(directory: &dyn Directory, name: &str) -> Result<Vec<(usize, String)>, DeviceError> {
    let found = directory.list()?.into_iter();
    let mut found: Vec<_> = found.filter_map(|file| Some((delta_number(name, &file)?, file))).collect();
    found.sort();
    Ok(found)
}

/// Removes the delta `name`. A file of that name that is something else, such as another image, stays.
pub(crate) fn remove_delta(directory: &dyn Directory, name: &str) -> Result<(), DeviceError> {
    let file = directory.path_of(name);
    if !Delta::looks_like_one(directory, name)? {
        tracing::warn!(file, "this file has the name of a delta but is none, so it is not removed");
        return Ok(());
    }
    remove_then_free(directory, name)?;
    tracing::info!(file, "removed a delta that a newer image has replaced");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_deltas_get_are_taken_for_deltas() {
        assert_eq!(delta_number("a", &delta_name("a", 12)), Some(12));
        assert!(is_delta_name("a.delta-12") && is_delta_name("a.delta-x.delta-1"));
        for other in
            ["a", "a.delta-", "a.delta-0", "a.delta-07", "a.delta-+7", "a.delta-1.tmp-2", "b.delta-1", "a.delta-1x"]
        {
            assert_eq!(delta_number("a", other), None, "{other}");
            assert_eq!(is_delta_name(other), other == "b.delta-1", "{other}");
        }
    }
}
