//! The thread that serves faults for writers that can't do it themselves, since SIGBUS is blocked in them.
//!
//! Relies on [`super::registry`], like the signal's handler: it waits for no other thread, and a thread that gives a range up waits
//! for it. A writer
//! sleeps in the kernel until it is woken, and then tries again.

use std::sync::Arc;

use quire_sys::signal::FaultAccess;
use quire_sys::thread::spawn_unsignalled;
use quire_sys::userfault::{Userfault, WaitWaker};

use super::registry;
use crate::page::PAGE_SIZE;

/// The thread, which ends when this is dropped.
pub(super) struct FaultThread(Arc<WaitWaker>);

impl FaultThread {
    /// Serves the faults of `fault`.
    ///
    /// # Errors
    /// The system has no more threads, or descriptors.
    pub(super) fn start(fault: &Arc<Userfault>) -> std::io::Result<Self> {
        let bell = Arc::new(WaitWaker::new()?);
        let (fault, heard) = (Arc::clone(fault), Arc::clone(&bell));
        spawn_unsignalled("quire-faults", move || run(&fault, &heard))?;
        Ok(Self(bell))
    }
}

impl Drop for FaultThread {
    fn drop(&mut self) {
        self.0.ring();
    }
}

fn run(fault: &Userfault, bell: &WaitWaker) {
    while fault.wait(Some(bell)).is_ok_and(|is_fault| is_fault) {
        while let Ok(Some(met)) = fault.next() {
            // What isn't ours any more is tried again as well.
            registry::on_fault(FaultAccess { address: met.address as *mut u8, is_store: true });
            let _ = fault.wake((met.address / PAGE_SIZE * PAGE_SIZE) as *mut u8, PAGE_SIZE);
        }
    }
}
