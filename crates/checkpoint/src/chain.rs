//! An image and the deltas over it.
//!
//! ```text
//! dump.quire ◀── dump.quire.delta-1 ◀── dump.quire.delta-2      each names what it is over, by epoch and checksum
//! ```
//! Relies on a full image being durable under its name before a delta over the one that it replaces is removed: so a delta that
//! the image's header lists, or one of the same history that is older than the image, is such a leftover. Any other delta that
//! does not fit is an error, since a file was exchanged. Nothing of a chain is used before the structures of all its links are checked.

use std::time::Duration;

use quire_device::{Device, DeviceError, Directory};
use quire_snapshot::PAGE_SIZE;

use crate::clone::{BackgroundCheck, ClonedImage};
use crate::compression::CompressionInfo;
use crate::delta::{Delta, delta_name, find_deltas, remove_delta};
use crate::error::{DumpError, ImageError};
use crate::fingerprint::fingerprint;
use crate::format::{ImageLayout, LinkId};
use crate::identity::ImageIdentity;
use crate::image::{Image, ImageInfo};
use crate::load::{LoadedImage, load_source};
use crate::map::{MappedImage, MappedMemory, map_memory, map_source};
use crate::restore_options::RestoreOptions;
use crate::source::RestoreSource;
use crate::verify::VerifySummary;

/// An image and the deltas over it, whose headers, tables and footers are sound.
pub struct ImageChain {
    image: Image,
    deltas: Vec<Delta>,
    /// Names of deltas that a newer image has replaced.
    leftover: Vec<String>,
    /// Highest epoch of a delta that is not used for its damage, or for that of a link below it; 0 without one.
    unused_epoch: u64,
}

/// How often a chain is opened anew that changes while it is opened.
const SHARED_ATTEMPTS: u32 = 20;
/// What lies between two attempts: removing the deltas of a chain takes a moment.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// What a delta says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaInfo {
    /// Path of the delta.
    pub file: String,
    /// Its epoch.
    pub epoch: u64,
    /// Time of the cut, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Pages that have changed since its base.
    pub changed_pages: u64,
    /// Those of them that have content.
    pub present_pages: u64,
    /// Length of the file, holes counted.
    pub file_bytes: u64,
    /// What compression has made of the pages.
    pub compression: CompressionInfo,
}

impl DeltaInfo {
    /// Bytes that the file takes on a disk that keeps holes.
    pub fn stored_bytes(&self) -> u64 {
        let saved_bytes = (self.present_pages * PAGE_SIZE as u64).saturating_sub(self.compression.stored_bytes);
        self.file_bytes.saturating_sub(saved_bytes)
    }
}

impl std::fmt::Debug for ImageChain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ImageChain")
            .field("image", &self.image)
            .field("deltas", &self.deltas.len())
            .finish_non_exhaustive()
    }
}

/// Sees to it that the image `name` and the deltas over it are still `links`: their footers are looked at.
pub(crate) fn check_links(directory: &dyn Directory, name: &str, links: &[LinkId]) -> Result<(), DumpError> {
    for (number, link) in links.iter().enumerate() {
        let file = if number == 0 { name.to_owned() } else { delta_name(name, number) };
        let changed = |why: String| {
            let delta = directory.path_of(&delta_name(name, links.len()));
            Err(DumpError::BaseChanged { file: delta, base: directory.path_of(&file), why })
        };
        match last_numbers(directory, &file) {
            Ok(found) if found == Some(link.checksum) => {}
            Ok(_) => return changed("another file has taken its place".into()),
            Err(error) => return changed(error.to_string()),
        }
    }
    Ok(())
}

/// Makes the image `name` and the `count` - 1 deltas over it durable, with their names: a copy, say, may still be in memory only.
pub(crate) fn flush_links(directory: &dyn Directory, name: &str, count: usize) -> Result<(), DumpError> {
    let changed = |file: &str, error: DeviceError| DumpError::BaseChanged {
        file: directory.path_of(&delta_name(name, count)),
        base: directory.path_of(file),
        why: error.to_string(),
    };
    for number in 0..count {
        let file = if number == 0 { name.to_owned() } else { delta_name(name, number) };
        let flushed = directory.open(&file).and_then(|device| device.flush());
        flushed.map_err(|error| changed(&file, error))?;
    }
    directory.sync().map_err(|error| changed(name, error))
}

