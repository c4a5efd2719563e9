//! Rights that a program gets by running a file: its capabilities, and the set-id bits.
//!
//! The system takes them from a file when that is written. Bytes reach the directory's file late, so they would be taken
//! from a file that got them after its last write (an installer copies a program and calls `setcap`), and stay for a while
//! where they have to go. So they are taken away when a program writes, and what it gives the file afterwards is put back
//! behind every late write.
//!
//! Relies on being told of what programs change while the file is a volume.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quire_sys::{at, xattr};

/// The attribute with a file's capabilities.
pub const CAPABILITIES: &str = "security.capability";
/// Set-id bits among permissions.
const SET_ID: u32 = 0o6000;

#[derive(Debug, Default)]
struct State {
    /// What the file had before the first write has been taken away.
    is_known: bool,
    capabilities: Option<Vec<u8>>,
    set_id: u32,
}

/// What late writes must not take.
#[derive(Debug, Default)]
pub struct FilePrivileges {
    state: Mutex<State>,
}

impl FilePrivileges {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file is to keep what it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn adopt(&self, file: &File) -> io::Result<()> {
        let capabilities = capabilities_of(file)?;
        let set_id = at::facts(file)?.permissions & SET_ID;
        *self.state() = State { is_known: true, capabilities, set_id };
        Ok(())
    }

    /// A program writes: the capabilities go.
    ///
    /// # Errors
    /// They can't be taken away.
    pub fn lose(&self, file: &File) -> io::Result<()> {
        let mut state = self.state();
        let had = state.capabilities.take().is_some();
        if !had && state.is_known {
            return Ok(());
        }
        state.is_known = true;
        if !had {
            state.set_id = at::facts(file)?.permissions & SET_ID;
        }
        if capabilities_of(file)?.is_some() {
            match xattr::remove(file, OsStr::new(CAPABILITIES)) {
                // An ordinary user's daemon may not; the write itself does it.
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// A program gives the file these capabilities, or none, by `set`. No late write's restoring comes between.
    ///
    /// # Errors
    /// Those of `set`; the file is to keep what it had.
    pub fn set_capabilities<E>(
        &self,
        capabilities: Option<Vec<u8>>,
        set: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        set()?;
        state.capabilities = capabilities;
        Ok(())
    }

    /// A program gives the file these permissions by `set`. No late write's restoring comes between.
    ///
    /// # Errors
    /// Those of `set`; the file is to keep what it had.
    pub fn set_permissions<E>(&self, permissions: u32, set: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state();
        set()?;
        state.set_id = permissions & SET_ID;
        Ok(())
    }

    /// A program gives the file another owner or group by `set`, by which it loses all that it gave.
    ///
    /// # Errors
    /// Those of `set`; the file is to keep what it had.
    pub fn set_owner<E>(&self, set: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state();
        set()?;
        (state.capabilities, state.set_id) = (None, 0);
        Ok(())
    }

    /// Puts back what a late write has taken.
    ///
    /// # Errors
    /// What the system says.
    pub fn restore(&self, file: &File) -> io::Result<()> {
        let state = self.state();
        if let Some(capabilities) = &state.capabilities
            && capabilities_of(file)?.is_none()
        {
            xattr::set(file, OsStr::new(CAPABILITIES), capabilities, 0)?;
        }
        if state.set_id != 0 {
            let permissions = at::facts(file)?.permissions;
            if permissions & state.set_id != state.set_id {
                at::set_permissions(file, permissions | state.set_id)?;
            }
        }
        Ok(())
    }
}

fn capabilities_of(file: &File) -> io::Result<Option<Vec<u8>>> {
    let none = [quire_device::errno::ENODATA, quire_device::errno::ENOTSUP];
    match xattr::get(file, OsStr::new(CAPABILITIES)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error().is_some_and(|number| none.contains(&number)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_could_not_set_is_not_put_back() {
        let file = tempfile::tempfile().unwrap();
        at::set_permissions(&file, 0o700).unwrap();
        let privileges = FilePrivileges::default();
        let refuse = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(privileges.set_permissions(0o4700, refuse).is_err());
        privileges.restore(&file).unwrap();
        assert_eq!(at::facts(&file).unwrap().permissions, 0o700);
        privileges.set_permissions(0o4700, || at::set_permissions(&file, 0o4700)).unwrap();
        at::set_permissions(&file, 0o700).unwrap();
        assert!(privileges.set_owner(refuse).is_err());
        privileges.restore(&file).unwrap();
        assert_eq!(at::facts(&file).unwrap().permissions, 0o4700);
    }

    #[test]
    fn a_late_write_never_undoes_a_change_of_permissions() {
        let file = tempfile::tempfile().unwrap();
        let privileges = FilePrivileges::default();
        privileges.set_permissions(0o4755, || at::set_permissions(&file, 0o4755)).unwrap();
        std::thread::scope(|scope| {
            let set = || {
                // Meanwhile a late write has taken the bit, and wants to put it back.
                at::set_permissions(&file, 0o755)?;
                let _waits = scope.spawn(|| privileges.restore(&file).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(20));
                at::set_permissions(&file, 0o4700)
            };
            privileges.set_permissions(0o4700, set).unwrap();
        });
        assert_eq!(at::facts(&file).unwrap().permissions, 0o4700);
    }
}
