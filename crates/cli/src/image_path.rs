//! Where an image that the user names lies. Deltas lie beside it, so it is named as itself, not by a link.

use std::path::Path;

use anyhow::bail;

/// The directory of an image, and its name there.
pub fn place(path: &Path) -> anyhow::Result<(&Path, &str)> {
    if path.is_dir() {
        bail!("{0} is a directory; name the image in it, such as {0}/dump.quire", path.display());
    }
    if let Ok(target) = path.read_link() {
        bail!(
            "{} is a symbolic link to {}. Deltas lie beside the image itself: name that",
            path.display(),
            target.display()
        );
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        bail!("{} does not name a file", path.display());
    };
    Ok((path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")), name))
}
