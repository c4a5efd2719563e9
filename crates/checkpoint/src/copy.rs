//! Copying an image with the deltas over it: all of the copy is there, durable and verified, or no image is.
//!
//! Order: every file is copied to a temporary name, flushed, and read back and checked; then the deltas get their names, the directory is
//! flushed, the image gets its name, and the directory is flushed again. So whatever ends a copy, a start finds no image, or
//! deltas without one, which it refuses, or the whole chain: never an image whose later deltas are lacking.
//!
//! A copy keeps to a rate as a save does, both where it writes and where it reads back, and can be told to stop between any two pieces.
//!
//! Relies on [`ImageChain::open_shared`]: a server may be saving to the source meanwhile. The target is to be this copy's alone.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use quire_device::{Buffer, Device, DeviceError, Direction, Directory, Extent, Transfer, remove_then_free};

use quire_snapshot::PAGE_SIZE;

use crate::chain::ImageChain;
use crate::delta::{Delta, delta_name, find_deltas};
use crate::error::{ImageError, no_buffers};
use crate::format::LinkId;
use crate::image::Image;
use crate::publish::TemporaryFile;
use crate::rate_limit::RateLimit;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 2 << 20;
/// Zeros that are not copied, if there are so many.
const LEAST_HOLE_BYTES: usize = 64 << 10;
/// A copy that keeps to a rate looks so often whether it is cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// How a copy is made.
#[derive(Clone, Copy)]
pub struct CopyOptions<'a> {
    /// Most bytes a second that are written, and after that read back; 0 is no limit.
    pub max_bytes_per_s: u64,
    /// Whether to stop: asked between any two pieces, and while the copy waits for its rate.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CopyOptions").field("max_bytes_per_s", &self.max_bytes_per_s).finish_non_exhaustive()
    }
}

fn never() -> bool {
    false
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self { max_bytes_per_s: 0, is_cancelled: &never }
    }
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source can't be read, or is damaged.
    #[error("cannot copy: {0}")]
    Source(#[source] ImageError),
    /// A file is in the way.
    #[error("{file} is there already: remove it, or copy to another directory")]
    Exists {
        /// Its path.
        file: String,
    },
    /// Deltas are in the way without an image.
    #[error(
        "{file} is there without its image {image}, as a copy leaves it that was ended while its files got their names: remove it, or \
         copy to another directory"
    )]
    Leftover {
        /// Its path.
        file: String,
        /// Path of the image that is not there.
        image: String,
    },
    /// The copy can't be written.
    #[error("cannot write the copy: {0}")]
    Target(#[from] DeviceError),
    /// It was told to stop.
    #[error("the copy was cancelled, and nothing of it is left")]
    Cancelled,
    /// What was written does not read back as it was: the source or the copy is damaged.
    #[error(
        "the copy does not hold what the image says, so it was removed: {0}; `quire image verify` of the source tells which of both is damaged"
    )]
    Damaged(#[source] ImageError),
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySummary {
    /// Files: the image and its deltas.
    pub files: usize,
    /// Bytes of these, holes counted.
    pub bytes: u64,
    /// When the data was fixed, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// How far a copy is, and how fast it may go on.
struct CopyPace<'a, F> {
    options: CopyOptions<'a>,
    rate: RateLimit,
    done: u64,
    total: u64,
    on_progress: F,
}

impl<F: FnMut(u64, u64)> CopyPace<'_, F> {
    /// `bytes` more are done, for which the disk wrote or read `moved_bytes`. Waits as long as the rate asks for.
    fn add(&mut self, bytes: u64, moved_bytes: u64) -> Result<(), CopyError> {
        if bytes > 0 {
            self.done += bytes;
            (self.on_progress)(self.done, self.total);
        }
        self.rate.add(moved_bytes, self.options.max_bytes_per_s, Instant::now());
        loop {
            if (self.options.is_cancelled)() {
                return Err(CopyError::Cancelled);
            }
            let wait = self.rate.wait(Instant::now());
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(LONGEST_SLEEP));
        }
    }
}

/// Copies the image `name` and the deltas over it from `source` to `target`. `on_progress` is told bytes done and in all, where every byte
/// counts twice: it is written, and read back.
///
/// # Errors
/// As [`CopyError`]; what was written is removed again.
pub fn copy_chain(
    source: &dyn Directory,
    name: &str,
    target: &dyn Directory,
    options: CopyOptions<'_>,
    on_progress: impl FnMut(u64, u64),
) -> Result<CopySummary, CopyError> {
    let chain = ImageChain::open_shared(source, name).map_err(CopyError::Source)?;
    refuse_existing(target, name)?;
    let devices: Vec<&dyn Device> = chain.devices().collect();
    let lens: Vec<u64> = devices.iter().map(|device| device.len()).collect::<Result<_, _>>().map_err(source_failed)?;
    let ids = chain.ids();
    let total = 2 * lens.iter().sum::<u64>();
    let mut pace = CopyPace { options, rate: RateLimit::new(Instant::now()), done: 0, total, on_progress };
    let mut written = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let temporary = TemporaryFile::numbered(target, name, number);
        let copy = target.create(temporary.name())?;
        let written_bytes = copy_bytes(*device, &*copy, lens[number], &mut pace)?;
        copy.flush()?;
        drop(copy);
        let link = CopiedLink { number, id: ids[number], len: lens[number], written_bytes };
        check(target, temporary.name(), &link, &mut pace)?;
        written.push(temporary);
    }
    // Again, since copying takes long: another program may have saved there meanwhile.
    refuse_existing(target, name)?;
    publish(target, name, written)?;
    let created_unix_ms = chain.info().created_unix_ms;
    Ok(CopySummary { files: lens.len(), bytes: total / 2, created_unix_ms })
}

