//! Bringing the data back from an image: at the start, and in the background afterwards.
//!
//! Relies on `quire-checkpoint` for reading and checking, on the arena for taking over what was read. In the mode
//! [`RestoreMode::Map`] commands are served from the mapped file at once, while [`Store::restore_step`] exchanges it for
//! verified memory, region by region, between commands.

use std::time::{Duration, Instant};

use quire_arena::{Arena, ArenaError};
use quire_checkpoint::{
    BackgroundRestore, ImageChain, ImageError, ImageIdentity, ImageInfo, LoadedImage, MappedImage, RestoreOptions,
    remove_stale,
};
use quire_snapshot::{WriteBarrier, WriteBarrierConfig};

use crate::config::StoreConfig;
use crate::error::{OpenError, StoreError};
use crate::store::Store;
use crate::store::location::ImageLocation;
use crate::store::published::PublishedChain;

/// What is wrong with an image that is used all the same.
const DAMAGED: &str = "damaged";

/// How an image is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreMode {
    /// Map the file, serve at once, read and verify in the background.
    Map,
    /// Read and verify everything first.
    Load,
}

/// What was brought back.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// How; `None` if there was no image, so that the store is empty.
    pub mode: Option<RestoreMode>,
    /// Keys, expired ones counted.
    pub keys: u64,
    /// Bytes of the image's pages.
    pub image_bytes: u64,
    /// When the image was cut.
    pub created_unix_ms: u64,
    /// Time until the first command can be served.
    pub took: Duration,
    /// Regions of the image.
    pub regions: u32,
    /// Regions of a mapped image that were read and verified before the first command.
    pub regions_loaded: u32,
    /// Deltas over the image.
    pub deltas: usize,
    /// What is wrong with the image that is used all the same, as far as it is known yet.
    pub damage: Vec<String>,
    /// Which save it is; `None` if there was no image, or damage has left none of that.
    pub image: Option<ImageIdentity>,
}

/// What [`Store::restore_step`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreStep {
    /// Nothing is being brought back.
    Idle,
    /// Regions were taken over, and more are ready.
    More,
    /// The next region isn't read yet.
    Waiting,
    /// That was the last one: everything is in memory and verified.
    Finished,
}

impl Store {
    /// The store whose image lies at `place`; an empty one if there is none. Removes what interrupted saves have left.
    ///
    /// With `accept_damaged`, regions whose bytes are not what was written are used all the same: every access is
    /// checked, so commands may fail on what is damaged, but nothing worse happens. Of an image whose end is missing, or
    /// which is damaged where it says what it holds, what is left is loaded. The damaged image is kept under another name
    /// when a save replaces it.
    ///
    /// # Errors
    /// The image can't be read, is damaged (a mapped one's data may prove so only later, in [`Store::restore_step`]), or
    /// spans more than `config` allows.
    pub fn open(
        config: StoreConfig,
        place: &ImageLocation,
        mode: RestoreMode,
        accept_damaged: bool,
    ) -> Result<(Store, RestoreReport), OpenError> {
        Self::open_telling(config, place, mode, accept_damaged, &mut |_, _| {})
    }

