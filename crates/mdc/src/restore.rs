//! A checkpoint that is read again: the objects come in the order in which they were written.
//!
//! Relies on no byte of the file: header, table and footer are checked when it is opened, a chunk of the log or a unit of the dump before
//! its first use. Addresses in the file are only looked up in its table, so the objects may come to lie anywhere.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use quire_sys::file;
use zerocopy::FromBytes;

use crate::error::{FilePart, RestoreError};
use crate::format::{
    AreaEntry, END_MAGIC, Footer, Header, LOG_OFFSET, MAGIC, PAGE_BYTES, UNIT_BYTES, UNIT_PAGES, UnitEntry, VERSION,
    checksum, log_span, table_bytes,
};
use crate::log_reader::{Fault, LogReader, LogRecord};
use crate::source::{ByteSource, ReadMode};

const PAGE: u64 = PAGE_BYTES as u64;
const UNIT: u64 = UNIT_BYTES as u64;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreInfo {
    /// When it was begun, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Areas of memory.
    pub areas: u64,
    /// Units of the dump.
    pub units: u64,
    /// Length of the file.
    pub file_bytes: u64,
}

/// The object that is being read.
#[derive(Clone, Copy, Debug)]
struct Current {
    record: LogRecord,
    /// Bytes of it that were read.
    done: u64,
}

/// A checkpoint that is being read.
#[derive(Debug)]
pub struct Restore {
    file: String,
    source: ByteSource,
    info: RestoreInfo,
    dump_offset: u64,
    areas: Vec<AreaEntry>,
    units: Vec<UnitEntry>,
    /// Units whose checksum was found right.
    verified: Vec<bool>,
    /// The unit that was used last.
    last: usize,
    scratch: Vec<u8>,
    log: LogReader,
    current: Option<Current>,
}

