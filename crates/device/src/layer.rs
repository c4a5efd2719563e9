//! A layer before another device or directory, as the device mapper stacks them: the layer changes some operations and
//! passes all others on.
//!
//! Relies on [`Device`] and [`Directory`] having no method with a default that asks for nothing below: this file passes on
//! every one of them, or it doesn't compile. A layer says only what is different with it.

use std::fs::File;
use std::sync::Arc;

use quire_sys::file::DirectAlignment;
use quire_sys::transfer::Transfer;

use crate::device::{Device, Queue, TakenBytes};
use crate::directory::Directory;
use crate::error::{DeviceError, DeviceOperation};

/// What is different about a device behind a layer. Each hook stands for the method of [`Device`] of its name and is given
/// the device below; by default it passes the operation on.
#[expect(missing_docs, reason = "each hook is documented as the method of `Device` that has its name")]
#[expect(clippy::missing_errors_doc, reason = "as above")]
pub trait Layer: Send + Sync {
    fn len(&self, inner: &dyn Device) -> Result<u64, DeviceError> {
        inner.len()
    }

    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        inner.set_len(len)
    }

    fn allocate(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        inner.allocate(len)
    }

    fn read_at(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        inner.read_at(offset, into)
    }

    fn read_cached(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        inner.read_cached(offset, into)
    }

    fn take_cached(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        inner.take_cached(offset, into)
    }

    fn cached_bytes(&self, inner: &dyn Device, offset: u64, len: u64) -> Option<u64> {
        inner.cached_bytes(offset, len)
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        inner.run(transfer)
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        inner.write_durable(transfer)
    }

    fn queue(&self, inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        inner.queue(depth)
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        inner.flush()
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        inner.flush_data()
    }

    fn as_file<'d>(&self, inner: &'d dyn Device) -> Option<&'d File> {
        inner.as_file()
    }
}

/// A device behind a layer.
pub struct LayeredDevice<L> {
    pub(crate) inner: Arc<dyn Device>,
    pub(crate) layer: L,
}

impl<L: Layer + 'static> LayeredDevice<L> {
    /// Puts `layer` before `inner`.
    #[expect(clippy::new_ret_no_self, reason = "a device behind a layer is used as any other device")]
    pub fn new(inner: Arc<dyn Device>, layer: L) -> Arc<dyn Device> {
        Arc::new(Self { inner, layer })
    }
}

impl<L: Layer> Device for LayeredDevice<L> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.layer.len(&*self.inner)
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.layer.set_len(&*self.inner, len)
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.layer.allocate(&*self.inner, len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        self.layer.read_at(&*self.inner, offset, into)
    }

    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        self.layer.read_cached(&*self.inner, offset, into)
    }

    fn take_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        self.layer.take_cached(&*self.inner, offset, into)
    }

    fn cached_bytes(&self, offset: u64, len: u64) -> Option<u64> {
        self.layer.cached_bytes(&*self.inner, offset, len)
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.layer.run(&*self.inner, transfer)
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.layer.write_durable(&*self.inner, transfer)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        self.layer.queue(&self.inner, depth)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.layer.flush(&*self.inner)
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        self.layer.flush_data(&*self.inner)
    }

    fn alignment(&self) -> DirectAlignment {
        self.inner.alignment()
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }

    fn as_file(&self) -> Option<&File> {
        self.layer.as_file(&*self.inner)
    }
}

/// A directory that stands before another one, whose files stand behind a layer.
pub trait DirectoryLayer: Send + Sync {
    /// The directory below.
    fn inner(&self) -> &dyn Directory;

    /// Puts the layer before a file that the directory below has made or opened.
    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device>;

    /// Before an operation on the file `name`, or on the directory itself, whose name is empty.
    ///
    /// # Errors
    /// The operation fails with this error and does not reach the directory below.
    fn before(&self, action: DeviceOperation, name: &str) -> Result<(), DeviceError> {
        let _ = (action, name);
        Ok(())
    }
}