    /// As [`Store::open`]. In the mode [`RestoreMode::Load`] `on_progress` is told how many bytes are loaded, and of how many.
    ///
    /// # Errors
    /// The same.
    pub fn open_telling(
        config: StoreConfig,
        place: &ImageLocation,
        mode: RestoreMode,
        accept_damaged: bool,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Store, RestoreReport), OpenError> {
        let start = Instant::now();
        remove_stale(place.directory(), place.file())?;
        let opened = match accept_damaged {
            true => ImageChain::open_damaged(place.directory(), place.file()),
            false => ImageChain::open(place.directory(), place.file()).map(|chain| (chain, Vec::new())),
        };
        let (mut chain, salvaged) = match opened {
            Ok(found) => found,
            Err(ImageError::Missing { .. }) => return Ok((Store::create(config)?, RestoreReport::none(start))),
            Err(error) => return Err(error.into()),
        };
        // What can't be checked must not be mapped: it may be cut short.
        let mode = if !salvaged.is_empty() { RestoreMode::Load } else { mode };
        if let Err(error) = chain.remove_leftover(place.directory()) {
            // They do no harm but take space, and go with the next start or the next full image.
            tracing::warn!(%error, "deltas that a newer image has replaced can't be removed");
        }
        let opened = OpenedChain::of(&chain);
        let published = PublishedChain::opened(&chain, place);
        let options = restore_options(&config, &chain, accept_damaged);
        let Brought { barrier, committed_bytes, restore, damage, regions_loaded } =
            Brought::back(chain, mode, &options, on_progress)?;
        let content = |source: StoreError| OpenError::Content { file: place.path(), source };
        let mut arena = Arena::open(barrier, committed_bytes).map_err(|error| content(error.into()))?;
        arena.set_restoring(restore.is_some());
        // Memory is now as the chain has it, if the chain is sound.
        let published = published.filter(|_| config.max_deltas > 0 && salvaged.is_empty() && damage.is_empty());
        if published.is_some() {
            arena.track_changes(true).map_err(|error| content(error.into()))?;
        }
        let mut store = Store::from_image(arena, config).map_err(content)?;
        store.restore = restore;
        store.saves.last_image = opened.image;
        store.saves.deltas.published = published;
        let damage: Vec<String> = salvaged.iter().chain(&damage).map(ToString::to_string).collect();
        store.saves.keep_replaced = (!damage.is_empty()).then_some(DAMAGED);
        let report = opened.report(&mut store, mode, start);
        Ok((store, RestoreReport { regions_loaded, damage, ..report }))
    }

    /// An image without a root holds no keyspace.
    pub(super) fn from_image(arena: Arena, config: StoreConfig) -> Result<Store, StoreError> {
        if arena.root().is_null() {
            return Err(StoreError::damaged("its memory has no root"));
        }
        Store::from_arena(arena, config)
    }

    /// Takes over up to `max_regions` neighbouring regions that have been read and verified.
    ///
    /// # Errors
    /// The image proves damaged, or can't be read: what was not taken over yet comes from the file, unverified.
    pub fn restore_step(&mut self, max_regions: u32) -> Result<RestoreStep, OpenError> {
        if self.check.is_some() {
            return self.check_step();
        }
        let Some(restore) = &mut self.restore else { return Ok(RestoreStep::Idle) };
        let Some(regions) = restore.next_ready(max_regions) else {
            let status = restore.status();
            if let Some(error) = status.failed {
                return Err(error.into());
            }
            if !status.done {
                return Ok(RestoreStep::Waiting);
            }
            self.note_damaged(status.damaged);
            self.end_restore();
            return Ok(RestoreStep::Finished);
        };
        let adopted = self.keyspace.arena_mut().migrate_regions(regions.clone(), restore.staging());
        adopted.map_err(|error: ArenaError| OpenError::Store(error.into()))?;
        restore.adopted(regions);
        Ok(RestoreStep::More)
    }

    /// Of what is damaged the next save keeps what was there, and is a full image: a delta would need the damaged links.
    fn note_damaged(&mut self, regions: u32) {
        self.saves.damaged_regions = regions;
        if regions > 0 {
            self.saves.keep_replaced = Some(DAMAGED);
            self.saves.deltas.published = None;
        }
    }

    fn end_restore(&mut self) {
        self.restore = None;
        self.arena_mut().set_restoring(false);
    }

    /// Regions taken over and to be taken over, while an image is being brought back in the background; those verified and to be
    /// verified, while one is that the data stays mapped from.
    pub fn restore_progress(&self) -> Option<(u64, u64)> {
        if self.check.is_some() {
            return self.check_progress();
        }
        self.restore.as_ref().map(|restore| {
            let status = restore.status();
            (u64::from(status.adopted), u64::from(status.regions_total))
        })
    }