impl Restore {
    /// Opens a checkpoint and checks its header, table and footer.
    ///
    /// # Errors
    /// There is none, it isn't one, or it is damaged.
    pub fn open(path: &Path, reading: ReadMode) -> Result<Self, RestoreError> {
        let name = path.display().to_string();
        let failed = |call| {
            let file = name.clone();
            move |source| RestoreError::System { file, call, source }
        };
        let file: File = match file::open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(RestoreError::Missing { file: name }),
            other => other.map_err(failed("opening"))?,
        };
        let source = ByteSource::of(&file, reading).map_err(failed("reading"))?;
        let mut made = Self::new(name.clone(), source)?;
        if reading == ReadMode::Load {
            made.verify()?;
        }
        Ok(made)
    }

    /// The checkpoint whose bytes are these; `name` is for messages.
    ///
    /// # Errors
    /// As [`Restore::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, RestoreError> {
        Self::new(name.to_owned(), ByteSource::Loaded(bytes))
    }

    fn new(file: String, source: ByteSource) -> Result<Self, RestoreError> {
        let header = read_header(&file, &source)?;
        let damaged = |(part, what): Fault| RestoreError::Damaged { file: file.clone(), part, what };
        let footer = read_footer(&source, &header).map_err(damaged)?;
        let (areas, units) = read_table(&source, &footer).map_err(damaged)?;
        let info = RestoreInfo {
            created_unix_ms: header.created_unix_ms.get(),
            log_bytes: footer.log_bytes.get(),
            areas: areas.len() as u64,
            units: units.len() as u64,
            file_bytes: source.len(),
        };
        let (dump_offset, log) = (footer.dump_offset.get(), LogReader::new(info.log_bytes));
        let (verified, scratch) = (vec![false; units.len()], vec![0; UNIT_BYTES]);
        let (last, current) = (0, None);
        Ok(Self { file, source, info, dump_offset, areas, units, verified, last, scratch, log, current })
    }

    /// What the checkpoint says of itself.
    pub fn info(&self) -> RestoreInfo {
        self.info
    }

    /// Its path.
    pub fn file(&self) -> &str {
        &self.file
    }

    fn damaged(&self, (part, what): Fault) -> RestoreError {
        RestoreError::Damaged { file: self.file.clone(), part, what }
    }

    /// Verifies all chunks of the log and all units of the dump.
    ///
    /// # Errors
    /// [`RestoreError::Damaged`].
    pub fn verify(&mut self) -> Result<(), RestoreError> {
        let mut log = LogReader::new(self.info.log_bytes);
        for chunk in 0..self.info.log_bytes.div_ceil(crate::format::CHUNK_PAYLOAD as u64) {
            log.load(&self.source, chunk).map_err(|fault| self.damaged(fault))?;
        }
        (0..self.units.len()).try_for_each(|unit| self.verify_unit(unit).map_err(|fault| self.damaged(fault)))
    }

    fn verify_unit(&mut self, unit: usize) -> Result<(), Fault> {
        if self.verified[unit] {
            return Ok(());
        }
        let (part, entry) = (FilePart::Unit(unit as u64), self.units[unit]);
        let offset = self.dump_offset + unit as u64 * UNIT;
        let bytes = &mut self.scratch[..entry.pages.get() as usize * PAGE_BYTES];
        self.source.read_ahead(offset, 4 * UNIT_BYTES);
        if !self.source.copy(offset, bytes) {
            return Err((part, "it lies outside the file".into()));
        }
        if checksum(bytes, entry.start.get()) != entry.checksum.get() {
            return Err((part, "wrong checksum".into()));
        }
        self.verified[unit] = true;
        Ok(())
    }

    /// Reads the next bytes of the objects. Returns how many: fewer than asked for only at the end.
    ///
    /// # Errors
    /// What was written there is damaged. Nothing after that can be read.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, RestoreError> {
        let mut done = 0;
        while done < into.len() {
            let Some(Current { record, done: passed }) = self.current()? else { break };
            let (LogRecord::Value { len } | LogRecord::Reference { len, .. }) = record;
            let part = (into.len() - done).min(usize::try_from(len - passed).unwrap_or(usize::MAX));
            let to = &mut into[done..done + part];
            match record {
                LogRecord::Value { .. } => {
                    let read = self.log.read(&self.source, to);
                    read.map_err(|fault| self.damaged(fault))?;
                }
                LogRecord::Reference { address, .. } => self.copy(address + passed, to)?,
            }
            done += part;
            let passed = passed + part as u64;
            self.current = (passed < len).then_some(Current { record, done: passed });
        }
        Ok(done)
    }

    fn current(&mut self) -> Result<Option<Current>, RestoreError> {
        if self.current.is_none() {
            let next = self.log.next(&self.source).map_err(|fault| self.damaged(fault))?;
            self.current = next.map(|record| Current { record, done: 0 });
        }
        Ok(self.current)
    }

    /// Copies what the program had at `address`.
    fn copy(&mut self, address: u64, into: &mut [u8]) -> Result<(), RestoreError> {
        let len = into.len() as u64;
        let area = self.areas.partition_point(|area| area.end.get() <= address);
        let is_inside = |area: &AreaEntry| area.start.get() <= address && len <= area.end.get() - address;
        if !self.areas.get(area).is_some_and(is_inside) {
            return Err(RestoreError::Unmapped { file: self.file.clone(), address, len });
        }
        let (mut at, mut rest) = (address, into);
        while !rest.is_empty() {
            let unit = self.unit_at(at);
            let (part, contents) = match self.units.get(unit).copied() {
                Some(entry) if entry.start.get() <= at => {
                    self.verify_unit(unit).map_err(|fault| self.damaged(fault))?;
                    let page = (at - entry.start.get()) / PAGE;
                    let has_contents = entry.bitmap.get() >> page & 1 == 1;
                    let offset = self.dump_offset + unit as u64 * UNIT + (at - entry.start.get());
                    (PAGE - at % PAGE, has_contents.then_some(offset))
                }
                // What no unit has reads as zero up to the next unit.
                Some(entry) => (entry.start.get() - at, None),
                None => (u64::MAX, None),
            };
            let part = usize::try_from(part).unwrap_or(usize::MAX).min(rest.len());
            let (to, left) = std::mem::take(&mut rest).split_at_mut(part);
            match contents {
                None => to.fill(0),
                Some(offset) if self.source.copy(offset, to) => {}
                Some(_) => return Err(self.damaged((FilePart::Unit(unit as u64), "it lies outside the file".into()))),
            }
            (at, rest) = (at + part as u64, left);
        }
        Ok(())
    }

    /// The unit with `address`, or the next one.
    fn unit_at(&mut self, address: u64) -> usize {
        let holds = |unit: &UnitEntry| (unit.start.get()..unit_end(unit)).contains(&address);
        if !self.units.get(self.last).is_some_and(holds) {
            self.last = self.units.partition_point(|unit| unit_end(unit) <= address);
        }
        self.last
    }
}

/// One past the last address. The table's check has found that it doesn't overflow.
fn unit_end(unit: &UnitEntry) -> u64 {
    unit.start.get().saturating_add(u64::from(unit.pages.get()) * PAGE)
}

fn read_header(file: &str, source: &ByteSource) -> Result<Header, RestoreError> {
    let mut found = [0; 8];
    let mut bytes = [0; PAGE_BYTES];
    let start = source.len().min(8) as usize;
    source.copy(0, &mut found[..start]);
    if found != MAGIC {
        return Err(RestoreError::Foreign { file: file.into(), found });
    }
    let damaged = |what: &str| RestoreError::Damaged { file: file.into(), part: FilePart::Header, what: what.into() };
    if !source.copy(0, &mut bytes) {
        return Err(damaged("the file ends within it"));
    }
    let header = Header::read_from_bytes(&bytes).map_err(|_| damaged("no header"))?;
    if header.checksum.get() != header.own_checksum() {
        return Err(damaged("wrong checksum"));
    }
    if header.version.get() != VERSION {
        return Err(RestoreError::Version { file: file.into(), found: header.version.get(), known: VERSION });
    }
    let sizes = (header.page_bytes.get() as usize, header.unit_bytes.get() as usize, header.flags.get());
    if sizes != (PAGE_BYTES, UNIT_BYTES, 0) {
        return Err(damaged("sizes or flags that this version does not have"));
    }
    Ok(header)
}

