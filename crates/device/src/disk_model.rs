//! How fast a simulated device is, and when it will have done its work.
//!
//! Relies on the clock only. A device does one thing after the other, in the order in which it was told.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quire_sys::transfer::{Direction, Extent};

/// How fast a device is. By default nothing is limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Time that every part of a transfer takes, whatever its size, and every flush unless `flush_ns` is given.
    pub operation_ns: u64,
    /// Time that passes after the device's own work until its caller hears of it. The device does other work meanwhile, so
    /// several transfers in flight are faster than one at a time.
    pub latency_ns: u64,
    /// Time that every flush takes.
    pub flush_ns: Option<u64>,
    /// Parts of transfers a second that are read, at most.
    pub reads_per_s: Option<u64>,
    /// Parts of transfers a second that are written, at most.
    pub writes_per_s: Option<u64>,
    /// The way of a head, if there is one.
    pub seek: Option<SeekModel>,
}

impl Default for DiskModel {
    fn default() -> Self {
        Self {
            bytes_per_s: u64::MAX,
            operation_ns: 0,
            latency_ns: 0,
            flush_ns: None,
            reads_per_s: None,
            writes_per_s: None,
            seek: None,
        }
    }
}

impl DiskModel {
    /// A hard disk of 7,200 turns a minute: about 160 MB/s one after the other, and about 150 scattered operations a
    /// second, fewer the farther apart they are.
    pub const fn hard_disk() -> Self {
        // Half a turn comes with every way of the head; a flush waits for a whole one.
        let seek = SeekModel { least_ns: 5_000_000, most_ns: 20_000_000, span_bytes: 1 << 40 };
        Self {
            bytes_per_s: 160_000_000,
            operation_ns: 50_000,
            latency_ns: 0,
            flush_ns: Some(8_300_000),
            reads_per_s: None,
            writes_per_s: None,
            seek: Some(seek),
        }
    }

    fn of_part(&self, direction: Direction, len: usize, seek_ns: u64) -> u64 {
        let transfer_ns = len as u128 * 1_000_000_000 / u128::from(self.bytes_per_s.max(1));
        let transfer_ns = u64::try_from(transfer_ns).unwrap_or(u64::MAX);
        let limit = match direction {
            Direction::Read => self.reads_per_s,
            Direction::Write => self.writes_per_s,
        };
        let least_ns = limit.map_or(0, |per_s| 1_000_000_000 / per_s.max(1));
        transfer_ns.saturating_add(self.operation_ns).saturating_add(seek_ns).max(least_ns)
    }
}

/// How long a head takes from where the last operation ended to where the next one begins. On from there it takes no
/// time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeekModel {
    /// The shortest way.
    pub least_ns: u64,
    /// A way of `span_bytes` or more.
    pub most_ns: u64,
    /// Bytes from one end to the other. From one file to another it is taken to be a third of that.
    pub span_bytes: u64,
}

impl SeekModel {
    /// Time for a way of so many bytes.
    fn time_ns(&self, distance_bytes: u64) -> u64 {
        if distance_bytes == 0 {
            return 0;
        }
        // The head speeds up and slows down again: its time grows with the root of its way.
        let way = (distance_bytes as f64 / self.span_bytes.max(1) as f64).min(1.0).sqrt();
        self.least_ns.saturating_add((self.most_ns.saturating_sub(self.least_ns) as f64 * way) as u64)
    }
}

/// Says when work will be done.
#[derive(Debug)]
pub(crate) struct DiskClock {
    pace: DiskModel,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the device will have done everything that it was given.
    free_at: Instant,
    head: Head,
}

/// Where the last operation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    file: u64,
    offset: u64,
}

impl Head {
    /// Moves to a place; returns how far that is, in bytes.
    fn go(&mut self, to: Head, span_bytes: u64) -> u64 {
        let from = std::mem::replace(self, to);
        if from.file == to.file { from.offset.abs_diff(to.offset) } else { span_bytes / 3 }
    }
}

impl DiskClock {
    pub(crate) fn new(pace: DiskModel) -> Self {
        Self { pace, state: Mutex::new(State { free_at: Instant::now(), head: Head::default() }) }
    }

