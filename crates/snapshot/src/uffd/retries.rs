//! How often a writer's fault is tried again when the kernel does not unprotect the page.
//!
//! Relies on nothing but system calls, as it runs in signal handlers. A writer must not fault for ever: the only sign of that
//! would be the processor time that it takes.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quire_sys::{bare_thread, guest};

/// So many failures in a row, of all writers together, are borne, each with a pause.
const MOST: u32 = if cfg!(test) { 50 } else { 5_000 };
const PAUSE: Duration = Duration::from_millis(1);

/// The failures in a row.
#[derive(Debug, Default)]
pub(super) struct UnprotectRetries(AtomicU32);

impl UnprotectRetries {
    /// Whether the writer whose page was `unprotected`, or not, is to try again. If not, it gets the signal as if nothing guarded the range;
    /// one that `is_served` by a thread gets none, and the process ends here.
    pub(super) fn go_on(&self, unprotected: io::Result<()>, is_served: bool) -> bool {
        let Err(error) = unprotected else {
            // Not stored where nothing changes: writers on all processors come here.
            if self.0.load(Ordering::Relaxed) != 0 {
                self.0.store(0, Ordering::Relaxed);
            }
            return true;
        };
        let failures = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < MOST {
            bare_thread::sleep(PAUSE);
            return true;
        }
        tell(error.raw_os_error().unwrap_or(0));
        if is_served {
            std::process::abort();
        }
        false
    }
}

/// Says why, without the heap.
fn tell(error: i32) {
    use std::io::Write;
    let mut line = [0_u8; 256];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "quire: a page that a snapshot protects can't be opened for its writer (UFFDIO_WRITEPROTECT: error {error}); the program \
         ends, as the writer would wait for ever. Look at the memory limit."
    );
    let left = rest.len();
    guest::write_once(guest::standard_error(), &line[..line.len() - left]);
}
