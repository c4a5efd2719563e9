//! Memory for pages of files, which maps share.
//!
//! Relies on `quire-pool`; a pool lives until it is released and its last map is.

use std::sync::Arc;

use ::quire_pool::{PathStats, Pool, PoolConfig, PoolStats, TierCompression, TierSize, TierStats};
use quire_sys::fork_mark::ForkMark;

use crate::api_error::{ApiError, check_limit};
use crate::boundary::{self, OutPointer};
use crate::extensible_struct::{self, ExtensibleStruct};
use crate::handle::{self, ObjectGuard};
use crate::status::quire_status;

/// The most that a pool may hold or a map may reserve: half of the addresses that a process has.
pub(crate) const MOST_BYTES: u64 = 1 << 46;
/// Four pages of the least size.
const LEAST_CAPACITY_BYTES: u64 = 4 * 4096;
const MOST_WRITERS: u64 = 64;
const MOST_QUEUE_DEPTH: u64 = 128;
const MOST_TIER_BYTES: u64 = 64 << 30;
const MOST_TIER_PERCENT: u64 = u16::MAX as u64;
const MOST_PATIENCE_MS: u64 = 24 * 60 * 60 * 1000;

/// Memory for pages of files that are mapped with quire_map(). Any thread may call with a pool until it is released.
///
/// A child that the program makes by fork() must not call with the pool: that is refused.
pub struct quire_pool {
    pool: Arc<Pool>,
    mark: ForkMark,
}

impl quire_pool {
    /// The pool at `pool`, if this process made it.
    ///
    /// # Safety
    /// Unless it is null or unaligned, `pool` is a pool that is not released.
    pub fn own(pool: *const Self) -> Result<ObjectGuard<Self>, ApiError> {
        let pool = handle::get("pool", pool)?;
        // The pool's threads are the parent's.
        if pool.mark.is_forked() { Err(ApiError::Forked { argument: "pool" }) } else { Ok(pool) }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

/// What a pool may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_pool_options {
    /// sizeof(quire_pool_options), so that later versions may have further fields.
    pub struct_size: usize,
    /// Bytes of a page: 4096, 16384 or 65536. Usual: 4096. Larger ones cost fewer faults where what is used lies together.
    pub page_bytes: usize,
    /// Threads that write pages back, at most 64. Usual: 1.
    pub writers: usize,
    /// Writes that each of them keeps in flight, at most 128. Usual: 64.
    pub queue_depth: usize,
    /// Writing back begins when more than this share of the pool has changed, in percent. Usual: 75.
    pub dirty_percent: u64,
    /// How long a thread waits for memory while nothing moves, in milliseconds, before its access fails; at most a day. While pages of
    /// the pool are under writeback it waits on, however slow the device is. Usual: 5000.
    pub patience_ms: u64,
    /// Memory for pages that had to make room: compressed, and such that the system may take it back at any time. QUIRE_SECOND_TIER_AUTO makes
    /// it a part of the pool's capacity, which both share as it saves most time: nothing before the first page has to make room, half then, and from a
    /// 64th to seven eighths later. Other values are bytes beside the capacity, at least sixteen pages, at most 64 GiB. It shrinks while memory is
    /// short. Not to be used for files that other programs write while they are mapped: a page that comes from here is as it was when it had to
    /// make room, whatever another program has written since: QUIRE_SECOND_TIER_OFF makes none. Usual: QUIRE_SECOND_TIER_AUTO.
    pub second_tier_bytes: u64,
    /// 1 has a page that is not in the pool looked for in the system's page cache before it is read from the device, and given up there:
    /// for files that other programs use by read() and write(), too. Block devices are always read themselves. Usual: 0.
    pub look_in_page_cache: u64,
    /// Leases (see quire_lease()) pin no more than this share of the pool, in percent, at most 75. Usual: 25.
    pub lease_percent: u64,
    /// In place of second_tier_bytes, its size as a share of the capacity, in percent, beside it; may be over 100, at most 65535. Usual: as
    /// second_tier_bytes says.
    pub second_tier_percent: u64,
    /// How pages are stored there, one of enum quire_compression. Usual: QUIRE_COMPRESSION_LZ4.
    pub second_tier_compression: u64,
}

/// For quire_pool_options.second_tier_bytes: a part of the pool's capacity, as large as saves most time.
pub const QUIRE_SECOND_TIER_AUTO: u64 = u64::MAX;
/// For quire_pool_options.second_tier_bytes: no second tier.
pub const QUIRE_SECOND_TIER_OFF: u64 = u64::MAX - 1;

/// How pages are stored in a pool's second tier. What does not compress is stored as it is.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum quire_compression {
    /// By LZ4.
    QUIRE_COMPRESSION_LZ4 = 1,
    /// By zstd at its first level: in less memory, and in several times the time.
    QUIRE_COMPRESSION_ZSTD = 2,
    /// As they are.
    QUIRE_COMPRESSION_NONE = 3,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_pool_options {}
const _: () = assert!(size_of::<quire_pool_options>() == 88, "a gap, or a field that the header's readers don't know");

/// What a pool holds now, and what it has done since it was made. Set struct_size to sizeof(quire_pool_counts) before the
/// call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_pool_counts {
    /// sizeof(quire_pool_counts), so that later versions may have further fields.
    pub struct_size: usize,
    /// Memory that pages may take, in bytes, without what of the pool's capacity is the second tier's now.
    pub capacity_bytes: u64,
    /// Memory that they take now.
    pub resident_bytes: u64,
    /// Of these, bytes of pages that have changed and are not written yet.
    pub dirty_bytes: u64,
    /// Maps now.
    pub maps: u64,
    /// Pages that were not in the pool when a thread needed them.
    pub misses: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Pages that had to make room.
    pub evicted_pages: u64,
    /// Pages written back.
    pub written_pages: u64,
    /// Writes that they were merged to.
    pub writes: u64,
    /// Bytes of pages that leases pin now.
    pub leased_bytes: u64,
    /// Leased pages that were copied since a thread wrote to them.
    pub lease_copies: u64,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_pool_counts {}
const _: () = assert!(size_of::<quire_pool_counts>() == 96, "a gap, or a field that the header's readers don't know");

impl From<&PoolStats> for quire_pool_counts {
    fn from(stats: &PoolStats) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            capacity_bytes: stats.budget_pages * stats.page_bytes,
            resident_bytes: stats.resident_pages * stats.page_bytes,
            dirty_bytes: stats.dirty_pages * stats.page_bytes,
            maps: stats.maps,
            misses: stats.misses,
            failed_reads: stats.failed_reads,
            evicted_pages: stats.evicted,
            written_pages: stats.written,
            writes: stats.writes,
            leased_bytes: stats.leases.pinned_pages * stats.page_bytes,
            lease_copies: stats.leases.relocated,
        }
    }
}

