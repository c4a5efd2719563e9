//! Where the pages of a trial lie: a file on the real disk, or a block device of compressed memory that stands for the
//! fastest device there is.
//!
//! Relies on zram keeping a page that is one word over and over as a mere mark, so that a request to it costs about a
//! microsecond, most of it in the kernel's block layer: what the paper uses null_blk for. Every page begins with its
//! [`stamp`], so a reader knows whether it got what it asked for.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use quire_sys::buffer::Buffer;
use quire_sys::word_range::WordRange;
use serde::{Deserialize, Serialize};

use quire_rng::SplitMix64;

/// Bytes of a page, for every candidate.
pub const PAGE_BYTES: usize = 4096;
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// The word that writers of single words change; far from the stamp.
pub const CHANGED_WORD: usize = 8;

/// Bytes of one write while pages are laid out.
const BLOCK_BYTES: usize = 1 << 20;
/// Above it a changed word tells the trial that changed it.
const TRIAL_SHIFT: u32 = 40;
/// Pages looked at after a trial that writes.
const AUDITED: u32 = 1000;
const ZRAM: &str = "/dev/zram0";
const ZRAM_CONTROL: &str = "/sys/block/zram0";

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A file on the disk under `--dir`.
    Disk,
    /// `/dev/zram0` with pages of one repeated word.
    Zram,
}

impl DeviceKind {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Zram => "zram",
        }
    }
}

/// Pages on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testbed {
    /// What it lies on.
    pub kind: DeviceKind,
    /// File or device.
    pub path: PathBuf,
    /// How many pages there are.
    pub pages: u64,
}

/// The first word of page `page`.
pub fn stamp(page: u64) -> u64 {
    SplitMix64::new(page).next_u64()
}

