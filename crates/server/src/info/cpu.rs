//! Section CPU: processor time of the process, and of the thread that runs commands, which Redis calls the main one.

use super::{InfoSource, InfoText};

pub(super) fn write(_: &InfoSource<'_>, text: &mut InfoText) {
    let (user_s, system_s) = seconds("/proc/self/stat").unwrap_or((0.0, 0.0));
    text.field("used_cpu_sys", format_args!("{system_s:.6}"));
    text.field("used_cpu_user", format_args!("{user_s:.6}"));
    text.field("used_cpu_sys_children", "0.000000");
    text.field("used_cpu_user_children", "0.000000");
    let (user_s, system_s) = seconds("/proc/thread-self/stat").unwrap_or((0.0, 0.0));
    text.field("used_cpu_sys_main_thread", format_args!("{system_s:.6}"));
    text.field("used_cpu_user_main_thread", format_args!("{user_s:.6}"));
    text.field("used_cpu_engine_thread", format_args!("{:.6}", quire_sys::thread::cpu_time_ns() as f64 / 1e9));
}

/// Seconds that a process or a thread spent in user code and in the kernel. The kernel counts them in hundredths.
fn seconds(file: &str) -> Option<(f64, f64)> {
    let text = std::fs::read_to_string(file).ok()?;
    // The name in parentheses may hold spaces; the figures begin behind it.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / 100.0);
    Some((next()?, next()?))
}
