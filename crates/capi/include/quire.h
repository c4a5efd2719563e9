/* Quire: snapshots of memory that goes on being written, files as memory, and checkpoints of programs that fork.
 *
 * Generated from crates/capi/src by cargo xtask docs: change the sources, not this file.
 *
 * Functions return a quire_status, or a value that is NULL or 0 on failure; quire_last_error() says in words what went
 * wrong. No function ends the program, throws or unwinds (but see QUIRE_MAP_SERVED). Pointers that are NULL and arguments without a meaning are told;
 * so are objects that were released, or are of another type: they are QUIRE_INVALID. What quire_range *, quire_snapshot *,
 * quire_pool * and quire_mapping * hold is the number of an object, not an address. An object that another thread's call uses
 * is not released: that is QUIRE_INVALID, too, except during quire_prepare_write(), which does not look out for that.
 */

#ifndef QUIRE_H
#define QUIRE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Changes when programs have to be compiled anew, and with it the name libquire.so.0.
 */
#define QUIRE_VERSION_MAJOR 0

/**
 * Changes when something is added. While QUIRE_VERSION_MAJOR is 0, interfaces may change, too.
 */
#define QUIRE_VERSION_MINOR 1

/**
 * Changes when something is mended.
 */
#define QUIRE_VERSION_PATCH 0

/**
 * Every write to the range will be announced by quire_prepare_write(), so QUIRE_BEST may pick the barrier.
 */
#define QUIRE_ANNOUNCES 1

/**
 * Snapshots must be ordinary memory (quire_snapshot_data()), so QUIRE_BEST picks among those that have such.
 */
#define QUIRE_ADDRESSABLE 2

/**
 * No thread of the library's own: all upkeep happens in the threads that call, write or read.
 */
#define QUIRE_NO_BACKGROUND 4

/**
 * For QUIRE_UFFD: a thread of the library serves the faults of threads that write, which takes 25 to 50 us each, instead of these in
 * a handler of SIGBUS. For programs of which a thread that blocks SIGBUS writes: the fault would kill the program. Where a thread
 * blocks it when the range is made, that is done without the flag.
 */
#define QUIRE_SERVE_FAULTS 8

/**
 * For quire_pool_options.second_tier_bytes: a part of the pool's capacity, as large as saves most time.
 */
#define QUIRE_SECOND_TIER_AUTO UINT64_MAX

/**
 * For quire_pool_options.second_tier_bytes: no second tier.
 */
#define QUIRE_SECOND_TIER_OFF (UINT64_MAX - 1)

/**
 * The file is made if it is not there.
 */
#define QUIRE_MAP_CREATE 1

/**
 * Threads of the library see to the faults, not the thread that faults. System calls (read, write, ...) may then be handed
 * addresses of the map; they fail with EFAULT otherwise. It costs two changes of thread a fault, needs the right to catch
 * faults of system calls (CAP_SYS_PTRACE, /dev/userfaultfd or vm.unprivileged_userfaultfd=1), and a page that can't be
 * read ends the program by SIGABRT with a line on standard error.
 */
#define QUIRE_MAP_SERVED 2

/**
 * quire_lease() fails with QUIRE_EXHAUSTED at once where leases pin as much as they may, and does not wait for others to be released.
 */
#define QUIRE_LEASE_TRY 1

/**
 * For mdc_fwrite(): the object's bytes are copied to the checkpoint's log now. Needed for objects that change or go before
 * mdc_checkpoint_end().
 */
#define MDC_VAL 0

/**
 * For mdc_fwrite(): the object's address is logged, and its bytes are dumped by mdc_checkpoint_end(). Until then the program must
 * neither change nor free it in the process that makes the checkpoint. Objects that a dump can't serve (8 bytes or less, on
 * the stack, in shared memory or a file's mapping) are copied as by MDC_VAL.
 */
#define MDC_REF 1

/**
 * For mdc_checkpoint_start(): the process is a child that was forked to make this checkpoint, and gives its memory back to the
 * system as it is dumped, so that what the parent writes from then on costs no copies. The memory reads as before, from the file.
 *
 * The process must have one thread, and not be made by vfork(). Refused for a process with several.
 */
#define MDC_RELEASE 1

/**
 * For mdc_restore_start(): the whole file is read to memory and verified first. Otherwise it is mapped, each piece is verified
 * when it is read first, and a process that cuts the file off meanwhile ends this one by SIGBUS.
 */
#define MDC_LOAD 1

/**
 * What a call returns: QUIRE_OK, or the kind of its failure. quire_last_error() tells the rest.
 */
enum quire_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done.
     */
    QUIRE_OK = 0,
    /**
     * An argument is wrong; nothing has happened.
     */
    QUIRE_INVALID = 1,
    /**
     * The kernel or the container forbids it. The message says what to do about that.
     */
    QUIRE_UNSUPPORTED = 2,
    /**
     * No memory or no addresses are left.
     */
    QUIRE_NO_MEMORY = 3,
    /**
     * A system call failed that has no business failing, or a file or disk did.
     */
    QUIRE_SYSTEM = 4,
    /**
     * A bound is reached; mostly too many snapshots live at once. Release some.
     */
    QUIRE_EXHAUSTED = 5,
    /**
     * The bytes that were asked for are gone: the snapshot outgrew its budget, or the process that held it was killed, or they were
     * taken by quire_snapshot_take(); or a map's file could not be written.
     */
    QUIRE_LOST = 6,
    /**
     * A fault in the library itself. Please report the message.
     */
    QUIRE_BUG = 7,
    /**
     * A file is not what was written, or is something else, or of a later version.
     */
    QUIRE_DAMAGED = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quire_status quire_status;
