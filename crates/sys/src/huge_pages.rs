//! How much of a range of this process's memory lies on huge pages, as `/proc/self/smaps` has it.
//!
//! Relies on procfs. Whole mappings are counted where they overlap the range, so the figures are of the range only where that is all
//! of its mappings. Takes milliseconds in a process of many mappings.

use std::ops::Range;

/// What the mappings of a range consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Bytes of them that lie on huge pages.
    pub huge_bytes: u64,
    /// The system makes huge pages there by itself.
    pub eligible: bool,
}

impl HugePages {
    /// Of the mappings that overlap `addresses`; `None` if the system doesn't tell.
    pub fn of(addresses: &Range<usize>) -> Option<Self> {
        Some(parse(&std::fs::read_to_string("/proc/self/smaps").ok()?, addresses))
    }

    /// Whether most of what is there lies on huge pages, or would if anything were there.
    pub fn prevail(&self) -> bool {
        if self.resident_bytes == 0 { self.eligible } else { self.huge_bytes * 2 >= self.resident_bytes }
    }
}

fn parse(text: &str, addresses: &Range<usize>) -> HugePages {
    let mut sum = HugePages { eligible: true, ..HugePages::default() };
    let (mut is_inside, mut any) = (false, false);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        if let Some((start, end)) = bounds(first) {
            is_inside = start < addresses.end && addresses.start < end;
            any |= is_inside;
        } else if is_inside {
            let number = second.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match first {
                "Rss:" => sum.resident_bytes += number << 10,
                "AnonHugePages:" => sum.huge_bytes += number << 10,
                "THPeligible:" => sum.eligible &= number == 1,
                _ => {}
            }
        }
    }
    sum.eligible &= any;
    sum
}

fn bounds(word: &str) -> Option<(usize, usize)> {
    let (start, end) = word.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f00-7f10 rw-p 00000000 00:00 0
Size:               1024 kB
Rss:                 100 kB
AnonHugePages:        90 kB
THPeligible:           1
VmFlags: rd wr mr
7f10-7f20 rw-p 00000000 00:00 0 [heap]
Rss:                 200 kB
AnonHugePages:         0 kB
THPeligible:           0
";

    #[test]
    fn mappings_that_overlap_the_range_are_counted() {
        let found = |addresses: Range<usize>| parse(TEXT, &addresses);
        let first = HugePages { resident_bytes: 100 << 10, huge_bytes: 90 << 10, eligible: true };
        assert_eq!(found(0x7f0f..0x7f10), first);
        assert!(first.prevail());
        let both = HugePages { resident_bytes: 300 << 10, huge_bytes: 90 << 10, eligible: false };
        assert_eq!((found(0x7f0f..0x7f11), both.prevail()), (both, false));
        assert_eq!(found(0x8000..0x9000), HugePages::default());
        assert!(HugePages { eligible: true, ..HugePages::default() }.prevail());
    }

    #[test]
    fn memory_that_is_told_to_use_small_pages_is_not_eligible() {
        let memory = crate::mem::Reservation::new(4 << 20).unwrap();
        memory.commit(0..memory.len()).unwrap();
        crate::map::advise(memory.base(), memory.len(), crate::map::MapAdvice::NoHuge).unwrap();
        let start = memory.base() as usize;
        // SAFETY: committed memory of this test.
        unsafe { memory.base().write_volatile(1) };
        let found = HugePages::of(&(start..start + memory.len())).unwrap();
        assert!(found.resident_bytes >= 4096 && found.huge_bytes == 0 && !found.eligible, "{found:?}");
        assert!(!found.prevail());
    }
}
