//! What this process has cost so far: processor time, page faults, changes of context.
//!
//! Relies on `getrusage`, which counts all threads, those that have ended included.

use std::mem::MaybeUninit;

/// Sums over all threads of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time in the program, in nanoseconds.
    pub user_ns: u64,
    /// Processor time in the kernel for it, in nanoseconds.
    pub system_ns: u64,
    /// Page faults that no device was needed for.
    pub minor_faults: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Times that a thread gave its processor up to wait for something.
    pub voluntary_switches: u64,
    /// Times that a thread's processor was taken away.
    pub involuntary_switches: u64,
}

impl ResourceUsage {
    /// What this process has used until now.
    pub fn of_process() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills in the structure, of which all zero is a valid value.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let nanos = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            user_ns: nanos(usage.ru_utime),
            system_ns: nanos(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_memory_and_sleep_are_counted() {
        let before = ResourceUsage::of_process();
        let memory = vec![1_u8; 16 << 20];
        std::thread::sleep(std::time::Duration::from_millis(1));
        let sum: u64 = std::hint::black_box(&memory).iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum, 16 << 20);
        let used = ResourceUsage::of_process().since(&before);
        assert!(used.minor_faults > 0 && used.voluntary_switches > 0, "{used:?}");
        assert!(used.user_ns + used.system_ns > 0, "{used:?}");
    }
}
