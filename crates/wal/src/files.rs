//! The thread that looks after a log's files: makes them ahead, and takes those away that an image covers.
//!
//! Relies on `stock` for the files. What it does may take long, and nobody waits for it unless files run out.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use quire_device::Directory;

use super::error::LogError;
use super::format::index_of;
use super::scanner::Scanner;
use super::shared::Shared;
use super::stock::{Stock, Used, mark_in_force};
use super::supply::{Ahead, Job, Supply, lock};
use super::survey::{Segment, Survey};

/// Who needs files, who asks for them and who makes them.
pub(crate) struct Files {
    pub(crate) supply: Supply,
    pub(crate) jobs: Sender<Job>,
    pub(crate) orders: Orders,
    pub(crate) ahead: Arc<Ahead>,
}

/// The side of the thread.
pub(crate) struct Orders {
    stock: Arc<Mutex<Stock>>,
    jobs: Receiver<Job>,
    ahead: Arc<Ahead>,
}

impl Files {
    pub(crate) fn new(
        directory: &Arc<dyn Directory>,
        segment_bytes: u64,
        most_spares: usize,
        highest_index: u64,
    ) -> Self {
        let stock = Stock::new(Arc::clone(directory), segment_bytes, most_spares, highest_index);
        let stock = Arc::new(Mutex::new(stock));
        let (ahead, (jobs, orders)) = (Arc::<Ahead>::default(), channel());
        let supply = Supply::new(Arc::clone(&stock), segment_bytes, Arc::clone(&ahead), jobs.clone());
        Self { supply, jobs, orders: Orders { stock, jobs: orders, ahead: Arc::clone(&ahead) }, ahead }
    }
}

/// Takes files that hold nothing into the stock, and removes those that never became spares.
pub(crate) fn adopt(stock: &Mutex<Stock>, directory: &dyn Directory, survey: &Survey) -> Result<(), LogError> {
    let leftovers = survey.leftovers();
    for name in &leftovers {
        directory.remove(name)?;
    }
    if !leftovers.is_empty() {
        directory.sync()?;
    }
    for (name, index) in survey.spares.iter().filter_map(|name| Some((name, index_of(name)?))) {
        let device = directory.open_to_write(name)?;
        let bytes = device.len()?;
        lock(stock).give(Used { index, device, bytes, last_sequence: 0 })?;
    }
    Ok(())
}

impl Orders {
    pub(crate) fn stock(&self) -> Arc<Mutex<Stock>> {
        Arc::clone(&self.stock)
    }

    /// Does what is asked for until nobody can ask any more.
    pub(crate) fn carry_out(self, shared: &Shared) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                Job::End => return,
                Job::Prepare if self.ahead.is_asked() => {
                    let fresh = lock(&self.stock).take(0);
                    if let Err(error) = &fresh {
                        tracing::warn!(%error, "the log's next segment can't be made yet");
                    }
                    self.ahead.answer(fresh);
                }
                Job::Prepare => {}
                Job::Covered(position) => {
                    let done = cover(shared, &self.stock, position);
                    shared.covering.fetch_sub(1, Ordering::SeqCst);
                    if let Err(error) = done {
                        shared.fail(error);
                        return;
                    }
                    shared.tell();
                }
            }
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        // Nobody is to wait for what won't come, however the thread ends.
        self.ahead.close();
    }
}

/// The segments of earlier starts, to be taken away when an image covers them.
pub(crate) fn older(directory: &dyn Directory, survey: &Survey, next_sequence: u64) -> Result<Vec<Used>, LogError> {
    let ends = survey.segments.iter().skip(1).map(|segment| segment.meta.first_sequence).chain([next_sequence]);
    let mut used = Vec::new();
    for (segment, end) in survey.segments.iter().zip(ends) {
        let device = directory.open_to_write(&segment.name)?;
        let (index, bytes) = (index_of(&segment.name).unwrap_or(segment.meta.index), device.len()?);
        used.push(Used { index, device, bytes, last_sequence: end.saturating_sub(1) });
    }
    Ok(used)
}

fn cover(shared: &Shared, stock: &Mutex<Stock>, position: u64) -> Result<(), LogError> {
    if shared.failure().is_some() {
        return Ok(());
    }
    // Nobody is to wait for the device because of the lock.
    let pending = lock(&shared.chain).come_in_force();
    for (device, meta) in &pending {
        mark_in_force(&**device, meta)?;
    }
    let covered = lock(&shared.chain).take_covered(position);
    shared.publish_files();
    let mut stock = lock(stock);
    for used in covered {
        if let Err(error) = stock.give(used) {
            // It only takes space, and the next start tries again.
            tracing::warn!(%error, "a log segment that is no longer needed can't be removed");
        }
    }
    lock(&shared.stats).spare_bytes = stock.spare_bytes();
    Ok(())
}

/// Removes the segments of a log of this dataset that isn't written to whose records an image covers. Returns how many
/// segments are left.
///
/// # Errors
/// The directory can't be read, a file not be removed, or it is another dataset's log.
pub fn remove_covered(directory: &dyn Directory, dataset: u64, position: u64) -> Result<usize, LogError> {
    let survey = Survey::of(directory, position)?;
    survey.check_dataset(dataset)?;
    let mut left = 0;
    for (at, segment) in survey.segments.iter().enumerate() {
        let next = survey.segments.get(at + 1);
        // Where nothing follows only the records themselves say where they end.
        let covered = match next {
            Some(next) => next.meta.first_sequence <= position + 1,
            None => last_sequence(segment)? <= position,
        };
        if covered {
            directory.remove(&segment.name)?;
        } else {
            left += 1;
        }
    }
    for name in survey.spares.iter().chain(&survey.leftovers()) {
        directory.remove(name)?;
    }
    Ok(left)
}

/// Gives damaged files names that are no segment's, and returns these. An image must hold what was read of them.
///
/// # Errors
/// The directory refuses.
pub fn set_aside(directory: &dyn Directory, names: &[String], unix_ms: u64) -> Result<Vec<String>, LogError> {
    let mut kept = Vec::new();
    for name in names {
        let aside = format!("{name}.damaged-{unix_ms}");
        directory.rename(name, &aside)?;
        kept.push(aside);
    }
    directory.sync()?;
    Ok(kept)
}

fn last_sequence(segment: &Segment) -> Result<u64, LogError> {
    let mut scanner = Scanner::new(segment);
    while scanner.step()?.is_some() {}
    Ok(scanner.expected() - 1)
}
