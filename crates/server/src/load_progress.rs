//! How far the data of a start is loaded: told by the thread that loads it, read by clients that ask meanwhile. Relies on nothing.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What of the data is loaded.
#[derive(Clone, Copy, Default, Debug)]
struct LoadedParts {
    /// Bytes of the parts before the one that is being loaded.
    before: u64,
    loaded: u64,
    /// Bytes of that one.
    total: u64,
}

/// The loading of the data at a start.
#[derive(Debug)]
pub struct LoadProgress {
    began: Instant,
    began_unix_s: i64,
    parts: Mutex<LoadedParts>,
}

/// What INFO tells of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadFigures {
    /// When it began, Unix seconds.
    pub began_unix_s: i64,
    /// Bytes to be read, as far as that is known yet.
    pub total_bytes: u64,
    /// Bytes that were read.
    pub loaded_bytes: u64,
    /// The same as a part of a hundred.
    pub percent: f64,
    /// How long it will still take if it goes on as it did.
    pub eta_s: u64,
}

impl LoadProgress {
    /// Of a loading that begins now.
    pub fn new(unix_s: i64) -> Self {
        Self { began: Instant::now(), began_unix_s: unix_s, parts: Mutex::default() }
    }

    /// A part of the data is loaded, a file or several: so many bytes of it are.
    pub fn tell(&self, loaded: u64, total: u64) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        (parts.loaded, parts.total) = (loaded.min(total), total);
    }

    /// The part is loaded; another one may follow.
    pub fn end_part(&self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        *parts = LoadedParts { before: parts.before + parts.total, ..LoadedParts::default() };
    }

    /// How long it has taken.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// What INFO tells.
    pub fn figures(&self) -> LoadFigures {
        let parts = *self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        self.figures_after(parts, self.began.elapsed())
    }

    fn figures_after(&self, parts: LoadedParts, elapsed: Duration) -> LoadFigures {
        let (loaded_bytes, total_bytes) = (parts.before + parts.loaded, parts.before + parts.total);
        let percent = if total_bytes == 0 { 0.0 } else { loaded_bytes as f64 * 100.0 / total_bytes as f64 };
        // In the first second nothing is known, and one second is told, as Redis does.
        let eta_s = match elapsed.as_secs() {
            0 => 1,
            passed_s => {
                let left = u128::from(total_bytes - loaded_bytes) * u128::from(passed_s);
                u64::try_from(left / (u128::from(loaded_bytes) + 1)).unwrap_or(u64::MAX)
            }
        };
        LoadFigures { began_unix_s: self.began_unix_s, total_bytes, loaded_bytes, percent, eta_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_the_rest_is_estimated() {
        let progress = LoadProgress::new(7);
        let figures = |parts, seconds| {
            let LoadFigures { total_bytes, loaded_bytes, percent, eta_s, .. } =
                progress.figures_after(parts, Duration::from_secs(seconds));
            (loaded_bytes, total_bytes, percent, eta_s)
        };
        assert_eq!(figures(LoadedParts::default(), 0), (0, 0, 0.0, 1));
        assert_eq!(figures(LoadedParts { before: 0, loaded: 99, total: 400 }, 2), (99, 400, 24.75, 6));
        progress.tell(400, 400);
        progress.end_part();
        // A file may grow while it is read.
        progress.tell(500, 100);
        let parts = *progress.parts.lock().unwrap();
        assert_eq!(figures(parts, 10), (500, 500, 100.0, 0));
        assert_eq!(progress.figures().began_unix_s, 7);
    }
}
