//! Whether two paths lead to the same file or directory, whatever they say.
//!
//! Relies on a file being the same one if its device and inode are.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells a file from all others that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Of an open file.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|meta| Self::told_by(&meta))
    }

    /// Of what `path` leads to; `None` if it leads nowhere.
    pub fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|meta| Self::told_by(&meta))
    }

    fn told_by(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Whether both are the same directory.
pub fn is_same_directory(a: &Path, b: &Path) -> bool {
    a == b || FileIdentity::at(a).is_some_and(|found| Some(found) == FileIdentity::at(b))
}

/// Whether both paths are the same image's: it need not be there, and one that is saved is another file than the one before.
pub fn is_same_image(a: &Path, b: &Path) -> bool {
    let (Some(a_dir), Some(b_dir)) = (a.parent(), b.parent()) else { return a == b };
    a.file_name() == b.file_name() && is_same_directory(a_dir, b_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_same_by_any_way_that_leads_to_its_directory() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = other.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let image = dir.path().join("a.quire");
        assert!(is_same_image(&image, &image) && is_same_image(&image, &link.join("a.quire")));
        assert!(!is_same_image(&image, &link.join("b.quire")));
        assert!(!is_same_image(&image, &other.path().join("a.quire")));
        assert!(!is_same_directory(&other.path().join("none"), &other.path().join("no")), "neither is there");
    }
}
