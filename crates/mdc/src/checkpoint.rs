//! A checkpoint: begun, written to object by object, ended.
//!
//! Relies on the process that makes it changing none of the referenced objects until the end. What is worked with lies in memory of
//! its own ([`ReservedBox`]), because the program's memory, its allocator's included, may be exchanged for the file.

use std::ffi::CStr;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use quire_sys::dump_file::DumpFile;
use quire_sys::pagemap::Pagemap;
use quire_sys::this_thread;
use quire_sys::write_queue::WriteQueue;
use zerocopy::IntoBytes;

use crate::address_space::{AddressContent, AddressSpace};
use crate::dump::{BUFFERS, Dump, ExcludedRanges, MappingCounter};
use crate::dump_table::DumpTable;
use crate::error::CheckpointError;
use crate::format::{self, END_MAGIC, Footer, Header, LOG_OFFSET, MOST_OBJECT_BYTES, PAGE_BYTES, UNIT_BYTES};
use crate::log_writer::LogWriter;
use crate::reserved::{ReservedBox, ReservedSlice};
use crate::target::DumpTarget;

/// Objects of no more bytes are written as their bytes: an address would be as long.
const SMALL_BYTES: usize = 8;
/// A stack reaches no further up from where its thread is.
const STACK_BYTES: usize = 16 << 20;
/// The frames of the dump lie that close to each other, and so do the C library's variables of a thread.
const NEAR_BYTES: usize = 256 << 10;

/// How a checkpoint is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Memory is given back as it is written: for a forked child, which has one thread.
    pub gives_back: bool,
}

/// How an object is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassMode {
    /// Its bytes are copied to the log now.
    Value,
    /// Its address is logged; its bytes are dumped at the end, unless it is small or lies where memory isn't dumped.
    Reference,
}

/// What a checkpoint was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the pages that were dumped.
    pub dumped_bytes: u64,
    /// Bytes of memory that were given back.
    pub given_back_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Areas of memory that were dumped.
    pub areas: u64,
}

struct State<T> {
    target: T,
    log: LogWriter,
    space: AddressSpace,
    /// The header, later the footer.
    page: ReservedSlice<u8>,
    header_checksum: u64,
    options: CheckpointOptions,
    has_failed: bool,
    is_published: bool,
}

/// A checkpoint that is under way. If it is dropped before its end, nothing has happened.
pub struct Checkpoint<T: DumpTarget = DumpFile>(ReservedBox<State<T>>);

impl Checkpoint {
    /// Begins a checkpoint that takes the place of the file `path` at its end.
    ///
    /// # Errors
    /// The file can't be written, or memory can't be given back here.
    pub fn start(path: &CStr, options: CheckpointOptions) -> Result<Self, CheckpointError> {
        let target = DumpFile::create(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => CheckpointError::Busy,
            _ => CheckpointError::System { call: "creating the temporary file", source },
        })?;
        Self::start_on(target, options)
    }
}

impl<T: DumpTarget> Checkpoint<T> {
    /// Begins a checkpoint on a file that its maker has created.
    ///
    /// # Errors
    /// As [`Checkpoint::start`]; the file is removed.
    pub fn start_on(mut target: T, options: CheckpointOptions) -> Result<Self, CheckpointError> {
        match prepare(options) {
            Ok((log, space, page)) => {
                let (header_checksum, has_failed, is_published) = (0, false, false);
                let state = State { target, log, space, page, header_checksum, options, has_failed, is_published };
                let mut made = Self(ReservedBox::new(state).map_err(CheckpointError::system("taking memory"))?);
                made.0.write_header()?;
                Ok(made)
            }
            Err(error) => {
                target.remove();
                Err(error)
            }
        }
    }