    /// Regions that are used although they proved damaged while they were brought back in the background.
    pub fn damaged_regions(&self) -> u32 {
        self.saves.damaged_regions
    }

    /// Whether the data comes from an image that is used although it is damaged, as far as it was read.
    pub fn is_damaged(&self) -> bool {
        self.saves.keep_replaced == Some(DAMAGED)
    }

    /// Takes over everything that is still to be read, and waits for it.
    ///
    /// # Errors
    /// As [`Store::restore_step`].
    pub fn finish_restore(&mut self) -> Result<(), OpenError> {
        loop {
            match self.restore_step(16)? {
                RestoreStep::Idle | RestoreStep::Finished => return Ok(()),
                RestoreStep::More => {}
                RestoreStep::Waiting => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// What was brought back from a chain.
struct Brought {
    barrier: WriteBarrier,
    committed_bytes: usize,
    restore: Option<BackgroundRestore>,
    damage: Vec<ImageError>,
    regions_loaded: u32,
}

impl Brought {
    fn back(
        chain: ImageChain,
        mode: RestoreMode,
        options: &RestoreOptions,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, ImageError> {
        Ok(match mode {
            RestoreMode::Map => {
                let MappedImage { barrier, committed_bytes, restore, damage, regions_loaded, .. } =
                    chain.map(options)?;
                Self { barrier, committed_bytes, restore: Some(restore), damage, regions_loaded }
            }
            RestoreMode::Load => {
                let LoadedImage { barrier, committed_bytes, summary } = chain.load(options, on_progress)?;
                Self { barrier, committed_bytes, restore: None, damage: summary.damage, regions_loaded: 0 }
            }
        })
    }
}

/// What a store may take, and what it accepts. An image of a store that could span more, on a larger machine or by other settings, gets the addresses
/// that it needs, and as many to grow, if the configuration says so.
pub(super) fn restore_options(config: &StoreConfig, chain: &ImageChain, accept_damaged: bool) -> RestoreOptions {
    let (asked_bytes, span_bytes) = (config.max_memory_bytes, chain.span_bytes());
    let raised = config.raise_limit_for_image && span_bytes > asked_bytes;
    let max_bytes = if raised { span_bytes.saturating_mul(2) } else { asked_bytes };
    RestoreOptions {
        max_bytes: max_bytes.min(StoreConfig::MAX_MEMORY_BYTES),
        barrier: WriteBarrierConfig { budget_bytes: config.budget_bytes },
        accept_damaged,
    }
}

/// What a chain said of itself before its memory was taken over.
pub(super) struct OpenedChain {
    info: ImageInfo,
    deltas: usize,
    newest_epoch: u64,
    pub(super) image: Option<ImageIdentity>,
}

impl OpenedChain {
    pub(super) fn of(chain: &ImageChain) -> Self {
        let (info, deltas, newest_epoch) = (chain.info(), chain.deltas().len(), chain.newest_epoch());
        Self { info, deltas, newest_epoch, image: chain.identity() }
    }

    /// Of `store`, which was made of the chain, and whose saves go on behind it. The caller began at `start`.
    pub(super) fn report(&self, store: &mut Store, mode: RestoreMode, start: Instant) -> RestoreReport {
        store.saves.epoch = self.newest_epoch;
        store.restored_epoch = self.info.epoch;
        RestoreReport {
            mode: Some(mode),
            keys: store.stats().databases.iter().map(|db| db.keys).sum(),
            image_bytes: self.info.present_bytes(),
            created_unix_ms: self.info.created_unix_ms,
            regions: self.info.region_count,
            deltas: self.deltas,
            image: self.image,
            ..RestoreReport::none(start)
        }
    }
}

impl RestoreReport {
    fn none(start: Instant) -> Self {
        Self {
            mode: None,
            keys: 0,
            image_bytes: 0,
            created_unix_ms: 0,
            took: start.elapsed(),
            regions: 0,
            regions_loaded: 0,
            deltas: 0,
            damage: Vec::new(),
            image: None,
        }
    }
}
