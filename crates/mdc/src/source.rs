//! The bytes of a checkpoint file that is being restored.
//!
//! Relies on [`FileView`] for mapped files: their bytes are copied and never referred to, since another process may change them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use quire_sys::file_view::FileView;

/// How a checkpoint is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// The file is mapped: the first object is there at once, and each unit is verified when an object of it is read first. The
    /// file must not be truncated meanwhile, which would end the process by SIGBUS.
    #[default]
    Map,
    /// The file is read to memory and all of it is verified first.
    Load,
}

/// All bytes of a file.
#[derive(Debug)]
pub(crate) enum ByteSource {
    Mapped(FileView),
    Loaded(Vec<u8>),
}

impl ByteSource {
    /// The bytes of `file`.
    pub(crate) fn of(file: &File, reading: ReadMode) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if reading == ReadMode::Map && len > 0 {
            return Ok(Self::Mapped(FileView::new(file, len)?));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(len, 0);
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::Loaded(bytes))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Mapped(view) => view.len() as u64,
            Self::Loaded(bytes) => bytes.len() as u64,
        }
    }

    /// Copies bytes from `offset` on; false if they lie outside.
    pub(crate) fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        match self {
            Self::Mapped(view) => view.copy(offset, into),
            Self::Loaded(bytes) => {
                let end = offset.checked_add(into.len());
                let Some(from) = end.and_then(|end| bytes.get(offset..end)) else { return false };
                into.copy_from_slice(from);
                true
            }
        }
    }

    /// The bytes will be asked for soon.
    pub(crate) fn read_ahead(&self, offset: u64, len: usize) {
        if let (Self::Mapped(view), Ok(offset)) = (self, usize::try_from(offset)) {
            view.read_ahead(offset, len);
        }
    }
}
