//! Libraries of functions, and their functions by name.
//!
//! A set is changed by making another one of it, which takes its place when it is whole and kept. Relies on `function_engine` to load a
//! library.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::function_engine::FunctionEngine;
use super::library_code;
use super::library_function::LibraryFunction;

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// All of its text.
    pub text: Vec<u8>,
    /// What it has registered.
    pub functions: Vec<LibraryFunction>,
}

/// Libraries that go together: no two of them have a function of one name.
#[derive(Clone, Debug, Default)]
pub struct LibrarySet {
    libraries: BTreeMap<String, Arc<Library>>,
    /// Where a function is, by its name in lower case.
    functions: HashMap<String, (Arc<Library>, usize)>,
}

impl LibrarySet {
    /// Loads a library into the set, and returns its name. It must not take longer than the limit.
    ///
    /// # Errors
    /// The text says what is wrong with it; the set is of no use then.
    pub fn load(
        &mut self,
        engine: &FunctionEngine,
        text: &[u8],
        (replaces, limit): (bool, Option<Duration>),
    ) -> Result<String, String> {
        let (name, code) = library_code::parse(text)?;
        if !replaces && self.libraries.contains_key(&name) {
            return Err(format!("Library '{name}' already exists"));
        }
        let functions = engine.load(code.code, limit)?;
        if functions.is_empty() {
            return Err("No functions registered".to_owned());
        }
        self.put(Arc::new(Library { name: name.clone(), text: code.text.to_vec(), functions }))?;
        Ok(name)
    }

    /// Adds all libraries of another set.
    ///
    /// # Errors
    /// Both have a library or a function of one name; this set is of no use then.
    pub fn join(&mut self, other: &LibrarySet, replaces: bool) -> Result<(), String> {
        for library in other.iter() {
            if !replaces && self.libraries.contains_key(&library.name) {
                return Err(format!("Library {} already exists", library.name));
            }
            self.remove(library.name.as_bytes());
        }
        other.libraries.values().try_for_each(|library| self.put(Arc::clone(library)))
    }

    /// Adds a library in the place of one of its name.
    fn put(&mut self, library: Arc<Library>) -> Result<(), String> {
        self.remove(library.name.as_bytes());
        let key = |function: &LibraryFunction| function.name.to_ascii_lowercase();
        if let Some(function) = library.functions.iter().find(|function| self.functions.contains_key(&key(function))) {
            return Err(format!("Function {} already exists", function.name));
        }
        for (index, function) in library.functions.iter().enumerate() {
            self.functions.entry(key(function)).or_insert_with(|| (Arc::clone(&library), index));
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }

    /// Takes a library out; false if there is none of this name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let known = std::str::from_utf8(name).ok().and_then(|name| self.libraries.remove(name));
        let Some(library) = known else { return false };
        self.functions.retain(|_, (owner, _)| !Arc::ptr_eq(owner, &library));
        true
    }

    /// The function of this name, whatever the case of its letters.
    pub fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.functions.get(&name).cloned()
    }

    /// The libraries, by their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Library> {
        self.libraries.values().map(|library| &**library)
    }

    /// How many libraries there are.
    pub fn len(&self) -> usize {
        self.libraries.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty()
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Memory of the texts and of what is kept beside them.
    pub fn memory_bytes(&self) -> usize {
        let texts: usize = self.libraries.values().map(|library| library.text.len()).sum();
        texts + self.len() * size_of::<Library>() + self.functions() * size_of::<LibraryFunction>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(library: &str, functions: &[&str]) -> String {
        let calls: Vec<String> = functions
            .iter()
            .map(|name| format!("redis.register_function('{name}', function() return '{name}' end)\n"))
            .collect();
        format!("#!lua name={library}\n{}", calls.concat())
    }

    fn loaded(engine: &FunctionEngine, libraries: &[(&str, &[&str])]) -> LibrarySet {
        let mut set = LibrarySet::default();
        for (library, functions) in libraries {
            set.load(engine, text(library, functions).as_bytes(), (false, None)).unwrap();
        }
        set
    }

    #[test]
    fn functions_are_found_by_name_until_their_library_goes() {
        let engine = FunctionEngine::new(64 << 20).unwrap();
        let mut set = loaded(&engine, &[("a", &["f", "Long_Name"]), ("b", &["g"])]);
        assert_eq!((set.len(), set.functions()), (2, 3));
        assert_eq!(
            set.function(b"long_name").map(|(library, index)| (library.name.clone(), index)),
            Some(("a".into(), 1))
        );
        assert!(set.function(b"h").is_none() && set.function(b"\xff").is_none());
        assert!(!set.remove(b"A") && set.remove(b"a") && !set.remove(b"a"));
        assert!(set.function(b"f").is_none() && set.function(b"G").is_some());
    }

    #[test]
    fn names_are_taken_once_and_replacing_frees_those_of_the_same_library() {
        let engine = FunctionEngine::new(64 << 20).unwrap();
        let set = loaded(&engine, &[("a", &["f"]), ("b", &["g"])]);
        let try_load = |library: &str, functions: &[&str], replaces: bool| {
            set.clone().load(&engine, text(library, functions).as_bytes(), (replaces, None))
        };
        assert_eq!(try_load("a", &["x"], false).unwrap_err(), "Library 'a' already exists");
        assert_eq!(try_load("a", &["x", "G"], true).unwrap_err(), "Function G already exists");
        assert_eq!(try_load("a", &["f", "y"], true).unwrap(), "a");
        assert_eq!(try_load("c", &[], false).unwrap_err(), "No functions registered");
        let other = loaded(&engine, &[("b", &["f"])]);
        assert_eq!(set.clone().join(&other, false).unwrap_err(), "Library b already exists");
        assert_eq!(set.clone().join(&other, true).unwrap_err(), "Function f already exists");
        let mut joined = set.clone();
        joined.join(&loaded(&engine, &[("b", &["h"]), ("c", &["g"])]), true).unwrap();
        assert_eq!((joined.len(), joined.functions()), (3, 3));
    }
}
