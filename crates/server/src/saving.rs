//! Where the configuration meets the store: which image, and how it is brought back at the start.

use std::time::Instant;

use quire_store::{ImageLocation, OpenError, RestoreReport, Store, StoreConfig};

use crate::config::{Config, RestoreMode};
use crate::load_progress::LoadProgress;
use crate::rdb::import::ImportSummary;
use crate::rdb::start;
use crate::save_state::RestoreSummary;

/// The image that the configuration names.
pub fn place(config: &Config) -> ImageLocation {
    ImageLocation::new(&config.dir, &config.dbfilename)
}

/// Settings of the store, as the configuration has them.
pub(crate) fn settings(config: &Config) -> StoreConfig {
    StoreConfig {
        max_memory_bytes: arena_bytes(config.maxmemory.limit_bytes),
        raise_limit_for_image: true,
        budget_bytes: config.checkpoint_budget_bytes as usize,
        limits: config.limits,
        databases: config.databases,
        max_save_bytes_per_s: config.checkpoint_max_bytes_per_s,
        max_deltas: max_deltas(config),
        compression: config.checkpoint_compression,
        ..StoreConfig::default()
    }
}

/// What the arena may span for `limit_bytes` of data, 0 if there is no limit: the usual, and twice what may be needed where that is more,
/// since memory that is given back to the system goes on having addresses. It is fixed from the start on.
pub fn arena_bytes(limit_bytes: u64) -> u64 {
    let machine_bytes = quire_sys::proc::meminfo_bytes("MemTotal").unwrap_or(0);
    match limit_bytes.max(machine_bytes) {
        0..=StoreConfig::USUAL_MEMORY_BYTES => StoreConfig::USUAL_MEMORY_BYTES,
        wanted => wanted.saturating_mul(2).min(StoreConfig::MAX_MEMORY_BYTES),
    }
}

/// Has settings take effect that have changed while the data was loaded, by which it was opened.
pub(crate) fn tell_changed_settings(store: &mut Store, before: &Config, now: &Config) {
    store.set_limits(now.limits);
    if before.checkpoint_budget_bytes != now.checkpoint_budget_bytes {
        store.set_save_budget(now.checkpoint_budget_bytes as usize);
    }
    if before.checkpoint_max_bytes_per_s != now.checkpoint_max_bytes_per_s {
        store.limit_save_rate(now.checkpoint_max_bytes_per_s);
    }
    if max_deltas(before) != max_deltas(now) {
        store.set_max_deltas(max_deltas(now));
    }
    if before.checkpoint_compression != now.checkpoint_compression {
        store.set_compression(now.checkpoint_compression);
    }
}

/// Most deltas over an image, as the configuration has it; 0 if every save is to be an image.
pub fn max_deltas(config: &Config) -> u32 {
    if config.checkpoint_incremental { config.checkpoint_max_deltas } else { 0 }
}

fn mode(config: &Config) -> quire_store::RestoreMode {
    match config.restore_mode {
        RestoreMode::Map => quire_store::RestoreMode::Map,
        RestoreMode::Load => quire_store::RestoreMode::Load,
    }
}

/// Opens the data that the configuration names: from its image, or empty when there is none.
///
/// # Errors
/// In words for people: the image can't be read, or is damaged, and `accept-damaged-image` is off or nothing is left of it.
pub fn open(config: &Config) -> Result<(Store, RestoreSummary), String> {
    open_telling(config, &LoadProgress::new(0))
}

/// As [`open`]; `progress` is told how far it has come.
///
/// # Errors
/// The same.
pub fn open_telling(config: &Config, progress: &LoadProgress) -> Result<(Store, RestoreSummary), String> {
    let place = place(config);
    let on_progress = &mut |loaded, total| progress.tell(loaded, total);
    let accepts_damage = config.accept_damaged_image;
    let opened = Store::open_telling(settings(config), &place, mode(config), accepts_damage, on_progress);
    let (mut store, report) = match opened {
        Err(error) if start::is_rdb(&config.image_path()) => return open_rdb_in_place(config, &error, progress),
        Err(error) if error.is_damage() && config.accept_damaged_image => return Err(nothing_left(config, &error)),
        Err(error) if error.is_damage() => return Err(advice(&error)),
        Err(error) if error.is_foreign() => return Err(advice_on_foreign(&error)),
        opened => opened.map_err(|error| error.to_string())?,
    };
    progress.end_part();
    if report.mode.is_none() {
        refuse_unread(config)?;
    }
    if report.mode.is_none()
        && let Some(imported) = start::import_file(&mut store, &config.dir.join(start::FILE), progress)?
    {
        return Ok((store, of_redis(&imported)));
    }
    if report.keys == 0 && config.accept_damaged_image {
        // Whether that is the truth or damage must be known before clients are told so.
        store.finish_restore().map_err(|error| error.to_string())?;
        let damaged = store.damaged_regions();
        if let Some(damage) = report.damage.first() {
            return Err(nothing_left(config, damage));
        } else if damaged > 0 {
            return Err(nothing_left(config, &format!("{}: {damaged} of its regions are damaged", place.path())));
        }
    }
    for damage in &report.damage {
        tracing::warn!(%damage, "used all the same, as accept-damaged-image says");
    }
    if !report.damage.is_empty() {
        tracing::warn!(
            keys = report.keys,
            mebibytes = report.image_bytes >> 20,
            damaged = report.damage.len(),
            regions = report.regions,
            "this much of the damaged image is used; commands on what is damaged give errors, or don't find it. The next save \
             keeps the damaged image under another name"
        );
    }
    let restored = restored(&report);
    if report.mode.is_some() {
        let (saved_at, file) = (restored.saved_at(), place.path());
        tracing::info!(%saved_at, deltas = report.deltas, keys = report.keys, file, "the image is in use");
    }
    Ok((store, restored))
}

