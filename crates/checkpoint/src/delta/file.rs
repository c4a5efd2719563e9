//! A delta, opened and checked: everything but the bytes of its pages.
//!
//! Relies on [`crate::delta::format`] for what must be true of a file.

use std::mem::offset_of;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use quire_device::{Buffer, Device, DeviceError, Direction, Directory, Extent, Transfer};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use zerocopy::{FromBytes, IntoBytes};

use crate::compression::{Codec, CompressionInfo, Decompressor, UnpackError};
use crate::delta::MAX_DELTA_PAGES;
use crate::delta::format::{
    DeltaEntry, DeltaFooter, DeltaHeader, DeltaLayout, MAGIC, VERSION, VERSION_COMPRESSED, present_pages, ranks_in,
    regions_of, table_checksum,
};
use crate::error::{ImageError, ImagePart, no_buffers};
use crate::format::{END_MAGIC, LinkId, MAX_PAGES, StoredRegion, page_sum};
use crate::image::ImageReader;
use crate::regions::DEPTH;

/// Pages that are read at once.
const SPAN_PAGES: usize = REGION_SIZE / PAGE_SIZE;

/// A delta whose header, table and footer are sound.
pub(crate) struct Delta {
    device: Arc<dyn Device>,
    pub(crate) header: DeltaHeader,
    pub(crate) id: LinkId,
    /// All changed pages in rising order.
    pub(crate) entries: Vec<DeltaEntry>,
    /// Regions with changed pages in rising order, and how each is stored; empty if none may be compressed.
    stored: Vec<(u32, StoredRegion)>,
}

/// What a table says of pages, and of regions.
struct Table {
    entries: Vec<DeltaEntry>,
    stored: Vec<(u32, StoredRegion)>,
}

impl Delta {
    /// The header of the delta `name`, and its file.
    pub(crate) fn header(directory: &dyn Directory, name: &str) -> Result<(Arc<dyn Device>, DeltaHeader), ImageError> {
        let device = directory.open(name)?;
        let header = read_header(&ImageReader { device: &*device })?;
        Ok((device, header))
    }

    /// Whether the file `name` begins as a delta does, damaged or not.
    pub(crate) fn looks_like_one(directory: &dyn Directory, name: &str) -> Result<bool, DeviceError> {
        let mut bytes = [0; PAGE_SIZE];
        directory.open(name)?.read_at(0, &mut bytes)?;
        let header = DeltaHeader::read_from_bytes(&bytes).expect("a header is a page");
        Ok(header.magic == MAGIC || (DeltaHeader { magic: MAGIC, ..header }).is_sound())
    }

    /// The epoch that the delta `name` tells of itself, damaged or not; `None` if it tells none, or is of other data than that of
    /// `history`. 0 is any data.
    pub(crate) fn told_epoch(directory: &dyn Directory, name: &str, history: u64) -> Option<u64> {
        let device = directory.open(name).ok()?;
        let file = ImageReader { device: &*device };
        if let Ok(header) = read_header(&file) {
            let is_own = history == 0 || header.history.get() == history;
            return is_own.then_some(header.epoch.get());
        }
        let start = device.len().ok()?.checked_sub(PAGE_SIZE as u64)?;
        footer_at(&file, start).ok().map(|footer| footer.epoch.get())
    }

    /// Checks the rest of the delta in `device`.
    pub(crate) fn open(device: Arc<dyn Device>, header: DeltaHeader) -> Result<Self, ImageError> {
        let file = ImageReader { device: &*device };
        let layout = header.layout();
        let file_bytes = device.len()?;
        if file_bytes != layout.file_bytes() {
            let wanted = layout.file_bytes();
            let offset = file_bytes.min(wanted);
            let what = format!("the file has {file_bytes} bytes instead of {wanted}");
            return Err(file.damaged(layout.part_at(offset), offset, what));
        }
        let footer = read_footer(&file, layout, &header)?;
        let Table { entries, stored } = read_table(&file, layout, &header, &footer)?;
        let delta = Self { id: footer.id(), device, header, entries, stored };
        delta.check_stored(layout)?;
        Ok(delta)
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    pub(crate) fn file(&self) -> &str {
        self.device.name()
    }

    /// Pages with content.
    pub(crate) fn present_pages(&self) -> u64 {
        present_pages(&self.entries)
    }

    /// Bytes of the file, holes counted.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.header.layout().file_bytes()
    }

    /// How the pages of `region` are stored.
    pub(crate) fn stored_in(&self, region: u32) -> StoredRegion {
        let found = self.stored.binary_search_by_key(&region, |(region, _)| *region);
        found.map_or_else(|_| StoredRegion::default(), |at| self.stored[at].1)
    }

