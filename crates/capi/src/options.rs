//! What a range may be told when it is made.
//!
//! Relies on zero meaning "as usual" in every field, so that structures of earlier versions mean what they meant.

use quire_snapshot::{OriginOptions, Precopy, Requirements};

use crate::api_error::ApiError;
use crate::extensible_struct::{self, ExtensibleStruct};

/// Every write to the range will be announced by quire_prepare_write(), so QUIRE_BEST may pick the barrier.
pub const QUIRE_ANNOUNCES: u64 = 1;
/// Snapshots must be ordinary memory (quire_snapshot_data()), so QUIRE_BEST picks among those that have such.
pub const QUIRE_ADDRESSABLE: u64 = 2;
/// No thread of the library's own: all upkeep happens in the threads that call, write or read.
pub const QUIRE_NO_BACKGROUND: u64 = 4;
/// For QUIRE_UFFD: a thread of the library serves the faults of threads that write, which takes 25 to 50 us each, instead of these in
/// a handler of SIGBUS. For programs of which a thread that blocks SIGBUS writes: the fault would kill the program. Where a thread
/// blocks it when the range is made, that is done without the flag.
pub const QUIRE_SERVE_FAULTS: u64 = 8;

/// Which regions are copied whole at, or before, their first write after a cut. Copying a region whole costs far less per
/// page than page by page, and is wasted where few of its pages are written.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum quire_precopy {
    /// Those that measured costs suggest, changed from cut to cut. What is usual.
    QUIRE_PRECOPY_ADAPTIVE = 0,
    /// None.
    QUIRE_PRECOPY_NONE = 1,
    /// All that are written at all.
    QUIRE_PRECOPY_ALL = 2,
    /// Those of whose pages at least threshold_percent were written between the last two cuts.
    QUIRE_PRECOPY_THRESHOLD = 3,
}

