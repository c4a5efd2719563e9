//! The truncations of one volume that the log holds and of which it does not know yet that they are on the slow device.
//!
//! A truncation is *pending* from the moment when its record is durable until the log knows that it is on the device (a
//! durable `TruncateDone`), or no longer knows the truncation (its tail has passed the record). The *fence* is the lowest
//! length of all pending truncations: behind it nothing is issued to the slow device. The *floor* is that of the
//! truncations that the device may lack: what it holds behind that is void.
//!
//! Pure state; relies on the cache state's lock.

use quire_device::{Device, DeviceError};

/// Truncations whose records are durable, and that are carried out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    /// The lowest of their lengths.
    floor: u64,
    /// Bytes of the volume after the last of them.
    len: u64,
    /// Where the record of the first of them ends, and that of the last.
    first_end_lsn: u64,
    /// See `first_end_lsn`.
    end_lsn: u64,
    /// The device has been truncated, durably: the log's tail may pass the record, and write-back go on with what lies
    /// behind it.
    on_device: bool,
}

/// What a device has to be made so that it lacks no truncation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTruncation {
    /// Bytes of the volume after the last truncation.
    pub len: u64,
    /// The lowest length of all truncations that it may lack: behind that nothing is left of what was there.
    pub floor: u64,
    /// Where the record of the last one ends.
    pub end_lsn: u64,
}

impl OpenTruncation {
    /// Truncates the device, durably.
    ///
    /// # Errors
    /// It fails.
    pub fn carry_out(&self, device: &dyn Device) -> Result<(), DeviceError> {
        if self.floor < self.len {
            device.set_len(self.floor)?;
        }
        device.set_len(self.len)?;
        device.flush()
    }
}

/// The pending truncations of a volume, in order.
#[derive(Debug, Default)]
pub struct PendingTruncations {
    pending: Vec<Pending>,
    /// The volume's length is being changed: blocks from here on must hold still.
    pub truncating: Option<u64>,
    /// A job carries out those that the device lacks, or a record says anew what they are, up to the one whose record ends
    /// here.
    under_way_upto: Option<u64>,
    /// The dead log may hold another one, that no program was told of: should that log come back, it would be carried out.
    pub is_uncertain: bool,
}

impl PendingTruncations {
    /// The record of a truncation to `len` bytes, which ends at `end_lsn`, is durable.
    ///
    /// It joins those that no job carries out yet: a program may truncate a file over and over while its device is stuck, and
    /// each look at the pending truncations takes them all in.
    pub fn push(&mut self, len: u64, end_lsn: u64) {
        let upto = self.under_way_upto.unwrap_or(0);
        match self.pending.last_mut().filter(|last| !last.on_device && last.end_lsn > upto) {
            Some(last) => (last.floor, last.len, last.end_lsn) = (last.floor.min(len), len, end_lsn),
            None => self.push_apart(len, end_lsn),
        }
    }

    /// As [`PendingTruncations::push`], but it joins no other: a `TruncateDone` that the log holds may name any of them.
    pub fn push_apart(&mut self, len: u64, end_lsn: u64) {
        self.pending.push(Pending { floor: len, len, first_end_lsn: end_lsn, end_lsn, on_device: false });
    }

    /// As [`PendingTruncations::push_apart`], but it stands for several, of which `floor` is the lowest length.
    pub fn push_open(&mut self, floor: u64, len: u64, end_lsn: u64) {
        self.pending.push(Pending { floor, len, first_end_lsn: end_lsn, end_lsn, on_device: false });
    }

    /// A durable record, which ends at `end_lsn`, stands for those that were open at [`PendingTruncations::begin`]: their own
    /// are not needed any more. What came since is newer than it.
    pub fn relocated(&mut self, end_lsn: u64) {
        // A volume that took this one's number has newer ones.
        let Some(upto) = self.under_way_upto.take_if(|upto| *upto < end_lsn) else { return };
        let is_moved = |truncation: &Pending| !truncation.on_device && truncation.end_lsn <= upto;
        let Some(at) = self.pending.iter().position(is_moved) else { return };
        let moved: Vec<Pending> = self.pending.extract_if(.., |truncation| is_moved(truncation)).collect();
        let (floor, len) = (moved.iter().map(|moved| moved.floor).min(), moved.last().map(|moved| moved.len));
        if let Some((floor, len)) = floor.zip(len) {
            let one = Pending { floor, len, first_end_lsn: end_lsn, end_lsn, on_device: false };
            self.pending.insert(at, one);
        }
    }

    /// A job carries out what [`PendingTruncations::open`] says, or a record says it anew.
    pub fn begin(&mut self) {
        self.under_way_upto = self.open().map(|truncation| truncation.end_lsn);
    }

    /// That job has ended, or its volume waits for it no longer.
    pub fn end(&mut self) {
        self.under_way_upto = None;
    }

    /// Whether a job carries truncations out, or a record that stands for them is on its way.
    pub fn is_under_way(&self) -> bool {
        self.under_way_upto.is_some()
    }

