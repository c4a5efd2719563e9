//! A store that stays on an image which another process made: a clone of that process's data as of its save.
//!
//! Relies on `quire-checkpoint` for the mapping. The image's directory is only read: nothing is removed from it and nothing is
//! written to it. What the clone saves goes elsewhere and is a full image: nothing is known to be there that a delta could be over.

use std::time::Instant;

use quire_arena::Arena;
use quire_checkpoint::{ClonedImage, ImageChain};

use crate::config::StoreConfig;
use crate::error::{OpenError, StoreError};
use crate::store::location::ImageLocation;
use crate::store::restore::{OpenedChain, RestoreMode, RestoreReport, RestoreStep, restore_options};
use crate::store::{ImageCheck, Store};

impl Store {
    /// A store on the image at `place`, which stays mapped and is verified in the background ([`Store::restore_step`] tells when).
    /// Another process may be saving to the place. The directory should read through the system's cache, so that pages are shared
    /// with other clones.
    ///
    /// # Errors
    /// There is no image, it can't be read, is damaged (the data of its pages may prove so only later), or spans more than
    /// `config` allows.
    pub fn open_clone(config: StoreConfig, place: &ImageLocation) -> Result<(Store, RestoreReport), OpenError> {
        let start = Instant::now();
        let chain = ImageChain::open_shared(place.directory(), place.file())?;
        Self::on_chain(config, chain, start)
    }

    /// A store on links that are open, for a caller that began at `start`.
    pub(super) fn on_chain(
        config: StoreConfig,
        chain: ImageChain,
        start: Instant,
    ) -> Result<(Store, RestoreReport), OpenError> {
        let opened = OpenedChain::of(&chain);
        let file = chain.image().info().file;
        let options = restore_options(&config, &chain, false);
        let ClonedImage { barrier, committed_bytes, check, regions_loaded } = chain.map_shared(&options)?;
        let content = |source: StoreError| OpenError::Content { file: file.clone(), source };
        let arena = Arena::open(barrier, committed_bytes).map_err(|error| content(error.into()))?;
        let mut store = Store::from_image(arena, config).map_err(content)?;
        store.check = Some(ImageCheck { background: check, told: false });
        let report = opened.report(&mut store, RestoreMode::Map, start);
        Ok((store, RestoreReport { regions_loaded, ..report }))
    }

    /// Looks whether the image that the data stays mapped from is verified, and has been what it was then since.
    pub(super) fn check_step(&mut self) -> Result<RestoreStep, OpenError> {
        let Some(check) = &mut self.check else { return Ok(RestoreStep::Idle) };
        let status = check.background.status();
        if let Some(error) = status.failed {
            return Err(error.into());
        }
        if check.told {
            return Ok(RestoreStep::Idle);
        }
        check.told = status.is_done();
        Ok(if check.told { RestoreStep::Finished } else { RestoreStep::Waiting })
    }

    /// Regions of it that are verified and that are to be; `None` when all are.
    pub(super) fn check_progress(&self) -> Option<(u64, u64)> {
        let status = self.check.as_ref().filter(|check| !check.told)?.background.status();
        Some((u64::from(status.checked), u64::from(status.regions_total)))
    }
}