/// What a range may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
/// Mechanisms that have no use for a setting ignore it.
///
///     quire_options options = {0};
///     options.struct_size = sizeof options;
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_options {
    /// sizeof(quire_options), so that later versions may have further fields.
    pub struct_size: usize,
    /// Bytes of a region, the unit in which writes are counted and copied ahead: a power of two from 32 KiB to 2 MiB.
    /// Usual: 2 MiB, the size of a huge page.
    pub region_bytes: usize,
    /// Most memory that all snapshots of the range may take together, in bytes. Usual: four times the range and 256 MiB with
    /// QUIRE_UFFD and QUIRE_BARRIER (one snapshot takes the range at most), as much as the range with QUIRE_SCOOT. A snapshot
    /// for which none is left is given up, and reading it returns QUIRE_LOST; writers go on.
    pub budget_bytes: usize,
    /// Memory that is kept warm for the next snapshot, in bytes. Usual: 64 MiB.
    pub keep_bytes: usize,
    /// Most bytes per second that are copied ahead of the writers right after a cut. Usual: 2 GiB.
    pub precopy_bytes_per_second: u64,
    /// One of enum quire_precopy.
    pub precopy: i32,
    /// For QUIRE_PRECOPY_THRESHOLD: 1 to 100.
    pub threshold_percent: u32,
    /// QUIRE_ANNOUNCES, QUIRE_ADDRESSABLE, QUIRE_NO_BACKGROUND, QUIRE_SERVE_FAULTS, or several of them added up.
    pub flags: u64,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_options {}
const _: () = assert!(size_of::<quire_options>() == 56, "a gap, or a field that the header's readers don't know");

/// The options at `options`, or the usual ones for null.
///
/// # Safety
/// `options` is null or leads to a [`quire_options`] of any version.
pub unsafe fn read(options: *const quire_options) -> Result<(OriginOptions, Requirements), ApiError> {
    if options.is_null() {
        return Ok((OriginOptions::default(), Requirements::default()));
    }
    // SAFETY: not null; that `struct_size` is set and as many bytes may be read is the duty of this function's callers, and
    // `extensible_struct::read` refuses unaligned addresses itself.
    let options = unsafe { extensible_struct::read("options", options) }?;
    let unknown = options.flags & !(QUIRE_ANNOUNCES | QUIRE_ADDRESSABLE | QUIRE_NO_BACKGROUND | QUIRE_SERVE_FAULTS);
    if unknown != 0 {
        let value = unknown.cast_signed();
        return Err(ApiError::Unknown { argument: "options->flags", value, advice: "a later libquire may know it" });
    }
    let usual = OriginOptions::default();
    let or = |value: usize, usual: usize| if value == 0 { usual } else { value };
    let settings = OriginOptions {
        region_bytes: or(options.region_bytes, usual.region_bytes),
        precopy: precopy(&options)?,
        background: options.flags & QUIRE_NO_BACKGROUND == 0,
        precopy_bytes_per_second: match options.precopy_bytes_per_second {
            0 => usual.precopy_bytes_per_second,
            some => some,
        },
        budget_bytes: Some(options.budget_bytes).filter(|&bytes| bytes > 0),
        keep_bytes: or(options.keep_bytes, usual.keep_bytes),
        serve_faults: options.flags & QUIRE_SERVE_FAULTS != 0,
    };
    let announces = options.flags & QUIRE_ANNOUNCES != 0;
    Ok((settings, Requirements { announces, addressable: options.flags & QUIRE_ADDRESSABLE != 0 }))
}

fn precopy(options: &quire_options) -> Result<Precopy, ApiError> {
    const ADAPTIVE: i32 = quire_precopy::QUIRE_PRECOPY_ADAPTIVE as i32;
    const NONE: i32 = quire_precopy::QUIRE_PRECOPY_NONE as i32;
    const ALL: i32 = quire_precopy::QUIRE_PRECOPY_ALL as i32;
    const THRESHOLD: i32 = quire_precopy::QUIRE_PRECOPY_THRESHOLD as i32;
    let percent = options.threshold_percent;
    match options.precopy {
        THRESHOLD if (1..=100).contains(&percent) => Ok(Precopy::Threshold(percent as u8)),
        THRESHOLD => Err(ApiError::Unknown {
            argument: "options->threshold_percent",
            value: percent.into(),
            advice: "take 1 to 100",
        }),
        ADAPTIVE => Ok(Precopy::Adaptive),
        NONE => Ok(Precopy::None),
        ALL => Ok(Precopy::All),
        other => Err(ApiError::Unknown {
            argument: "options->precopy",
            value: other.into(),
            advice: "take one of enum quire_precopy",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_it(change: impl FnOnce(&mut quire_options)) -> Result<(OriginOptions, Requirements), ApiError> {
        let mut options = quire_options { struct_size: size_of::<quire_options>(), ..Default::default() };
        change(&mut options);
        // SAFETY: a local structure of this version with its size set.
        unsafe { read(&raw const options) }
    }

    #[test]
    fn zeroes_and_null_are_the_usual_options() {
        // SAFETY: null is allowed.
        let null = unsafe { read(std::ptr::null()) }.unwrap();
        assert_eq!(null, (OriginOptions::default(), Requirements::default()));
        assert_eq!(read_it(|_| ()).unwrap(), null);
    }

    #[test]
    fn every_field_arrives() {
        let (options, wants) = read_it(|options| {
            options.region_bytes = 65536;
            options.budget_bytes = 1 << 20;
            options.keep_bytes = 4096;
            options.precopy_bytes_per_second = 5;
            options.precopy = 3;
            options.threshold_percent = 70;
            options.flags = QUIRE_ANNOUNCES | QUIRE_ADDRESSABLE | QUIRE_NO_BACKGROUND | QUIRE_SERVE_FAULTS;
        })
        .unwrap();
        let expected = OriginOptions {
            region_bytes: 65536,
            precopy: Precopy::Threshold(70),
            background: false,
            precopy_bytes_per_second: 5,
            budget_bytes: Some(1 << 20),
            keep_bytes: 4096,
            serve_faults: true,
        };
        assert_eq!((options, wants), (expected, Requirements { announces: true, addressable: true }));
        assert_eq!(read_it(|options| options.precopy = 1).unwrap().0.precopy, Precopy::None);
        assert_eq!(read_it(|options| options.precopy = 2).unwrap().0.precopy, Precopy::All);
    }

    #[test]
    fn values_without_a_meaning_are_refused_by_name() {
        let refused = |change: fn(&mut quire_options)| read_it(change).unwrap_err().to_string();
        assert!(refused(|options| options.flags = 16).contains("flags"));
        assert!(refused(|options| options.precopy = 4).contains("quire_precopy"));
        assert!(refused(|options| options.precopy = 3).contains("1 to 100"));
        assert!(refused(|options| options.struct_size = 0).contains("sizeof"));
    }
}
