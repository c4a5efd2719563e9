//! Which image a clone's data comes from, and that the clone does not save there.
//!
//! Relies on `file_identity` for whether a directory is the original's, whatever its path says.

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::file_identity::is_same_directory;

/// Why a server without a directory does not save, and what to do.
pub const NO_DIRECTORY: &str = "this server is a clone and has no directory to save to: start it with --dir DIR, or CONFIG SET dir \
    DIR (which enable-protected-configs must allow)";

/// The image that a clone's data comes from.
#[derive(Clone, Debug)]
pub struct CloneOrigin {
    /// As the user named it: a file or a server.
    pub named: String,
    /// The directory of the image.
    pub directory: PathBuf,
    /// The image's name in it.
    pub file: String,
}

impl CloneOrigin {
    /// The image at `path`. `named` is what the user called it.
    ///
    /// # Errors
    /// In words for people: the path does not name an image.
    pub fn at(path: &Path, named: &str) -> Result<Self, String> {
        if path.is_dir() {
            return Err(format!("{0} is a directory; name the image in it, such as {0}/dump.quire", path.display()));
        }
        if let Ok(target) = path.read_link() {
            return Err(format!(
                "{} is a symbolic link to {}. Deltas lie beside the image itself: name that",
                path.display(),
                target.display()
            ));
        }
        // Another directory may follow a link's target by the time that deltas are looked for beside it.
        let path = path.canonicalize().map_err(|error| format!("cannot clone {}: {error}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(directory), Some(file)) = (path.parent(), name) else {
            return Err(format!("{} does not name an image", path.display()));
        };
        if quire_store::is_delta_name(file) {
            return Err(format!("{} is a delta; name the image that it belongs to", path.display()));
        }
        Ok(Self { named: named.to_owned(), directory: directory.to_owned(), file: file.to_owned() })
    }

    /// Path of the image.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.file)
    }

    /// Whether `config` names the directory of the image.
    pub fn shares_directory(&self, config: &Config) -> bool {
        is_same_directory(&config.dir, &self.directory)
    }

    /// Whether a save as `config` has it would replace the image.
    pub fn is_at(&self, config: &Config) -> bool {
        config.dbfilename == self.file && self.shares_directory(config)
    }

    /// Why the clone can't save as `config` has it.
    ///
    /// # Errors
    /// In words for people: there is no place to save to, or the original's image is there.
    pub fn may_save(&self, config: &Config) -> Result<(), String> {
        if !config.has_dir() {
            return Err(NO_DIRECTORY.to_owned());
        }
        if self.is_at(config) {
            return Err(format!(
                "{} is the image that this clone was made from, which it must not replace: choose another directory with --dir or \
                 another name with --dbfilename",
                self.path().display()
            ));
        }
        Ok(())
    }
}
