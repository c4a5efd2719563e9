//! An image and the deltas over it.
//!
//! ```text
//! dump.quire ◀── dump.quire.delta-1 ◀── dump.quire.delta-2      each names what it is over, by epoch and checksum
//! ```
//! Relies on a full image being durable under its name before a delta over the one that it replaces is removed: so a delta that
//! the image's header lists, or one of the same history that is older than the image, is such a leftover. Any other delta that
//! does not fit is an error, since a file was exchanged. Nothing of a chain is used before the structures of all its links are checked.

use quire_device::{DeviceError, Directory};
use quire_snapshot::{PAGE_SIZE, WriteBarrier};

use crate::delta::{Delta, delta_name, find_deltas, remove_delta};
use crate::error::{DumpError, ImageError};
use crate::format::{ImageLayout, LinkId};
use crate::image::{Image, ImageInfo};
use crate::load::{LoadedImage, RestoreOptions, load};
use crate::map::{MappedImage, map};
use crate::replaced::fingerprint;
use crate::verify::VerifySummary;

/// An image and the deltas over it, whose headers, tables and footers are sound.
pub struct Chain {
    image: Image,
    deltas: Vec<Delta>,
    /// Names of deltas that a newer image has replaced.
    leftover: Vec<String>,
    /// Highest epoch of a delta that is not used for its damage, or for that of a link below it; 0 without one.
    unused_epoch: u64,
}

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
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Chain")
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

impl Chain {
    /// Opens the image `name` and the deltas over it, and checks their headers, tables and footers.
    ///
    /// # Errors
    /// As [`Image::open`] for each link; [`ImageError::WrongBase`].
    pub fn open(directory: &dyn Directory, name: &str) -> Result<Self, ImageError> {
        let image = Image::open(directory, name).map_err(|error| without_image(directory, name, error))?;
        let mut chain = Self { image, deltas: Vec::new(), leftover: Vec::new(), unused_epoch: 0 };
        chain.add_deltas(directory, name)?;
        Ok(chain)
    }

