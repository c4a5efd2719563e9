//! Rights that a program gets by running a file: its capabilities, and the set-id bits.
//!
//! The system takes them from a file when that is written. Bytes reach the directory's file late, so they would be taken from a
//! file that got them after its last write (an installer copies a program and calls `setcap`), and stay for a while where they
//! have to go. So they are taken away when a program writes, and what it gives the file afterwards is put back behind every late write.
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
pub struct Privileges {
    state: Mutex<State>,
}

impl Privileges {
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

    /// A program has given the file these capabilities, or none.
    pub fn set_capabilities(&self, capabilities: Option<Vec<u8>>) {
        self.state().capabilities = capabilities;
    }

    /// The file has these permissions now.
    pub fn set_permissions(&self, permissions: u32) {
        self.state().set_id = permissions & SET_ID;
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