fn read_footer(source: &ByteSource, header: &Header) -> Result<Footer, Fault> {
    let fault = |what: &str| (FilePart::Footer, what.to_owned());
    let mut bytes = [0; PAGE_BYTES];
    let offset = source.len().checked_sub(PAGE).filter(|&offset| offset >= PAGE);
    let offset = offset.ok_or_else(|| fault("the file is too short"))?;
    source.copy(offset, &mut bytes);
    let footer = Footer::read_from_bytes(&bytes).map_err(|_| fault("no footer"))?;
    if footer.magic != END_MAGIC {
        return Err(fault("it is missing: the file was cut off"));
    }
    if footer.checksum.get() != footer.own_checksum() {
        return Err(fault("wrong checksum"));
    }
    if footer.header_checksum.get() != header.checksum.get() {
        return Err(fault("it belongs to another header"));
    }
    let dump = log_span(footer.log_bytes.get()).and_then(|span| span.checked_add(LOG_OFFSET));
    let table = dump.zip(footer.unit_count.get().checked_mul(UNIT)).and_then(|(dump, units)| dump.checked_add(units));
    let len = table_bytes(footer.area_count.get(), footer.unit_count.get());
    let end = table.zip(len).and_then(|(table, len)| table.checked_add(len));
    let agrees = dump == Some(footer.dump_offset.get())
        && table == Some(footer.table_offset.get())
        && end == Some(offset)
        && footer.file_bytes.get() == source.len();
    if agrees { Ok(footer) } else { Err(fault("its sizes don't agree with each other or with the file")) }
}

fn read_table(source: &ByteSource, footer: &Footer) -> Result<(Vec<AreaEntry>, Vec<UnitEntry>), Fault> {
    let fault = |what: &str| (FilePart::Table, what.to_owned());
    let (area_count, unit_count) = (footer.area_count.get(), footer.unit_count.get());
    // It ends before the footer, so it is no longer than the file.
    let len = table_bytes(area_count, unit_count).and_then(|len| usize::try_from(len).ok());
    let (len, mut bytes) = (len.ok_or_else(|| fault("it is too long"))?, Vec::new());
    // A file with holes may say that it is longer than memory.
    bytes.try_reserve_exact(len).map_err(|_| fault("there is no memory for it"))?;
    bytes.resize(len, 0);
    if !source.copy(footer.table_offset.get(), &mut bytes) {
        return Err(fault("it lies outside the file"));
    }
    if checksum(&bytes, 0) != footer.table_checksum.get() {
        return Err(fault("wrong checksum"));
    }
    let (first, second) = bytes.split_at(area_count as usize * size_of::<AreaEntry>());
    let areas: Vec<AreaEntry> =
        first.chunks_exact(size_of::<AreaEntry>()).filter_map(|entry| AreaEntry::read_from_bytes(entry).ok()).collect();
    let units = second.chunks_exact(size_of::<UnitEntry>()).take(unit_count as usize);
    let units: Vec<UnitEntry> = units.filter_map(|entry| UnitEntry::read_from_bytes(entry).ok()).collect();
    let whole = |address: u64| address.is_multiple_of(PAGE);
    let mut last = 0;
    for area in &areas {
        let (start, end) = (area.start.get(), area.end.get());
        if start < last || start >= end || !whole(start) || !whole(end) {
            return Err(fault("its areas are in no order"));
        }
        last = end;
    }
    let (mut last, mut area) = (0, 0);
    for unit in &units {
        let (start, pages) = (unit.start.get(), u64::from(unit.pages.get()));
        while areas.get(area).is_some_and(|area| area.end.get() <= start) {
            area += 1;
        }
        let is_inside = |area: &AreaEntry| area.start.get() <= start && pages * PAGE <= area.end.get() - start;
        let is_sized = pages > 0 && pages <= UNIT_PAGES as u64;
        let bits = if pages >= 64 { u64::MAX } else { (1 << pages) - 1 };
        let bitmap = unit.bitmap.get();
        if start < last || !whole(start) || !is_sized || bitmap & !bits != 0 || !areas.get(area).is_some_and(is_inside)
        {
            return Err(fault("a unit lies outside the areas, or in no order"));
        }
        last = start + pages * PAGE;
    }
    Ok((areas, units))
}
