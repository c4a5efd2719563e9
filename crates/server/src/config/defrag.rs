//! The settings of active defragmentation: from how much wasted memory on data is moved together, and how much of a processor that may
//! take. Named and worded as in Redis. Relies on `directive` and `value`.

use std::borrow::Cow;

use super::Config;
use super::directive::{Directive, Setting, directive};
use super::value::{self, RejectReason};

const MUTABLE: bool = true;

/// When data is moved together, and how much time that takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DefragSettings {
    /// It is moved at all.
    pub is_on: bool,
    /// With less wasted memory it is not.
    pub ignore_bytes: u64,
    /// With a smaller part of the data wasted it is not, in percent.
    pub threshold_lower_percent: u32,
    /// From this part on it takes the most time.
    pub threshold_upper_percent: u32,
    /// Percent of a processor that it takes at the lower threshold.
    pub cycle_min_percent: u32,
    /// The same at the upper one.
    pub cycle_max_percent: u32,
}

impl DefragSettings {
    /// Percent of a processor that moving may take when `backed_bytes` are held for the `allocated_bytes` in use; 0 where nothing is to move.
    pub fn share_percent(&self, backed_bytes: u64, allocated_bytes: u64) -> u32 {
        let wasted_bytes = backed_bytes.saturating_sub(allocated_bytes);
        let wasted_percent = wasted_bytes as f64 * 100.0 / allocated_bytes.max(1) as f64;
        let (lower, upper) = (f64::from(self.threshold_lower_percent), f64::from(self.threshold_upper_percent));
        if !self.is_on || wasted_bytes < self.ignore_bytes || wasted_percent < lower {
            return 0;
        }
        // As in Redis nothing keeps the upper bounds above the lower ones.
        let part = if upper > lower { ((wasted_percent - lower) / (upper - lower)).min(1.0) } else { 1.0 };
        let (least, most) = (self.cycle_min_percent, self.cycle_max_percent.max(self.cycle_min_percent));
        least + (f64::from(most - least) * part) as u32
    }
}

macro_rules! percent {
    ($name:literal, $default:literal, $min:literal, $max:literal, $doc:literal, $field:ident) => {
        directive!($name, $default, MUTABLE, $doc, |c| c.defrag.$field.to_string(), |c, v| {
            c.defrag.$field = value::integer(v, $min, $max)? as u32;
            Ok(())
        })
    };
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    directive!(
        "activedefrag",
        "no",
        MUTABLE,
        "Move what lives among holes together, in short steps between commands, so that memory goes back to the system. Nothing is moved \
         during a save, before an image is verified, and in a clone.",
        |c| value::yes_no(c.defrag.is_on),
        |c, v| {
            c.defrag.is_on = value::boolean(v)?;
            Ok(())
        }
    ),
    directive!(
        "active-defrag-ignore-bytes",
        "100mb",
        MUTABLE,
        "Memory held but not used up to which nothing is moved.",
        |c| c.defrag.ignore_bytes.to_string(),
        |c, v| {
            c.defrag.ignore_bytes = value::memory(v, 1, i64::MAX as u64)?;
            Ok(())
        }
    ),
    percent!(
        "active-defrag-threshold-lower",
        "10",
        0,
        1000,
        "Percent that the memory held exceeds the memory used by, up to which nothing is moved.",
        threshold_lower_percent
    ),
    percent!(
        "active-defrag-threshold-upper",
        "100",
        0,
        1000,
        "Percent of the same from which on moving takes `active-defrag-cycle-max`.",
        threshold_upper_percent
    ),
    percent!(
        "active-defrag-cycle-min",
        "1",
        1,
        99,
        "Percent of a processor that moving takes at `active-defrag-threshold-lower`; in between it grows with the holes.",
        cycle_min_percent
    ),
    percent!(
        "active-defrag-cycle-max",
        "25",
        1,
        99,
        "Percent of a processor that moving takes at most.",
        cycle_max_percent
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn share(settings: &[(&str, &str)], backed_mib: u64, allocated_mib: u64) -> u32 {
        let mut config = Config::default();
        config.set("activedefrag", "yes").unwrap();
        settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        config.defrag.share_percent(backed_mib * MIB, allocated_mib * MIB)
    }

    #[test]
    fn the_share_of_time_grows_with_the_fragmentation() {
        for (backed_mib, expected) in [(1000, 0), (1099, 0), (1100, 1), (1550, 13), (2000, 25), (9000, 25)] {
            assert_eq!(share(&[], backed_mib, 1000), expected, "{backed_mib} MiB for 1000");
        }
        // Too little to be worth it, however large a part of the data.
        assert_eq!((share(&[], 99, 0), share(&[], 100, 0), share(&[], 109, 10)), (0, 25, 0));
        assert_eq!(share(&[("active-defrag-ignore-bytes", "1mb")], 12, 10), 3);
        assert_eq!(share(&[("activedefrag", "no")], 9000, 1000), 0);
    }

    #[test]
    fn bounds_in_the_wrong_order_still_give_a_share() {
        let thresholds = [("active-defrag-threshold-lower", "50"), ("active-defrag-threshold-upper", "20")];
        assert_eq!((share(&thresholds, 1400, 1000), share(&thresholds, 1500, 1000)), (0, 25));
        let cycles = [("active-defrag-cycle-min", "60"), ("active-defrag-cycle-max", "5")];
        assert_eq!((share(&cycles, 1100, 1000), share(&cycles, 3000, 1000)), (60, 60));
    }
}
