//! When and how often a key was used, in the 32 bits of its entry's header: the second of the last access (24 bits, which go round
//! in 194 days, as Redis' do) and a logarithmic counter of accesses (8 bits). Both are always there, so a change of the policy of
//! eviction finds what it goes by; the counter moves only while accesses are counted ([`Keyspace::set_access_counting`]).
//!
//! A read writes these bits without passing the write barrier ([`quire_arena::Arena::hint_mut`]), and not at all while a snapshot is
//! open or memory is being restored: an access must not cost a copy of its page. Redis, too, leaves them while a child process saves.
//! A write of the key sets them in any case, in a page that it changes anyway.

use quire_rng::SplitMix64;

use crate::db::DbId;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::entry::{Entry, EntryHeader};

/// The bits of the second.
const SECONDS: u32 = (1 << 24) - 1;
/// A clock that was set back by at most so much makes no key look old.
const SET_BACK_SECONDS: u32 = 24 * 3600;
/// What a new key's counter says, so that it isn't gone before it can be used again.
const NEW_COUNT: u8 = 5;

/// How accesses are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessCounting {
    /// The larger, the more accesses it takes to move a counter (`lfu-log-factor`).
    pub log_factor: u32,
    /// A counter falls by one in so many minutes without an access; 0 means never (`lfu-decay-time`).
    pub decay_minutes: u32,
}

/// What time it is for keys.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(super) now_ms: i64,
    /// `now_ms` in seconds, as entries have it.
    pub(crate) seconds: u32,
    /// Whether commands note accesses.
    pub(super) touching: bool,
    /// How accesses are counted, if they are.
    pub(super) counting: Option<AccessCounting>,
    /// Keys whose time has come stay for now ([`Keyspace::set_holding_expired`]).
    pub(super) holding_expired: bool,
}

impl Clock {
    pub(super) fn decay_minutes(&self) -> u32 {
        self.counting.map_or(0, |counting| counting.decay_minutes)
    }
}

/// When and how often a key was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AccessStamp(u32);

impl AccessStamp {
    /// As an entry's header has it.
    #[inline]
    pub(crate) fn of(entry: &Entry) -> AccessStamp {
        AccessStamp(entry.header.clock)
    }

    /// That of a new key.
    #[inline]
    pub(crate) fn new(seconds: u32) -> AccessStamp {
        AccessStamp::with(NEW_COUNT, seconds)
    }

    #[inline]
    fn with(count: u8, seconds: u32) -> AccessStamp {
        AccessStamp(u32::from(count) << 24 | seconds & SECONDS)
    }

    /// As an entry's header has it.
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    /// The same, used now.
    #[inline]
    fn at(self, seconds: u32) -> AccessStamp {
        AccessStamp(self.0 & !SECONDS | seconds & SECONDS)
    }