/// Name of the image, which is link 0, or of a delta.
fn link_name(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { delta_name(name, number) }
}

fn source_failed(error: DeviceError) -> CopyError {
    CopyError::Source(error.into())
}

fn refuse_existing(target: &dyn Directory, name: &str) -> Result<(), CopyError> {
    if target.list()?.iter().any(|found| found == name) {
        return Err(CopyError::Exists { file: target.path_of(name) });
    }
    match find_deltas(target, name)?.into_iter().next() {
        Some((_, file)) => Err(CopyError::Leftover { file: target.path_of(&file), image: target.path_of(name) }),
        None => Ok(()),
    }
}

/// Where there is something in `bytes`, which lie at `offset` of a file. Zeros among it are left in if there are few: what lies between a
/// compressed region and the next one is to be a hole again, but each extent is a request.
fn without_zeros(bytes: &[u8], offset: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (number, page) in bytes.chunks(PAGE_SIZE).enumerate() {
        let (start, len) = (number * PAGE_SIZE, page.len());
        match extents.last_mut() {
            _ if page.iter().all(|&byte| byte == 0) => {}
            Some(last) if start - (last.start + last.len) < LEAST_HOLE_BYTES => last.len = start + len - last.start,
            _ => extents.push(Extent { offset: offset + start as u64, start, len }),
        }
    }
    extents
}

/// Copies `len` bytes, piece by piece; zeros become holes. Returns how many bytes were written.
fn copy_bytes(
    from: &dyn Device,
    to: &dyn Device,
    len: u64,
    pace: &mut CopyPace<'_, impl FnMut(u64, u64)>,
) -> Result<u64, CopyError> {
    to.set_len(len)?;
    let mut buffer = Buffer::new(PIECE_BYTES).map_err(|_| no_buffers(to.name()))?;
    let (mut offset, mut written_bytes) = (0, 0);
    while offset < len {
        let bytes = (len - offset).min(PIECE_BYTES as u64) as usize;
        if from.read_at(offset, &mut buffer[..bytes]).map_err(source_failed)? < bytes {
            let what = "the file ends here: another program has cut it short".into();
            let part = crate::error::ImagePart::Data;
            return Err(CopyError::Source(ImageError::Damaged { file: from.name().to_owned(), part, offset, what }));
        }
        let extents = without_zeros(&buffer[..bytes], offset);
        let moved_bytes = extents.iter().map(|extent| extent.len as u64).sum();
        if !extents.is_empty() {
            let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
            to.run(&mut transfer)?;
            buffer = transfer.buffer;
        }
        offset += bytes as u64;
        written_bytes += moved_bytes;
        pace.add(bytes as u64, moved_bytes)?;
    }
    Ok(written_bytes)
}

/// A link whose copy is written.
struct CopiedLink {
    number: usize,
    /// What tells it from other files.
    id: Option<LinkId>,
    /// Length of the file.
    len: u64,
    /// Bytes of it that are no holes.
    written_bytes: u64,
}

impl CopiedLink {
    /// What part of so many bytes is read when `done` of `total` parts are.
    fn share(bytes: u64, done: u64, total: u64) -> u64 {
        (u128::from(bytes) * u128::from(done) / u128::from(total.max(1))) as u64
    }
}

/// Reads a copy back and checks that all of it is what `link` says.
fn check(
    target: &dyn Directory,
    file: &str,
    link: &CopiedLink,
    pace: &mut CopyPace<'_, impl FnMut(u64, u64)>,
) -> Result<(), CopyError> {
    let (mut told, mut moved, mut stop) = (0, 0, None);
    let mut on_part = |done, total| {
        let next = [link.len, link.written_bytes].map(|bytes| CopiedLink::share(bytes, done, total));
        let added = pace.add(next[0] - told, next[1] - moved);
        [told, moved] = next;
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                stop = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let found = verified_id(target, file, link.number, &mut on_part).map_err(CopyError::Damaged)?;
    if let Some(stop) = stop {
        return Err(stop);
    }
    if found != link.id {
        let base = target.path_of(file);
        let why = "the source has changed while it was copied".into();
        return Err(CopyError::Damaged(ImageError::WrongBase { file: base.clone(), base, why }));
    }
    pace.add(link.len - told, 0)
}

/// Reads all of a link, unless it is told to stop; says what tells it from other files.
fn verified_id(
    target: &dyn Directory,
    file: &str,
    number: usize,
    on_part: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<LinkId>, ImageError> {
    let mut damage = Vec::new();
    let id = if number == 0 {
        let image = Image::open(target, file)?;
        damage.extend(image.verify_until(on_part)?.damage);
        image.id
    } else {
        let (device, header) = Delta::header(target, file)?;
        let delta = Delta::open(device, header)?;
        delta.verify_until(&mut damage, on_part)?;
        Some(delta.id)
    };
    damage.into_iter().next().map_or(Ok(id), Err)
}

/// Gives the files their names, the image last. Deltas that have theirs are removed again if another file can't get its own.
fn publish(target: &dyn Directory, name: &str, written: Vec<TemporaryFile<'_>>) -> Result<(), CopyError> {
    let mut published = Vec::new();
    let named = written.into_iter().enumerate().rev().try_for_each(|(number, file)| {
        if number == 0 {
            target.sync()?;
        }
        file.publish(&link_name(name, number))?;
        published.push(number);
        Ok::<_, DeviceError>(())
    });
    if let Err(error) = named.and_then(|()| target.sync()) {
        // The image first: deltas without it are no copy.
        for number in published.into_iter().rev() {
            // The copy is given up for the error at hand.
            let _ = remove_then_free(target, &link_name(name, number));
        }
        return Err(error.into());
    }
    Ok(())
}
