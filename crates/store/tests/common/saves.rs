//! Saves on real files, for tests: strings of many sizes in several versions, and the end of a background save.

use std::time::Duration;

use quire_store::{DbId, ExpiryChange, RestoreMode, SaveError, SaveSummary, Store, string};

pub const DB: DbId = DbId(0);
pub const FILE: &str = "dump.quire";
pub const MODES: [RestoreMode; 2] = [RestoreMode::Map, RestoreMode::Load];

pub fn write(store: &mut Store, number: u32, version: u32) {
    let value = vec![(number + version) as u8; (number * 37 % 1500 + version) as usize];
    string::set(store, DB, format!("key:{number}").as_bytes(), &value, ExpiryChange::Clear).unwrap();
}

/// Waits until the save under way has ended.
pub fn wait(store: &mut Store) -> Result<SaveSummary, SaveError> {
    loop {
        match store.poll_save() {
            Some(result) => return result,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
