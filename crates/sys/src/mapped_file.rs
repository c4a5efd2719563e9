//! What to say when memory that is mapped from a file can't be had any more: the file was cut short, or its disk fails.
//!
//! Relies on [`crate::signal`]. The system ends a process that touches such a page, by SIGBUS and without a word. Here the words are
//! written to standard error first; the end stays the same.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::signal::{FaultAccess, on_bus_error};

/// Most ranges that are told of at a time.
const MOST: usize = 8;

/// A range of addresses and what is written of it. Never changed once it is published.
struct Notice {
    memory: Range<usize>,
    text: String,
}

static PLACES: [AtomicPtr<Notice>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];

/// While it lives, the cause is written to standard error before a lost page of a range ends the process.
#[derive(Debug)]
pub struct FaultNotice {
    place: usize,
}

impl FaultNotice {
    /// Has `text` written if a page of `memory`, a range of addresses, is lost. Text and range stay allocated for ever (a handler may
    /// be reading them), so this is for few ranges, such as the image that a server starts from.
    ///
    /// # Errors
    /// As `sigaction`, or too many ranges or handlers are there already.
    pub fn new(memory: Range<usize>, text: &str) -> io::Result<Self> {
        // SAFETY: `tell` reads atomics and writes to a descriptor; it takes no lock, allocates nothing and returns.
        unsafe { on_bus_error(tell)? };
        let notice = Box::into_raw(Box::new(Notice { memory, text: text.to_owned() }));
        // Publishes the notice to the load in `tell`.
        let publish = |place: &AtomicPtr<Notice>| {
            place.compare_exchange(std::ptr::null_mut(), notice, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        if let Some(place) = PLACES.iter().position(publish) {
            return Ok(Self { place });
        }
        // SAFETY: it was made from a box above and published nowhere.
        drop(unsafe { Box::from_raw(notice) });
        Err(io::Error::other("all places for notices of lost pages are taken"))
    }
}

impl Drop for FaultNotice {
    fn drop(&mut self) {
        PLACES[self.place].store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Writes the text of the range that was touched. Never deals with the fault.
fn tell(touch: FaultAccess) -> bool {
    for place in &PLACES {
        // Pairs with the publication in `new`.
        let notice = place.load(Ordering::Acquire);
        // SAFETY: a notice that was published is never changed and never freed.
        let Some(notice) = (unsafe { notice.as_ref() }) else { continue };
        if notice.memory.contains(&(touch.address as usize)) {
            // SAFETY: the text is readable as long as the process lives. If it can't be written there is no other place for it.
            unsafe { libc::write(libc::STDERR_FILENO, notice.text.as_ptr().cast(), notice.text.len()) };
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{WaitStatus, fork_by_library};
    use crate::map::memory_file;
    use crate::mem::{PAGE_SIZE, Reservation};
    use std::os::fd::AsRawFd;

    #[test]
    fn the_cause_is_written_before_a_page_beyond_the_files_end_ends_the_process() {
        let output = memory_file("stderr", 0).unwrap();
        let file = memory_file("image", PAGE_SIZE as u64).unwrap();
        let mut run = || {
            // SAFETY: the child's own standard error, and its own memory.
            unsafe { libc::dup2(output.as_raw_fd(), libc::STDERR_FILENO) };
            let memory = Reservation::new(PAGE_SIZE).unwrap();
            memory.map_file_private(0..PAGE_SIZE, &file, 0).unwrap();
            let start = memory.base() as usize;
            let other = FaultNotice::new(0..start, "another range\n").unwrap();
            let gone = FaultNotice::new(start..start + PAGE_SIZE, "no longer\n").unwrap();
            drop(gone);
            let told = FaultNotice::new(start..start + PAGE_SIZE, "the file was cut short\n").unwrap();
            file.set_len(0).unwrap();
            // SAFETY: mapped above; the access ends this process.
            let byte = unsafe { memory.base().read_volatile() };
            drop((other, told));
            i32::from(byte)
        };
        // SAFETY: the C library's fork lets the child allocate.
        let ending = unsafe { fork_by_library(&mut run) }.unwrap().wait();
        assert_eq!(ending, WaitStatus::Killed(libc::SIGBUS));
        let mut text = vec![0; 100];
        let read = std::os::unix::fs::FileExt::read_at(&output, &mut text, 0).unwrap();
        assert_eq!(String::from_utf8_lossy(&text[..read]), "the file was cut short\n");
    }
}
