//! Section Persistence: saves, restores, clones, the log of writes, and how far the data is loaded.

use super::{InfoSource, InfoText};
use crate::config::{Config, value};

pub(super) fn write(source: &InfoSource<'_>, text: &mut InfoText) {
    let server = source.server;
    let (saves, restored) = (&server.saves, &server.saves.restored);
    let figures = source.store.save_stats();
    let restoring = source.store.restore_progress().is_some();
    text.field("loading", u8::from(server.steps.loading.is_some()));
    text.field("async_loading", 0);
    text.field("current_cow_peak", figures.preimage_bytes_peak);
    text.field("current_cow_size", figures.preimage_bytes_now);
    let progress = source.store.save_progress();
    let (done, total) = progress.map_or((0, 0), |save| (save.pages_done, save.pages_total));
    let left = progress.and_then(|save| save.time_left());
    let percent = if total == 0 { 0.0 } else { done as f64 * 100.0 / total as f64 };
    text.field("current_fork_perc", format_args!("{percent:.2}"));
    text.field("current_save_pages_done", done);
    text.field("current_save_pages_total", total);
    text.field("current_save_bytes_written", progress.map_or(0, |save| save.bytes_written));
    text.field("current_save_time_left_sec", left.map_or(-1, |left| left.as_secs().cast_signed()));
    text.field("image_path", image_path(&server.config).display());
    last_image(source, text);
    text.field("rdb_changes_since_last_save", saves.unsaved(source.store.changes()));
    // One that waits until the image below is verified has begun, as far as clients that wait for its end can tell.
    let in_progress = saves.running_since.is_some() || saves.scheduled && restoring;
    text.field("rdb_bgsave_in_progress", u8::from(in_progress));
    text.field("rdb_bgsave_scheduled", u8::from(saves.scheduled));
    text.field("rdb_last_save_time", saves.last_save_unix_s);
    text.field("rdb_last_bgsave_status", if saves.last_ok { "ok" } else { "err" });
    text.field("rdb_last_bgsave_error", saves.last_error.replace(['\r', '\n'], " "));
    text.field("rdb_last_bgsave_time_sec", saves.last_duration_s.map_or(-1, |seconds| seconds as i64));
    text.field("rdb_current_bgsave_time_sec", saves.running_since.map_or(-1, |since| since.elapsed().as_secs() as i64));
    text.field("rdb_saves", saves.saves);
    text.field("rdb_last_cow_size", figures.preimage_bytes_peak);
    text.field("rdb_last_load_keys_expired", 0);
    text.field("rdb_last_load_keys_loaded", restored.keys);
    text.field("last_cut_stall_us", format_args!("{:.1}", figures.last_cut_ns as f64 / 1000.0));
    text.field("preimage_bytes_now", figures.preimage_bytes_now);
    text.field("preimage_bytes_peak", figures.preimage_bytes_peak);
    text.field("preimage_budget_bytes", figures.budget_bytes);
    text.field("writer_waits", figures.waits);
    text.field("writer_wait_total_us", figures.wait_total_ns / 1000);
    text.field("writer_wait_longest_us", figures.wait_longest_ns / 1000);
    let lowered = quire_sys::thread::can_raise_again();
    text.field("save_thread_priority", if lowered { "lowered" } else { "normal" });
    text.field("save_io_priority", value::choice_name(&server.config.save_io_priority, value::SAVE_IO_PRIORITIES));
    text.field("dump_bytes_per_sec", figures.dump_bytes_per_s);
    text.field("last_image_bytes", saves.last_bytes);
    checkpoint(source, text);
    text.field("restore_mode", restored.mode);
    text.field("restore_in_progress", u8::from(restoring || source.server.steps.loading.is_some()));
    text.field("restore_image_bytes", restored.image_bytes);
    text.field("restore_regions_loaded_first", restored.regions_loaded);
    text.field("restore_first_read_us", restored.first_read_us);
    text.field("restore_full_us", restored.full_us.map_or(-1, |us| us as i64));
    clone(source, text);
    log(source, text);
    loading(source, text);
}

/// How far the data is loaded, while it is.
fn loading(source: &InfoSource<'_>, text: &mut InfoText) {
    let Some(progress) = &source.server.steps.loading else { return };
    let figures = progress.figures();
    text.field("loading_start_time", figures.began_unix_s);
    text.field("loading_total_bytes", figures.total_bytes);
    text.field("loading_loaded_bytes", figures.loaded_bytes);
    text.field("loading_loaded_perc", format_args!("{:.2}", figures.percent));
    text.field("loading_eta_seconds", figures.eta_s);
}

/// Which save the image and its deltas are, in the words of their headers.
fn last_image(source: &InfoSource<'_>, text: &mut InfoText) {
    let image = source.store.last_image();
    let digits = |number: Option<u64>| number.map_or_else(String::new, |number| format!("{number:016x}"));
    text.field("image_history", digits(image.map(|image| image.history)));
    text.field("image_epoch", image.map_or(0, |image| image.epoch));
    text.field("image_checksum", digits(image.map(|image| image.checksum)));
}