#else
typedef int32_t quire_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How memory is kept as it was at a cut while threads go on writing.
 */
enum quire_mechanism
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Whichever stalls writers least, among those that work here and do what the flags of quire_options ask for; see
     * quire_range_why(). In this order: for up to 64 KiB memcpy; barrier, only if writes are announced; uffd; scoot; fork;
     * mmapcopy; memcpy. If snapshots must be addressable: scoot, mmapcopy, memcpy.
     */
    QUIRE_BEST = 0,
    /**
     * A duplicate in the same process that shares frames until a thread writes. Snapshots are ordinary memory.
     */
    QUIRE_SCOOT = 1,
    /**
     * Write protection by userfaultfd; a thread that writes first keeps the page, in its handler of SIGBUS. A system call
     * that writes to the range fails with EFAULT, unless quire_prepare_write() went before. The program must not set a
     * handler of SIGBUS of its own once such a range exists; one that it set before is asked about all other faults.
     */
    QUIRE_UFFD = 2,
    /**
     * Nothing is protected: every write to the range has to be announced by quire_prepare_write().
     */
    QUIRE_BARRIER = 3,
    /**
     * Private mappings of one file in memory. Snapshots are ordinary memory.
     */
    QUIRE_MMAPCOPY = 4,
    /**
     * A child process holds the snapshot and answers reads.
     */
    QUIRE_FORK = 5,
    /**
     * A plain copy, made at the cut. Snapshots are ordinary memory. Works everywhere.
     */
    QUIRE_MEMCPY = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quire_mechanism quire_mechanism;
#else
typedef int32_t quire_mechanism;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Which regions are copied whole at, or before, their first write after a cut. Copying a region whole costs far less per
 * page than page by page, and is wasted where few of its pages are written.
 */
enum quire_precopy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Those that measured costs suggest, changed from cut to cut. What is usual.
     */
    QUIRE_PRECOPY_ADAPTIVE = 0,
    /**
     * None.
     */
    QUIRE_PRECOPY_NONE = 1,
    /**
     * All that are written at all.
     */
    QUIRE_PRECOPY_ALL = 2,
    /**
     * Those of whose pages at least threshold_percent were written between the last two cuts.
     */
    QUIRE_PRECOPY_THRESHOLD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quire_precopy quire_precopy;
#else
typedef int32_t quire_precopy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How pages are stored in a pool's second tier. What does not compress is stored as it is.
 */
enum quire_compression
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * By LZ4.
     */
    QUIRE_COMPRESSION_LZ4 = 1,
    /**
     * By zstd at its first level: in less memory, and in several times the time.
     */
    QUIRE_COMPRESSION_ZSTD = 2,
    /**
     * As they are.
     */
    QUIRE_COMPRESSION_NONE = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quire_compression quire_compression;
#else
typedef int32_t quire_compression;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A checkpoint that is being written, between mdc_checkpoint_start() and mdc_checkpoint_end(), or one that is being read, between
 * mdc_restore_start() and mdc_restore_end().
 */
typedef struct mdc_file mdc_file;

/**
 * A file whose bytes are read in place, by leases, and written by calls. Any thread may call with it.
 *
 * A child that the program makes by fork() must not call with it: that is refused.
 */
typedef struct quire_file quire_file;

/**
 * Bytes of a file, in place.
 *
 * They stay in memory, and as they are, until the lease is released, whatever is written to the file meanwhile: a writer gets a copy of a
 * leased page, and later leases and reads show what it wrote. Any thread may load the bytes and release the lease. It keeps the
 * file, and its pool, also when these have been released. Of bytes on several pages each page is as it was at one moment, not all
 * at the same.
 *
 * A forked child may load the bytes of a lease that its parent had, and may not call with it.
 */
typedef struct quire_leased quire_leased;

/**
 * A file as memory.
 *
 * Any thread may load and store at quire_map_ptr() as anywhere; an access to a page that is not in memory reads it from the
 * file first. Where that fails, or the pool has no memory to give, the access ends in SIGBUS as with mmap(). The program
 * must not set a handler of SIGBUS of its own once such a map exists; one that it set before is asked about all other
 * faults. A child that the program makes by fork() must not touch the map.
 * Calls with it are refused there.
 */
typedef struct quire_mapping quire_mapping;

/**
 * Memory for pages of files that are mapped with quire_map(). Any thread may call with a pool until it is released.
 *
 * A child that the program makes by fork() must not call with the pool: that is refused.
 */
typedef struct quire_pool quire_pool;

/**
 * Memory that goes on being written, and of which snapshots are cut.
 *
 * Any thread may load and store there as anywhere, and any thread may call with a range, several at once, until it is
 * released. Two duties: no thread writes during quire_range_adopt() and quire_cut(), and quire_prepare_write() comes
 * first where its description says so.
 *
 * A child that the program makes by fork() must neither call the library nor write to a range.
 */
typedef struct quire_range quire_range;

/**
 * A range as it was at a cut. Any thread may read it, several at once, until it is released; it outlives its range.
 */
typedef struct quire_snapshot quire_snapshot;