    /// Books the parts of a transfer of a file (of this number); returns when it ends.
    pub(crate) fn book(&self, file: u64, direction: Direction, parts: &[Extent]) -> Instant {
        self.add(|head| parts.iter().map(|part| self.part_ns(head, file, direction, part)).fold(0, u64::saturating_add))
    }

    /// Books a flush; returns when it ends.
    pub(crate) fn book_flush(&self) -> Instant {
        self.add(|_| self.pace.flush_ns.unwrap_or(self.pace.operation_ns))
    }

    fn part_ns(&self, head: &mut Head, file: u64, direction: Direction, part: &Extent) -> u64 {
        let seek_ns =
            self.pace.seek.map_or(0, |seek| seek.time_ns(head.go(Head { file, offset: part.offset }, seek.span_bytes)));
        *head = Head { file, offset: part.offset + part.len as u64 };
        self.pace.of_part(direction, part.len, seek_ns)
    }

    fn add(&self, busy_ns: impl FnOnce(&mut Head) -> u64) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Centuries are long enough, and can be added up.
        let busy = Duration::from_nanos(busy_ns(&mut state.head).min(u64::MAX / 4));
        state.free_at = state.free_at.max(Instant::now()) + busy;
        state.free_at + Duration::from_nanos(self.pace.latency_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskModel = DiskModel::hard_disk();

    /// How long parts at these offsets, 1 MB each, keep a device busy, in ns.
    fn busy_ns(pace: DiskModel, direction: Direction, places: &[(u64, u64)]) -> u64 {
        let clock = DiskClock::new(pace);
        let mut head = Head::default();
        let part = |offset| Extent { offset, start: 0, len: 1_000_000 };
        places.iter().map(|&(file, offset)| clock.part_ns(&mut head, file, direction, &part(offset))).sum()
    }

    #[test]
    fn nothing_is_limited_by_default() {
        assert_eq!(busy_ns(DiskModel::default(), Direction::Read, &[(0, 0), (3, 1 << 40)]), 0);
    }

    #[test]
    fn a_head_stays_where_it_is_for_what_comes_next() {
        let one = 50_000 + 1_000_000 * 1000 / 160;
        assert_eq!(busy_ns(DISK, Direction::Read, &[(0, 0), (0, 1_000_000), (0, 2_000_000)]), 3 * one);
    }

    #[test]
    fn a_head_takes_longer_for_a_longer_way() {
        let times: Vec<u64> =
            [0, 4096, 1 << 20, 1 << 30, 1 << 40, 1 << 50].map(|way| DISK.seek.unwrap().time_ns(way)).into();
        assert!(times.is_sorted() && times[0] == 0 && times[1] >= 5_000_000, "{times:?}");
        assert_eq!(times[4..], [20_000_000, 20_000_000]);
        let near = busy_ns(DISK, Direction::Write, &[(0, 0), (0, 2_000_000)]);
        let elsewhere = busy_ns(DISK, Direction::Write, &[(0, 0), (1, 1_000_000)]);
        assert!(near < elsewhere);
    }

    #[test]
    fn operations_a_second_are_limited_apart() {
        let pace = DiskModel { reads_per_s: Some(100), writes_per_s: Some(1000), ..DiskModel::default() };
        assert_eq!(busy_ns(pace, Direction::Read, &[(0, 0), (0, 5)]), 20_000_000);
        assert_eq!(busy_ns(pace, Direction::Write, &[(0, 0), (0, 5)]), 2_000_000);
    }

    #[test]
    fn latency_adds_nothing_to_the_work() {
        let clock =
            DiskClock::new(DiskModel { operation_ns: 1_000_000, latency_ns: 1_000_000_000, ..DiskModel::default() });
        let part = [Extent { offset: 0, start: 0, len: 1 }];
        let ends: Vec<Instant> = (0..50).map(|_| clock.book(0, Direction::Read, &part)).collect();
        assert!(ends.is_sorted());
        let work = ends[49].duration_since(ends[0]);
        assert!(work >= Duration::from_millis(49), "{work:?}");
        let after = clock.book_flush().duration_since(ends[49]);
        assert!(after >= Duration::from_millis(1), "{after:?}");
    }
}
