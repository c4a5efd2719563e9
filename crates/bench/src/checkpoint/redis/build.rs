//! redis-server as Debian has it, and the one that `peers/redis-mdc` makes of its source.
//!
//! Relies on `python3` and on what the script asks for. The script and its files are part of this program, so that the experiment
//! needs no source tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::super::program::{HEADER, library};
use crate::process::find_on_path;

/// The files of `peers/redis-mdc`.
const FILES: [(&str, &str); 3] = [
    ("build.py", include_str!("../../../peers/redis-mdc/build.py")),
    ("quire_rio.c", include_str!("../../../peers/redis-mdc/quire_rio.c")),
    ("quire_rio.h", include_str!("../../../peers/redis-mdc/quire_rio.h")),
];

/// Both servers.
#[derive(Debug)]
pub(super) struct ServerPrograms {
    /// redis-server as it is.
    pub(super) plain: PathBuf,
    /// With `mdc_*`.
    pub(super) mdc: PathBuf,
}

/// Finds one and builds the other; what is fetched and built is kept in the user's cache.
///
/// # Errors
/// redis-server is not there, or the script's words on what is missing.
pub(super) fn both(dir: &Path) -> anyhow::Result<ServerPrograms> {
    let plain =
        find_on_path("redis-server").context("redis-server is not on the PATH (Debian package redis-server)")?;
    let place = dir.join("redis-mdc");
    std::fs::create_dir_all(&place)?;
    for (name, text) in FILES {
        std::fs::write(place.join(name), text)?;
    }
    std::fs::write(place.join("quire.h"), HEADER)?;
    let mut command = Command::new("python3");
    command.arg("-B").arg(place.join("build.py")).arg("--library").arg(library()?);
    command.arg("--header").arg(place.join("quire.h"));
    let output = command.output().context("starting python3 (Debian package python3)")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout);
    let mdc = PathBuf::from(text.lines().last().context("build.py has named no server")?);
    Ok(ServerPrograms { plain, mdc })
}