/**
 * What a range may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
 * Mechanisms that have no use for a setting ignore it.
 *
 *     quire_options options = {0};
 *     options.struct_size = sizeof options;
 */
typedef struct {
    /**
     * sizeof(quire_options), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * Bytes of a region, the unit in which writes are counted and copied ahead: a power of two from 32 KiB to 2 MiB.
     * Usual: 2 MiB, the size of a huge page.
     */
    size_t region_bytes;
    /**
     * Most memory that all snapshots of the range may take together, in bytes. Usual: four times the range and 256 MiB with
     * QUIRE_UFFD and QUIRE_BARRIER (one snapshot takes the range at most), as much as the range with QUIRE_SCOOT. A snapshot
     * for which none is left is given up, and reading it returns QUIRE_LOST; writers go on.
     */
    size_t budget_bytes;
    /**
     * Memory that is kept warm for the next snapshot, in bytes. Usual: 64 MiB.
     */
    size_t keep_bytes;
    /**
     * Most bytes per second that are copied ahead of the writers right after a cut. Usual: 2 GiB.
     */
    uint64_t precopy_bytes_per_second;
    /**
     * One of enum quire_precopy.
     */
    int32_t precopy;
    /**
     * For QUIRE_PRECOPY_THRESHOLD: 1 to 100.
     */
    uint32_t threshold_percent;
    /**
     * QUIRE_ANNOUNCES, QUIRE_ADDRESSABLE, QUIRE_NO_BACKGROUND, QUIRE_SERVE_FAULTS, or several of them added up.
     */
    uint64_t flags;
} quire_options;

/**
 * What a range has done and cost since it was made, except where "now" says otherwise. Figures that a mechanism has no
 * way to know stay zero. Set struct_size to sizeof(quire_stats) before the call.
 */
typedef struct {
    /**
     * sizeof(quire_stats), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * Cuts made.
     */
    uint64_t cuts;
    /**
     * How long the last cut took, in nanoseconds: the time for which writers stalled.
     */
    uint64_t last_cut_ns;
    /**
     * Pages copied because a thread wrote to them, or to their region.
     */
    uint64_t copied_pages;
    /**
     * Of these, pages copied with their region before a thread wrote to them.
     */
    uint64_t precopied_pages;
    /**
     * Precopied pages found to have been written later.
     */
    uint64_t needed_pages;
    /**
     * Precopied pages found not to have been.
     */
    uint64_t unneeded_pages;
    /**
     * Faults taken in threads that write.
     */
    uint64_t faults;
    /**
     * Waits of threads that write for a copy that another thread was making.
     */
    uint64_t waits;
    /**
     * Total of these waits, in nanoseconds.
     */
    uint64_t wait_total_ns;
    /**
     * Longest of these waits, in nanoseconds.
     */
    uint64_t wait_longest_ns;
    /**
     * Bytes held now for snapshots.
     */
    uint64_t held_bytes_now;
    /**
     * Most bytes held at once.
     */
    uint64_t held_bytes_peak;
    /**
     * Huge pages that were split and made whole again.
     */
    uint64_t rejoined_regions;
    /**
     * Of a region's pages, the share in percent from which it is copied whole now; over 100 for never.
     */
    uint64_t threshold_percent;
} quire_stats;

/**
 * What a pool may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
 */
typedef struct {
    /**
     * sizeof(quire_pool_options), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * Bytes of a page: 4096, 16384 or 65536. Usual: 4096. Larger ones cost fewer faults where what is used lies together.
     */
    size_t page_bytes;
    /**
     * Threads that write pages back, at most 64. Usual: 1.
     */
    size_t writers;
    /**
     * Writes that each of them keeps in flight, at most 128. Usual: 64.
     */
    size_t queue_depth;
    /**
     * Writing back begins when more than this share of the pool has changed, in percent. Usual: 75.
     */
    uint64_t dirty_percent;
    /**
     * How long a thread waits for memory while nothing moves, in milliseconds, before its access fails; at most a day. While pages of
     * the pool are under writeback it waits on, however slow the device is. Usual: 5000.
     */
    uint64_t patience_ms;
    /**
     * Memory for pages that had to make room: compressed, and such that the system may take it back at any time. QUIRE_SECOND_TIER_AUTO makes
     * it a part of the pool's capacity, which both share as it saves most time: nothing before the first page has to make room, half then, and from a
     * 64th to seven eighths later. Other values are bytes beside the capacity, at least sixteen pages, at most 64 GiB. It shrinks while memory is
     * short. Not to be used for files that other programs write while they are mapped: a page that comes from here is as it was when it had to
     * make room, whatever another program has written since: QUIRE_SECOND_TIER_OFF makes none. Usual: QUIRE_SECOND_TIER_AUTO.
     */
    uint64_t second_tier_bytes;
    /**
     * 1 has a page that is not in the pool looked for in the system's page cache before it is read from the device, and given up there:
     * for files that other programs use by read() and write(), too. Block devices are always read themselves. Usual: 0.
     */
    uint64_t look_in_page_cache;
    /**
     * Leases (see quire_lease()) pin no more than this share of the pool, in percent, at most 75. Usual: 25.
     */
    uint64_t lease_percent;
    /**
     * In place of second_tier_bytes, its size as a share of the capacity, in percent, beside it; may be over 100, at most 65535. Usual: as
     * second_tier_bytes says.
     */
    uint64_t second_tier_percent;
    /**
     * How pages are stored there, one of enum quire_compression. Usual: QUIRE_COMPRESSION_LZ4.
     */
    uint64_t second_tier_compression;
} quire_pool_options;