/// Which paths pages have taken between a pool, its second tier and the device, and what the second tier holds now. Set struct_size to
/// sizeof(quire_path_counts) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_path_counts {
    /// sizeof(quire_path_counts), so that later versions may have further fields.
    pub struct_size: usize,
    /// Pages read from the device because a thread waited for them.
    pub read_direct: u64,
    /// Pages that came from the second tier instead.
    pub read_second_tier: u64,
    /// Pages that came from the system's page cache instead.
    pub read_page_cache: u64,
    /// Pages written that stayed in the pool.
    pub write_direct: u64,
    /// Pages written because threads needed memory.
    pub evict_dirty: u64,
    /// Pages that went to the second tier.
    pub evict_clean: u64,
    /// Pages that the system had taken from the second tier when they were looked for there.
    pub reclaimed_pages: u64,
    /// Memory of the second tier, in bytes.
    pub second_tier_bytes: u64,
    /// Of these, bytes that the system has not taken; 0 where it doesn't say.
    pub second_tier_resident_bytes: u64,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_path_counts {}
const _: () = assert!(size_of::<quire_path_counts>() == 80, "a gap, or a field that the header's readers don't know");

impl From<(&PathStats, &TierStats)> for quire_path_counts {
    fn from((paths, tier): (&PathStats, &TierStats)) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            read_direct: paths.read_direct,
            read_second_tier: paths.read_tier,
            read_page_cache: paths.read_cached,
            write_direct: paths.write_direct,
            evict_dirty: paths.evict_dirty,
            evict_clean: paths.evict_clean + paths.evict_kept,
            reclaimed_pages: paths.tier_reclaimed,
            second_tier_bytes: tier.held_bytes,
            second_tier_resident_bytes: tier.resident_bytes,
        }
    }
}

