//! A block device is a device of fixed size that one user has at a time.
//!
//! Relies on a loop device, which takes root and `losetup`; where there is none these tests have nothing to say.

use std::path::{Path, PathBuf};
use std::process::Command;

use quire_device::{BlockDevice, Completion, DeviceOperation, Direction, IoEngine, errno};

use crate::common::*;

const BLOCKS: usize = 64;

/// A loop device over a file, taken down with the struct.
struct Loop {
    device: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Loop {
    fn new() -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len((BLOCKS * BLOCK) as u64).unwrap();
        let answer = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        match answer {
            Ok(answer) if answer.status.success() => {
                let device = String::from_utf8(answer.stdout).unwrap().trim().into();
                Some(Self { device, file })
            }
            other => {
                quire_sys::testing::skipped(format!("no loop device can be made here: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

#[test]
fn a_block_device_keeps_bytes_and_its_length() {
    let Some(looped) = Loop::new() else { return };
    for (caching, engine) in CACHINGS.into_iter().flat_map(|caching| ENGINES.map(|engine| (caching, engine))) {
        let device = BlockDevice::open_with(&looped.device, caching, engine).unwrap();
        let kind = format!("{caching:?} {engine:?}: {}", device.mode());
        assert_eq!(device.len().unwrap(), (BLOCKS * BLOCK) as u64, "{kind}");
        let mut written = transfer(Direction::Write, &[(7, 3), (63, 1)], engine as u8, 0);
        device.run(&mut written).unwrap();
        device.write_durable(&mut transfer(Direction::Write, &[(0, 1)], 2, 0)).unwrap();
        let mut queue = device.queue(4).unwrap();
        queue.submit_all(vec![transfer(Direction::Read, &[(7, 3)], 0, 0)]);
        let Completion { transfer: read, result } = queue.complete().unwrap();
        result.unwrap();
        assert!(read.buffer[..] == written.buffer[..3 * BLOCK], "{kind}");
        device.flush().unwrap();
        let bytes = contents(&*device);
        assert!(bytes[63 * BLOCK..] == written.buffer[3 * BLOCK..], "{kind}");
        let mut end = [0; 100];
        assert_eq!(device.read_at((BLOCKS * BLOCK - 60) as u64, &mut end).unwrap(), 60, "{kind}");
        assert!(BLOCK.is_multiple_of(device.alignment().offset_bytes), "{kind}");
    }
    let file = std::fs::read(looped.file.path()).unwrap();
    let last = transfer(Direction::Write, &[(7, 3), (63, 1)], IoEngine::Threads as u8, 0);
    assert!(file[7 * BLOCK..10 * BLOCK] == last.buffer[..3 * BLOCK] && file[63 * BLOCK..] == last.buffer[3 * BLOCK..]);
}

#[test]
fn a_block_device_has_one_user_and_one_size() {
    let Some(looped) = Loop::new() else { return };
    let device = BlockDevice::open(&looped.device).unwrap();
    let refused = BlockDevice::open(&looped.device).err().unwrap();
    assert_eq!((refused.action, refused.kind), (DeviceOperation::Open, std::io::ErrorKind::ResourceBusy));
    assert_eq!(device.set_len(1).unwrap_err().errno, Some(errno::EINVAL));
    let size = device.len().unwrap();
    device.allocate(size).unwrap();
    assert!(device.allocate(size + 1).unwrap_err().is_full());
    let beyond = device.run(&mut transfer(Direction::Write, &[(64, 1)], 0, 0)).unwrap_err();
    assert!(beyond.is_full(), "{beyond}");
    drop(device);
    BlockDevice::open_with(&looped.device, Default::default(), IoEngine::Threads).unwrap();
}

#[test]
fn what_is_no_block_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"bytes").unwrap();
    for path in [file.as_path(), folder.path(), Path::new("/dev/null"), Path::new("/no/such/device")] {
        let error = BlockDevice::open(path).err().unwrap();
        assert_eq!(error.action, DeviceOperation::Open, "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"bytes");
}