impl Testbed {
    /// A new file of `pages` stamped pages, written once and synced.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn stamped_file(path: &Path, pages: u64) -> anyhow::Result<Self> {
        let testbed = Self { kind: DeviceKind::Disk, path: path.to_owned(), pages };
        let file = quire_sys::file::create_new(path).with_context(|| format!("creating {}", path.display()))?;
        testbed.lay_out(file)?;
        Ok(testbed)
    }

    /// A new file of `pages` pages that have their places on the device but were never written: they read as zero, and
    /// reading them for the first time costs no input. Where the file system can't do that, it is a file of holes.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn empty_file(path: &Path, pages: u64) -> anyhow::Result<Self> {
        let file = quire_sys::file::create_new(path).with_context(|| format!("creating {}", path.display()))?;
        let bytes = pages * PAGE_BYTES as u64;
        if quire_sys::file::reserve(&file, 0, bytes).is_err() {
            file.set_len(bytes).with_context(|| format!("making {} {bytes} bytes long", path.display()))?;
        }
        file.sync_all().with_context(|| format!("syncing {}", path.display()))?;
        Ok(Self { kind: DeviceKind::Disk, path: path.to_owned(), pages })
    }

    fn lay_out(&self, file: File) -> anyhow::Result<()> {
        quire_sys::file::try_direct(&file, true);
        let mut block = Buffer::new(BLOCK_BYTES).context("memory to lay out pages")?;
        let per_block = (BLOCK_BYTES / PAGE_BYTES) as u64;
        for first in (0..self.pages).step_by(BLOCK_BYTES / PAGE_BYTES) {
            let pages = per_block.min(self.pages - first);
            for (page, bytes) in (first..first + pages).zip(block.chunks_exact_mut(PAGE_BYTES)) {
                self.fill(page, bytes);
            }
            let bytes = &block[..pages as usize * PAGE_BYTES];
            let written = file.write_all_at(bytes, first * PAGE_BYTES as u64);
            written.with_context(|| format!("writing {}", self.path.display()))?;
        }
        file.sync_all().with_context(|| format!("syncing {}", self.path.display()))
    }

    /// What page `page` holds at first: on a disk random words, since a device may make short work of regular ones; on
    /// zram its stamp over and over.
    pub fn fill(&self, page: u64, bytes: &mut [u8]) {
        let mut rng = SplitMix64::new(page);
        let mut word = rng.next_u64();
        for target in bytes.chunks_exact_mut(8) {
            target.copy_from_slice(&word.to_le_bytes());
            if self.kind == DeviceKind::Disk {
                word = rng.next_u64();
            }
        }
    }

    /// What is stored in [`CHANGED_WORD`] by the `step`th write of a thread to `page` in trial `trial`: on zram what is there
    /// already, so that the page becomes dirty and stays cheap for the device.
    pub fn changed_word(&self, page: u64, trial: u16, step: u64) -> u64 {
        match self.kind {
            DeviceKind::Disk => stamp(page) ^ ((u64::from(trial) << TRIAL_SHIFT) | (step % (1 << TRIAL_SHIFT))),
            DeviceKind::Zram => stamp(page),
        }
    }

    /// Looks, around every cache, at some pages that were written to by trials up to number `trial`, which comes from
    /// outside the process that did it: whether they are sound, and which part of them that trial has changed.
    ///
    /// # Errors
    /// The device failed, or a page is not what it should be.
    pub fn audit(&self, trial: u16) -> anyhow::Result<f64> {
        let file = self.open_direct()?;
        let page_of = WordRange::new(PAGE_BYTES).context("memory for a page")?;
        let mut rng = SplitMix64::new(u64::from(trial));
        let mut original = vec![0; PAGE_BYTES];
        let mut changed = 0;
        for _ in 0..AUDITED {
            let page = rng.below(self.pages);
            page_of.read_from(&file, page * PAGE_BYTES as u64, 0..PAGE_BYTES).context("reading a page again")?;
            let word = |index: usize| u64::from_le(page_of.words()[index].load(Ordering::Relaxed));
            ensure!(word(0) == stamp(page), "page {page} has lost its stamp");
            self.fill(page, &mut original);
            let was = u64::from_le_bytes(original[CHANGED_WORD * 8..][..8].try_into().context("eight bytes")?);
            let change = (word(CHANGED_WORD) ^ stamp(page)) >> TRIAL_SHIFT;
            let is_sound = word(CHANGED_WORD) == was || (1..=u64::from(trial)).contains(&change);
            ensure!(is_sound, "page {page} holds what no candidate has stored there");
            changed += u32::from(change == u64::from(trial));
        }
        Ok(f64::from(changed) / f64::from(AUDITED))
    }

    /// The file for mapping, through the page cache.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn open(&self) -> anyhow::Result<File> {
        let opened = File::options().read(true).write(true).open(&self.path);
        opened.with_context(|| format!("opening {}", self.path.display()))
    }

    /// The file for transfers around the page cache.
    ///
    /// # Errors
    /// When it can't be opened, or knows no such transfers: with the page cache in between, figures would mean nothing.
    pub fn open_direct(&self) -> anyhow::Result<File> {
        let file = self.open()?;
        if !quire_sys::file::try_direct(&file, false) {
            bail!("{} refuses direct transfers; choose another disk with --dir", self.path.display());
        }
        Ok(file)
    }

    /// Writes out what is dirty and has the system forget all cached pages.
    ///
    /// # Errors
    /// When it can't be synced.
    pub fn drop_cache(&self) -> anyhow::Result<()> {
        let file = self.open()?;
        file.sync_all().with_context(|| format!("syncing {}", self.path.display()))?;
        quire_sys::file::drop_cache(&file);
        Ok(())
    }

    /// How long requests to this device have taken so far, summed over all requests; `None` where the kernel does not count.
    pub fn busy(&self) -> Option<Duration> {
        let facts = self.path.metadata().ok()?;
        let device = if self.kind == DeviceKind::Zram { facts.rdev() } else { facts.dev() };
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
        let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        busy_of(&text)
    }
}

/// Milliseconds of reads and of writes in a block device's `stat`.
fn busy_of(text: &str) -> Option<Duration> {
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(Duration::from_millis(numbers.get(3)? + numbers.get(7)?))
}