/**
 * What a pool holds now, and what it has done since it was made. Set struct_size to sizeof(quire_pool_counts) before the
 * call.
 */
typedef struct {
    /**
     * sizeof(quire_pool_counts), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * Memory that pages may take, in bytes, without what of the pool's capacity is the second tier's now.
     */
    uint64_t capacity_bytes;
    /**
     * Memory that they take now.
     */
    uint64_t resident_bytes;
    /**
     * Of these, bytes of pages that have changed and are not written yet.
     */
    uint64_t dirty_bytes;
    /**
     * Maps now.
     */
    uint64_t maps;
    /**
     * Pages that were not in the pool when a thread needed them.
     */
    uint64_t misses;
    /**
     * Reads that failed.
     */
    uint64_t failed_reads;
    /**
     * Pages that had to make room.
     */
    uint64_t evicted_pages;
    /**
     * Pages written back.
     */
    uint64_t written_pages;
    /**
     * Writes that they were merged to.
     */
    uint64_t writes;
    /**
     * Bytes of pages that leases pin now.
     */
    uint64_t leased_bytes;
    /**
     * Leased pages that were copied since a thread wrote to them.
     */
    uint64_t lease_copies;
} quire_pool_counts;

/**
 * Which paths pages have taken between a pool, its second tier and the device, and what the second tier holds now. Set struct_size to
 * sizeof(quire_path_counts) before the call.
 */
typedef struct {
    /**
     * sizeof(quire_path_counts), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * Pages read from the device because a thread waited for them.
     */
    uint64_t read_direct;
    /**
     * Pages that came from the second tier instead.
     */
    uint64_t read_second_tier;
    /**
     * Pages that came from the system's page cache instead.
     */
    uint64_t read_page_cache;
    /**
     * Pages written that stayed in the pool.
     */
    uint64_t write_direct;
    /**
     * Pages written because threads needed memory.
     */
    uint64_t evict_dirty;
    /**
     * Pages that went to the second tier.
     */
    uint64_t evict_clean;
    /**
     * Pages that the system had taken from the second tier when they were looked for there.
     */
    uint64_t reclaimed_pages;
    /**
     * Memory of the second tier, in bytes.
     */
    uint64_t second_tier_bytes;
    /**
     * Of these, bytes that the system has not taken; 0 where it doesn't say.
     */
    uint64_t second_tier_resident_bytes;
} quire_path_counts;

/**
 * What a map may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
 */
typedef struct {
    /**
     * sizeof(quire_map_options), so that later versions may have further fields.
     */
    size_t struct_size;
    /**
     * The length to which quire_map_grow() may go, in bytes: addresses are kept free for so much. Usual: the length of the
     * file now, or 1 TiB for a file of no bytes. At most 64 TiB.
     */
    uint64_t reserve_bytes;
    /**
     * QUIRE_MAP_CREATE, QUIRE_MAP_SERVED, or both added up.
     */
    uint64_t flags;
    /**
     * Threads for QUIRE_MAP_SERVED: as many faults at a time can wait for the disk. At most 32; usual: 4.
     */
    uint64_t servers;
} quire_map_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that is running, such as "0.1.0"; QUIRE_VERSION_MAJOR and so on are those of the header that
 * the program was compiled with. Never NULL, never to be freed.
 */
const char *quire_version(void);

/**
 * The name of a status, such as "QUIRE_OK"; "unknown" for a number that is none. Never NULL, never to be freed.
 */
const char *quire_status_name(int32_t status);

/**
 * What went wrong in the last call of this thread that failed, in words for people: what was refused, and often what to
 * do about it. "" if none has failed yet. Calls that succeed leave it alone, so ask after a failure only.
 *
 * Never NULL. Valid until the next call of this thread fails; never to be freed.
 */
const char *quire_last_error(void);

/**
 * The name of a mechanism, such as "scoot"; NULL for a number that is none. Never to be freed.
 */
const char *quire_mechanism_name(int32_t mechanism);

/**
 * Finds a mechanism by its name, "best" among them, and leaves its number in *mechanism.
 *
 * Duties of the caller:
 * name is a string that ends with NUL; *mechanism may be written.
 */
quire_status quire_mechanism_parse(const char *name, int32_t *mechanism);

/**
 * Tries a mechanism on a little memory of the library's own: QUIRE_OK if it works here, QUIRE_UNSUPPORTED if the kernel
 * or the container forbids it. For QUIRE_BEST it is always QUIRE_OK.
 *
 * why, if it is not NULL, gets up to why_size bytes of text that ends with NUL: what is forbidden and what to do about
 * it; what QUIRE_BEST would pick for much memory, with default options, and why; or "".
 *
 * Duties of the caller:
 * why is NULL, or why_size bytes may be written there.
 */
quire_status quire_mechanism_supported(int32_t mechanism,
                                       char *why,
                                       size_t why_size);

/**
 * Makes a range of new memory of size bytes, rounded up to whole pages of 4096. It reads as zero, and no memory is taken
 * for pages that were never written.
 *
 * mechanism is one of enum quire_mechanism, options may be NULL. On success *range is the new range, to be released by
 * quire_range_release(); on failure it is NULL.
 *
 * Duties of the caller:
 * options is NULL or leads to options with struct_size set; *range may be written.
 */
