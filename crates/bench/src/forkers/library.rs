//! Where `libquire_preload.so` is.
//!
//! Relies on cargo putting it beside the binary when both are built; installations put it beside the binary, too, or in
//! `../lib`. `QUIRE_PRELOAD_LIBRARY` names it when it is somewhere else.

use std::path::{Path, PathBuf};

/// The file's name.
pub const NAME: &str = "libquire_preload.so";

/// How to build it.
pub const HOW_TO_BUILD: &str = "`cargo build --release` puts it beside the quire binary; \
                                QUIRE_PRELOAD_LIBRARY=FILE names it elsewhere";

/// The library, if it can be found: the first of the places that [`places`] names.
pub fn find() -> Option<PathBuf> {
    first_file(places())
}

/// Where it is looked for.
pub fn places() -> Vec<PathBuf> {
    named_places(NAME, "QUIRE_PRELOAD_LIBRARY")
}

/// The library of this file name, if it is in the place that the environment variable names, or beside this program.
pub fn find_named(name: &str, variable: &str) -> Option<PathBuf> {
    first_file(named_places(name, variable))
}

fn first_file(places: Vec<PathBuf>) -> Option<PathBuf> {
    places.into_iter().find(|path| path.is_file()).map(|path| path.canonicalize().unwrap_or(path))
}

fn named_places(name: &str, variable: &str) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::var_os(variable).map(PathBuf::from).into_iter().collect();
    if let Ok(binary) = std::env::current_exe()
        && let Some(dir) = binary.parent()
    {
        places.extend(beside(dir, name));
    }
    places
}

fn beside(dir: &Path, name: &str) -> [PathBuf; 4] {
    // The second is an installation's, the third cargo's own folder, the last for programs in target/…/deps.
    [dir.join(name), dir.join("../lib").join(name), dir.join("deps").join(name), dir.join("..").join(name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_beside_the_binary() {
        let dir = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        assert!(places().contains(&dir.join(NAME)));
        assert!(HOW_TO_BUILD.contains("cargo build --release"));
    }
}
