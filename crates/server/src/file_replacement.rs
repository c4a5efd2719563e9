//! A file gets other contents: beside it and then over it, so that a crash leaves one of the two. Relies on the system's `rename`.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Puts `text` in place of what a file has, which may not be there yet; the file is durable when this returns. `sync_directory` makes the
/// names in a directory durable.
///
/// # Errors
/// The system's. Nothing is left beside the file then.
pub fn replace(path: &Path, text: &[u8], sync_directory: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    // What a link names is replaced, the link stays.
    let path = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?;
    // It may hold passwords, so no other user may read it before it has the permissions of the one that it replaces: one that lies there
    // is not reused.
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".tmp-{}", std::process::id()));
    let _ = std::fs::remove_file(&beside);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(text).and_then(|()| {
        if let Ok(meta) = std::fs::metadata(&path) {
            // An ordinary user can't give a file away; then it is the server's own.
            let _ = fchown(&file, Some(meta.uid()), Some(meta.gid()));
            file.set_permissions(meta.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&beside, &path)?;
        // The name is durable only when the directory is.
        sync_directory(path.parent().unwrap_or(Path::new("/")))
    });
    if written.is_err() {
        // What is left of it is of no use.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The system's.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