quire_status quire_range_create(size_t size,
                                int32_t mechanism,
                                const quire_options *options,
                                quire_range **range);

/**
 * As quire_range_create(), for memory that the program has already; what it holds stays. It has to be private anonymous
 * memory that can be read and written, as mmap(MAP_PRIVATE | MAP_ANONYMOUS) gives it, in whole pages of 4096. Best, it
 * also begins at a multiple of 2 MiB, and is made of huge pages.
 *
 * Until the range and all its snapshots are released, the program must not unmap, remap or protect that memory. From
 * then on it is the program's again, with what it holds. With QUIRE_SCOOT and QUIRE_MMAPCOPY it may be backed by a file in
 * memory then: it can be used and unmapped as before, but perhaps not be adopted again.
 *
 * Duties of the caller:
 * size bytes at memory are as described above; no thread writes there during the call. options is NULL or leads to
 * options with struct_size set; *range may be written.
 */
quire_status quire_range_adopt(void *memory,
                               size_t size,
                               int32_t mechanism,
                               const quire_options *options,
                               quire_range **range);

/**
 * The range's first address; it never changes. NULL if range is.
 *
 * Duties of the caller:
 * range is NULL or a range that is not released.
 */
void *quire_range_base(const quire_range *range);

/**
 * The range's size in bytes, a multiple of 4096. 0 if range is NULL.
 *
 * Duties of the caller:
 * range is NULL or a range that is not released.
 */
size_t quire_range_size(const quire_range *range);

/**
 * The range's mechanism: never QUIRE_BEST, but what that picked. QUIRE_BEST if range is NULL.
 *
 * Duties of the caller:
 * range is NULL or a range that is not released.
 */
quire_mechanism quire_range_mechanism(const quire_range *range);

/**
 * Why the range has its mechanism, and why not a better one; for people. NULL if range is. Valid until the range is
 * released.
 *
 * Duties of the caller:
 * range is NULL or a range that is not released.
 */
const char *quire_range_why(const quire_range *range);

/**
 * Makes len bytes at offset safe to change until the next cut.
 *
 * - With QUIRE_BARRIER a duty before every write: what isn't announced may show in snapshots.
 * - With QUIRE_UFFD a duty before a system call writes to the range (read, recv, ...): it would fail with EFAULT, or return
 *   having written less, as a system call does not fault the way a store does. Stores need nothing.
 * - Otherwise it does nothing.
 *
 * It is cheap where a page was prepared, or written, since the last cut. Any thread may call it, but not while another
 * thread is in quire_cut().
 *
 * Duties of the caller:
 * range is a range that is not released.
 */
quire_status quire_prepare_write(const quire_range *range,
                                 size_t offset,
                                 size_t len);

/**
 * Fixes what the range holds now: *snapshot shows that for as long as it lives, whatever is written to the range
 * afterwards. To be released by quire_snapshot_release(); NULL on failure. Several snapshots may live at once.
 *
 * No thread may write to the range during the call: nothing breaks if one does, but its write may be in the snapshot or
 * not. So stop the writers at a point at which the data make sense, cut, and let them go on; that is the time for which
 * they stall (last_cut_ns in quire_stats). Threads that read need not stop.
 *
 * Duties of the caller:
 * range is a range that is not released; *snapshot may be written.
 */
quire_status quire_cut(const quire_range *range,
                       quire_snapshot **snapshot);

/**
 * Waits until all upkeep that the last snapshots left behind (giving memory back, making huge pages whole again) is done;
 * it goes on in the background otherwise. For measurements, or when there is time before the next cut.
 *
 * Duties of the caller:
 * range is a range that is not released.
 */
quire_status quire_range_settle(const quire_range *range);

/**
 * Ends a range. Its snapshots stay as they are, and may be released later, in any order.
 *
 * Memory of quire_range_create() must not be touched afterwards. Memory of quire_range_adopt() is the program's again
 * once its last snapshot is released, too. NULL is nothing to release.
 *
 * Duties of the caller:
 * range is NULL or a range that is not released, and no other thread is in a call with it.
 */
quire_status quire_range_release(quire_range *range);

/**
 * Copies len bytes of the snapshot from offset on to buffer. Works with every mechanism; see quire_snapshot_data() for
 * those whose snapshots can be read in place.
 *
 * The buffer must lie neither in the snapshot's range nor in the snapshot itself. On failure what it holds is undefined.
 *
 * Duties of the caller:
 * snapshot is a snapshot that is not released; len bytes at buffer may be written, and no other thread uses them.
 */
quire_status quire_read(const quire_snapshot *snapshot,
                        size_t offset,
                        void *buffer,
                        size_t len);

/**
 * Copies the next bytes of the snapshot from offset on to buffer, at most len and at most 256 KiB. *start is where they begin, *count how many
 * they are: 0 at the snapshot's end. Bytes that are passed over are zeros. To dump a snapshot, call it with offset 0, and then with the
 * sum of *start and *count, until that is 0.
 *
 * The caller has no more use for what lies before offset. With QUIRE_FORK the snapshot's process gives that memory back, by 2 MiB, so
 * that later writes to the range copy no more pages there; bytes before offset can't be read any more (QUIRE_LOST), but from
 * snapshots of the snapshot that were made before. Other mechanisms hold them on.
 *
 * Duties of the caller:
 * snapshot is a snapshot that is not released; len bytes at buffer may be written, and no other thread uses them; so may
 * *start and *count.
 */