impl<L: DirectoryLayer> Directory for L {
    fn path_of(&self, name: &str) -> String {
        self.inner().path_of(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.before(DeviceOperation::Create, name)?;
        self.inner().create(name).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.before(DeviceOperation::Open, name)?;
        self.inner().open(name).map(|file| self.wrap(file))
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.before(DeviceOperation::Open, name)?;
        self.inner().open_to_write(name).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.before(DeviceOperation::Rename, from)?;
        self.inner().rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.before(DeviceOperation::Link, from)?;
        self.inner().link(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.before(DeviceOperation::Remove, name)?;
        self.inner().remove(name)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.before(DeviceOperation::SyncDirectory, "")?;
        self.inner().sync()
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.before(DeviceOperation::List, "")?;
        self.inner().list()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner().free_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_file::{CacheMode, of_file};
    use crate::engine::IoEngine;
    use std::sync::Mutex;

    use quire_sys::buffer::Buffer;
    use quire_sys::transfer::{Direction, Extent};

    /// A device that notes which of its methods were called. Its answers are those of no other device here.
    #[derive(Default)]
    struct Recorder {
        calls: Mutex<Vec<&'static str>>,
        file: Option<File>,
    }

    impl Recorder {
        fn note(&self, call: &'static str) {
            self.calls.lock().unwrap().push(call);
        }
    }

    impl Device for Recorder {
        fn name(&self) -> &str {
            self.note("name");
            "recorder"
        }

        fn len(&self) -> Result<u64, DeviceError> {
            self.note("len");
            Ok(77)
        }

        fn set_len(&self, _len: u64) -> Result<(), DeviceError> {
            self.note("set_len");
            Ok(())
        }

        fn allocate(&self, _len: u64) -> Result<(), DeviceError> {
            self.note("allocate");
            Ok(())
        }

        fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Result<usize, DeviceError> {
            self.note("read_at");
            Ok(5)
        }

        fn read_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
            self.note("read_cached");
            Ok(Some(6))
        }

        fn take_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
            self.note("take_cached");
            Ok(Some(TakenBytes { len: 7, is_given_up: true }))
        }

        fn cached_bytes(&self, _offset: u64, _len: u64) -> Option<u64> {
            self.note("cached_bytes");
            Some(8)
        }

        fn run(&self, _transfer: &mut Transfer) -> Result<(), DeviceError> {
            self.note("run");
            Ok(())
        }

        fn write_durable(&self, _transfer: &mut Transfer) -> Result<(), DeviceError> {
            self.note("write_durable");
            Ok(())
        }

        fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
            self.note("queue");
            of_file("null", File::open("/dev/null").unwrap(), CacheMode::Buffered, IoEngine::Threads).queue(depth)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.note("flush");
            Ok(())
        }

        fn flush_data(&self) -> Result<(), DeviceError> {
            self.note("flush_data");
            Ok(())
        }

        fn alignment(&self) -> DirectAlignment {
            self.note("alignment");
            DirectAlignment::NONE
        }

        fn mode(&self) -> &'static str {
            self.note("mode");
            "recorded"
        }

        fn as_file(&self) -> Option<&File> {
            self.note("as_file");
            self.file.as_ref()
        }
    }

    /// A layer without a hook of its own.
    struct Transparent;

    impl Layer for Transparent {}

    #[test]
    fn a_layer_without_hooks_passes_every_operation_on() {
        let recorder = Arc::new(Recorder { file: Some(File::open("/dev/null").unwrap()), ..Recorder::default() });
        let device = LayeredDevice::new(Arc::clone(&recorder) as Arc<dyn Device>, Transparent);
        let buffer = Buffer::new(4096).unwrap();
        let extents = vec![Extent { offset: 0, start: 0, len: 4096 }];
        let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
        assert_eq!((device.name(), device.mode(), device.alignment()), ("recorder", "recorded", DirectAlignment::NONE));
        assert_eq!(device.len(), Ok(77));
        device.set_len(1).unwrap();
        device.allocate(1).unwrap();
        assert_eq!(device.read_at(0, &mut [0; 9]), Ok(5));
        assert_eq!(device.read_cached(0, &mut [0; 9]), Ok(Some(6)));
        let taken = device.take_cached(0, &mut [0; 9]).unwrap();
        assert_eq!((taken.map(|taken| taken.len), device.cached_bytes(0, 9)), (Some(7), Some(8)));
        device.run(&mut transfer).unwrap();
        device.write_durable(&mut transfer).unwrap();
        device.queue(1).unwrap();
        device.flush().unwrap();
        device.flush_data().unwrap();
        assert!(device.as_file().is_some());
        let calls = [
            "name",
            "mode",
            "alignment",
            "len",
            "set_len",
            "allocate",
            "read_at",
            "read_cached",
            "take_cached",
            "cached_bytes",
            "run",
            "write_durable",
            "queue",
            "flush",
            "flush_data",
            "as_file",
        ];
        assert_eq!(*recorder.calls.lock().unwrap(), calls);
    }
}
