//! A pool of threads that carries transfers out with ordinary reads and writes, where io_uring is forbidden.
//!
//! Relies on nothing but positioned reads and writes. A large transfer of many parts is one thread's work.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_sys::transfer::{Direction, Transfer};

use crate::device::{Finished, Queue};
use crate::error::{Action, DeviceError};
use crate::target::Target;

/// More threads than this gain nothing with large transfers.
const MAX_THREADS: usize = 8;

pub(crate) struct Threads {
    work: Option<Sender<Transfer>>,
    done: Receiver<Finished>,
    in_flight: usize,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(crate) fn new(target: Arc<Target>, depth: usize) -> Result<Self, DeviceError> {
        let (work, jobs) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut pool = Self { work: Some(work), done, in_flight: 0, workers: Vec::new() };
        for number in 0..depth.clamp(1, MAX_THREADS) {
            let (target, jobs, report) = (Arc::clone(&target), Arc::clone(&jobs), report.clone());
            let name = target.name.clone();
            let worker = std::thread::Builder::new()
                .name(format!("quire-io-{number}"))
                .spawn(move || work_off(&target, &jobs, &report))
                .map_err(|error| DeviceError::new(Action::Buffers, name, &error))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }
}

fn work_off(target: &Target, jobs: &Mutex<Receiver<Transfer>>, report: &Sender<Finished>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut transfer) = job else { return };
        let result = match transfer.direction {
            Direction::Write => target.check(),
            Direction::Read => Ok(()),
        };
        let result =
            result.and_then(|()| transfer.run(&target.file).map_err(|error| target.error(transfer.direction, &error)));
        if report.send(Finished { transfer, result }).is_err() {
            return;
        }
    }
}

impl Queue for Threads {
    fn submit(&mut self, transfer: Transfer) {
        transfer.check();
        if let Some(work) = &self.work
            && work.send(transfer).is_ok()
        {
            self.in_flight += 1;
        }
    }

    fn complete(&mut self) -> Option<Finished> {
        if self.in_flight == 0 {
            return None;
        }
        self.in_flight -= 1;
        self.done.recv().ok()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The workers end when no more work can come, after what was submitted.
        self.work = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}