quire_status quire_snapshot_take(const quire_snapshot *snapshot,
                                 size_t offset,
                                 void *buffer,
                                 size_t len,
                                 size_t *start,
                                 size_t *count);

/**
 * The snapshot as ordinary memory of quire_snapshot_size() bytes, where the mechanism has such (QUIRE_SCOOT,
 * QUIRE_MMAPCOPY, QUIRE_MEMCPY): its first address. NULL where it hasn't, or if snapshot is NULL.
 *
 * Valid until the snapshot is released. Writing there changes this snapshot alone.
 *
 * Duties of the caller:
 * snapshot is NULL or a snapshot that is not released.
 */
void *quire_snapshot_data(const quire_snapshot *snapshot);

/**
 * The snapshot's size in bytes, that of its range. 0 if snapshot is NULL.
 *
 * Duties of the caller:
 * snapshot is NULL or a snapshot that is not released.
 */
size_t quire_snapshot_size(const quire_snapshot *snapshot);

/**
 * Bytes that the snapshot holds now beyond the range's own, as far as they can be told. 0 if snapshot is NULL.
 *
 * Duties of the caller:
 * snapshot is NULL or a snapshot that is not released.
 */
size_t quire_snapshot_held_bytes(const quire_snapshot *snapshot);

/**
 * A snapshot of a snapshot, in *copy. It outlives the first one, and what is written to the data of one later doesn't
 * show in the other. NULL on failure. No thread may write to the snapshot's data during the call.
 *
 * Duties of the caller:
 * snapshot is a snapshot that is not released; *copy may be written.
 */
quire_status quire_snapshot_cut(const quire_snapshot *snapshot,
                                quire_snapshot **copy);

/**
 * Ends a snapshot; the memory that only it held is free. Its range and other snapshots stay as they are, and may be
 * released before or after it. NULL is nothing to release.
 *
 * Duties of the caller:
 * snapshot is NULL or a snapshot that is not released, no other thread is in a call with it, and no thread uses its data.
 */
quire_status quire_snapshot_release(quire_snapshot *snapshot);

/**
 * Fills *stats. Any thread may ask at any time.
 *
 * Duties of the caller:
 * range is a range that is not released; *stats may be written, and its struct_size is set.
 */
quire_status quire_range_stats(const quire_range *range, quire_stats *stats);

/**
 * Makes a pool of capacity_bytes of memory for pages, which is never exceeded: at least four pages, at most 64 TiB. It is
 * taken as pages come.
 *
 * options may be NULL. On success *pool is the new pool, to be released by quire_pool_release(); on failure it is NULL.
 *
 * Duties of the caller:
 * options is NULL or leads to options with struct_size set; *pool may be written.
 */
quire_status quire_pool_create(size_t capacity_bytes,
                               const quire_pool_options *options,
                               quire_pool **pool);

/**
 * Fills *counts. Any thread may ask at any time.
 *
 * Duties of the caller:
 * pool is a pool that is not released; *counts may be written, and its struct_size is set.
 */
quire_status quire_pool_stats(const quire_pool *pool, quire_pool_counts *counts);

/**
 * Fills *counts. Any thread may ask at any time. It looks at every page of the second tier, so not many times a second.
 *
 * Duties of the caller:
 * pool is a pool that is not released; *counts may be written, and its struct_size is set.
 */
quire_status quire_pool_paths(const quire_pool *pool,
                              quire_path_counts *counts);

/**
 * Ends a pool. Its maps stay as they are, and the pool's memory with them, until they are released. NULL is nothing to
 * release.
 *
 * Duties of the caller:
 * pool is NULL or a pool that is not released, and no other thread is in a call with it.
 */
quire_status quire_pool_release(quire_pool *pool);

/**
 * Maps the file, or block device, at path as memory, whole, with pages of pool. The same file must not be mapped twice at a
 * time. What is stored there gets to the file when the pool needs memory, by quire_map_flush() and quire_map_sync(), and
 * when the map is released.
 *
 * options may be NULL. On success *map is the new map, to be released by quire_map_release(); on failure it is NULL.
 * QUIRE_UNSUPPORTED where userfaultfd is forbidden. Directories, pipes, sockets, character devices and the kernel's
 * interfaces (/proc, /sys) are refused.
 *
 * Duties of the caller:
 * pool is a pool that is not released; path is a string that ends with NUL; options is NULL or leads to options with
 * struct_size set; *map may be written.
 */
quire_status quire_map(const quire_pool *pool,
                       const char *path,
                       const quire_map_options *options,
                       quire_mapping **map);

/**
 * The file's first byte. It stays where it is, also when the map grows. NULL if map is.
 *
 * Duties of the caller:
 * map is NULL or a map that is not released.
 */
void *quire_map_ptr(const quire_mapping *map);

/**
 * Bytes of the file, which may be loaded and stored. 0 if map is NULL.
 *
 * Duties of the caller:
 * map is NULL or a map that is not released.
 */
uint64_t quire_map_len(const quire_mapping *map);

/**
 * Makes the file, and so the map, len bytes long if it is shorter. The new bytes are zero.
 *
 * Duties of the caller:
 * map is a map that is not released.
 */
quire_status quire_map_grow(const quire_mapping *map, uint64_t len);

