//! A delta, opened and checked: everything but the bytes of its pages.
//!
//! Relies on [`crate::delta::format`] for what must be true of a file.

use std::sync::Arc;

use quire_device::{Buffer, Device, DeviceError, Direction, Directory, Extent, Transfer};
use quire_snapshot::{PAGE_SIZE, REGION_SIZE};
use zerocopy::FromBytes;

use crate::delta::MAX_DELTA_PAGES;
use crate::delta::format::{DeltaEntry, DeltaFooter, DeltaHeader, DeltaLayout, MAGIC, VERSION, present_pages};
use crate::error::{ImageError, ImagePart, no_buffers};
use crate::format::{END_MAGIC, LinkId, MAX_PAGES, checksum, page_sum};
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
        let layout = DeltaLayout::new(header.changed_pages.get());
        let file_bytes = device.len()?;
        if file_bytes != layout.file_bytes() {
            let wanted = layout.file_bytes();
            let offset = file_bytes.min(wanted);
            let what = format!("the file has {file_bytes} bytes instead of {wanted}");
            return Err(file.damaged(layout.part_at(offset), offset, what));
        }
        let footer = read_footer(&file, layout, &header)?;
        let entries = read_table(&file, layout, &header, &footer)?;
        Ok(Self { id: footer.id(), device, header, entries })
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
        DeltaLayout::new(self.header.changed_pages.get()).file_bytes()
    }

    /// Reads all pages with content, several at once, and checks them. `on_page` is told each, in no order, and what is
    /// wrong with it.
    pub(crate) fn read_pages(
        &self,
        mut on_page: impl FnMut(u32, &[u8], Option<ImageError>) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let mut queue = self.device.queue(DEPTH)?;
        let mut free = Buffer::several(DEPTH, REGION_SIZE).map_err(|_| no_buffers(self.file()))?;
        let mut spans = self.entries.chunks(SPAN_PAGES).enumerate();
        loop {
            while let Some(buffer) = free.pop() {
                let Some((number, span)) = spans.next() else { break };
                let offset = DeltaLayout::new(0).page_offset(number * SPAN_PAGES);
                let extents = vec![Extent { offset, start: 0, len: span.len() * PAGE_SIZE }];
                queue.submit(Transfer { direction: Direction::Read, buffer, extents, tag: number as u64 });
            }
            let Some(done) = queue.complete() else { return Ok(()) };
            let first = done.transfer.tag as usize * SPAN_PAGES;
            let span = &self.entries[first..self.entries.len().min(first + SPAN_PAGES)];
            done.result.map_err(|source: DeviceError| ImageError::Unreadable { part: ImagePart::Data, source })?;
            for (at, entry) in span.iter().enumerate().filter(|(_, entry)| entry.present.get() != 0) {
                let bytes = &done.transfer.buffer[at * PAGE_SIZE..][..PAGE_SIZE];
                on_page(entry.page.get(), bytes, self.check(first + at, entry, bytes))?;
            }
            free.push(done.transfer.buffer);
        }
    }

    fn check(&self, rank: usize, entry: &DeltaEntry, bytes: &[u8]) -> Option<ImageError> {
        let (page, wanted) = (entry.page.get(), entry.sum.get());
        let sum = page_sum(page, bytes);
        if sum == wanted {
            return None;
        }
        let what = format!("the checksum of page {page} is {sum:016x}, but {wanted:016x} was written");
        let offset = DeltaLayout::new(0).page_offset(rank);
        Some(ImageReader { device: &*self.device }.damaged(ImagePart::Data, offset, what))
    }
}

fn read_header(file: &ImageReader<'_>) -> Result<DeltaHeader, ImageError> {
    let bytes = file.read(ImagePart::Header, 0, PAGE_SIZE)?;
    let header = DeltaHeader::read_from_bytes(&bytes).expect("a header is a page");
    let wrong = |offset: u64, what: String| Err(file.damaged(ImagePart::Header, offset, what));
    if header.magic != MAGIC {
        return wrong(0, "its first bytes are not a delta's".into());
    }
    // As with images: a later version may have its checksum elsewhere.
    if header.version.get() != VERSION && !(DeltaHeader { version: VERSION.into(), ..header }).is_sound() {
        let file = file.device.name().to_owned();
        return Err(ImageError::Version { file, found: header.version.get(), known: VERSION });
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
) -> Result<Vec<DeltaEntry>, ImageError> {
    let start = layout.table_offset();
    let bytes = file.read(ImagePart::Table, start, layout.table_bytes())?;
    let wrong = |offset: usize, what: String| Err(file.damaged(ImagePart::Table, start + offset as u64, what));
    let count = header.changed_pages.get() as usize;
    let used = count * size_of::<DeltaEntry>();
    if checksum(&bytes[..used]) != footer.table_checksum.get() {
        return wrong(0, "the table's checksum doesn't fit its bytes".into());
    }
    if bytes[used..].iter().any(|&byte| byte != 0) {
        return wrong(used, "bytes behind the entries are not zero".into());
    }
    let entries = <[DeltaEntry]>::ref_from_bytes(&bytes[..used]).expect("the entries are whole").to_vec();
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
    Ok(entries)
}