/// What saves write: all or what has changed, and how much smaller.
fn checkpoint(source: &InfoSource<'_>, text: &mut InfoText) {
    let (server, figures) = (source.server, source.store.save_stats());
    text.field("checkpoint_incremental", u8::from(server.config.checkpoint_incremental));
    text.field("checkpoint_chain_deltas", figures.chain_deltas);
    text.field("checkpoint_chain_delta_bytes", figures.chain_delta_bytes);
    text.field("checkpoint_last_delta_bytes", figures.last_delta_bytes);
    text.field("checkpoint_changed_bytes", figures.changed_bytes.map_or(-1, |bytes| bytes as i64));
    text.field(
        "checkpoint_compression",
        value::choice_name(&server.config.checkpoint_compression, value::COMPRESSIONS),
    );
    text.field("checkpoint_last_compression_savings_bytes", figures.last_compression_savings_bytes);
    text.field("rdb_transfers_in_progress", server.blocked.transfers.len());
}

/// Where images are saved, whatever directory a reader is in; empty in a clone that has no place for them.
fn image_path(config: &Config) -> std::path::PathBuf {
    if !config.has_dir() {
        return std::path::PathBuf::new();
    }
    let path = config.image_path();
    std::path::absolute(&path).unwrap_or(path)
}

/// What a clone's data is, how old it is, and how much of it is the clone's own.
fn clone(source: &InfoSource<'_>, text: &mut InfoText) {
    let restored = &source.server.saves.restored;
    let Some(origin) = &restored.clone_of else { return };
    let (checked, total) = source.store.restore_progress().unwrap_or((1, 1));
    text.field("clone_of", &origin.named);
    text.field("clone_image", origin.path().display());
    text.field("clone_data_unix_ms", restored.created_unix_ms);
    text.field("clone_data_age_seconds", restored.age().as_secs());
    text.field("clone_deltas", restored.deltas);
    text.field("clone_verified", u8::from(source.store.restore_progress().is_none()));
    text.field("clone_verified_perc", format_args!("{:.2}", checked as f64 * 100.0 / total.max(1) as f64));
    text.field("clone_first_read_us", restored.first_read_us);
    let memory = quire_sys::proc::resident_kinds();
    text.field("clone_private_bytes", memory.map_or(-1, |memory| memory.anonymous_bytes.cast_signed()));
    text.field("clone_shared_bytes", memory.map_or(-1, |memory| memory.file_bytes.cast_signed()));
}

/// The log of writes, in the words that Redis has for its append-only file, then in Quire's own.
fn log(source: &InfoSource<'_>, text: &mut InfoText) {
    let (saves, known) = (&source.server.saves, &source.server.log_state);
    let log_writer = source.server.log_writer.as_deref();
    // A log without room fails before its device does.
    let failed = log_writer.is_some_and(|log_writer| log_writer.failure().is_some())
        || source.server.log_state.refusal.is_some();
    let rewriting = saves.running_since.filter(|_| saves.for_log);
    text.field("aof_enabled", u8::from(log_writer.is_some()));
    text.field("aof_rewrite_in_progress", u8::from(rewriting.is_some()));
    text.field("aof_rewrite_scheduled", u8::from(saves.rewrites.scheduled));
    text.field("aof_last_rewrite_time_sec", saves.rewrites.last_duration_s.map_or(-1, |seconds| seconds as i64));
    text.field("aof_current_rewrite_time_sec", rewriting.map_or(-1, |since| since.elapsed().as_secs() as i64));
    text.field("aof_last_bgrewrite_status", if saves.rewrites.last_ok { "ok" } else { "err" });
    text.field("aof_rewrites", saves.rewrites.count);
    text.field("aof_last_write_status", if failed { "err" } else { "ok" });
    text.field("aof_last_cow_size", source.store.save_stats().preimage_bytes_peak);
    text.field("log_last_error", known.last_error.replace(['\r', '\n'], " "));
    text.field("log_replayed_records", known.replayed_records);
    text.field("log_replayed_commands", known.replayed_commands);
    text.field("log_replay_us", known.replayed_us);
    text.field("log_torn_bytes", known.torn_bytes);
    text.field("log_refused_writes", known.refused);
    let Some(log_writer) = log_writer else { return };
    let stats = log_writer.stats();
    text.field("aof_current_size", stats.live_bytes);
    text.field("aof_base_size", saves.last_bytes);
    text.field("aof_pending_rewrite", u8::from(log_writer.awaits_image()));
    text.field("aof_buffer_length", log_writer.waiting_bytes());
    text.field("aof_pending_bio_fsync", u8::from(log_writer.appended() > log_writer.durable()));
    text.field("aof_delayed_fsync", log_writer.delayed);
    text.field("log_appended_record", log_writer.appended());
    text.field("log_durable_record", log_writer.durable());
    text.field("log_behind", u8::from(log_writer.behind));
    text.field("log_segments", stats.segments);
    text.field("log_file_bytes", stats.file_bytes);
    text.field("log_spare_bytes", stats.spare_bytes);
    text.field("log_next_segment", log_writer.next_segment().name());
    text.field("log_bytes_written", stats.bytes_written);
    text.field("log_commits", stats.commits);
    text.field("log_commit_last_us", stats.commit_last_ns / 1000);
    text.field("log_commit_longest_us", stats.commit_longest_ns / 1000);
    text.field("log_flushes", stats.flushes);
    text.field("log_flush_longest_us", stats.flush_longest_ns / 1000);
}