/**
 * Makes durable what was stored before the call to the pages of len bytes at offset, and the file's length. Other threads
 * may go on storing; what they store meanwhile may be in the file or not.
 *
 * When it fails, it is not known what is in the file: the map's later stores stay in memory, and every later call says why.
 *
 * Duties of the caller:
 * map is a map that is not released.
 */
quire_status quire_map_flush(const quire_mapping *map,
                             uint64_t offset,
                             uint64_t len);

/**
 * quire_map_flush() of the whole file.
 *
 * Duties of the caller:
 * map is a map that is not released.
 */
quire_status quire_map_sync(const quire_mapping *map);

/**
 * Bytes of the map that are in memory. 0 if map is NULL.
 *
 * Duties of the caller:
 * map is NULL or a map that is not released.
 */
uint64_t quire_map_resident(const quire_mapping *map);

/**
 * Ends a map. What was stored is written to the file, but not made durable: that takes quire_map_sync(). Its memory must not
 * be touched afterwards. NULL is nothing to release.
 *
 * Duties of the caller:
 * map is NULL or a map that is not released, no other thread is in a call with it or touches its memory.
 */
quire_status quire_map_release(quire_mapping *map);

/**
 * Opens the file, or block device, at path, whole, with pages of pool. The same file must not be opened, or mapped, twice at a time. What is
 * written gets to the file when the pool needs memory, by quire_file_sync(), and when the file and the last of its leases are released.
 *
 * options may be NULL; its flags may be QUIRE_MAP_CREATE, and servers must be 0. On success *file is the new file, to be released by
 * quire_file_release(); on failure it is NULL. Directories, pipes, sockets, character devices and the kernel's interfaces (/proc,
 * /sys) are refused.
 *
 * Duties of the caller:
 * pool is a pool that is not released; path is a string that ends with NUL; options is NULL or leads to options with
 * struct_size set; *file may be written.
 */
quire_status quire_file_open(const quire_pool *pool,
                             const char *path,
                             const quire_map_options *options,
                             quire_file **file);

/**
 * Bytes of the file. 0 if file is NULL.
 *
 * Duties of the caller:
 * file is NULL or a file that is not released.
 */
uint64_t quire_file_len(const quire_file *file);

/**
 * Makes the file len bytes long if it is shorter. The new bytes are zero.
 *
 * Duties of the caller:
 * file is a file that is not released.
 */
quire_status quire_file_grow(const quire_file *file, uint64_t len);

/**
 * Writes len bytes to the file at offset, where the file must have as many. Leases of these bytes keep what they show. Other threads see
 * each page of the file as it was before or is afterwards. Where it fails, a part of the bytes may have been written.
 *
 * bytes must not be memory of a quire_map().
 *
 * Duties of the caller:
 * file is a file that is not released; len bytes at bytes may be read.
 */
quire_status quire_file_write(const quire_file *file,
                              uint64_t offset,
                              const void *bytes,
                              size_t len);

/**
 * Makes durable what was written before the call, and the file's length.
 *
 * When it fails, it is not known what is in the file: what was written stays in memory, and every later call says why.
 *
 * Duties of the caller:
 * file is a file that is not released.
 */
quire_status quire_file_sync(const quire_file *file);

/**
 * Ends the use of a file; its leases stay. What was written is written to the file with the last of them, but not made durable: that takes
 * quire_file_sync(). NULL is nothing to release.
 *
 * Duties of the caller:
 * file is NULL or a file that is not released, and no other thread is in a call with it.
 */
quire_status quire_file_release(quire_file *file);

/**
 * Leases the len bytes of file at offset; fewer if the file ends before. Pages that are not in memory are read.
 *
 * Leases pin no more than a part of the pool (quire_pool_options.lease_percent). Where they do, the call waits until others are released, but
 * no longer than the pool's patience while none is: the caller may hold all of them. Then, and with QUIRE_LEASE_TRY in flags at
 * once, it fails with QUIRE_EXHAUSTED. QUIRE_INVALID where the file ends at offset or before.
 *
 * On success *lease is the new lease, to be released by quire_lease_release(); on failure it is NULL.
 *
 * Duties of the caller:
 * file is a file that is not released; *lease may be written.
 */
quire_status quire_lease(const quire_file *file,
                         uint64_t offset,
                         size_t len,
                         uint64_t flags,
                         quire_leased **lease);

/**
 * The first of the leased bytes, which must not be stored to. NULL if lease is.
 *
 * Duties of the caller:
 * lease is NULL or a lease that is not released.
 */
const void *quire_lease_ptr(const quire_leased *lease);

/**
 * How many bytes are leased. 0 if lease is NULL.
 *
 * Duties of the caller:
 * lease is NULL or a lease that is not released.
 */
size_t quire_lease_len(const quire_leased *lease);

/**
 * Ends a lease, whose bytes must not be touched afterwards. Any thread may. NULL is nothing to release.
 *
 * Duties of the caller:
 * lease is NULL or a lease that is not released, and no other thread uses its bytes.
 */
quire_status quire_lease_release(quire_leased *lease);

/**
 * Tells the mount whose root is at mount_point that requests wait for a process (critical is not 0), or takes that back
 * (critical is 0). 0 as process means the calling one. The hint comes before the mount's rules and ends with the process.
 *
 * QUIRE_INVALID if there is no such process, or no mount of Quire at mount_point; QUIRE_UNSUPPORTED to those who may not
 * write to its root.
 *
 * Duties of the caller:
 * mount_point is NULL or a string.
 */
