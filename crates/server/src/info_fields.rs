//! The fields of INFO that Redis does not have: what each one tells. The page `docs/info.md` is made from this table.
//!
//! Relies on a test that reads the sources of [`crate::info`]: a field is here, or it is one of Redis', or the test fails.

use std::fmt::Write as _;

/// A field of INFO.
pub struct InfoField {
    /// Its name.
    pub name: &'static str,
    /// The section that shows it.
    pub section: &'static str,
    /// What it tells, in a sentence; the unit is in the name or here.
    pub doc: &'static str,
}

const fn field(section: &'static str, name: &'static str, doc: &'static str) -> InfoField {
    InfoField { name, section, doc }
}

const SERVER: &str = "server";
const CLIENTS: &str = "clients";
const MEMORY: &str = "memory";
const SAVES: &str = "persistence";
const CPU: &str = "cpu";

/// All fields of Quire's own, in the order of INFO.
pub const OWN: &[InfoField] = &[
    field(
        SERVER,
        "quire_version",
        "The version of Quire. `redis_version` is that of the Redis whose answers it follows.",
    ),
    field(SERVER, "server_name", "`quire`."),
    field(
        CLIENTS,
        "paused_clients",
        "Clients that wait: for an element, for CLIENT PAUSE, for WAITAOF, for a large value.",
    ),
    field(
        CLIENTS,
        "tracking_memory_bytes",
        "Bytes that the server takes to know which keys clients have in caches of their own (CLIENT TRACKING).",
    ),
    field(CLIENTS, "woken_clients", "Times that a client which waited was run again."),
    field(MEMORY, "arena_objects", "Objects in use in the arena."),
    field(MEMORY, "arena_committed_bytes", "Bytes from the arena's base to its end, free ones included."),
    field(MEMORY, "arena_free_bytes", "Bytes of free runs of pages, whether they have memory or not."),
    field(
        MEMORY,
        "arena_released_bytes",
        "Bytes of free runs that have no memory: never used, or given back to the system.",
    ),
    field(MEMORY, "arena_max_bytes", "Most bytes that the arena may span."),
    field(MEMORY, "mem_clients_limit", "Bytes that requests and replies of all clients may take together."),
    field(
        MEMORY,
        "active_defrag_released_pages",
        "Pages of 4 KiB that `activedefrag` has given back to the system, besides regions of 2 MiB in which nothing lives any more.",
    ),
    field(SAVES, "current_save_pages_done", "Pages that the running save has written."),
    field(SAVES, "current_save_pages_total", "Pages that it will write; 0 if no save runs."),
    field(SAVES, "current_save_bytes_written", "Bytes that it has written."),
    field(SAVES, "current_save_time_left_sec", "Seconds that it will still take at its present rate; -1 if not known."),
    field(SAVES, "image_path", "Where images are saved; empty in a clone without a directory of its own."),
    field(SAVES, "image_history", "The number that all images of this data share, as 16 hexadecimal digits."),
    field(SAVES, "image_epoch", "How many images the data has had."),
    field(SAVES, "image_checksum", "The checksum of the last image or delta, as 16 hexadecimal digits."),
    field(SAVES, "rdb_last_bgsave_error", "Why the last background save failed; empty if it did not."),
    field(SAVES, "last_cut_stall_us", "Microseconds for which the last save stopped all commands."),
    field(SAVES, "preimage_bytes_now", "Bytes of old page contents that the running save still has to write."),
    field(SAVES, "preimage_bytes_peak", "The most of these since the last save began: its extra memory."),
    field(SAVES, "preimage_budget_bytes", "The most that there may be (`checkpoint-max-extra-memory`)."),
    field(SAVES, "writer_waits", "Times that a command waited for a save, because the budget was used up."),
    field(SAVES, "writer_wait_total_us", "Microseconds of these waits together."),
    field(SAVES, "writer_wait_longest_us", "Microseconds of the longest wait."),
    field(SAVES, "save_thread_priority", "`lowered`, or `normal` where the system would not let it be raised again."),
    field(SAVES, "save_io_priority", "The setting `checkpoint-io-priority`."),
    field(SAVES, "dump_bytes_per_sec", "Bytes a second of the last save, or of the one that runs."),
    field(SAVES, "last_image_bytes", "Bytes that the last save wrote."),
    field(SAVES, "checkpoint_incremental", "1 if saves write deltas."),
    field(SAVES, "checkpoint_chain_deltas", "Deltas over the image on the disk."),
    field(SAVES, "checkpoint_chain_delta_bytes", "Bytes that they take on the disk."),
    field(SAVES, "checkpoint_last_delta_bytes", "Bytes of the last one."),
    field(
        SAVES,
        "checkpoint_changed_bytes",
        "Bytes of pages that have changed since the last save; -1 if that is not tracked.",
    ),
    field(SAVES, "checkpoint_compression", "The setting of that name."),
    field(SAVES, "checkpoint_last_compression_savings_bytes", "Bytes by which compression made the last save smaller."),
    field(SAVES, "rdb_transfers_in_progress", "Clients that are sent the data as a file, as `redis-cli --rdb` is."),
    field(
        SAVES,
        "restore_mode",
        "How the data came back at the start: `map`, `load`, `clone`, `rdb` from a file of Redis, or `none` without an image.",
    ),
    field(
        SAVES,
        "restore_in_progress",
        "1 while the data is loaded, and while the image is still read and verified; saves wait for that.",
    ),
    field(SAVES, "restore_image_bytes", "Bytes of that image."),
    field(SAVES, "restore_regions_loaded_first", "Regions of 2 MiB that were read before the first command."),
    field(SAVES, "restore_first_read_us", "Microseconds until the first command could be served."),
    field(SAVES, "restore_full_us", "Microseconds until everything was read and verified; -1 before that."),
    field(
        SAVES,
        "clone_of",
        "In a clone: what `--clone` named. Other servers have no field that begins with `clone_`.",
    ),
    field(SAVES, "clone_image", "The image that the clone maps."),
    field(SAVES, "clone_data_unix_ms", "When its data was fixed, in milliseconds since 1970."),
    field(SAVES, "clone_data_age_seconds", "Seconds since then."),
    field(SAVES, "clone_deltas", "Deltas over that image."),
    field(SAVES, "clone_verified", "1 when all of the image is verified."),
    field(SAVES, "clone_verified_perc", "Percent that are verified."),
    field(SAVES, "clone_first_read_us", "Microseconds until the first command could be served."),
    field(SAVES, "clone_private_bytes", "Memory of the clone alone; -1 if the system does not tell."),
    field(SAVES, "clone_shared_bytes", "Memory that it shares with the page cache; -1 if the system does not tell."),
    field(SAVES, "log_last_error", "Why the log, or the last attempt to begin one, failed."),
    field(SAVES, "log_replayed_records", "Records of the log that the start replayed."),
    field(SAVES, "log_replayed_commands", "Commands in these records."),
    field(SAVES, "log_replay_us", "Microseconds that the replay took."),
    field(
        SAVES,
        "log_torn_bytes",
        "Bytes at the log's end that were no whole record, so no client had a reply for them.",
    ),
    field(SAVES, "log_refused_writes", "Writes that were refused because of the log."),
    field(SAVES, "log_appended_record", "The number of the last record; from here on only with `appendonly yes`."),
    field(SAVES, "log_durable_record", "The number of the last record that is on the disk."),
    field(SAVES, "log_behind", "1 while the disk does not keep up, so that clients that write wait."),
    field(SAVES, "log_segments", "Files of the log in use."),
    field(SAVES, "log_file_bytes", "Bytes of these files."),
    field(SAVES, "log_spare_bytes", "Bytes of files that wait to be used again."),
    field(SAVES, "log_next_segment", "Whether the next file is ready, or why it is not."),
    field(SAVES, "log_bytes_written", "Bytes written to the log since the start, whole blocks counted."),
    field(SAVES, "log_commits", "Writes to the log since the start; each holds the records of many clients."),
    field(SAVES, "log_commit_last_us", "Microseconds of the last one, with its flush if it had one."),
    field(SAVES, "log_commit_longest_us", "Microseconds of the longest one."),
    field(SAVES, "log_flushes", "Flushes apart from these."),
    field(SAVES, "log_flush_longest_us", "Microseconds of the longest flush."),
    field(CPU, "used_cpu_engine_thread", "Seconds of processor time of the thread that runs commands."),
];