    /// Writes an object.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read, or they aren't mapped at all and `passing` is a reference. A referenced object stays
    /// mapped and as it is until the checkpoint ends, as far as this process is concerned.
    ///
    /// # Errors
    /// The file can't be written; then every later call fails, too. Or the object isn't in memory.
    pub unsafe fn write(&mut self, from: *const u8, len: usize, passing: PassMode) -> Result<(), CheckpointError> {
        if self.0.has_failed {
            return Err(CheckpointError::Failed);
        }
        if len > MOST_OBJECT_BYTES {
            return Err(CheckpointError::TooLong { len });
        }
        if len == 0 {
            return Ok(());
        }
        // SAFETY: `write` demands what `State::write` does.
        let done = unsafe { self.0.write(from, len, passing) };
        self.0.has_failed |= matches!(done, Err(CheckpointError::System { .. }));
        done
    }

    /// Dumps the memory in which referenced objects lie and puts the file in place of the older one.
    ///
    /// # Safety
    /// If memory is given back: the process is a forked child, of whose memory no other process holds a mapping that it writes to
    /// by itself (`vfork`, `clone` with `CLONE_VM`); it has one thread; and no memory that the program asked the kernel to write to
    /// (asynchronous reads) lies in the areas. The memory reads as before afterwards, from the file.
    ///
    /// # Errors
    /// The file can't be written; the older one is untouched, but for [`CheckpointError::NotDurable`].
    pub unsafe fn end(mut self) -> Result<CheckpointSummary, CheckpointError> {
        if self.0.has_failed {
            return Err(CheckpointError::Failed);
        }
        let own = self.0.range();
        // SAFETY: `State::end` demands what this function demands of its caller (a forked child with one thread and memory of its own,
        // if memory is given back), and `own` to be where the state lies: `range` has just said so, and `self` doesn't move any more.
        unsafe { self.0.end(own) }
    }
}

impl<T: DumpTarget> Drop for Checkpoint<T> {
    fn drop(&mut self) {
        if !self.0.is_published {
            self.0.target.remove();
        }
    }
}

fn prepare(options: CheckpointOptions) -> Result<(LogWriter, AddressSpace, ReservedSlice<u8>), CheckpointError> {
    if options.gives_back {
        let count = this_thread::count().map_err(CheckpointError::system("counting threads in /proc/self/task"))?;
        if count != 1 {
            return Err(CheckpointError::Threads { count });
        }
    }
    let log = LogWriter::new().map_err(CheckpointError::system("taking memory"))?;
    let space = AddressSpace::read().map_err(CheckpointError::system("reading /proc/self/maps"))?;
    let page = ReservedSlice::new(PAGE_BYTES).map_err(CheckpointError::system("taking memory"))?;
    Ok((log, space, page))
}

/// Where the stack of this thread is, from where it is now.
fn stack() -> Range<usize> {
    let here = this_thread::stack_address();
    here..here.saturating_add(STACK_BYTES)
}

fn near(address: usize) -> Range<usize> {
    address.saturating_sub(NEAR_BYTES)..address.saturating_add(NEAR_BYTES)
}

