//! A queue of a device whose transfers end where they begin: in memory, doing nothing, or standing for one of these.
//!
//! Relies on [`Device::run`].

use std::collections::VecDeque;

use quire_sys::transfer::Transfer;

use crate::device::{Completion, Device, Queue};

/// Carries out each transfer when it is submitted. Any depth will do.
pub struct InlineQueue<D> {
    device: D,
    ended: VecDeque<Completion>,
}

impl<D: Device> InlineQueue<D> {
    /// Of `device`.
    pub fn new(device: D) -> Self {
        Self { device, ended: VecDeque::new() }
    }
}

impl<D: Device> Queue for InlineQueue<D> {
    fn submit(&mut self, mut transfer: Transfer) {
        let result = self.device.run(&mut transfer);
        self.ended.push_back(Completion { transfer, result });
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        transfers.into_iter().for_each(|transfer| self.submit(transfer));
    }

    fn complete(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    fn poll(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.ended.len()
    }
}
