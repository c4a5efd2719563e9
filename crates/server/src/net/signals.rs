//! SIGTERM and SIGINT: the first asks the loop to end, a second SIGINT leaves at once. SIGHUP does nothing here: the server
//! outlives its terminal. (The program around it may open its logfile anew.)

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::UnixStream;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit status when SIGINT came twice.
const INSISTED_STATUS: i32 = 1;

/// Becomes readable when a signal came.
pub(super) struct Signals {
    pub pipe: UnixStream,
    /// SIGINT came, so another one leaves at once.
    asked: Arc<AtomicBool>,
}

impl Signals {
    /// From here on the signals are ours.
    pub fn watch() -> io::Result<Self> {
        let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let asked = Arc::new(AtomicBool::new(false));
        // In this order: the check of a second SIGINT must come before the first one is noted.
        signal_hook::flag::register_conditional_shutdown(SIGINT, INSISTED_STATUS, Arc::clone(&asked))?;
        signal_hook::flag::register(SIGINT, Arc::clone(&asked))?;
        signal_hook::low_level::pipe::register(SIGINT, writer.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGTERM, writer)?;
        signal_hook::flag::register(SIGHUP, Arc::new(AtomicBool::new(false)))?;
        Ok(Self { pipe: UnixStream::from_std(reader), asked })
    }

    /// The server stays, so that the next SIGINT is a first one again. It must not leave without a save that may well be
    /// possible by then.
    pub fn forget(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Takes the signals that came; true if any did.
    pub fn drain(&mut self) -> bool {
        let mut bytes = [0u8; 64];
        let mut any = false;
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {
            any = true;
        }
        any
    }
}