/// docs/info.md: all fields of Quire's own.
pub fn info_markdown() -> String {
    let mut text = String::from(
        "# Fields of INFO\n\n<!-- Generated by `cargo xtask docs` from crates/server/src/info_fields.rs; do not edit. -->\n\n\
         `INFO` has the fields of Redis, with Redis' names and meanings, and these besides. `INFO everything` shows all, `INFO SECTION` those \
         of a section. Monitors that read INFO, such as `redis_exporter`, find the former; the latter have to be named to them.\n",
    );
    let mut section = "";
    for field in OWN {
        if field.section != section {
            section = field.section;
            let _ = write!(
                text,
                "\n## {}{}\n\n| field | what it tells |\n|---|---|\n",
                section[..1].to_ascii_uppercase(),
                &section[1..]
            );
        }
        let _ = writeln!(text, "| `{}` | {} |", field.name, field.doc);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that Redis has, in 7.4 at the latest, and that INFO here shows.
    const REDIS: &str = "redis_version redis_mode os arch_bits multiplexing_api process_id run_id tcp_port server_time_usec \
        uptime_in_seconds uptime_in_days hz configured_hz lru_clock executable config_file io_threads_active connected_clients \
        pubsubshard_channels cluster_connections maxclients client_recent_max_input_buffer client_recent_max_output_buffer blocked_clients \
        total_blocking_keys total_blocking_keys_on_nokey tracking_clients watching_clients used_memory used_memory_rss used_memory_peak used_memory_peak_perc \
        used_memory_overhead used_memory_dataset used_memory_dataset_perc allocator_allocated allocator_active allocator_resident \
        total_system_memory maxmemory maxmemory_policy used_memory_lua used_memory_vm_eval \
        used_memory_scripts_eval number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions \
        used_memory_vm_total used_memory_functions used_memory_scripts mem_fragmentation_ratio mem_fragmentation_bytes mem_clients_slaves \
        mem_clients_normal mem_not_counted_for_evict mem_aof_buffer mem_allocator active_defrag_running lazyfree_pending_objects lazyfreed_objects loading async_loading loading_start_time \
        loading_total_bytes loading_loaded_bytes loading_loaded_perc loading_eta_seconds \
        current_cow_peak current_cow_size current_fork_perc rdb_changes_since_last_save rdb_bgsave_in_progress rdb_bgsave_scheduled \
        rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves rdb_last_cow_size \
        rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled \
        aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites aof_last_write_status \
        aof_last_cow_size aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync \
        aof_delayed_fsync total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes \
        total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections sync_full sync_partial_ok \
        sync_partial_err expired_subkeys expired_keys expire_cycle_cpu_milliseconds evicted_keys evicted_clients \
        total_eviction_exceeded_time current_eviction_exceeded_time keyspace_hits keyspace_misses \
        active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses total_active_defrag_time current_active_defrag_time \
        pubsub_channels pubsub_patterns latest_fork_usec total_forks total_error_replies total_reads_processed \
        total_writes_processed client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections \
        acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key acl_access_denied_channel role \
        tracking_total_keys tracking_total_items tracking_total_prefixes connected_slaves master_failover_state \
        master_replid master_replid2 master_repl_offset second_repl_offset \
        repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset repl_backlog_histlen \
        redis_git_sha1 redis_git_dirty redis_build_id monotonic_clock process_supervised used_memory_startup \
        mem_replication_backlog mem_total_replication_buffers mem_cluster_links \
        total_net_repl_input_bytes total_net_repl_output_bytes instantaneous_input_repl_kbps instantaneous_output_repl_kbps \
        expired_stale_perc expired_time_cap_reached_count migrate_cached_sockets slave_expires_tracked_keys unexpected_error_replies \
        io_threaded_reads_processed io_threaded_writes_processed eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum \
        instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec used_cpu_sys_main_thread used_cpu_user_main_thread \
        used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children cluster_enabled";

    /// The names that the source of INFO gives to its fields, where a name is a literal.
    fn written() -> Vec<&'static str> {
        let sources = [
            include_str!("info/mod.rs"),
            include_str!("info/memory.rs"),
            include_str!("info/persistence.rs"),
            include_str!("info/stats.rs"),
            include_str!("info/cpu.rs"),
        ];
        let calls = |call: &'static str| sources.iter().flat_map(move |source| source.split(call).skip(1));
        let literals =
            calls("text.field(").chain(calls("text.bytes(")).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        literals.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn each_field_of_info_is_one_of_redis_or_is_explained() {
        let (written, redis): (Vec<&str>, Vec<&str>) = (written(), REDIS.split_ascii_whitespace().collect());
        assert!(written.len() > 150, "{} fields were found", written.len());
        for name in &written {
            let is_own = OWN.iter().any(|field| field.name == *name);
            assert!(is_own != redis.contains(name), "{name} must be in one of OWN and REDIS");
        }
        for field in OWN {
            assert!(written.contains(&field.name), "INFO has no {}", field.name);
        }
    }

    #[test]
    fn the_page_has_a_row_for_each_field_and_a_table_for_each_section() {
        let text = info_markdown();
        assert_eq!(text.matches("\n| `").count(), OWN.len());
        assert_eq!(text.matches("\n## ").count(), 5);
    }
}