/// The checksum that stands in the last page of a file: there images and deltas have their footer's.
fn last_numbers(directory: &dyn Directory, name: &str) -> Result<Option<u64>, DeviceError> {
    let device = directory.open(name)?;
    let mut footer = [0; PAGE_SIZE];
    let Some(start) = device.len()?.checked_sub(PAGE_SIZE as u64) else { return Ok(None) };
    let read = device.read_at(start, &mut footer)?;
    let checksum = footer[PAGE_SIZE - 16..PAGE_SIZE - 8].try_into().map(u64::from_le_bytes).ok();
    Ok(checksum.filter(|_| read == PAGE_SIZE))
}

impl ImageChain {
    /// Opens the image `name` and the deltas over it, and checks their headers, tables and footers.
    ///
    /// # Errors
    /// As [`Image::open`] for each link; [`ImageError::WrongBase`].
    pub fn open(directory: &dyn Directory, name: &str) -> Result<Self, ImageError> {
        let image = Image::open(directory, name).map_err(|error| without_image(directory, name, error))?;
        let mut chain = Self::of(image);
        chain.add_deltas(directory, name)?;
        Ok(chain)
    }

    /// An image over which there are no deltas.
    pub fn of(image: Image) -> Self {
        Self { image, deltas: Vec::new(), leftover: Vec::new(), unused_epoch: 0 }
    }

    /// Bytes that what was saved spans, from the first page to the last.
    pub fn span_bytes(&self) -> u64 {
        let of_deltas = self.deltas.iter().map(|delta| delta.header.page_count.get());
        ImageLayout::new(of_deltas.fold(self.image.layout().page_count(), u32::max)).data_bytes()
    }

