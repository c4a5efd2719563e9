//! Where the configuration meets the store: which image, and how it is brought back at the start.

use quire_store::{ImagePlace, OpenError, RestoreReport, Store, StoreConfig};

use crate::config::{Config, RestoreMode};
use crate::save_state::Restored;
use crate::state::unix_ms;

/// The image that the configuration names.
pub fn place(config: &Config) -> ImagePlace {
    ImagePlace::new(&config.dir, &config.dbfilename)
}

fn settings(config: &Config) -> StoreConfig {
    StoreConfig {
        budget_bytes: config.checkpoint_budget_bytes as usize,
        hash_max_packed_entries: config.hash_max_packed_entries as usize,
        hash_max_packed_value: config.hash_max_packed_value as usize,
        databases: config.databases,
        ..StoreConfig::default()
    }
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
/// In words for people: the image can't be read, or is damaged and `accept-damaged-image` is off.
pub fn open(config: &Config) -> Result<(Store, Restored), String> {
    let place = place(config);
    let opened = Store::open(settings(config), &place, mode(config), config.accept_damaged_image);
    let (store, report) = match opened {
        Err(error) if error.is_damage() && config.accept_damaged_image => return start_without(config, &error),
        Err(error) if error.is_damage() => return Err(advice(&error)),
        Err(error) if error.is_foreign() => return Err(advice_on_foreign(&error)),
        opened => opened.map_err(|error| error.to_string())?,
    };
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
    Ok((store, restored(&report)))
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

/// Nothing of the image can be used. It is kept under another name.
fn start_without(config: &Config, error: &OpenError) -> Result<(Store, Restored), String> {
    let aside = format!("{}.damaged-{}", config.dbfilename, unix_ms());
    place(config)
        .directory()
        .rename(&config.dbfilename, &aside)
        .map_err(|rename| format!("{error}; and it can't be put aside: {rename}"))?;
    tracing::warn!(%error, kept_as = aside, "nothing of the image can be used: starting empty");
    let store = Store::create(settings(config)).map_err(|error| error.to_string())?;
    Ok((store, Restored { mode: "none", ..Restored::default() }))
}

fn restored(report: &RestoreReport) -> Restored {
    let took_us = report.took.as_micros() as u64;
    let (mode, full_us) = match report.mode {
        None => ("none", None),
        Some(quire_store::RestoreMode::Map) => ("map", None),
        Some(quire_store::RestoreMode::Load) => ("load", Some(took_us)),
    };
    Restored { mode, keys: report.keys, image_bytes: report.image_bytes, first_read_us: took_us, full_us }
}
