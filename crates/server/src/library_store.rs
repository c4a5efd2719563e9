//! Where libraries of functions are kept: beside the keys, so that every image has them, and clones and copies of it do.
//!
//! They lie there as FUNCTION DUMP gives them, with a checksum of their own. What changes them is in the log of writes as any other
//! command is, and done again at a start without running any code: the texts alone are put right, and loaded when all is back.

use std::time::Duration;

use quire_rdb::{read_libraries, write_libraries};
use quire_store::{Keyspace, Store, StoreError, attachment};

use crate::scripts::{LibrarySet, library_name};
use crate::state::ServerState;

/// The code of a library may take so long at a start, on a machine that is busy: many times what it may when a client sends it. Data may
/// come from elsewhere, and code without an end would keep the server from ever being there.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The texts of all libraries.
///
/// # Errors
/// [`StoreError::Damaged`].
pub fn read(store: &Keyspace) -> Result<Vec<Vec<u8>>, StoreError> {
    let Some(bytes) = attachment::get(store)? else { return Ok(Vec::new()) };
    read_libraries(bytes).map_err(|error| StoreError::Damaged { what: format!("libraries of functions: {error}") })
}

/// Puts these in the place of all that there are.
///
/// # Errors
/// [`StoreError::OutOfMemory`], [`StoreError::Damaged`]; what was there stays.
pub fn write<'t>(store: &mut Keyspace, texts: impl ExactSizeIterator<Item = &'t [u8]>) -> Result<(), StoreError> {
    let bytes = if texts.len() == 0 { Vec::new() } else { write_libraries(texts) };
    attachment::set(store, &bytes)
}

/// Adds these, each in the place of one of its name; instead of all others, if they are to go.
///
/// # Errors
/// As `write`; what is no library is damage, since it was one when it was taken in.
pub fn put(store: &mut Keyspace, new: Vec<Vec<u8>>, others_go: bool) -> Result<(), StoreError> {
    let mut texts = if others_go { Vec::new() } else { read(store)? };
    for text in new {
        let name = name_of(&text)?;
        remove_named(&mut texts, &name)?;
        texts.push(text);
    }
    write(store, texts.iter().map(Vec::as_slice))
}

/// Takes the one of this name away.
///
/// # Errors
/// As [`put`].
pub fn remove(store: &mut Keyspace, name: &[u8]) -> Result<(), StoreError> {
    let mut texts = read(store)?;
    remove_named(&mut texts, &String::from_utf8_lossy(name))?;
    write(store, texts.iter().map(Vec::as_slice))
}

fn remove_named(texts: &mut Vec<Vec<u8>>, name: &str) -> Result<(), StoreError> {
    let mut kept = Vec::with_capacity(texts.len() + 1);
    for text in texts.drain(..) {
        if name_of(&text)? != name {
            kept.push(text);
        }
    }
    *texts = kept;
    Ok(())
}

fn name_of(text: &[u8]) -> Result<String, StoreError> {
    library_name(text).map_err(|error| StoreError::Damaged { what: format!("a library of functions: {error}") })
}

/// Loads the libraries that the data has, at the start.
///
/// # Errors
/// In words for people: they can't be read, or not be loaded.
pub fn load_all(store: &Store, state: &mut ServerState) -> Result<(), String> {
    load_all_within(store, state, START_LIMIT)
}

fn load_all_within(store: &Store, state: &mut ServerState, limit: Duration) -> Result<(), String> {
    let texts = match read(store) {
        Ok(texts) => texts,
        Err(error) if state.config.accept_damaged_image => {
            tracing::warn!(%error, "the libraries of functions are lost, as accept-damaged-image says");
            return Ok(());
        }
        Err(error) => {
            return Err(format!(
                "{error}. Put a good image in place, or start with --accept-damaged-image to go on without"
            ));
        }
    };
    if texts.is_empty() {
        return Ok(());
    }
    let cannot = |error: String| {
        format!("the libraries of functions cannot be loaded: {error}. Their interpreter may take script-max-memory")
    };
    let functions = &mut state.scripts.functions;
    let engine = functions.take_engine(state.config.scripts.max_memory_bytes).map_err(cannot)?;
    let mut set = LibrarySet::default();
    for text in &texts {
        set.load(&engine, text, (false, Some(limit))).map_err(cannot)?;
    }
    tracing::info!(libraries = set.len(), functions = set.functions(), "the libraries of functions are loaded");
    functions.libraries = set;
    functions.put_back(engine);
    Ok(())
}

#[cfg(test)]
mod tests {
    use quire_store::StoreConfig;

    use super::*;
    use crate::config::Config;

    fn text(name: &str, function: &str) -> Vec<u8> {
        format!("#!lua name={name}\nredis.register_function('{function}', function() end)").into_bytes()
    }

    fn store() -> Store {
        Store::create(StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() })
            .unwrap()
    }

    #[test]
    fn libraries_are_put_replaced_and_taken_away_by_name() {
        let mut store = store();
        put(&mut store, vec![text("a", "f"), text("b", "g")], false).unwrap();
        put(&mut store, vec![text("a", "h")], false).unwrap();
        assert_eq!(read(&store).unwrap(), [text("b", "g"), text("a", "h")]);
        remove(&mut store, b"b").unwrap();
        remove(&mut store, b"none").unwrap();
        assert_eq!(read(&store).unwrap(), [text("a", "h")]);
        put(&mut store, vec![text("c", "f")], true).unwrap();
        assert_eq!(read(&store).unwrap(), [text("c", "f")]);
        put(&mut store, Vec::new(), true).unwrap();
        assert_eq!(attachment::get(&store).unwrap(), None);
    }

    #[test]
    fn libraries_that_the_data_has_are_loaded_and_what_is_none_is_refused() {
        let mut store = store();
        put(&mut store, vec![text("a", "f"), text("b", "g")], false).unwrap();
        let mut state = ServerState::new(Config::default());
        load_all(&store, &mut state).unwrap();
        assert!(state.scripts.functions.libraries.function(b"g").is_some());
        write(&mut store, [&b"#!lua name=a\nx("[..]].into_iter()).unwrap();
        let refused = load_all(&store, &mut ServerState::new(Config::default())).unwrap_err();
        assert!(refused.starts_with("the libraries of functions cannot be loaded: Error compiling"), "{refused}");
        write(&mut store, [&b"#!lua name=a\nwhile true do end"[..]].into_iter()).unwrap();
        let mut state = ServerState::new(Config::default());
        let refused = load_all_within(&store, &mut state, Duration::from_millis(20)).unwrap_err();
        assert!(refused.contains("FUNCTION LOAD timeout"), "{refused}");
        attachment::set(&mut store, b"something else").unwrap();
        let mut state = ServerState::new(Config::default());
        assert!(load_all(&store, &mut state).unwrap_err().contains("the data is damaged"));
        state.config.accept_damaged_image = true;
        load_all(&store, &mut state).unwrap();
    }
}