/// With its writes to be logged Redis would have started with the append-only files that lie there, and with nothing else.
fn refuse_unread(config: &Config) -> Result<(), String> {
    let Some(files) = start::append_only_files(&config.dir).filter(|_| config.appendonly) else { return Ok(()) };
    let image = config.image_path();
    let (files, shown) = (files.display(), image.display());
    let first = if image.exists() { format!("move {shown} away, and ") } else { String::new() };
    Err(format!(
        "{files} has the data of Redis as append-only files, which are newer than an RDB file beside them. To start with them {first}make \
         an image of them (quire image import --aof {files} {shown}); to start without them move them away"
    ))
}

/// Opens the data of an RDB file that has the image's name (`dbfilename dump.rdb`). The first save keeps it under another name.
fn open_rdb_in_place(
    config: &Config,
    foreign: &OpenError,
    progress: &LoadProgress,
) -> Result<(Store, RestoreSummary), String> {
    refuse_unread(config)?;
    let mut store = Store::create(settings(config)).map_err(|error| error.to_string())?;
    let imported = start::import_file(&mut store, &config.image_path(), progress)?;
    store.keep_replaced();
    imported.map(|imported| (store, of_redis(&imported))).ok_or_else(|| advice_on_foreign(foreign))
}

/// What INFO tells of data that came from an RDB file.
fn of_redis(imported: &ImportSummary) -> RestoreSummary {
    RestoreSummary { mode: "rdb", keys: imported.keys, image_bytes: imported.bytes, ..RestoreSummary::default() }
}

/// What to say of an image that can't be used.
pub fn advice(error: &OpenError) -> String {
    format!(
        "{error}. Put a good image in its place, or start with --accept-damaged-image yes to use what is left of it \
         (`quire image verify FILE` tells how much that is)"
    )
}

/// What to say of a file that is no image, or one of another version.
fn advice_on_foreign(error: &OpenError) -> String {
    format!(
        "{error}. Quire reads its own images only: choose another name with --dbfilename or another directory with --dir"
    )
}

/// What to say of an image of which nothing can be used. An empty server in its place would look like a success, and the next
/// save would say that there is no data.
fn nothing_left(config: &Config, why: &impl std::fmt::Display) -> String {
    format!(
        "{why}. Nothing of the image can be recovered, and it stays as it is. Put a good image in its place, or move {} away to \
         start empty",
        config.image_path().display()
    )
}

/// What INFO tells of a restore.
pub(crate) fn restored(report: &RestoreReport) -> RestoreSummary {
    let took_us = report.took.as_micros() as u64;
    let (mode, full_us) = match report.mode {
        None => ("none", None),
        Some(quire_store::RestoreMode::Map) => ("map", None),
        Some(quire_store::RestoreMode::Load) => ("load", Some(took_us)),
    };
    RestoreSummary {
        mode,
        keys: report.keys,
        image_bytes: report.image_bytes,
        regions_loaded: report.regions_loaded,
        deltas: report.deltas,
        created_unix_ms: report.created_unix_ms,
        first_read_us: took_us,
        served_since: Some(Instant::now()),
        full_us,
        clone_of: None,
        image: report.image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_has_addresses_for_twice_of_what_may_be_needed() {
        assert!(arena_bytes(0) >= StoreConfig::USUAL_MEMORY_BYTES);
        assert_eq!(arena_bytes(64 << 30), arena_bytes(0));
        assert!((600 << 30..=StoreConfig::MAX_MEMORY_BYTES).contains(&arena_bytes(300 << 30)));
        assert_eq!(arena_bytes(1 << 40), StoreConfig::MAX_MEMORY_BYTES);
    }
}
