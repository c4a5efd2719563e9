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
    places().into_iter().find(|path| path.is_file()).map(|path| path.canonicalize().unwrap_or(path))
}

/// Where it is looked for.
pub fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::var_os("QUIRE_PRELOAD_LIBRARY").map(PathBuf::from).into_iter().collect();
    if let Ok(binary) = std::env::current_exe()
        && let Some(dir) = binary.parent()
    {
        places.extend(beside(dir));
    }
    places
}

fn beside(dir: &Path) -> [PathBuf; 4] {
    // The second is an installation's, the third cargo's own folder, the last for programs in target/…/deps.
    [dir.join(NAME), dir.join("../lib").join(NAME), dir.join("deps").join(NAME), dir.join("..").join(NAME)]
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
