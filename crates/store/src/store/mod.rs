//! The store: a keyspace that is kept, as images of its arena and as a place in the log of writes.

mod clone;
mod location;
mod published;
mod restore;
mod save;
mod save_error;
mod stored_shares;
mod temporary;

use std::hash::Hasher;
use std::ops::{Deref, DerefMut};

use quire_arena::{Arena, ArenaConfig};
use quire_checkpoint::{BackgroundCheck, BackgroundRestore, ImageIdentity};
use quire_rng::SplitMix64;
use siphasher::sip::SipHasher13;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::keyspace::defrag::{self, DefragSummary};
use crate::keyspace::{Keyspace, random_u64, root};
use crate::limits::EncodingLimits;
use crate::value::VALUES;

pub use location::ImageLocation;
pub use restore::{RestoreMode, RestoreReport, RestoreStep};
pub use save::{SaveProgress, SaveStats, SaveSummary};
pub use save_error::SaveError;
pub use temporary::TemporaryImage;

use save::Saves;
use temporary::RunningTemporaryImage;

/// Set apart from what the same key hashes elsewhere.
const DATASET: &[u8] = b"quire dataset";

/// The check of a mapped image.
struct ImageCheck {
    background: BackgroundCheck,
    /// The caller of [`Store::restore_step`] has been told that it is done.
    told: bool,
}

/// A keyspace with its images and its place in the log. Everything that concerns keys is the [`Keyspace`]'s.
pub struct Store {
    keyspace: Keyspace,
    saves: Saves,
    /// What is written beside all saves, for a reader of this process.
    temporary: Option<RunningTemporaryImage>,
    /// The image that is being brought back, until that is done.
    restore: Option<BackgroundRestore>,
    /// The check of the image that the data stays mapped from; it lasts as long as the mapping does.
    check: Option<ImageCheck>,
    dataset: u64,
    /// The last record of the log whose effect is in the data.
    log_position: u64,
    /// The number of the save that the data was brought back from.
    restored_epoch: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Store").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

impl Deref for Store {
    type Target = Keyspace;

    #[inline]
    fn deref(&self) -> &Keyspace {
        &self.keyspace
    }
}

impl DerefMut for Store {
    #[inline]
    fn deref_mut(&mut self) -> &mut Keyspace {
        &mut self.keyspace
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            max_memory_bytes: StoreConfig::USUAL_MEMORY_BYTES,
            raise_limit_for_image: false,
            budget_bytes: 64 << 20,
            limits: EncodingLimits::default(),
            databases: 16,
            max_save_bytes_per_s: 0,
            max_deltas: 0,
            compression: None,
            seed: None,
        }
    }
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// The system has no memory or no random numbers.
    pub fn create(config: StoreConfig) -> Result<Store> {
        let arena =
            Arena::create(ArenaConfig { max_bytes: config.max_memory_bytes, budget_bytes: config.budget_bytes })?;
        Store::from_arena(arena, config)
    }

    /// The store that an arena holds; an empty one if the arena is empty.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`] if the arena holds something else, [`crate::StoreError::Newer`] if it holds what only a
    /// newer version of this program can read.
    pub fn from_arena(mut arena: Arena, config: StoreConfig) -> Result<Store> {
        let opened = match arena.root().is_null() {
            true => root::create(&mut arena, hash_key(&config)?)?,
            false => root::open(&arena)?,
        };
        let (dataset, log_position) = (dataset_of(opened.seed), opened.log_position);
        let keyspace = Keyspace::new(arena, opened, &config, VALUES)?;
        let mut saves = Saves::default();
        saves.max_bytes_per_s = config.max_save_bytes_per_s;
        saves.deltas.max_deltas = config.max_deltas;
        saves.compression = config.compression;
        Ok(Store {
            keyspace,
            saves,
            temporary: None,
            restore: None,
            check: None,
            dataset,
            log_position,
            restored_epoch: 0,
        })
    }

