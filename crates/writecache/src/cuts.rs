//! The cuts of one volume that the log holds and of which it does not know yet that they are on the slow device.
//!
//! A cut is *pending* from the moment when its record is durable until the log knows that it is on the device (a durable
//! `CutDone`), or no longer knows the cut (its tail has passed the record). The *fence* is the lowest length of all pending cuts:
//! behind it nothing is issued to the slow device. The *floor* is that of the cuts that the device may lack: what it holds
//! behind that is void.
//!
//! Pure state; relies on the ledger's lock.

use quire_device::{Device, DeviceError};

/// Cuts whose records are durable, and that are carried out together.
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
    /// The device has been cut, durably: the log's tail may pass the record, and write-back go on with what lies behind it.
    on_device: bool,
}

/// What a device has to be made so that it lacks no cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCut {
    /// Bytes of the volume after the last cut.
    pub len: u64,
    /// The lowest length of all cuts that it may lack: behind that nothing is left of what was there.
    pub floor: u64,
    /// Where the record of the last one ends.
    pub end_lsn: u64,
}

impl OpenCut {
    /// Cuts the device, durably.
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

/// The pending cuts of a volume, in order.
#[derive(Debug, Default)]
pub struct Cuts {
    pending: Vec<Pending>,
    /// A job carries out those that the device lacks, up to the one whose record ends here.
    under_way_upto: Option<u64>,
    /// The dead log may hold another one, that no program was told of: should that log come back, it would be carried out.
    pub is_uncertain: bool,
}

impl Cuts {
    /// The record of a cut to `len` bytes, which ends at `end_lsn`, is durable.
    ///
    /// It joins those that no job carries out yet: a program may cut a file over and over while its device is stuck, and each look at
    /// the pending cuts takes them all in.
    pub fn push(&mut self, len: u64, end_lsn: u64) {
        let upto = self.under_way_upto.unwrap_or(0);
        match self.pending.last_mut().filter(|last| !last.on_device && last.end_lsn > upto) {
            Some(last) => (last.floor, last.len, last.end_lsn) = (last.floor.min(len), len, end_lsn),
            None => self.push_apart(len, end_lsn),
        }
    }

    /// As [`Cuts::push`], but it joins no other: a `CutDone` that the log holds may name any of them.
    pub fn push_apart(&mut self, len: u64, end_lsn: u64) {
        self.pending.push(Pending { floor: len, len, first_end_lsn: end_lsn, end_lsn, on_device: false });
    }

    /// A job carries out what [`Cuts::open`] says.
    pub fn begin(&mut self) {
        self.under_way_upto = self.open().map(|cut| cut.end_lsn);
    }

    /// That job has ended, or its volume waits for it no longer.
    pub fn end(&mut self) {
        self.under_way_upto = None;
    }

    /// Whether a job carries cuts out.
    pub fn is_under_way(&self) -> bool {
        self.under_way_upto.is_some()
    }

    /// Whether the log knows of none, and can't.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && !self.is_uncertain
    }

    /// Bytes behind which nothing goes to the device.
    pub fn fence(&self) -> u64 {
        self.pending.iter().map(|cut| cut.floor).min().unwrap_or(u64::MAX)
    }

    fn lacking(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().filter(|cut| !cut.on_device)
    }

    /// Bytes behind which what the device holds is void.
    pub fn floor(&self) -> u64 {
        self.lacking().map(|cut| cut.floor).min().unwrap_or(u64::MAX)
    }

    /// What the device may lack.
    pub fn open(&self) -> Option<OpenCut> {
        let last = self.lacking().last()?;
        Some(OpenCut { len: last.len, floor: self.floor(), end_lsn: last.end_lsn })
    }

    /// Whether the device may lack the cut whose record ends at `end_lsn`.
    pub fn lacks(&self, end_lsn: u64) -> bool {
        self.lacking().any(|cut| (cut.first_end_lsn..=cut.end_lsn).contains(&end_lsn))
    }

    /// The device has the cuts up to this one, durably.
    pub fn carried_out(&mut self, upto_lsn: u64) {
        for cut in self.pending.iter_mut().filter(|cut| cut.end_lsn <= upto_lsn) {
            cut.on_device = true;
        }
    }

    /// The last cut that the device has and of which the log does not know that: where its record ends.
    pub fn untold(&self) -> Option<u64> {
        self.pending.iter().filter(|cut| cut.on_device).map(|cut| cut.end_lsn).max()
    }

    /// The log knows that the cuts up to this one are on the device, or has forgotten them.
    pub fn close(&mut self, upto_lsn: u64) {
        self.pending.retain(|cut| cut.end_lsn > upto_lsn);
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
        let mut cuts = Cuts::default();
        assert!(cuts.is_empty() && cuts.open().is_none() && cuts.fence() == u64::MAX);
        cuts.push(5000, 512);
        cuts.push(9000, 2048);
        assert_eq!(cuts.open(), Some(OpenCut { len: 9000, floor: 5000, end_lsn: 2048 }));
        assert!(cuts.lacks(512) && cuts.lacks(2048));
        cuts.begin();
        cuts.push(7000, 4096);
        cuts.end();
        cuts.carried_out(2048);
        assert_eq!(cuts.open(), Some(OpenCut { len: 7000, floor: 7000, end_lsn: 4096 }), "one came meanwhile");
        assert_eq!((cuts.fence(), cuts.floor(), cuts.untold()), (5000, 7000, Some(2048)));
        assert!(!cuts.lacks(512) && cuts.lacks(4096));
        cuts.close(2048);
        assert_eq!((cuts.fence(), cuts.untold()), (7000, None));
        cuts.carried_out(4096);
        assert_eq!((cuts.fence(), cuts.floor()), (7000, u64::MAX));
        cuts.close(4096);
        assert!(cuts.is_empty());
    }

    #[test]
    fn cuts_that_no_job_carries_out_are_kept_as_one() {
        let mut cuts = Cuts::default();
        (1..=1000).for_each(|number| cuts.push(5000 + number % 7, number * 512));
        cuts.begin();
        (1001..=2000).for_each(|number| cuts.push(9000 - number % 5, number * 512));
        assert_eq!(cuts.pending.len(), 2);
        assert_eq!(cuts.open(), Some(OpenCut { len: 9000, floor: 5000, end_lsn: 2000 * 512 }));
        cuts.end();
        cuts.carried_out(1000 * 512);
        assert_eq!((cuts.fence(), cuts.floor(), cuts.untold()), (5000, 8996, Some(1000 * 512)));
        assert!(!cuts.lacks(700 * 512) && cuts.lacks(1001 * 512) && cuts.lacks(1500 * 512));
        cuts.close(400 * 512);
        assert_eq!(cuts.fence(), 5000, "the rest of those are in the log still");
        cuts.close(1000 * 512);
        assert_eq!(cuts.fence(), 8996);
    }
}