/// The settings at `options`, or the usual ones for null.
///
/// # Safety
/// `options` is null or leads to a [`quire_pool_options`] of any version.
unsafe fn read(capacity_bytes: usize, options: *const quire_pool_options) -> Result<PoolConfig, ApiError> {
    check_limit("capacity_bytes", capacity_bytes as u64, LEAST_CAPACITY_BYTES, MOST_BYTES)?;
    let mut config = PoolConfig { budget_bytes: capacity_bytes, ..PoolConfig::default() };
    if options.is_null() {
        return Ok(config);
    }
    // SAFETY: not null; that `struct_size` is set and as many bytes may be read is the duty of this function's callers, and
    // `extensible_struct::read` refuses unaligned addresses itself.
    let options = unsafe { extensible_struct::read("options", options) }?;
    let or = |value: usize, usual: usize| if value == 0 { usual } else { value };
    check_limit("options->writers", options.writers as u64, 0, MOST_WRITERS)?;
    check_limit("options->queue_depth", options.queue_depth as u64, 0, MOST_QUEUE_DEPTH)?;
    check_limit("options->patience_ms", options.patience_ms, 0, MOST_PATIENCE_MS)?;
    config.page_bytes = or(options.page_bytes, config.page_bytes);
    config.writers = or(options.writers, config.writers);
    config.queue_depth = or(options.queue_depth, config.queue_depth);
    if options.dirty_percent != 0 {
        // What doesn't fit is over 100, too, and refused as that.
        config.dirty_percent = u8::try_from(options.dirty_percent).unwrap_or(u8::MAX);
    }
    if options.lease_percent != 0 {
        // As above.
        config.lease_percent = u8::try_from(options.lease_percent).unwrap_or(u8::MAX);
    }
    if options.patience_ms != 0 {
        config.miss_timeout_ms = options.patience_ms;
    }
    config.tier.size = tier_size(&options, config.tier.size)?;
    config.tier.compression = compression(&options, config.tier.compression)?;
    check_limit("options->look_in_page_cache", options.look_in_page_cache, 0, 1)?;
    config.tier.page_cache = options.look_in_page_cache == 1;
    Ok(config)
}

/// The size of the second tier, or `usual` where none is given.
fn tier_size(options: &quire_pool_options, usual: TierSize) -> Result<TierSize, ApiError> {
    let percent = options.second_tier_percent;
    check_limit("options->second_tier_percent", percent, 0, MOST_TIER_PERCENT)?;
    match options.second_tier_bytes {
        0 if percent > 0 => Ok(TierSize::Percent(percent as u16)),
        0 => Ok(usual),
        _ if percent > 0 => Err(ApiError::Unknown {
            argument: "options->second_tier_percent",
            value: percent.cast_signed(),
            advice: "give second_tier_bytes or second_tier_percent, not both",
        }),
        QUIRE_SECOND_TIER_AUTO => Ok(TierSize::Auto),
        QUIRE_SECOND_TIER_OFF => Ok(TierSize::Off),
        bytes => {
            check_limit("options->second_tier_bytes", bytes, 0, MOST_TIER_BYTES)?;
            Ok(TierSize::Bytes(bytes as usize))
        }
    }
}

/// How the second tier stores pages, or `usual` where nothing is said.
fn compression(options: &quire_pool_options, usual: TierCompression) -> Result<TierCompression, ApiError> {
    const LZ4: u64 = quire_compression::QUIRE_COMPRESSION_LZ4 as u64;
    const ZSTD: u64 = quire_compression::QUIRE_COMPRESSION_ZSTD as u64;
    const NONE: u64 = quire_compression::QUIRE_COMPRESSION_NONE as u64;
    match options.second_tier_compression {
        0 => Ok(usual),
        LZ4 => Ok(TierCompression::Lz4),
        ZSTD => Ok(TierCompression::Zstd),
        NONE => Ok(TierCompression::None),
        other => Err(ApiError::Unknown {
            argument: "options->second_tier_compression",
            value: other.cast_signed(),
            advice: "take one of enum quire_compression",
        }),
    }
}

/// Makes a pool of capacity_bytes of memory for pages, which is never exceeded: at least four pages, at most 64 TiB. It is
/// taken as pages come.
///
/// options may be NULL. On success *pool is the new pool, to be released by quire_pool_release(); on failure it is NULL.
///
/// # Safety
/// `options` is NULL or leads to options with `struct_size` set; `*pool` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pool_create(
    capacity_bytes: usize,
    options: *const quire_pool_options,
    pool: *mut *mut quire_pool,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("pool", pool) }?;
        // SAFETY: `read` takes NULL, or options whose `struct_size` says how much may be read: what this function's callers have
        // to pass.
        let config = unsafe { read(capacity_bytes, options) }?;
        out.fill(quire_pool { pool: Pool::new(config)?, mark: ForkMark::new() })
    })
}