    /// Looks at about `budget` entries or pages, and moves objects out of slabs that are mostly empty. Nothing is moved if the data
    /// [is damaged](Store::is_damaged): a handle in it may lead to what belongs to another object, and a move would free that.
    ///
    /// # Errors
    /// [`StoreError::Damaged`](crate::StoreError::Damaged), of the first thing found damaged; what comes behind it was moved all the same.
    pub fn defrag_step(&mut self, budget: usize) -> Result<DefragSummary> {
        if self.is_damaged() { Ok(DefragSummary::default()) } else { defrag::step(&mut self.keyspace, budget) }
    }

    /// The next [`Store::defrag_step`] begins a new cycle, with a new survey.
    pub fn forget_defrag(&mut self) {
        defrag::forget(&mut self.keyspace);
    }

    /// A number that this dataset and its images have, and no other.
    pub fn dataset(&self) -> u64 {
        self.dataset
    }

    /// The last record of the log whose effect is in the data.
    pub fn log_position(&self) -> u64 {
        self.log_position
    }

    /// Sets the place in the log, which the next image will hold.
    pub fn set_log_position(&mut self, position: u64) {
        self.log_position = position;
    }

    /// The last save of this data that is known to have been whole: the one that it came from, or one that was made since. `None` if
    /// there is none; of a clone, as long as it has none of its own.
    pub fn last_image(&self) -> Option<ImageIdentity> {
        self.saves.last_image
    }

    /// The number of the save that the data was brought back from; 0 if there was none. Later ones may be there, which damage has made
    /// useless.
    pub fn restored_epoch(&self) -> u64 {
        self.restored_epoch
    }

    /// The number of the last image in its history; 0 if there is none.
    pub fn image_epoch(&self) -> u64 {
        self.saves.epoch
    }
}

/// The secret of a new store's hashes.
fn hash_key(config: &StoreConfig) -> Result<[u64; 2]> {
    Ok(match config.seed {
        Some(seed) => {
            let mut rng = SplitMix64::new(seed);
            [rng.next_u64(), rng.next_u64()]
        }
        None => [random_u64()?, random_u64()?],
    })
}

/// `seed` is the dataset's secret; its name must not tell it.
fn dataset_of(seed: [u64; 2]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed[0], seed[1]);
    hasher.write(DATASET);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use crate::config::StoreConfig;
    use crate::db::{DbId, ExpiryChange};
    use crate::effects::ExpiredKey;
    use crate::store::Store;
    use crate::value::string;

    #[test]
    fn keys_that_expire_are_noted_however_they_are_found() {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let mut store = Store::create(config).unwrap();
        store.set_now_ms(1000);
        for key in [b"a", b"b"] {
            string::set(&mut store, DbId(3), key, b"value", ExpiryChange::At(2000)).unwrap();
        }
        store.set_noting_expired(true);
        store.set_now_ms(2000);
        assert_eq!(string::get(&mut store, DbId(3), b"a").unwrap(), None);
        store.expire_step(100).unwrap();
        let expired = store.take_expired();
        let gone = |key: &[u8]| ExpiredKey { db: DbId(3), key: key.into(), fields: Vec::new() };
        assert_eq!(expired, [gone(b"a"), gone(b"b")]);
        assert!(!store.has_expired_keys());
    }

    #[test]
    fn datasets_have_names_of_their_own() {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let names: Vec<_> = (0..2).map(|_| Store::create(config.clone()).unwrap().dataset()).collect();
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn stores_of_one_seed_hash_and_draw_alike_and_those_without_do_not() {
        let keys_drawn = |seed| {
            let config =
                StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed, ..StoreConfig::default() };
            let mut store = Store::create(config).unwrap();
            for number in 0..200 {
                string::set(&mut store, DbId(0), format!("key:{number}").as_bytes(), b"value", ExpiryChange::Clear)
                    .unwrap();
            }
            (0..40).map(|_| store.random_key(DbId(0)).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(keys_drawn(Some(7)), keys_drawn(Some(7)));
        assert_ne!(keys_drawn(Some(7)), keys_drawn(Some(8)));
        assert_ne!(keys_drawn(None), keys_drawn(None));
    }
}