    /// What compression has made of the pages.
    pub(crate) fn compression(&self) -> CompressionInfo {
        let raw_bytes = |region| present_pages(&self.entries[self.ranks_in(region)]) * PAGE_SIZE as u64;
        let compressed = self.stored.iter().map(|(region, stored)| (*stored, raw_bytes(*region)));
        CompressionInfo::new(self.present_pages() * PAGE_SIZE as u64, compressed)
    }

    /// Ranks of the pages of `region` from the first to the last one with content: what is compressed together.
    pub(crate) fn span_in(&self, region: u32) -> Range<usize> {
        let ranks = self.ranks_in(region);
        let is_present = |entry: &DeltaEntry| entry.present.get() != 0;
        let entries = &self.entries[ranks.clone()];
        match (entries.iter().position(is_present), entries.iter().rposition(is_present)) {
            (Some(first), Some(last)) => ranks.start + first..ranks.start + last + 1,
            _ => ranks.start..ranks.start,
        }
    }

    /// Sees to it that what the table says of each region can be true, and that its codec is known.
    fn check_stored(&self, layout: DeltaLayout) -> Result<(), ImageError> {
        let table_start = layout.table_offset() + (self.entries.len() * size_of::<DeltaEntry>()) as u64;
        let place_of = |at: usize| table_start + (at * size_of::<StoredRegion>()) as u64;
        // First, as what a codec of a newer version needs is not known.
        for (at, (region, stored)) in self.stored.iter().enumerate() {
            let codec = stored.codec.get();
            if !stored.is_plain() && Codec::of_number(codec).is_none() {
                let (file, part, offset) = (self.file().to_owned(), ImagePart::Table, place_of(at));
                return Err(ImageError::UnknownCodec { file, region: *region, codec, part, offset });
            }
        }
        for (at, (region, stored)) in self.stored.iter().enumerate() {
            if let Some(what) = stored.nonsense(self.span_in(*region).len()) {
                let what = format!("region {region} {what}");
                return Err(ImageReader { device: &*self.device }.damaged(ImagePart::Table, place_of(at), what));
            }
        }
        Ok(())
    }

    /// What is read at once, each part with how it is stored: a compressed region, or pages that are as they are.
    fn parts(&self) -> Vec<(Range<usize>, StoredRegion)> {
        let mut parts: Vec<(Range<usize>, StoredRegion)> = Vec::new();
        let mut next = 0;
        for (region, stored) in self.stored.iter().filter(|(_, stored)| !stored.is_plain()) {
            let span = self.span_in(*region);
            parts.extend(plain_parts(next..span.start));
            next = span.end;
            parts.push((span, *stored));
        }
        parts.extend(plain_parts(next..self.entries.len()));
        parts
    }

    /// Where pages that are `stored` together lie in the file, to be read to the start of a buffer.
    pub(crate) fn extent(&self, ranks: &Range<usize>, stored: &StoredRegion) -> Extent {
        let len = if stored.is_plain() { ranks.len() * PAGE_SIZE } else { stored.padded_bytes() };
        Extent { offset: self.offset_of(ranks.start as u32), start: 0, len }
    }

    /// Reads all pages with content, several at once, and checks them. Returns their bytes; adds what is wrong to `damage`.
    pub(crate) fn verify(&self, damage: &mut Vec<ImageError>) -> Result<u64, ImageError> {
        self.verify_until(damage, &mut |_, _| ControlFlow::Continue(()))
    }

