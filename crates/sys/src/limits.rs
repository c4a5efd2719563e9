//! Limits that the system sets on the process.
//!
//! Relies on `getrlimit`, `setrlimit`, `signal` and `/proc/sys`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that this process may have open.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Bytes of addresses that this process may have (`ulimit -v`); `None` without a limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Limits the bytes of memory of its own that this process may write to (`ulimit -d`), as far as the hard limit allows.
///
/// # Errors
/// The system refuses.
pub fn limit_data(bytes: Option<u64>) -> std::io::Result<()> {
    let maximum = getrlimit(Resource::Data).maximum;
    Ok(setrlimit(Resource::Data, Rlimit { current: bytes.or(maximum), maximum })?)
}

/// Raises the number of files that may be open to `wanted` if the hard limit allows; returns what holds now.
pub fn raise_open_files(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    // The hard limit can be raised by a privileged process, so the whole wish is tried before the allowed part of it.
    let whole = Rlimit { current: Some(wanted), maximum: now.maximum.map(|maximum| maximum.max(wanted)) };
    let allowed =
        Rlimit { current: Some(now.maximum.map_or(wanted, |maximum| maximum.min(wanted))), maximum: now.maximum };
    if setrlimit(Resource::Nofile, whole).is_ok() || setrlimit(Resource::Nofile, allowed).is_ok() {
        return getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    }
    current
}

/// Mappings that the system allows a process; its default where it doesn't tell.
pub fn max_mappings() -> usize {
    let mut text = [0; 24];
    // Without an allocation: helpers of a program that is a guest's host ask, too.
    let read = crate::guest::read_file(c"/proc/sys/vm/max_map_count", &mut text).unwrap_or(0);
    let number = std::str::from_utf8(&text[..read]).ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(65_530)
}

/// Whether the addresses or the data of process `pid` are limited (0: of the caller), so that ranges kept in reserve would be missed.
pub fn bounds_addresses(pid: i32) -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // Not by the C library's functions, before which a library that this crate is linked into may have put its own.
        // SAFETY: the call writes the struct.
        unsafe { libc::syscall(libc::SYS_prlimit64, pid, resource, std::ptr::null::<libc::rlimit>(), &raw mut limit) };
        limit.rlim_cur != libc::RLIM_INFINITY
    })
}

/// Whether a limit of this kind concerns addresses or data.
pub fn concerns_addresses(resource: i32) -> bool {
    resource == libc::RLIMIT_AS as i32 || resource == libc::RLIMIT_DATA as i32
}

/// Has a write that would make a file longer than the process may (`ulimit -f`) fail with EFBIG, where the system's default is to
/// end the process.
pub fn refuse_longer_files() {
    // SAFETY: no handler is installed, so none can run; SIG_IGN is valid for this signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn raising_to_less_than_now_changes_nothing() {
        let now = super::open_files();
        assert_eq!(super::raise_open_files(1), now);
        assert_eq!(super::open_files(), now);
    }

    #[test]
    fn limits_of_addresses_are_seen() {
        let before = super::bounds_addresses(0);
        assert_eq!(super::bounds_addresses(crate::guest::process_id()), before);
        assert!(super::concerns_addresses(libc::RLIMIT_AS as i32) && !super::concerns_addresses(-1));
    }
}
