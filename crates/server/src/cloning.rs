//! A clone: a server on an image that another server made, the original, which may be running and saving meanwhile.
//!
//! The original's files are only read. The clone saves nothing unless it is told a directory of its own, and never to the
//! original's image. Relies on the store for the mapping, on the configuration for where the clone's own files go.

use std::sync::Arc;

use quire_device::{CacheMode, DiskDirectory, IoEngine};
use quire_store::{ImageLocation, OpenError, Store};
use quire_wal::has_log;

use crate::clone_origin::CloneOrigin;
use crate::config::Config;
use crate::save_state::RestoreSummary;
use crate::saving;

/// Sees to it that a clone of `origin` does not begin to save where there is data already.
///
/// # Errors
/// In words for people, with what to do.
pub fn check_place(config: &Config, origin: &CloneOrigin) -> Result<(), String> {
    if !config.has_dir() {
        let asked = [("save", !config.save.is_empty()), ("appendonly", config.appendonly)];
        return match asked.into_iter().find(|(_, is_on)| *is_on) {
            Some((name, _)) => Err(format!(
                "a clone has no directory of its own, so {name} needs one: give --dir DIR, or leave {name} out"
            )),
            None => Ok(()),
        };
    }
    check_new_place(config, origin)
}

/// Sees to it that a clone does not save where it would replace the original's image or another one, or beside a log of writes.
///
/// # Errors
/// In words for people.
pub fn check_new_place(config: &Config, origin: &CloneOrigin) -> Result<(), String> {
    origin.may_save(config)?;
    if config.image_path().exists() {
        return Err(format!(
            "{} is there already, and a clone that saves would replace it: serve that image without --clone, or choose another \
             directory with --dir or another name with --dbfilename",
            config.image_path().display()
        ));
    }
    if config.dir.is_dir() && has_log(&DiskDirectory::new(&config.dir)).map_err(|error| error.to_string())? {
        return Err(format!(
            "{} holds a log of writes, which belongs to other data than the clone's: choose another directory with --dir",
            config.dir.display()
        ));
    }
    Ok(())
}

/// Opens the data of `origin` for a clone. It serves at once; the image is verified in the background.
///
/// # Errors
/// In words for people: the image can't be read, or is damaged.
pub fn open(config: &Config, origin: CloneOrigin) -> Result<(Store, RestoreSummary), String> {
    if config.accept_damaged_image {
        return Err(
            "a clone needs a sound image; start a server with --accept-damaged-image on a copy of it instead".into()
        );
    }
    // Through the page cache, where the pages of the mapping are, too: what the check reads the clone has at hand, and the next one.
    let directory = DiskDirectory::new(&origin.directory).with(CacheMode::Buffered, IoEngine::Threads);
    let place = ImageLocation::within(Arc::new(directory), &origin.file);
    let opened = Store::open_clone(saving::settings(config), &place);
    let (store, report) = opened.map_err(|error| advice(&error))?;
    let restored = RestoreSummary { mode: "clone", clone_of: Some(origin), ..saving::restored(&report) };
    let (saved_at, file) = (restored.saved_at(), place.path());
    tracing::info!(%saved_at, deltas = report.deltas, keys = report.keys, file, "this server is a clone of the image");
    Ok((store, restored))
}

/// What to say of an image that can't be cloned.
pub fn advice(error: &OpenError) -> String {
    if error.is_damage() {
        return format!("{error}. A clone needs a sound image: have the original save again, and clone that");
    }
    if error.is_foreign() {
        return format!("{error}. Quire clones its own images only");
    }
    error.to_string()
}
