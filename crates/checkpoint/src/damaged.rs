//! Opening an image whose header, table or footer is damaged, or whose end is missing, as far as it still can be: for those
//! who would rather have a part of their data than none.
//!
//! ```text
//! header sound                 pages, their number                  header damaged, footer sound: its number of pages
//! table and footer sound       which pages are present, checksums   else: every page that the file has, unchecked
//! ```
//! Of an image whose regions may be compressed nothing can be used without its table.
//! Relies on all that is read later being checked for bounds: what is found here may be anything.

use quire_device::{Device, Directory};
use quire_snapshot::{PAGE_SIZE, REGION_SIZE};

use crate::error::ImageError;
use crate::format::{DATA_OFFSET, ImageFooter, ImageHeader, ImageLayout, ImageMeta, MAX_PAGES};
use crate::image::{Image, ImageReader};
use crate::table::ChecksumTable;

impl Image {
    /// As [`Image::open`], but uses what is left of a damaged image; tells what is wrong with it.
    ///
    /// # Errors
    /// As [`Image::open`], if nothing of the image can be used, or it isn't one.
    pub fn open_damaged(directory: &dyn Directory, name: &str) -> Result<(Self, Option<ImageError>), ImageError> {
        let damage = match Self::open(directory, name) {
            Ok(image) => return Ok((image, None)),
            Err(error) if error.is_damage() => error,
            Err(error) => return Err(error),
        };
        let device = directory.open(name)?;
        let file_bytes = device.len()?;
        let file = ImageReader { device: &*device };
        let sound = file.header().ok();
        let footer = footer(&file, sound.as_ref(), file_bytes);
        let Some(header) = sound.or_else(|| footer.as_ref().map(header_of)) else { return Err(damage) };
        let layout = header.layout();
        let id = footer.map(|footer| footer.id());
        let table = footer.and_then(|footer| file.table(layout, &footer).ok());
        let table = match table {
            Some(table) => table,
            // Without its table nothing tells which regions are compressed.
            None if header.is_compressed() => return Err(damage),
            None => everything(&*device, layout, file_bytes),
        };
        tracing::warn!(
            pages = table.present_pages(),
            of_pages = layout.page_count(),
            checked = table.has_sums(),
            "using what is left of a damaged image"
        );
        Ok((Self { device, header, table, id }, Some(damage)))
    }
}

/// The footer, if it can be believed: where the header says, or at the end of the file.
fn footer(file: &ImageReader<'_>, header: Option<&ImageHeader>, file_bytes: u64) -> Option<ImageFooter> {
    if let Some(header) = header {
        return file.footer(header.layout(), header).ok();
    }
    let footer = file.footer_at(file_bytes.checked_sub(PAGE_SIZE as u64)?).ok()?;
    let pages = footer.page_count.get();
    (pages <= MAX_PAGES && footer.layout().file_bytes() == file_bytes).then_some(footer)
}

/// A header for the image that `footer` belongs to. When it was cut, and by what program, nothing tells any more.
fn header_of(footer: &ImageFooter) -> ImageHeader {
    let epoch = footer.epoch.get();
    let meta = ImageMeta { epoch, created_unix_ms: 0, root: 0, note: [0; 64], history: 0, chained: true };
    let header = ImageHeader::new(&meta, footer.page_count.get());
    if footer.is_compressed() { header.compressed() } else { header }
}

/// A table of all pages that the file has. Regions that are a hole of the file had no pages.
fn everything(device: &dyn Device, layout: ImageLayout, file_bytes: u64) -> ChecksumTable {
    let pages = (file_bytes.saturating_sub(DATA_OFFSET) / PAGE_SIZE as u64).min(u64::from(layout.page_count())) as u32;
    let mut table = ChecksumTable::without_sums(layout);
    for region in 0..layout.region_count() {
        let offset = DATA_OFFSET + u64::from(region) * REGION_SIZE as u64;
        let is_hole = device.as_file().is_some_and(|file| quire_sys::file::is_hole(file, offset, REGION_SIZE as u64));
        if !is_hole {
            for page in layout.pages_of(region).filter(|&page| page < pages) {
                table.add(page, 0);
            }
        }
    }
    table
}
