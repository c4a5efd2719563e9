//! Two disks that remember everything that was written to them, and when each was told to flush: two files of a file system
//! of their own, made to block devices by `losetup`.
//!
//! Relies on the kernel handing on a block device's flushes as `fsync` of its file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    WriteFlags,
};

use quire_rng::SplitMix64;

/// Names of the two, by number.
pub const NAMES: [&str; 2] = ["slow", "fast"];
const TTL: Duration = Duration::from_secs(3600);
/// The slow disk writes so much whole or not at all, since ext4 can't do with less (its superblock); the fast one so little.
const SECTORS: [usize; 2] = [4096, 512];

/// What happened to a disk.
enum Event {
    Write { disk: usize, offset: usize, bytes: Vec<u8> },
    Flush { disk: usize },
}

#[derive(Default)]
struct State {
    disks: [Vec<u8>; 2],
    events: Vec<Event>,
    /// Writes of sectors full of this byte fail.
    refused: Option<u8>,
    /// Those wait.
    are_held: bool,
    /// Writes that wait.
    waiting: usize,
}

/// All that happened, in order.
#[derive(Clone, Default)]
pub struct History {
    state: Arc<Mutex<State>>,
    released: Arc<Condvar>,
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on writes of sectors full of `byte` fail, and those of no others.
    pub fn refuse(&self, byte: Option<u8>) {
        self.state().refused = byte;
    }

    /// From now on writes that are refused wait before that, or don't any more.
    pub fn hold(&self, are_held: bool) {
        self.state().are_held = are_held;
        self.released.notify_all();
    }

    /// Writes that wait to be refused.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// How much has happened by now.
    pub fn now(&self) -> usize {
        self.state().events.len()
    }

    /// After which events a disk had just been flushed, and before: right in the middle of what came next.
    pub fn cuts(&self) -> Vec<usize> {
        let state = self.state();
        let flushes = state.events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Flush { .. }));
        flushes.flat_map(|(at, _)| [at, at + 1]).collect()
    }

    /// What is on the disks if power goes when `cut` events have happened: everything up to each disk's last flush, and of
    /// what came later whatever the numbers say, in sectors.
    pub fn after_cut(&self, start: &[Vec<u8>; 2], cut: usize, rng: &mut SplitMix64) -> [Vec<u8>; 2] {
        let state = self.state();
        let mut disks = start.clone();
        let events = &state.events[..cut];
        let flushed: [usize; 2] = std::array::from_fn(|number| {
            events.iter().rposition(|event| matches!(event, Event::Flush { disk } if *disk == number)).unwrap_or(0)
        });
        // Nothing, everything, or some of what was not flushed.
        let chance = [0, 4, 2, 3][rng.below(4) as usize];
        for (at, event) in events.iter().enumerate() {
            let Event::Write { disk, offset, bytes } = event else { continue };
            let sure = at < flushed[*disk];
            for (index, sector) in bytes.chunks(SECTORS[*disk]).enumerate() {
                if sure || rng.below(4) < chance {
                    let from = offset + index * SECTORS[*disk];
                    disks[*disk][from..from + sector.len()].copy_from_slice(sector);
                }
            }
        }
        disks
    }
}

/// The file system.
struct Recorder {
    history: History,
}

fn disk_of(number: INodeNo) -> Option<usize> {
    usize::try_from(number.0).ok()?.checked_sub(2).filter(|&disk| disk < NAMES.len())
}

impl Recorder {
    fn attr(&self, number: INodeNo) -> FileAttr {
        let disk = disk_of(number);
        let size = disk.map_or(0, |disk| self.history.state().disks[disk].len() as u64);
        FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if disk.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Recorder {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match NAMES.iter().position(|known| name == *known) {
            Some(disk) => reply.entry(&TTL, &self.attr(INodeNo(disk as u64 + 2)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(number));
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(disk) = disk_of(number) else { return reply.error(Errno::EISDIR) };
        let state = self.history.state();
        let bytes = &state.disks[disk];
        let from = (offset as usize).min(bytes.len());
        reply.data(&bytes[from..(from + len as usize).min(bytes.len())]);
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(disk) = disk_of(number) else { return reply.error(Errno::EISDIR) };
        let mut state = self.history.state();
        let offset = offset as usize;
        if offset + bytes.len() > state.disks[disk].len() {
            return reply.error(Errno::ENOSPC);
        }
        if let Some(byte) = state.refused
            && bytes.chunks(512).any(|sector| sector.iter().all(|&each| each == byte))
        {
            state.waiting += 1;
            let mut state =
                self.history.released.wait_while(state, |state| state.are_held).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            return reply.error(Errno::EIO);
        }
        state.disks[disk][offset..offset + bytes.len()].copy_from_slice(bytes);
        state.events.push(Event::Write { disk, offset, bytes: bytes.to_vec() });
        reply.written(bytes.len() as u32);
    }

    fn fsync(&self, _request: &Request, number: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        if let Some(disk) = disk_of(number) {
            self.history.state().events.push(Event::Flush { disk });
        }
        reply.ok();
    }
}

/// The file system, mounted.
pub struct Recording {
    pub history: History,
    point: PathBuf,
    session: Option<BackgroundSession>,
}

impl Recording {
    /// Mounts it at `point` with these bytes on the disks.
    pub fn start(point: &Path, disks: &[Vec<u8>; 2]) -> Self {
        let history = History::default();
        history.state().disks = disks.clone();
        let recorder = Recorder { history: history.clone() };
        let session = Session::new(recorder, point, &Config::default()).unwrap().spawn().unwrap();
        Self { history, point: point.to_owned(), session: Some(session) }
    }

    pub fn disk(&self, number: usize) -> PathBuf {
        self.point.join(NAMES[number])
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = quire_sys::mounts::unmount(&self.point, true);
        drop(self.session.take());
    }
}
