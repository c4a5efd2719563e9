//! Section Memory: what the data takes, what the arena and the process hold for it, and the limits.

use super::{InfoSource, InfoText};

pub(super) fn write(source: &InfoSource<'_>, text: &mut InfoText) {
    let stats = source.store.stats();
    let arena = &stats.arena;
    let resident = quire_sys::proc::resident_bytes(None).unwrap_or(0);
    let used = source.server.memory_bytes(source.store);
    let peak = source.server.stats.used_memory_peak_bytes.max(used);
    let dataset = arena.allocated_bytes.saturating_sub(stats.overhead_bytes);
    let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    text.bytes("used_memory", used);
    text.bytes("used_memory_rss", resident);
    text.bytes("used_memory_peak", peak);
    text.field("used_memory_peak_perc", format_args!("{:.2}%", percent(used, peak)));
    text.field("used_memory_overhead", stats.overhead_bytes + (used - arena.allocated_bytes));
    // The arena holds nothing before the first key.
    text.field("used_memory_startup", 0);
    text.field("used_memory_dataset", dataset);
    text.field("used_memory_dataset_perc", format_args!("{:.2}%", percent(dataset, used)));
    text.field("allocator_allocated", arena.allocated_bytes);
    text.field("allocator_active", arena.used_bytes);
    text.field("allocator_resident", arena.backed_bytes());
    let (allocated, active, backed) = (arena.allocated_bytes, arena.used_bytes, arena.backed_bytes());
    overhead(text, "allocator_frag", active, allocated);
    overhead(text, "allocator_rss", backed, active);
    overhead(text, "rss_overhead", resident, backed);
    text.field("arena_objects", arena.objects);
    text.field("arena_committed_bytes", arena.committed_bytes);
    text.field("arena_free_bytes", arena.free_bytes);
    text.field("arena_released_bytes", arena.released_bytes);
    text.field("arena_max_bytes", arena.max_bytes);
    scripts(source, text);
    let total = quire_sys::proc::meminfo_bytes("MemTotal").unwrap_or(0);
    text.bytes("total_system_memory", total);
    text.bytes("maxmemory", source.server.config.maxmemory.limit_bytes);
    text.field("maxmemory_policy", source.server.config.maxmemory.policy_name());
    text.field("mem_fragmentation_ratio", format_args!("{:.2}", arena.fragmentation()));
    text.field("mem_fragmentation_bytes", arena.backed_bytes().saturating_sub(arena.allocated_bytes));
    text.field("mem_replication_backlog", 0);
    text.field("mem_total_replication_buffers", 0);
    text.field("mem_cluster_links", 0);
    text.field("mem_clients_slaves", 0);
    text.field("mem_clients_normal", source.server.clients.memory_bytes());
    text.field("mem_clients_limit", source.server.client_memory_limit_bytes());
    let waiting = source.server.log_writer.as_ref().map_or(0, |log_writer| log_writer.waiting_bytes());
    text.field("mem_aof_buffer", waiting);
    // What waits for the log is not among what `used_memory` counts.
    text.field("mem_not_counted_for_evict", 0);
    text.field("mem_allocator", "quire-arena");
    text.field("active_defrag_running", source.server.steps.defrag.share_percent());
    text.field("active_defrag_released_pages", source.server.steps.defrag.stats.released_pages);
    text.field("lazyfree_pending_objects", stats.reclaim_pending);
    text.field("lazyfreed_objects", stats.freed_in_steps);
}

/// What scripts and functions take.
fn scripts(source: &InfoSource<'_>, text: &mut InfoText) {
    let scripts = &source.server.scripts;
    let (functions, libraries) = (&scripts.functions, &scripts.functions.libraries);
    text.bytes("used_memory_lua", scripts.memory_bytes() as u64);
    text.field("used_memory_vm_eval", scripts.memory_bytes());
    text.field("used_memory_scripts_eval", scripts.cache.memory_bytes());
    text.field("number_of_cached_scripts", scripts.cache.len());
    text.field("number_of_functions", libraries.functions());
    text.field("number_of_libraries", libraries.len());
    text.field("used_memory_vm_functions", functions.memory_bytes());
    text.bytes("used_memory_vm_total", (scripts.memory_bytes() + functions.memory_bytes()) as u64);
    text.field("used_memory_functions", libraries.memory_bytes());
    text.bytes("used_memory_scripts", (scripts.cache.memory_bytes() + libraries.memory_bytes()) as u64);
}

/// By how much `whole` is more than `part`: the ratio, and the bytes.
fn overhead(text: &mut InfoText, name: &str, whole: u64, part: u64) {
    let ratio = if part == 0 { 1.0 } else { whole as f64 / part as f64 };
    text.field(&format!("{name}_ratio"), format_args!("{ratio:.2}"));
    text.field(&format!("{name}_bytes"), whole.cast_signed() - part.cast_signed());
}