quire_status quire_critical(const char *mount_point,
                            int32_t process,
                            int32_t critical);

/**
 * Begins a checkpoint that takes the place of the file path when it is complete. Until then path is not touched: whatever
 * happens to this process, path leads to the old checkpoint or to the new one. flags are 0 or MDC_RELEASE.
 *
 * Returns what mdc_fwrite() writes to, or NULL: the file can't be written, or another process is writing it.
 *
 * Duties of the caller:
 * path is a string.
 */
mdc_file *mdc_checkpoint_start(const char *path,
                               uint32_t flags);

/**
 * Writes count objects of size bytes each, that lie one behind the other at ptr, as fwrite() does. type is MDC_VAL or MDC_REF.
 * Returns count, or 0 on failure. After a failed write every later one fails, and so does mdc_checkpoint_end().
 *
 * Duties of the caller:
 * file comes from mdc_checkpoint_start(). size times count bytes at ptr may be read; by MDC_REF they are neither changed
 * nor freed before the checkpoint ends.
 */
size_t mdc_fwrite(const void *ptr,
                  size_t size,
                  size_t count,
                  mdc_file *file,
                  uint32_t type);

/**
 * Dumps the memory that objects were referenced in, makes the checkpoint durable, puts it in place of the old one, and ends
 * file. On failure the old one is as it was, unless the message says that only the directory was not flushed.
 *
 * With MDC_RELEASE the memory that was dumped has been given back to the system and is read from the file from now on.
 *
 * Duties of the caller:
 * file comes from mdc_checkpoint_start(), and no other thread uses it. With MDC_RELEASE this process is a child that was forked
 * (by fork(), not vfork() or clone() with CLONE_VM), and the kernel does not write to its memory by itself (asynchronous reads).
 */
quire_status mdc_checkpoint_end(mdc_file *file);

/**
 * Gives a checkpoint up: the old one stays as it is. NULL is nothing to give up.
 *
 * Duties of the caller:
 * file is NULL or comes from mdc_checkpoint_start(), and no other thread uses it.
 */
quire_status mdc_checkpoint_cancel(mdc_file *file);

/**
 * Begins to read a checkpoint. flags are 0 or MDC_LOAD. Returns what mdc_fread() reads from, or NULL: there is none, or it is
 * damaged, or it is something else.
 *
 * Duties of the caller:
 * path is a string.
 */
mdc_file *mdc_restore_start(const char *path,
                            uint32_t flags);

/**
 * Reads count objects of size bytes each to ptr, as fread() does: the objects come in the order in which they were written, by
 * value or by reference, and may be read in other pieces. They need not lie where they lay; pointers in them are as they were.
 * type is MDC_VAL or MDC_REF, as in mdc_fwrite(), and makes no difference.
 *
 * Returns how many objects were read: fewer than count at the end of the checkpoint, or because it is damaged, which
 * mdc_restore_end() tells. What lies at ptr behind these objects is undefined.
 *
 * Duties of the caller:
 * file comes from mdc_restore_start(). size times count bytes at ptr may be written.
 */
size_t mdc_fread(void *ptr,
                 size_t size,
                 size_t count,
                 mdc_file *file,
                 uint32_t type);

/**
 * Ends the reading of a checkpoint. QUIRE_DAMAGED if a read has failed; NULL is nothing to end.
 *
 * Duties of the caller:
 * file is NULL or comes from mdc_restore_start(), and no other thread uses it.
 */
quire_status mdc_restore_end(mdc_file *file);

/**
 * Memory of size bytes for objects that mdc_fwrite() will be given by MDC_REF, as malloc() does. A dump takes whole mappings: a
 * program that has its objects here and the rest elsewhere dumps the objects only. NULL if there is no memory.
 *
 * Like all functions here, any thread may call it, also in a child after fork(). Aligned to 16 bytes.
 */
void *mdc_malloc(size_t size);

/**
 * As mdc_malloc(), for count objects of size bytes, all zero.
 */
void *mdc_calloc(size_t count, size_t size);

/**
 * As mdc_malloc(), from the scratch pool: for what no checkpoint needs, such as buffers and caches. No dump has it, unless
 * mdc_fwrite() is given an object of it by MDC_REF.
 */
void *mdc_scratch_malloc(size_t size);

/**
 * As mdc_scratch_malloc(), for count objects of size bytes, all zero.
 */
void *mdc_scratch_calloc(size_t count, size_t size);

/**
 * Gives memory of either pool another size, as realloc() does: it stays in its pool, perhaps at another place. NULL if there is no
 * memory; ptr is as it was then. For NULL it is mdc_malloc().
 *
 * Duties of the caller:
 * ptr is NULL or memory of the pools that is in use; on success it is used at the new place only.
 */
void *mdc_realloc(void *ptr,
                  size_t size);

/**
 * Frees memory of either pool. QUIRE_INVALID if ptr is none of it, as far as that can be told: not everything that was freed before
 * is. NULL is nothing to free.
 *
 * Duties of the caller:
 * ptr is NULL or memory of the pools that is in use, and is not used any more.
 */
quire_status mdc_free(void *ptr);

/**
 * How many bytes memory of either pool has room for, at least as many as were asked for. 0 if ptr is NULL or none of it.
 *
 * Duties of the caller:
 * ptr is NULL or memory of the pools that is in use.
 */
size_t mdc_usable_size(const void *ptr);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUIRE_H */