    /// As [`Chain::open`], but uses what is left of a damaged image, and of deltas those before the first damaged one; tells
    /// what is wrong.
    ///
    /// # Errors
    /// As [`Image::open_damaged`], and if a delta does not fit for another reason than damage.
    pub fn open_damaged(directory: &dyn Directory, name: &str) -> Result<(Self, Vec<ImageError>), ImageError> {
        let opened = Image::open_damaged(directory, name);
        let (image, damage) = opened.map_err(|error| without_image(directory, name, error))?;
        let mut chain = Self { image, deltas: Vec::new(), leftover: Vec::new(), unused_epoch: 0 };
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

    /// What tells its links from all others, in order, if deltas may follow.
    pub fn links(&self) -> Option<Vec<LinkId>> {
        let image = self.image.id.filter(|_| self.image.header.meta().chained)?;
        Some([image].into_iter().chain(self.deltas.iter().map(|delta| delta.id)).collect())
    }

    fn page_count(&self) -> u32 {
        self.deltas.last().map_or(self.image.layout().page_count(), |last| last.header.page_count.get())
    }

    /// Loads the image and puts the deltas over it; see [`load`].
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(
        mut self,
        options: &RestoreOptions,
        on_progress: impl FnMut(u64, u64),
    ) -> Result<LoadedImage, ImageError> {
        self.prepare(options)?;
        let mut loaded = load(&self.image, options, on_progress)?;
        let (barrier, mut damage) = (&mut loaded.barrier, Vec::new());
        let bytes = put_over(&self.deltas, barrier, loaded.committed_bytes, options, &mut damage, |barrier, page| {
            if !barrier.release_pages(page..page + 1) {
                barrier.blank_pages(page..page + 1);
            }
        })?;
        loaded.committed_bytes = bytes;
        loaded.summary.damage.append(&mut damage);
        loaded.summary.bytes += self.deltas.iter().map(Delta::present_pages).sum::<u64>() * PAGE_SIZE as u64;
        Ok(loaded)
    }

    /// Maps the image, reads the deltas' pages and puts them over it; see [`map`].
    ///
    /// The pages count as written since the restore, so the exchange of regions keeps them.
    ///
    /// # Errors
    /// As [`map`], and as [`Chain::load`] for the deltas.
    pub fn map(mut self, options: &RestoreOptions) -> Result<(MappedImage, Vec<ImageError>), ImageError> {
        self.prepare(options)?;
        let Self { image, deltas, .. } = self;
        let mut mapped = map(image, options)?;
        let (barrier, mut damage) = (&mut mapped.barrier, Vec::new());
        let bytes = put_over(&deltas, barrier, mapped.committed_bytes, options, &mut damage, |barrier, page| {
            barrier.blank_pages(page..page + 1);
        })?;
        mapped.committed_bytes = bytes;
        Ok((mapped, damage))
    }

    /// Checks how much memory is needed, and leaves out regions of the image of which no page counts any more.
    fn prepare(&mut self, options: &RestoreOptions) -> Result<(), ImageError> {
        let needed_bytes = ImageLayout::new(self.page_count()).data_bytes();
        if needed_bytes > options.max_bytes {
            let file = self.deltas.last().map_or(self.image.device().name(), Delta::file).to_owned();
            return Err(ImageError::TooLarge { file, needed_bytes, max_bytes: options.max_bytes });
        }
        let table = &mut self.image.table;
        let mut left: Vec<u32> = (0..table.layout().region_count()).map(|region| table.present_in(region)).collect();
        let mut seen = table.clone();
        for page in self.deltas.iter().flat_map(|delta| &delta.entries).map(|entry| entry.page.get()) {
            if seen.take(page) {
                left[page as usize / quire_snapshot::PAGES_PER_REGION] -= 1;
            }
        }
        (0..).zip(left).filter(|(_, left)| *left == 0).for_each(|(region, _)| table.forget_region(region));
        Ok(())
    }

    /// Reads all pages of all links and checks them; `on_progress` is told regions of the image done and in all. Goes on after
    /// damage, so that all of it is found.
    ///
    /// # Errors
    /// A device fails, or there is no memory for buffers.
    pub fn verify(&self, on_progress: impl FnMut(u64, u64)) -> Result<VerifySummary, ImageError> {
        let mut summary = self.image.verify(on_progress)?;
        for delta in &self.deltas {
            delta.read_pages(|_, bytes, damage| {
                summary.bytes += bytes.len() as u64;
                summary.damage.extend(damage);
                Ok(())
            })?;
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

/// Writes what is in `deltas` over memory of which `committed_bytes` are committed; returns how many are afterwards.
fn put_over(
    deltas: &[Delta],
    barrier: &mut WriteBarrier,
    committed_bytes: usize,
    options: &RestoreOptions,
    damaged: &mut Vec<ImageError>,
    empty: impl Fn(&mut WriteBarrier, u32),
) -> Result<usize, ImageError> {
    let mut committed_bytes = committed_bytes;
    for delta in deltas {
        let refused = |why: String| ImageError::Memory { file: delta.file().to_owned(), why };
        let bytes = ImageLayout::new(delta.header.page_count.get()).data_bytes() as usize;
        if bytes > committed_bytes {
            let memory = barrier.memory();
            memory.commit(committed_bytes..bytes).map_err(|error| refused(error.to_string()))?;
            committed_bytes = bytes;
        }
        delta.read_pages(|page, bytes, damage| {
            match damage {
                Some(error) if !options.accept_damaged => return Err(error),
                other => damaged.extend(other),
            }
            barrier.mark_present(page..page + 1);
            barrier.write(page as usize * PAGE_SIZE, bytes).map_err(|error| refused(error.to_string()))
        })?;
        for entry in delta.entries.iter().filter(|entry| entry.present.get() == 0) {
            let page = entry.page.get();
            if barrier.is_present(page) {
                empty(barrier, page);
            }
        }
    }
    Ok(committed_bytes)
}