    /// As [`Delta::verify`], until `on_progress`, which is told parts done and in all, breaks it off.
    pub(crate) fn verify_until(
        &self,
        damage: &mut Vec<ImageError>,
        on_progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<u64, ImageError> {
        let mut queue = self.device.queue(DEPTH)?;
        let mut free = Buffer::several(DEPTH, REGION_SIZE).map_err(|_| no_buffers(self.file()))?;
        let parts = self.parts();
        let mut next = parts.iter().enumerate();
        let mut decompressor = Decompressor::default();
        let (mut read, mut flow) = (0, ControlFlow::Continue(()));
        while flow.is_continue() {
            while let Some(buffer) = free.pop() {
                let Some((number, (ranks, stored))) = next.next() else { break };
                let extents = vec![self.extent(ranks, stored)];
                queue.submit(Transfer { direction: Direction::Read, buffer, extents, tag: number as u64 });
            }
            let Some(done) = queue.complete() else { break };
            let (ranks, stored) = &parts[done.transfer.tag as usize];
            done.result.map_err(|source: DeviceError| ImageError::Unreadable { part: ImagePart::Data, source })?;
            let mut buffer = done.transfer.buffer;
            damage.extend(
                self.unpack_and_check(ranks, stored, &mut decompressor, &mut buffer).unwrap_or_else(|lost| vec![lost]),
            );
            free.push(buffer);
            read += 1;
            flow = on_progress(read, parts.len() as u64);
        }
        Ok(self.present_pages() * PAGE_SIZE as u64)
    }

    /// Has the pages of `ranks`, which were read as `stored` to the start of `buffer`, as they were written. Tells what is wrong with
    /// pages that are there all the same.
    ///
    /// # Errors
    /// They do not unpack, so none of them is there.
    pub(crate) fn unpack_and_check(
        &self,
        ranks: &Range<usize>,
        stored: &StoredRegion,
        decompressor: &mut Decompressor,
        buffer: &mut [u8],
    ) -> Result<Vec<ImageError>, ImageError> {
        let bytes = &mut buffer[..ranks.len() * PAGE_SIZE];
        if let Err(UnpackError { what, is_lost }) = decompressor.unpack(stored, bytes) {
            let region = self.entries[ranks.start].page.get() / PAGES_PER_REGION as u32;
            let lost = if is_lost { "; its changes are lost, only what is below this delta is left" } else { "" };
            let what = format!("the pages of region {region}: {what}{lost}");
            let offset = self.offset_of(ranks.start as u32);
            let damage = ImageReader { device: &*self.device }.damaged(ImagePart::Data, offset, what);
            return if is_lost { Err(damage) } else { Ok(vec![damage]) };
        }
        let pages = ranks.clone().zip(bytes.chunks(PAGE_SIZE));
        // Pages that a newer delta has, too: a save that follows must not stand on damage.
        let damage = pages
            .filter(|(rank, _)| self.entries[*rank].present.get() != 0)
            .filter_map(|(rank, page)| self.check(rank, stored, ranks.start, page));
        Ok(damage.collect())
    }

    /// Ranks of the pages in `region`.
    pub(crate) fn ranks_in(&self, region: u32) -> Range<usize> {
        ranks_in(&self.entries, region)
    }

    /// Where the page of a rank lies.
    pub(crate) fn offset_of(&self, rank: u32) -> u64 {
        DeltaLayout::new(0).page_offset(rank as usize)
    }

    /// What is wrong with the content of the page of a rank. A compressed one is told with the byte where its region begins.
    fn check(&self, rank: usize, stored: &StoredRegion, first: usize, bytes: &[u8]) -> Option<ImageError> {
        let (page, wanted) = (self.entries[rank].page.get(), self.entries[rank].sum.get());
        let sum = page_sum(page, bytes);
        if sum == wanted {
            return None;
        }
        let what = format!("the checksum of page {page} is {sum:016x}, but {wanted:016x} was written");
        let offset = self.offset_of(if stored.is_plain() { rank } else { first } as u32);
        Some(ImageReader { device: &*self.device }.damaged(ImagePart::Data, offset, what))
    }
}

/// Pages as they are, in parts that are read at once.
fn plain_parts(ranks: Range<usize>) -> impl Iterator<Item = (Range<usize>, StoredRegion)> {
    let end = ranks.end;
    ranks.step_by(SPAN_PAGES).map(move |start| (start..end.min(start + SPAN_PAGES), StoredRegion::default()))
}

fn read_header(file: &ImageReader<'_>) -> Result<DeltaHeader, ImageError> {
    let bytes = file.read(ImagePart::Header, 0, PAGE_SIZE)?;
    let header = DeltaHeader::read_from_bytes(&bytes).expect("a header is a page");
    let wrong = |offset: u64, what: String| Err(file.damaged(ImagePart::Header, offset, what));
    if header.magic != MAGIC {
        return wrong(0, "its first bytes are not a delta's".into());
    }
    // As with images: a later version may have its checksum elsewhere.
    let known = [VERSION, VERSION_COMPRESSED];
    let sound_as = |version: u32| (DeltaHeader { version: version.into(), ..header }).is_sound();
    if !known.contains(&header.version.get()) && !known.into_iter().any(sound_as) {
        let file = file.device.name().to_owned();
        return Err(ImageError::Version { file, found: header.version.get(), known: VERSION_COMPRESSED });
    }
    if !header.is_sound() {
        return wrong(4088, "the header's checksum doesn't fit its bytes".into());
    }
    if header.page_bytes.get() as usize != PAGE_SIZE {
        return wrong(12, format!("pages of {} bytes, this program has {PAGE_SIZE}", header.page_bytes));
    }
    if header.flags.get() != 0 {
        return wrong(16, format!("unknown flags {:#x}", header.flags.get()));
    }
    if header.page_count.get() > MAX_PAGES {
        return wrong(20, format!("{} pages, more than {MAX_PAGES}", header.page_count));
    }
    if header.changed_pages.get() > header.page_count.get().min(MAX_DELTA_PAGES) {
        return wrong(68, format!("{} of {} pages have changed", header.changed_pages, header.page_count));
    }
    let most = header.changed_pages.get().min(header.page_count.get().div_ceil(PAGES_PER_REGION as u32));
    if header.is_compressed() && header.changed_regions.get() > most {
        return wrong(136, format!("{} regions of {} pages", header.changed_regions, header.changed_pages));
    }
    if !header.is_compressed() {
        let at = offset_of!(DeltaHeader, changed_regions) as u64;
        file.check_unused(ImagePart::Header, at, header.changed_regions.as_bytes())?;
    }
    file.check_unused(ImagePart::Header, offset_of!(DeltaHeader, unused) as u64, &header.unused)?;
    Ok(header)
}

/// A footer at `start` that agrees with itself.
fn footer_at(file: &ImageReader<'_>, start: u64) -> Result<DeltaFooter, ImageError> {
    let bytes = file.read(ImagePart::Footer, start, PAGE_SIZE)?;
    let footer = DeltaFooter::read_from_bytes(&bytes).expect("a footer is a page");
    let wrong = |offset: u64, what: &str| Err(file.damaged(ImagePart::Footer, start + offset, what.into()));
    if footer.end_magic != END_MAGIC {
        return wrong(4088, "the mark at the end is missing: the delta was not completed");
    }
    if footer.checksum.get() != footer.own_checksum() {
        return wrong(4080, "the footer's checksum doesn't fit its bytes");
    }
    file.check_unused(ImagePart::Footer, start + offset_of!(DeltaFooter, unused) as u64, &footer.unused)?;
    Ok(footer)
}

fn read_footer(file: &ImageReader<'_>, layout: DeltaLayout, header: &DeltaHeader) -> Result<DeltaFooter, ImageError> {
    let start = layout.footer_offset();
    let footer = footer_at(file, start)?;
    let wrong = |offset: u64, what: &str| Err(file.damaged(ImagePart::Footer, start + offset, what.into()));
    if footer.table_offset.get() != layout.table_offset() || footer.table_bytes.get() != layout.table_bytes() as u64 {
        return wrong(0, "the table is said to lie elsewhere");
    }
    if footer.epoch != header.epoch || footer.header_checksum != header.checksum {
        return wrong(24, "header and footer belong to different deltas");
    }
    Ok(footer)
}

fn read_table(
    file: &ImageReader<'_>,
    layout: DeltaLayout,
    header: &DeltaHeader,
    footer: &DeltaFooter,
) -> Result<Table, ImageError> {
    let start = layout.table_offset();
    let bytes = file.read(ImagePart::Table, start, layout.table_bytes())?;
    let wrong = |offset: usize, what: String| Err(file.damaged(ImagePart::Table, start + offset as u64, what));
    let count = header.changed_pages.get() as usize;
    let used = layout.table_used_bytes();
    let (entries, stored) = bytes[..used].split_at(count * size_of::<DeltaEntry>());
    let entries = <[DeltaEntry]>::ref_from_bytes(entries).expect("the entries are whole").to_vec();
    let stored = <[StoredRegion]>::ref_from_bytes(stored).expect("the entries are whole");
    if table_checksum(&entries, stored) != footer.table_checksum.get() {
        return wrong(0, "the table's checksum doesn't fit its bytes".into());
    }
    if bytes[used..].iter().any(|&byte| byte != 0) {
        return wrong(used, "bytes behind the entries are not zero".into());
    }
    let mut next = 0;
    for (at, entry) in entries.iter().enumerate() {
        let (page, present) = (entry.page.get(), entry.present.get());
        if page < next || page >= header.page_count.get() {
            return wrong(at * size_of::<DeltaEntry>(), format!("page {page} is out of order or beyond the memory"));
        }
        if present > 1 || present == 0 && entry.sum.get() != 0 {
            return wrong(at * size_of::<DeltaEntry>() + 4, format!("page {page} has no content but a checksum"));
        }
        next = page + 1;
    }
    if present_pages(&entries) != footer.present_pages.get() {
        let what = "the footer counts other pages than the table".into();
        return Err(file.damaged(ImagePart::Footer, layout.footer_offset() + 40, what));
    }
    let regions = if header.is_compressed() { regions_of(&entries) } else { Vec::new() };
    if regions.len() != stored.len() {
        let what = format!("{} regions have changed pages, not {}", regions.len(), stored.len());
        return Err(file.damaged(ImagePart::Header, 136, what));
    }
    Ok(Table { entries, stored: regions.into_iter().zip(stored.iter().copied()).collect() })
}