/// Fills *counts. Any thread may ask at any time.
///
/// # Safety
/// `pool` is a pool that is not released; `*counts` may be written, and its `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pool_stats(pool: *const quire_pool, counts: *mut quire_pool_counts) -> quire_status {
    boundary::status(|| {
        let pool = quire_pool::own(pool)?;
        let figures = quire_pool_counts::from(&pool.pool.stats());
        // SAFETY: `extensible_struct::write` refuses NULL and unaligned addresses; that `struct_size` is set and as many bytes
        // may be written is the duty of this function's callers.
        unsafe { extensible_struct::write("counts", counts, &figures) }
    })
}

/// Fills *counts. Any thread may ask at any time. It looks at every page of the second tier, so not many times a second.
///
/// # Safety
/// `pool` is a pool that is not released; `*counts` may be written, and its `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pool_paths(pool: *const quire_pool, counts: *mut quire_path_counts) -> quire_status {
    boundary::status(|| {
        let pool = quire_pool::own(pool)?;
        let figures = quire_path_counts::from((&pool.pool.stats().paths, &pool.pool.tier_stats()));
        // SAFETY: `extensible_struct::write` refuses NULL and unaligned addresses; that `struct_size` is set and as many bytes
        // may be written is the duty of this function's callers.
        unsafe { extensible_struct::write("counts", counts, &figures) }
    })
}

/// Ends a pool. Its maps stay as they are, and the pool's memory with them, until they are released. NULL is nothing to
/// release.
///
/// # Safety
/// `pool` is NULL or a pool that is not released, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pool_release(pool: *mut quire_pool) -> quire_status {
    boundary::status(|| {
        if !pool.is_null() {
            quire_pool::own(pool)?;
        }
        handle::release("pool", pool)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_arrives_and_zero_is_as_usual() {
        let options = quire_pool_options {
            struct_size: size_of::<quire_pool_options>(),
            page_bytes: 65536,
            dirty_percent: 50,
            patience_ms: 7,
            lease_percent: 10,
            second_tier_percent: 150,
            second_tier_compression: 2,
            ..Default::default()
        };
        // SAFETY: `options` is a local structure of this version with its size set; null reads nothing.
        let (config, usual) =
            unsafe { (read(1 << 20, &raw const options).unwrap(), read(1 << 16, std::ptr::null()).unwrap()) };
        assert_eq!((config.budget_bytes, config.page_bytes, config.dirty_percent), (1 << 20, 65536, 50));
        assert_eq!((config.miss_timeout_ms, config.writers, config.queue_depth), (7, usual.writers, usual.queue_depth));
        assert_eq!((config.lease_percent, usual.lease_percent), (10, 25));
        assert_eq!((usual.budget_bytes, usual.page_bytes), (1 << 16, 4096));
        assert_eq!((config.tier.size, config.tier.compression), (TierSize::Percent(150), TierCompression::Zstd));
        assert_eq!(usual.tier, PoolConfig::default().tier);
    }

    #[test]
    fn a_second_tier_is_bytes_or_a_share_or_auto_or_off() {
        let size_of_tier = |second_tier_bytes, second_tier_percent| {
            let options = quire_pool_options { second_tier_bytes, second_tier_percent, ..Default::default() };
            tier_size(&options, TierSize::Percent(7))
        };
        let sizes = [(0, 0), (1 << 20, 0), (0, 300), (QUIRE_SECOND_TIER_AUTO, 0), (QUIRE_SECOND_TIER_OFF, 0)];
        let sizes = sizes.map(|(bytes, percent)| size_of_tier(bytes, percent).unwrap());
        let of_300 = TierSize::Percent(300);
        assert_eq!(sizes, [TierSize::Percent(7), TierSize::Bytes(1 << 20), of_300, TierSize::Auto, TierSize::Off]);
        for (bytes, percent) in [(1 << 20, 1), (QUIRE_SECOND_TIER_AUTO, 1), (0, 65536), (u64::MAX - 2, 0)] {
            assert!(size_of_tier(bytes, percent).is_err(), "{bytes} {percent}");
        }
        let all = [0, 1, 2, 3].map(|second_tier_compression| {
            let options = quire_pool_options { second_tier_compression, ..Default::default() };
            compression(&options, TierCompression::None).unwrap()
        });
        use TierCompression::{Lz4, None, Zstd};
        assert_eq!(all, [None, Lz4, Zstd, None]);
    }
}
