//! Where a writer gets its next file from: made ahead by the thread that looks after files, or at once.
//!
//! Relies on the stock for the files themselves. Asking ahead keeps the making of files, which takes many writes, away from
//! the commits; and a full disk is noticed while there is still room for what has begun.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quire_device::DeviceError;

use super::error::LogError;
use super::stock::{Fresh, Stock};

/// Work for the thread that looks after files.
pub(crate) enum Job {
    /// Make an ordinary file ready.
    Prepare,
    /// There is no more.
    End,
    /// A durable image holds the effect of all records up to this one.
    Covered(u64),
}

/// What has become of the file that was asked for ahead.
#[derive(Default)]
enum Order {
    /// None was.
    #[default]
    Nothing,
    /// It is being made, or will be; why the last attempt failed, if there was one.
    Asked(Option<DeviceError>),
    Ready(Fresh),
    Failed(DeviceError),
    /// The thread has ended; nobody makes files ahead any more.
    Over,
}

/// The file that was asked for ahead.
#[derive(Default)]
pub(crate) struct Ahead {
    order: Mutex<Order>,
    answered: Condvar,
}

impl Ahead {
    /// True if a file is wanted that nobody is making: whoever gets this answer has to ask for it.
    fn begin(&self, again: bool) -> bool {
        let mut order = lock(&self.order);
        let before = match (&*order, again) {
            (Order::Nothing, false) => None,
            (Order::Failed(error), true) => Some(error.clone()),
            _ => return false,
        };
        *order = Order::Asked(before);
        true
    }

    /// The file, once it is there or it is known that it won't be.
    fn wait(&self) -> Option<Fresh> {
        let mut order = lock(&self.order);
        while matches!(*order, Order::Asked(_)) {
            order = self.answered.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::take(&mut *order) {
            Order::Ready(fresh) => Some(fresh),
            Order::Over => {
                *order = Order::Over;
                None
            }
            _ => None,
        }
    }

    /// Whether it is waited for.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(*lock(&self.order), Order::Asked(_))
    }

    /// Here it is, or why it is not.
    pub(crate) fn answer(&self, made: Result<Fresh, DeviceError>) {
        *lock(&self.order) = made.map_or_else(Order::Failed, Order::Ready);
        self.answered.notify_all();
    }

    /// No more answers will come.
    pub(crate) fn close(&self) {
        *lock(&self.order) = Order::Over;
        self.answered.notify_all();
    }

    /// Why the file couldn't be made.
    pub(crate) fn shortage(&self) -> Option<DeviceError> {
        match &*lock(&self.order) {
            // While it is tried again nothing is known to be better.
            Order::Failed(error) | Order::Asked(Some(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Has a file that couldn't be made tried once more.
    pub(crate) fn retry(&self, jobs: &Sender<Job>) {
        if self.begin(true) && jobs.send(Job::Prepare).is_err() {
            self.close();
        }
    }
}

/// Where the next file comes from.
pub(crate) struct Supply {
    stock: Arc<Mutex<Stock>>,
    /// Bytes of an ordinary file.
    pub(crate) segment_bytes: u64,
    ahead: Arc<Ahead>,
    jobs: Sender<Job>,
}

/// Locks; a thread that panicked has left nothing half done that matters.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Supply {
    /// Asks there, and takes what was not asked for from the stock itself.
    pub(crate) fn new(stock: Arc<Mutex<Stock>>, segment_bytes: u64, ahead: Arc<Ahead>, jobs: Sender<Job>) -> Self {
        Self { stock, segment_bytes, ahead, jobs }
    }

    /// A file will be needed before long.
    pub(crate) fn ask(&mut self) {
        if self.ahead.begin(false) && self.jobs.send(Job::Prepare).is_err() {
            self.ahead.close();
        }
    }

    /// A file of at least so many bytes.
    pub(crate) fn next(&mut self, least_bytes: u64) -> Result<Fresh, LogError> {
        if least_bytes <= self.segment_bytes
            && let Some(fresh) = self.ahead.wait()
        {
            return Ok(fresh);
        }
        // What failed ahead, for want of space perhaps, is tried once more now that it matters.
        Ok(lock(&self.stock).take(least_bytes)?)
    }
}