    /// As [`ImageChain::open`] of an image that another process may be replacing or adding deltas to. The links are those of one moment, and
    /// stay what they are, whatever becomes of their names.
    ///
    /// # Errors
    /// As [`ImageChain::open`]; [`ImageError::Changing`].
    pub fn open_shared(directory: &dyn Directory, name: &str) -> Result<Self, ImageError> {
        let mut found = ImageError::Changing { file: directory.path_of(name) };
        for attempt in 0..SHARED_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            match Self::open(directory, name) {
                // A full image takes the image's name before it removes deltas: as long as the name leads to this image, none of its
                // deltas was gone when they were listed.
                Ok(chain) if chain.has_name(directory, name)? => return Ok(chain),
                Ok(_) => {}
                // Links of two moments, or one that was removed after it was listed.
                Err(error) if error.is_wrong_base() || error.is_missing_link() => found = error,
                Err(error) => return Err(error),
            }
        }
        Err(found)
    }

    /// Whether `name` leads to the image that is open.
    fn has_name(&self, directory: &dyn Directory, name: &str) -> Result<bool, ImageError> {
        Ok(last_numbers(directory, name)? == self.image.id.map(|id| id.checksum))
    }

    /// As [`ImageChain::open`], but uses what is left of a damaged image, and of deltas those before the first damaged one; tells
    /// what is wrong.
    ///
    /// # Errors
    /// As [`Image::open_damaged`], and if a delta does not fit for another reason than damage.
    pub fn open_damaged(directory: &dyn Directory, name: &str) -> Result<(Self, Vec<ImageError>), ImageError> {
        let opened = Image::open_damaged(directory, name);
        let (image, damage) = opened.map_err(|error| without_image(directory, name, error))?;
        let mut chain = Self::of(image);
        let mut damage = Vec::from_iter(damage);
        match chain.add_deltas(directory, name) {
            Ok(()) => Ok((chain, damage)),
            // Which image the deltas are over can't be told from what is left of it.
            Err(error) if error.is_damage() || error.is_wrong_base() && chain.image.id.is_none() => {
                chain.note_unused(directory, name)?;
                damage.push(error);
                Ok((chain, damage))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes the epochs of deltas that are left out.
    fn note_unused(&mut self, directory: &dyn Directory, name: &str) -> Result<(), DeviceError> {
        let history = self.image.header.meta().history;
        let mut found = find_deltas(directory, name)?;
        found.retain(|(_, file)| !self.leftover.contains(file));
        let told = found.iter().filter_map(|(_, file)| Delta::told_epoch(directory, file, history));
        self.unused_epoch = told.max().unwrap_or(0);
        Ok(())
    }

    /// The highest epoch of this data that there is, in links that are not used for damage too. What is saved next has a higher one,
    /// and a log that goes with the newest link continues what is left.
    pub fn newest_epoch(&self) -> u64 {
        self.info().epoch.max(self.unused_epoch)
    }

    fn add_deltas(&mut self, directory: &dyn Directory, name: &str) -> Result<(), ImageError> {
        let meta = self.image.header.meta();
        for (number, file) in find_deltas(directory, name)? {
            // Before it is looked into: a delta that was replaced for its damage is no damage of the image.
            if self.image.header.has_replaced(fingerprint(directory, &file)?) {
                self.leftover.push(file);
                continue;
            }
            let (device, header) = Delta::header(directory, &file)?;
            if meta.history != 0 && header.history.get() == meta.history && header.epoch.get() <= meta.epoch {
                self.leftover.push(file);
                continue;
            }
            let wrong = |why: &str| {
                let base = self.deltas.last().map_or(self.image.device().name(), Delta::file).to_owned();
                Err(ImageError::WrongBase { file: directory.path_of(&file), base, why: why.into() })
            };
            if number != self.deltas.len() + 1 {
                return wrong("deltas between them are missing");
            }
            let last = self.deltas.last().map(|delta| delta.id).or(self.image.id);
            if last != Some(header.base()) {
                return wrong("it was made for another file");
            }
            self.deltas.push(Delta::open(device, header)?);
        }
        Ok(())
    }

    /// Removes deltas that a newer image has replaced. Call it when no thread is dumping to this name. Returns how many there
    /// were. Files that only have a delta's name stay.
    ///
    /// # Errors
    /// The directory can't be flushed, or a file not be removed.
    pub fn remove_leftover(&mut self, directory: &dyn Directory) -> Result<usize, DeviceError> {
        if !self.leftover.is_empty() {
            // The image's name may not be durable yet: the process, not the power, may have gone after the rename. Without its
            // deltas the image before would be too old.
            directory.sync()?;
        }
        for delta in &self.leftover {
            remove_delta(directory, delta)?;
        }
        Ok(std::mem::take(&mut self.leftover).len())
    }

    /// The image below.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What the deltas say of themselves, in order.
    pub fn deltas(&self) -> Vec<DeltaInfo> {
        let info = |delta: &Delta| DeltaInfo {
            file: delta.file().to_owned(),
            epoch: delta.header.epoch.get(),
            created_unix_ms: delta.header.created_unix_ms.get(),
            changed_pages: delta.entries.len() as u64,
            present_pages: delta.present_pages(),
            file_bytes: delta.file_bytes(),
            compression: delta.compression(),
        };
        self.deltas.iter().map(info).collect()
    }

    /// What the image says of itself, with epoch and time of the newest delta.
    pub fn info(&self) -> ImageInfo {
        let info = self.image.info();
        match self.deltas.last() {
            Some(last) => ImageInfo {
                epoch: last.header.epoch.get(),
                created_unix_ms: last.header.created_unix_ms.get(),
                page_count: self.page_count(),
                ..info
            },
            None => info,
        }
    }

    /// The files of its links, in order.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &dyn Device> {
        std::iter::once(self.image.device()).chain(self.deltas.iter().map(Delta::device))
    }

    /// What tells its links from all others, in order; `None` for an image that has lost it.
    pub(crate) fn ids(&self) -> Vec<Option<LinkId>> {
        [self.image.id].into_iter().chain(self.deltas.iter().map(|delta| Some(delta.id))).collect()
    }

    /// What tells the save that it ends with from all others; `None` if damage has left none of that.
    pub fn identity(&self) -> Option<ImageIdentity> {
        let LinkId { epoch, checksum } = self.ids().pop()??;
        Some(ImageIdentity { history: self.image.header.meta().history, epoch, checksum })
    }

    /// What tells its links from all others, in order, if deltas may follow.
    pub fn links(&self) -> Option<Vec<LinkId>> {
        let image = self.image.id.filter(|_| self.image.header.meta().chained)?;
        Some([image].into_iter().chain(self.deltas.iter().map(|delta| delta.id)).collect())
    }

    fn page_count(&self) -> u32 {
        self.deltas.last().map_or(self.image.layout().page_count(), |last| last.header.page_count.get())
    }

    /// Loads the image with the deltas over it; see [`load`](crate::load()).
    ///
    /// # Errors
    /// As [`load`](crate::load()).
    pub fn load(self, options: &RestoreOptions, on_progress: impl FnMut(u64, u64)) -> Result<LoadedImage, ImageError> {
        load_source(&RestoreSource::new(self.image, self.deltas, options)?, options, on_progress)
    }

    /// Maps the image with the deltas over it; see [`map`](crate::map()). Regions whose pages lie in too many pieces are read and
    /// verified first.
    ///
    /// # Errors
    /// As [`map`](crate::map()), and as [`ImageChain::load`] for what is read first.
    pub fn map(self, options: &RestoreOptions) -> Result<MappedImage, ImageError> {
        map_source(RestoreSource::new(self.image, self.deltas, options)?, options, quire_sys::limits::max_mappings())
    }

    /// As [`ImageChain::map`], on a system that allows `max_mappings`.
    #[doc(hidden)]
    pub fn map_with(self, options: &RestoreOptions, max_mappings: usize) -> Result<MappedImage, ImageError> {
        map_source(RestoreSource::new(self.image, self.deltas, options)?, options, max_mappings)
    }

    /// Maps the image with the deltas over it for good; see [`crate::clone`]. The directory that it was opened in should read through
    /// the system's cache. Regions whose pages lie in too many pieces are read and verified first, and are this process's own.
    ///
    /// # Errors
    /// As [`ImageChain::map`].
    pub fn map_shared(self, options: &RestoreOptions) -> Result<ClonedImage, ImageError> {
        let options = RestoreOptions { accept_damaged: false, ..*options };
        let source = RestoreSource::new(self.image, self.deltas, &options)?;
        let MappedMemory { mut barrier, committed_bytes, mapped, regions_loaded, .. } =
            map_memory(&source, &options, quire_sys::limits::max_mappings())?;
        let check = BackgroundCheck::start(source, mapped, &mut barrier)?;
        Ok(ClonedImage { barrier, committed_bytes, check, regions_loaded })
    }

    /// Reads all pages of all links and checks them; `on_progress` is told regions of the image done and in all. Goes on after
    /// damage, so that all of it is found.
    ///
    /// # Errors
    /// A device fails, or there is no memory for buffers.
    pub fn verify(&self, on_progress: impl FnMut(u64, u64)) -> Result<VerifySummary, ImageError> {
        let mut summary = self.image.verify(on_progress)?;
        for delta in &self.deltas {
            summary.bytes += delta.verify(&mut summary.damage)?;
        }
        Ok(summary)
    }
}

/// Without its image a delta is worth nothing, but it is a sign that there was one.
fn without_image(directory: &dyn Directory, name: &str, error: ImageError) -> ImageError {
    let ImageError::Missing { file } = &error else { return error };
    match find_deltas(directory, name) {
        Ok(found) => match found.into_iter().next() {
            Some((_, delta)) => {
                let why = "there is no such file".into();
                ImageError::WrongBase { file: directory.path_of(&delta), base: file.clone(), why }
            }
            None => error,
        },
        // Without the directory there are none.
        Err(listing) if listing.is_missing() => error,
        Err(listing) => listing.into(),
    }
}