    /// Whether the log knows of none, and can't.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && !self.is_uncertain
    }

    /// Bytes behind which nothing goes to the device.
    pub fn fence(&self) -> u64 {
        self.pending.iter().map(|truncation| truncation.floor).min().unwrap_or(u64::MAX)
    }

    fn lacking(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().filter(|truncation| !truncation.on_device)
    }

    /// Bytes behind which what the device holds is void.
    pub fn floor(&self) -> u64 {
        self.lacking().map(|truncation| truncation.floor).min().unwrap_or(u64::MAX)
    }

    /// What the device may lack.
    pub fn open(&self) -> Option<OpenTruncation> {
        let last = self.lacking().last()?;
        Some(OpenTruncation { len: last.len, floor: self.floor(), end_lsn: last.end_lsn })
    }

    /// Whether the device may lack the truncation whose record ends at `end_lsn`.
    pub fn lacks(&self, end_lsn: u64) -> bool {
        self.lacking().any(|truncation| (truncation.first_end_lsn..=truncation.end_lsn).contains(&end_lsn))
    }

    /// The device has the truncations up to this one, durably.
    pub fn carried_out(&mut self, upto_lsn: u64) {
        for truncation in self.pending.iter_mut().filter(|truncation| truncation.end_lsn <= upto_lsn) {
            truncation.on_device = true;
        }
    }

    /// The last truncation that the device has and of which the log does not know that: where its record ends.
    pub fn untold(&self) -> Option<u64> {
        self.pending.iter().filter(|truncation| truncation.on_device).map(|truncation| truncation.end_lsn).max()
    }

    /// The log knows that the truncations up to this one are on the device, or has forgotten them.
    pub fn close(&mut self, upto_lsn: u64) {
        self.pending.retain(|truncation| truncation.end_lsn > upto_lsn);
    }

    /// The log will never be read again, or the volume is gone.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.is_uncertain = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_gets_the_lowest_length_before_the_last_and_the_fence_stays_until_the_log_knows() {
        let mut truncations = PendingTruncations::default();
        assert!(truncations.is_empty() && truncations.open().is_none() && truncations.fence() == u64::MAX);
        truncations.push(5000, 512);
        truncations.push(9000, 2048);
        assert_eq!(truncations.open(), Some(OpenTruncation { len: 9000, floor: 5000, end_lsn: 2048 }));
        assert!(truncations.lacks(512) && truncations.lacks(2048));
        truncations.begin();
        truncations.push(7000, 4096);
        truncations.end();
        truncations.carried_out(2048);
        assert_eq!(
            truncations.open(),
            Some(OpenTruncation { len: 7000, floor: 7000, end_lsn: 4096 }),
            "one came meanwhile"
        );
        assert_eq!((truncations.fence(), truncations.floor(), truncations.untold()), (5000, 7000, Some(2048)));
        assert!(!truncations.lacks(512) && truncations.lacks(4096));
        truncations.close(2048);
        assert_eq!((truncations.fence(), truncations.untold()), (7000, None));
        truncations.carried_out(4096);
        assert_eq!((truncations.fence(), truncations.floor()), (7000, u64::MAX));
        truncations.close(4096);
        assert!(truncations.is_empty());
    }

    #[test]
    fn one_record_stands_for_all_that_were_open_when_it_was_begun_and_comes_before_what_came_since() {
        let mut truncations = PendingTruncations::default();
        truncations.push(7000, 512);
        truncations.begin();
        truncations.end();
        truncations.carried_out(512);
        truncations.push(5000, 1024);
        truncations.push(9000, 2048);
        truncations.begin();
        truncations.push(8000, 4096);
        truncations.relocated(3072);
        assert!(!truncations.is_under_way() && !truncations.lacks(1024) && !truncations.lacks(2048));
        assert!(truncations.lacks(3072) && truncations.lacks(4096));
        assert_eq!(truncations.open(), Some(OpenTruncation { len: 8000, floor: 5000, end_lsn: 4096 }));
        assert_eq!((truncations.fence(), truncations.untold()), (5000, Some(512)));
        truncations.close(2048);
        assert_eq!(truncations.open(), Some(OpenTruncation { len: 8000, floor: 5000, end_lsn: 4096 }));
        truncations.clear();
        truncations.begin();
        truncations.relocated(5120);
        assert!(truncations.is_empty(), "the volume is gone");
    }

    #[test]
    fn truncations_that_no_job_carries_out_are_kept_as_one() {
        let mut truncations = PendingTruncations::default();
        (1..=1000).for_each(|number| truncations.push(5000 + number % 7, number * 512));
        truncations.begin();
        (1001..=2000).for_each(|number| truncations.push(9000 - number % 5, number * 512));
        assert_eq!(truncations.pending.len(), 2);
        assert_eq!(truncations.open(), Some(OpenTruncation { len: 9000, floor: 5000, end_lsn: 2000 * 512 }));
        truncations.end();
        truncations.carried_out(1000 * 512);
        assert_eq!((truncations.fence(), truncations.floor(), truncations.untold()), (5000, 8996, Some(1000 * 512)));
        assert!(!truncations.lacks(700 * 512) && truncations.lacks(1001 * 512) && truncations.lacks(1500 * 512));
        truncations.close(400 * 512);
        assert_eq!(truncations.fence(), 5000, "the rest of those are in the log still");
        truncations.close(1000 * 512);
        assert_eq!(truncations.fence(), 8996);
    }
}