impl<T: DumpTarget> State<T> {
    fn write_header(&mut self) -> Result<(), CheckpointError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64);
        let header = Header::new(now);
        self.header_checksum = header.checksum.get();
        self.page.copy_from_slice(header.as_bytes());
        self.target.write(&self.page, 0).map_err(CheckpointError::system("writing the header"))
    }

    /// # Safety
    /// As [`Checkpoint::write`].
    unsafe fn write(&mut self, from: *const u8, len: usize, passing: PassMode) -> Result<(), CheckpointError> {
        if passing == PassMode::Reference && len > SMALL_BYTES {
            let address = from as usize;
            let place = self.space.reference(address, len, &stack());
            match place.map_err(CheckpointError::system("reading /proc/self/maps"))? {
                AddressContent::Dumpable => {
                    let done = self.log.put_reference(&mut self.target, address as u64, len);
                    return done.map_err(CheckpointError::system("writing the log"));
                }
                AddressContent::Other => {}
                AddressContent::Nowhere => return Err(CheckpointError::NotMapped { address, len }),
            }
        }
        // SAFETY: `put_value` demands `len` readable bytes at `from`: `/proc/self/maps` has just shown them to be mapped, or they are passed by
        // value, and then this function demands them of its caller.
        let done = unsafe { self.log.put_value(&mut self.target, from, len) };
        done.map_err(CheckpointError::system("writing the log"))
    }

    /// # Safety
    /// As [`Checkpoint::end`]; this state lies at `own`.
    unsafe fn end(&mut self, own: Range<usize>) -> Result<CheckpointSummary, CheckpointError> {
        let log_bytes = self.log.finish(&mut self.target).map_err(CheckpointError::system("writing the log"))?;
        self.space.refresh().map_err(CheckpointError::system("reading /proc/self/maps"))?;
        let ranges = self.space.referenced();
        let mut table = DumpTable::of(ranges.clone()).map_err(CheckpointError::system("taking memory"))?;
        let offset = LOG_OFFSET + format::log_span(log_bytes).unwrap_or(0);
        let queue = WriteQueue::new(BUFFERS, UNIT_BYTES).map_err(CheckpointError::system("taking memory"))?;
        let kept = self.options.gives_back.then(|| {
            let mut kept = ExcludedRanges::default();
            let variables = this_thread::variables_address();
            for range in [own, table.range(), queue.range(), self.log.range(), self.page.range()] {
                kept.add(range);
            }
            self.space.ranges().into_iter().for_each(|range| kept.add(range));
            kept.add(near(this_thread::stack_address()));
            kept.add(near(variables));
            kept
        });
        let pagemap = Pagemap::open(None).ok();
        let (target, pages, released, pieces) = (&mut self.target, 0, 0, MappingCounter::default());
        let mut dump = Dump { target, table: &mut table, offset, queue, pagemap, kept, pages, released, pieces };
        for area in ranges {
            // SAFETY: `Dump::dump` demands a readable area: the kernel has just told that it is dumpable memory. Where memory is given back,
            // it also demands one thread, which this function demands of its caller, and that `kept` has all that changes meanwhile:
            // that is what this module works with, the stack, and the C library's variables.
            unsafe { dump.dump(&area) }?;
        }
        let (dumped, given_back_bytes) = (dump.pages * PAGE_BYTES as u64, dump.released);
        let file_bytes = self.write_table(&table, log_bytes, offset)?;
        self.publish()?;
        let areas = table.areas();
        Ok(CheckpointSummary { log_bytes, dumped_bytes: dumped, given_back_bytes, file_bytes, areas })
    }

    /// Returns the length of the file.
    fn write_table(&mut self, table: &DumpTable, log_bytes: u64, dump_offset: u64) -> Result<u64, CheckpointError> {
        let table_offset = dump_offset + table.units() * UNIT_BYTES as u64;
        let bytes = table.bytes();
        let footer_offset = table_offset + bytes.len() as u64;
        let file_bytes = footer_offset + PAGE_BYTES as u64;
        let mut footer = Footer {
            log_bytes: log_bytes.into(),
            dump_offset: dump_offset.into(),
            unit_count: table.units().into(),
            area_count: table.areas().into(),
            table_offset: table_offset.into(),
            table_checksum: format::checksum(bytes, 0).into(),
            header_checksum: self.header_checksum.into(),
            file_bytes: file_bytes.into(),
            unused: [0; 4016],
            magic: END_MAGIC,
            checksum: 0.into(),
        };
        footer.checksum = footer.own_checksum().into();
        if !bytes.is_empty() {
            self.target.write(bytes, table_offset).map_err(CheckpointError::system("writing the table"))?;
        }
        self.page.copy_from_slice(footer.as_bytes());
        self.target.write(&self.page, footer_offset).map_err(CheckpointError::system("writing the footer"))?;
        Ok(file_bytes)
    }

    /// All bytes are durable before the name leads to them, and the name before the caller hears of it.
    fn publish(&mut self) -> Result<(), CheckpointError> {
        self.target.flush().map_err(CheckpointError::system("flushing the file"))?;
        self.target.rename().map_err(CheckpointError::system("renaming the temporary file"))?;
        self.is_published = true;
        self.target.flush_names().map_err(|source| CheckpointError::NotDurable { source })
    }
}
