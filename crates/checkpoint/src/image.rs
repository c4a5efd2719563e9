//! An image file, opened and checked: everything but the bytes of its pages.
//!
//! Relies on [`crate::format`] for what must be true of a file. The file stays open as long as the [`Image`], so that a new
//! image may take its name meanwhile.

use std::mem::offset_of;
use std::sync::Arc;

use quire_device::{Device, Directory};
use quire_snapshot::{PAGE_SIZE, REGION_SIZE};
use zerocopy::FromBytes;

use crate::compression::CompressionInfo;
use crate::error::{ImageError, ImagePart};
use crate::format::{
    DATA_OFFSET, END_MAGIC, ImageFooter, ImageHeader, ImageLayout, LinkId, MAGIC, MAX_PAGES, VERSION, VERSION_CHAINED,
    VERSION_COMPRESSED, checksum,
};
use crate::table::ChecksumTable;

/// An image whose header, table and footer are sound.
#[derive(Clone)]
pub struct Image {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) header: ImageHeader,
    pub(crate) table: ChecksumTable,
    /// What tells it from every other image; `None` if its footer is damaged.
    pub(crate) id: Option<LinkId>,
}

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Path of the image.
    pub file: String,
    /// Version of the format.
    pub version: u32,
    /// Counts the images of one history.
    pub epoch: u64,
    /// Time of the cut, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The arena's root handle.
    pub root: u32,
    /// What the writer noted.
    pub note: String,
    /// Pages, absent ones counted.
    pub page_count: u32,
    /// Pages in the image.
    pub present_pages: u64,
    /// Regions, the last one perhaps not full.
    pub region_count: u32,
    /// Where page 0 lies.
    pub data_offset: u64,
    /// Length of the file, holes counted.
    pub file_bytes: u64,
    /// What compression has made of the pages.
    pub compression: CompressionInfo,
}

impl ImageInfo {
    /// Bytes of the pages in the image.
    pub fn present_bytes(&self) -> u64 {
        self.present_pages * PAGE_SIZE as u64
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Image").field("file", &self.device.name()).finish_non_exhaustive()
    }
}

impl Image {
    /// Opens the image `name` and checks its header, table, footer and length.
    ///
    /// # Errors
    /// [`ImageError::Missing`], or what is wrong with it, and where.
    pub fn open(directory: &dyn Directory, name: &str) -> Result<Self, ImageError> {
        let device = directory.open(name).map_err(|error| match error.is_missing() {
            true => ImageError::Missing { file: directory.path_of(name) },
            false => ImageError::Device(error),
        })?;
        let file = ImageReader { device: &*device };
        let header = file.header()?;
        let layout = header.layout();
        let file_bytes = device.len()?;
        if file_bytes != layout.file_bytes() {
            let wanted = layout.file_bytes();
            let offset = file_bytes.min(wanted);
            let what = format!("the file has {file_bytes} bytes instead of {wanted}");
            return Err(file.damaged(layout.part_at(offset), offset, what));
        }
        let footer = file.footer(layout, &header)?;
        let table = file.table(layout, &footer)?;
        Ok(Self { device, header, table, id: Some(footer.id()) })
    }

    /// What the image says of itself.
    pub fn info(&self) -> ImageInfo {
        let (layout, meta) = (self.layout(), self.header.meta());
        let note = meta.note.split(|&byte| byte == 0).next().unwrap_or_default();
        ImageInfo {
            file: self.device.name().to_owned(),
            version: self.header.version.get(),
            epoch: meta.epoch,
            created_unix_ms: meta.created_unix_ms,
            root: meta.root,
            note: String::from_utf8_lossy(note).into_owned(),
            page_count: layout.page_count(),
            present_pages: self.table.present_pages(),
            region_count: layout.region_count(),
            data_offset: DATA_OFFSET,
            file_bytes: layout.file_bytes(),
            compression: self.table.compression(),
        }
    }

    pub(crate) fn layout(&self) -> ImageLayout {
        self.table.layout()
    }