/// `/dev/zram0`, made for this run, and gone with it.
#[derive(Debug)]
pub struct Zram {
    testbed: Testbed,
}

impl Zram {
    /// Sets the device up with `pages` stamped pages.
    ///
    /// # Errors
    /// When there is no such device, it is in use, or this process may not set it up.
    pub fn claim(pages: u64) -> anyhow::Result<Self> {
        let size = Path::new(ZRAM_CONTROL).join("disksize");
        let text = std::fs::read_to_string(&size).with_context(|| format!("there is no {ZRAM}"))?;
        if text.trim() != "0" {
            bail!("{ZRAM} is in use; if an earlier run left it, `echo 1 > {ZRAM_CONTROL}/reset` frees it");
        }
        std::fs::write(&size, (pages * PAGE_BYTES as u64).to_string())
            .with_context(|| format!("setting {ZRAM} up, which takes root"))?;
        // From here on dropping it resets the device.
        let zram = Self { testbed: Testbed { kind: DeviceKind::Zram, path: ZRAM.into(), pages } };
        zram.testbed.lay_out(zram.testbed.open()?)?;
        Ok(zram)
    }

    /// Its pages.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The system may still be looking at a device that was just closed, and refuses until it is done.
        for _ in 0..50 {
            if std::fs::write(Path::new(ZRAM_CONTROL).join("reset"), "1").is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        quire_sys::errln!("{ZRAM} could not be reset; `echo 1 > {ZRAM_CONTROL}/reset` does it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_a_stamped_file_begins_with_its_stamp() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 300).unwrap();
        let bytes = std::fs::read(&testbed.path).unwrap();
        assert_eq!(bytes.len(), 300 * PAGE_BYTES);
        for (page, bytes) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            assert_eq!(bytes[..8], stamp(page as u64).to_le_bytes());
            assert_ne!(bytes[..8], bytes[8..16]);
        }
        testbed.drop_cache().unwrap();
        assert_ne!(testbed.changed_word(3, 1, 1), testbed.changed_word(3, 1, 2));
    }

    #[test]
    fn an_audit_finds_what_a_trial_has_changed_and_what_no_trial_has() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 64).unwrap();
        assert!(testbed.audit(1).unwrap() < 0.001);
        let file = testbed.open().unwrap();
        let store = |page: u64, word: u64| {
            file.write_all_at(&word.to_le_bytes(), page * PAGE_BYTES as u64 + CHANGED_WORD as u64 * 8).unwrap();
            file.sync_all().unwrap();
        };
        (0..32).for_each(|page| store(page, testbed.changed_word(page, 3, page)));
        let part = testbed.audit(3).unwrap();
        assert!((0.4..0.6).contains(&part), "{part}");
        assert!(testbed.audit(2).unwrap_err().to_string().contains("no candidate has stored"));
        store(40, 7);
        assert!(testbed.audit(3).unwrap_err().to_string().contains("page 40"));
    }

    #[test]
    fn an_empty_file_has_its_length_and_reads_as_zero() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::empty_file(&dir.path().join("data"), 10).unwrap();
        assert!(std::fs::read(&testbed.path).unwrap() == vec![0; 10 * PAGE_BYTES]);
    }

    #[test]
    fn pages_of_zram_are_one_word_and_writing_them_changes_nothing() {
        let testbed = Testbed { kind: DeviceKind::Zram, path: "nowhere".into(), pages: 2 };
        let mut bytes = [0; PAGE_BYTES];
        testbed.fill(1, &mut bytes);
        assert!(bytes.chunks_exact(8).all(|word| word == stamp(1).to_le_bytes()));
        assert_eq!(testbed.changed_word(1, 1, 7), stamp(1));
    }

    #[test]
    fn the_time_of_reads_and_writes_is_found_in_the_statistics() {
        let text = "  2299926 172340 865209346 4113450 1913917 352699 1647979520 5244106 0 1134136 9579223";
        assert_eq!(busy_of(text), Some(Duration::from_millis(4_113_450 + 5_244_106)));
        assert_eq!(busy_of("1 2 3"), None);
    }
}
