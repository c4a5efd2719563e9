//! Whether a log and the volumes go together, as the log's superblock and the witness on the slow side say.
//!
//! Relies on [`log_identity`] for the note, and on both sides being written one after the other, durably: see there for the order.

use quire_device::Device;

use crate::buffer_pool::BufferPool;
use crate::cache_state::CacheState;
use crate::config::CacheConfig;
use crate::error::CacheError;
use crate::jobs::write_superblock;
use crate::log_identity::{self, Epoch, LogIdentity, LogState};
use crate::recover::RecoveredLog;

fn witness_name(config: &CacheConfig) -> String {
    config.witness.as_ref().map(|witness| witness.name().to_owned()).unwrap_or_default()
}

/// What the witness says; `None` if there is none, or no note in it.
///
/// # Errors
/// It is damaged and that is not accepted, or its device fails.
pub(crate) fn read(config: &CacheConfig, log: &str) -> Result<Option<LogIdentity>, CacheError> {
    let Some(device) = &config.witness else { return Ok(None) };
    match log_identity::read(&**device) {
        Ok(told) => Ok(told),
        Err(Some(error)) => Err(CacheError::Witness(error)),
        Err(None) if config.accept_damaged => {
            tracing::warn!(witness = device.name(), "damage of the witness was accepted");
            Ok(None)
        }
        Err(None) => Err(CacheError::WitnessDamaged { witness: witness_name(config), log: log.to_owned() }),
    }
}

/// Whether the volumes beside this witness lack what a log holds.
///
/// # Errors
/// The witness is damaged or can't be read.
pub fn needs_log(witness: &dyn Device) -> Result<bool, CacheError> {
    match log_identity::read(witness) {
        Ok(told) => Ok(told.is_some_and(|told| told.state == LogState::InUse)),
        Err(Some(error)) => Err(CacheError::Witness(error)),
        Err(None) => Err(CacheError::WitnessDamaged { witness: witness.name().to_owned(), log: "?".to_owned() }),
    }
}

/// Whether these volumes may begin a new log.
///
/// # Errors
/// They need the one that they had.
pub(crate) fn check_new(told: Option<LogIdentity>, config: &CacheConfig, log: &str) -> Result<(), CacheError> {
    match told {
        Some(LogIdentity { state: LogState::InUse, .. }) => {
            Err(CacheError::LogMissing { witness: witness_name(config), log: log.to_owned() })
        }
        Some(LogIdentity { state: LogState::Empty | LogState::Abandoned, .. }) | None => Ok(()),
    }
}

/// Whether the log that was found goes with these volumes.
///
/// # Errors
/// It doesn't.
pub(crate) fn check(
    found: &RecoveredLog,
    told: Option<LogIdentity>,
    config: &CacheConfig,
    log: &str,
) -> Result<(), CacheError> {
    let (witness, log) = (witness_name(config), log.to_owned());
    let holds_nothing = found.records.is_empty();
    let Some(told) = told else {
        if config.witness.is_none() || config.accept_damaged {
            return Ok(());
        }
        if !holds_nothing {
            return Err(CacheError::Unclaimed { witness, log });
        }
        // A log that has agreed with a witness wrote it before: volumes without one are others, or what lies below the place where these
        // would be mounted.
        let has_agreed = found.epochs[0] != Epoch::default();
        return if has_agreed { Err(CacheError::OtherVolumes { witness, log }) } else { Ok(()) };
    };
    // The volumes need no log.
    let complete = match told.state {
        LogState::InUse => false,
        LogState::Empty | LogState::Abandoned => true,
    };
    if told.identity != found.identity {
        // A cache that was made and crashed before the witness was told has an empty log.
        let is_new = complete && holds_nothing;
        let (wanted, found) = (told.identity, found.identity);
        return if is_new { Ok(()) } else { Err(CacheError::WrongLog { witness, wanted, log, found }) };
    }
    if told.state == LogState::Abandoned {
        return Err(CacheError::Abandoned);
    }
    let [epoch, next] = found.epochs;
    let same = told.epoch == epoch || (next != Epoch::default() && told.epoch == next);
    if !(same || complete && holds_nothing) {
        return Err(CacheError::Epochs { witness, wanted: told.epoch.count(), log, found: epoch.count() });
    }
    Ok(())
}

/// Begins an epoch, on both sides if there is a witness, and says in the log whether it is closed now.
///
/// # Errors
/// A device fails.
pub(crate) fn begin_epoch(
    cache_state: &mut CacheState,
    closes: bool,
    state: LogState,
    fast: &dyn Device,
    config: &CacheConfig,
    buffers: &BufferPool,
) -> Result<(), CacheError> {
    let Some(witness) = &config.witness else {
        return write_superblock(&cache_state.next_superblock(closes), fast, buffers).map_err(CacheError::Fast);
    };
    let next = cache_state.log.epochs[0].after(cache_state.log.epochs[1]);
    cache_state.log.epochs[1] = next;
    write_superblock(&cache_state.next_superblock(closes), fast, buffers).map_err(CacheError::Fast)?;
    let told = LogIdentity { identity: cache_state.identity(), state, epoch: next };
    log_identity::write(&**witness, told, buffers).map_err(CacheError::Witness)?;
    cache_state.log.epochs = [next, Epoch::default()];
    write_superblock(&cache_state.next_superblock(closes), fast, buffers).map_err(CacheError::Fast)
}