    fn count(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// Seconds since the last access.
    pub(crate) fn idle_seconds(self, now_seconds: u32) -> u32 {
        let idle = now_seconds.wrapping_sub(self.0) & SECONDS;
        if idle > SECONDS - SET_BACK_SECONDS { 0 } else { idle }
    }

    /// What the counter says after the minutes that have begun since the last access.
    pub(crate) fn count_now(self, now_seconds: u32, decay_minutes: u32) -> u8 {
        let last_seconds = now_seconds.saturating_sub(self.idle_seconds(now_seconds));
        let minutes = now_seconds / 60 - last_seconds / 60;
        let periods = minutes.checked_div(decay_minutes).unwrap_or(0);
        self.count().saturating_sub(periods.min(255) as u8)
    }

    /// The stamp after an access that is counted.
    fn counted(self, now_seconds: u32, counting: AccessCounting, rng: &mut SplitMix64) -> AccessStamp {
        let count = self.count_now(now_seconds, counting.decay_minutes);
        let above_new = f64::from(count.saturating_sub(NEW_COUNT));
        let probability = 1.0 / (above_new * f64::from(counting.log_factor) + 1.0);
        let counts = count < u8::MAX && rng.next_f64() < probability;
        AccessStamp::with(count + u8::from(counts), now_seconds)
    }
}

/// The stamp of a key after an access to it now.
#[inline]
pub(super) fn stamp_used(keyspace: &mut Keyspace, stamp: AccessStamp) -> AccessStamp {
    let seconds = keyspace.clock.seconds;
    match keyspace.clock.counting {
        None => stamp.at(seconds),
        Some(counting) => stamp.counted(seconds, counting, &mut keyspace.rng),
    }
}

/// The entry of a key, to be looked at, with an access noted.
#[inline]
pub(super) fn look_up_used(keyspace: &mut Keyspace, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
    let found = keyspace.look_up(db, key)?;
    if keyspace.clock.touching
        && let Some(entry) = &found
    {
        note_access(keyspace, entry);
    }
    Ok(found)
}

/// Notes an access, if that costs no copy of a page.
#[inline]
pub(super) fn note_access(keyspace: &mut Keyspace, entry: &Entry) {
    let stamp = stamp_used(keyspace, AccessStamp::of(entry));
    if stamp.raw() != entry.header.clock {
        set_stamp(keyspace, &Entry { header: EntryHeader { clock: stamp.raw(), ..entry.header }, ..*entry });
    }
}

/// Has an entry look as if it was last accessed so many seconds ago.
pub(super) fn set_idle(keyspace: &mut Keyspace, entry: &Entry, idle_s: u64) {
    let idle_s = idle_s.min(u64::from(SECONDS - SET_BACK_SECONDS)) as u32;
    let stamp = AccessStamp::of(entry).at(keyspace.clock.seconds.wrapping_sub(idle_s));
    set_stamp(keyspace, &Entry { header: EntryHeader { clock: stamp.raw(), ..entry.header }, ..*entry });
}

/// Has an entry's counter of accesses say this, as of now.
pub(super) fn set_count(keyspace: &mut Keyspace, entry: &Entry, count: u8) {
    let stamp = AccessStamp::with(count, keyspace.clock.seconds);
    set_stamp(keyspace, &Entry { header: EntryHeader { clock: stamp.raw(), ..entry.header }, ..*entry });
}

/// Writes the stamp of an entry that was looked up to be written to, and whose page was changed, but perhaps not its header.
#[inline]
pub(super) fn set_stamp(keyspace: &mut Keyspace, entry: &Entry) {
    if let Some(header) = keyspace.heap.arena.hint_mut::<EntryHeader>(entry.handle) {
        header.clock = entry.header.clock;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTING: AccessCounting = AccessCounting { log_factor: 10, decay_minutes: 1 };
    /// 2026, far beyond what 24 bits hold.
    const NOW: u32 = 1_767_225_600;

    #[test]
    fn idle_time_is_right_for_half_a_year_wherever_the_clock_goes_round() {
        for began in [NOW, NOW | SECONDS, (NOW | SECONDS) + 1, 0] {
            let stamp = AccessStamp::new(began);
            for idle in [0, 1, 59, 86_400, 190 * 86_400] {
                assert_eq!(stamp.idle_seconds(began + idle), idle, "since {began}");
            }
        }
        assert_eq!(AccessStamp::new(NOW).idle_seconds(NOW - 3600), 0, "the clock was set back");
    }

    #[test]
    fn a_counter_falls_by_one_for_each_minute_that_began() {
        let stamp = AccessStamp::with(20, NOW + 59);
        for (seconds, decay_minutes, count) in
            [(59, 1, 20), (60, 1, 19), (119, 1, 19), (600, 1, 10), (600, 5, 18), (86_400, 1, 0), (86_400, 0, 20)]
        {
            assert_eq!(stamp.count_now(NOW + seconds, decay_minutes), count, "after {seconds} s");
        }
    }

    #[test]
    fn a_counter_grows_like_the_logarithm_of_the_accesses() {
        // Redis' documentation has these means for factor 10.
        for (accesses, least, most) in [(100, 7, 14), (1000, 14, 22), (100_000, 130, 155), (1_000_000, 255, 255)] {
            let mut rng = SplitMix64::new(7);
            let mut stamp = AccessStamp::new(NOW);
            (0..accesses).for_each(|_| stamp = stamp.counted(NOW, COUNTING, &mut rng));
            assert!((least..=most).contains(&stamp.count()), "{} after {accesses}", stamp.count());
        }
    }

    #[test]
    fn a_counter_stays_while_accesses_are_not_counted() {
        let stamp = AccessStamp::with(77, NOW).at(NOW + 10);
        assert_eq!((stamp.count(), stamp.idle_seconds(NOW + 10)), (77, 0));
    }
}