    pub(crate) fn table(&self) -> &ChecksumTable {
        &self.table
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Damage of the bytes between header and data, if there is any.
    pub(crate) fn check_gap(&self) -> Result<Option<ImageError>, ImageError> {
        let start = PAGE_SIZE as u64;
        let bytes =
            ImageReader { device: &*self.device }.read(ImagePart::Gap, start, DATA_OFFSET as usize - PAGE_SIZE)?;
        let found = bytes.iter().position(|&byte| byte != 0);
        Ok(found.map(|at| self.damaged(ImagePart::Gap, start + at as u64, "it isn't zero".into())))
    }

    pub(crate) fn damaged(&self, part: ImagePart, offset: u64, what: String) -> ImageError {
        ImageReader { device: &*self.device }.damaged(part, offset, what)
    }
}

/// A file whose parts are being read and checked.
pub(crate) struct ImageReader<'a> {
    pub(crate) device: &'a dyn Device,
}

impl ImageReader<'_> {
    pub(crate) fn damaged(&self, part: ImagePart, offset: u64, what: String) -> ImageError {
        ImageError::Damaged { file: self.device.name().to_owned(), part, offset, what }
    }

    fn read_some(&self, part: ImagePart, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        self.device.read_at(offset, into).map_err(|source| ImageError::Unreadable { part, source })
    }

    pub(crate) fn read(&self, part: ImagePart, offset: u64, len: usize) -> Result<Vec<u8>, ImageError> {
        let mut bytes = vec![0; len];
        let read = self.read_some(part, offset, &mut bytes)?;
        if read < len {
            return Err(self.damaged(part, offset + read as u64, "the file ends here".into()));
        }
        Ok(bytes)
    }

    /// Sees to it that bytes which the format says nothing of, `bytes` at `offset` of the file, are zero: a program that gave them a meaning
    /// would have raised the version.
    pub(crate) fn check_unused(&self, part: ImagePart, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let found = bytes.iter().position(|&byte| byte != 0);
        found.map_or(Ok(()), |at| Err(self.damaged(part, offset + at as u64, "an unused byte isn't zero".into())))
    }

    pub(crate) fn header(&self) -> Result<ImageHeader, ImageError> {
        let mut bytes = vec![0; PAGE_SIZE];
        let read = self.read_some(ImagePart::Header, 0, &mut bytes)?;
        let header = ImageHeader::read_from_bytes(&bytes).expect("a header is a page");
        let is_empty = bytes.iter().all(|&byte| byte == 0);
        if header.magic != MAGIC && !is_empty && !(ImageHeader { magic: MAGIC, ..header }).is_sound() {
            let file = self.device.name().to_owned();
            let mut found = [0; 16];
            found.copy_from_slice(&bytes[..16]);
            return Err(ImageError::Foreign { file, found });
        }
        if read < PAGE_SIZE {
            return Err(self.damaged(ImagePart::Header, read as u64, "the file ends here".into()));
        }
        if header.magic != MAGIC {
            return Err(self.damaged(ImagePart::Header, 0, "its first bytes are not what was written".into()));
        }
        // A later version may have its checksum elsewhere. What would be sound as this version is damaged in this field.
        let sound_as = |version: u32| (ImageHeader { version: version.into(), ..header }).is_sound();
        if !header.is_known_version() && ![VERSION, VERSION_CHAINED, VERSION_COMPRESSED].into_iter().any(sound_as) {
            let file = self.device.name().to_owned();
            return Err(ImageError::Version { file, found: header.version.get(), known: VERSION_COMPRESSED });
        }
        let wrong = |offset: u64, what: String| Err(self.damaged(ImagePart::Header, offset, what));
        if !header.is_sound() {
            return wrong(4088, "the header's checksum doesn't fit its bytes".into());
        }
        if header.page_bytes.get() as usize != PAGE_SIZE {
            return wrong(12, format!("pages of {} bytes, this program has {PAGE_SIZE}", header.page_bytes));
        }
        if header.region_bytes.get() as usize != REGION_SIZE {
            return wrong(16, format!("regions of {} bytes, this program has {REGION_SIZE}", header.region_bytes));
        }
        if header.flags.get() != 0 {
            return wrong(20, format!("unknown flags {:#x}", header.flags.get()));
        }
        if header.page_count.get() > MAX_PAGES {
            return wrong(44, format!("{} pages, more than {MAX_PAGES}", header.page_count));
        }
        if header.data_offset.get() != DATA_OFFSET {
            return wrong(48, format!("data at {}, not at {DATA_OFFSET}", header.data_offset));
        }
        self.check_unused(ImagePart::Header, offset_of!(ImageHeader, unused) as u64, &header.unused)?;
        Ok(header)
    }

    /// A footer at `start` that agrees with itself.
    pub(crate) fn footer_at(&self, start: u64) -> Result<ImageFooter, ImageError> {
        let bytes = self.read(ImagePart::Footer, start, PAGE_SIZE)?;
        let footer = ImageFooter::read_from_bytes(&bytes).expect("a footer is a page");
        let wrong = |offset: u64, what: &str| Err(self.damaged(ImagePart::Footer, start + offset, what.into()));
        if footer.end_magic != END_MAGIC {
            return wrong(4088, "the mark at the end is missing: the image was not completed");
        }
        if footer.checksum.get() != footer.own_checksum() {
            return wrong(4080, "the footer's checksum doesn't fit its bytes");
        }
        self.check_unused(ImagePart::Footer, start + offset_of!(ImageFooter, unused) as u64, &footer.unused)?;
        Ok(footer)
    }

    pub(crate) fn footer(&self, layout: ImageLayout, header: &ImageHeader) -> Result<ImageFooter, ImageError> {
        let start = layout.footer_offset();
        let footer = self.footer_at(start)?;
        let wrong = |offset: u64, what: &str| Err(self.damaged(ImagePart::Footer, start + offset, what.into()));
        if footer.table_offset.get() != layout.table_offset() {
            return wrong(0, "the table is said to lie elsewhere");
        }
        if footer.table_bytes.get() != layout.table_bytes() as u64 {
            return wrong(8, "the table is said to have another length");
        }
        if footer.epoch != header.epoch || footer.header_checksum != header.checksum {
            return wrong(24, "header and footer belong to different images");
        }
        if footer.page_count != header.page_count || footer.region_count.get() != layout.region_count() {
            return wrong(48, "the footer counts other pages than the header");
        }
        if footer.version.get() != if header.is_compressed() { VERSION_COMPRESSED } else { 0 } {
            return wrong(56, "header and footer are of different versions");
        }
        Ok(footer)
    }

    pub(crate) fn table(&self, layout: ImageLayout, footer: &ImageFooter) -> Result<ChecksumTable, ImageError> {
        let start = layout.table_offset();
        let bytes = self.read(ImagePart::Table, start, layout.table_bytes())?;
        if checksum(&bytes) != footer.table_checksum.get() {
            return Err(self.damaged(ImagePart::Table, start, "the table's checksum doesn't fit its bytes".into()));
        }
        let wrong = |(offset, what)| self.damaged(ImagePart::Table, start + offset, what);
        let table = ChecksumTable::decode(layout, &bytes).map_err(wrong)?;
        // First, as what a codec of a newer version needs is not known.
        if let Some((region, codec, offset)) = table.unknown_codec() {
            let (file, part) = (self.device.name().to_owned(), ImagePart::Table);
            return Err(ImageError::UnknownCodec { file, region, codec, part, offset: start + offset });
        }
        table.check_regions().map_err(wrong)?;
        if table.present_pages() != footer.present_pages.get() {
            let what = "the footer counts other present pages than the table".into();
            return Err(self.damaged(ImagePart::Footer, layout.footer_offset() + 40, what));
        }
        Ok(table)
    }
}
