//! Where an image is or goes: a directory and a name.

use std::path::PathBuf;
use std::sync::Arc;

use quire_device::{Directory, DiskDirectory};

/// Where an image is or goes.
#[derive(Clone)]
pub struct ImageLocation {
    directory: Arc<dyn Directory>,
    file: String,
}

impl ImageLocation {
    /// The file named `file` in the directory `dir` of the system.
    pub fn new(dir: impl Into<PathBuf>, file: impl Into<String>) -> Self {
        Self::within(Arc::new(DiskDirectory::new(dir)), file)
    }

    /// The file named `file` in any directory.
    pub fn within(directory: Arc<dyn Directory>, file: impl Into<String>) -> Self {
        Self { directory, file: file.into() }
    }

    /// The directory.
    pub fn directory(&self) -> &dyn Directory {
        &*self.directory
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What messages call it.
    pub fn path(&self) -> String {
        self.directory.path_of(&self.file)
    }
}

impl std::fmt::Debug for ImageLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.path())
    }
}
