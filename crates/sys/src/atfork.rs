//! What is done around every `fork` of the C library, in any thread, and the open streams that its child will touch.
//!
//! Relies on `pthread_atfork`, and on glibc's list of streams where there is one. In the child of a program with threads
//! glibc resets the lock of each stream before any other code runs. So code that sees to memory which may be absent has to
//! bring streams in before the fork.

use std::ffi::{CStr, c_void};
use std::io;
use std::sync::OnceLock;

use crate::symbol;

/// Has `before` run in the thread that forks, `in_parent` after that in the parent, and `in_child` in the child.
///
/// # Safety
/// The functions do what is allowed there: in the child of a program with threads, only what is async-signal-safe.
///
/// # Errors
/// As `pthread_atfork`.
pub unsafe fn around_forks(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: `pthread_atfork` takes functions of this type, which live as long as the program; `around_forks` demands of its caller that
    // they do only what is allowed around a fork.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// glibc's way through its streams.
struct Streams {
    lock: extern "C" fn(),
    unlock: extern "C" fn(),
    begin: extern "C" fn() -> *const c_void,
    end: extern "C" fn() -> *const c_void,
    next: extern "C" fn(*const c_void) -> *const c_void,
    file: extern "C" fn(*const c_void) -> *const u8,
}

/// Where a stream has the address of its lock, on 64-bit systems; a part of glibc's interface.
const LOCK_OFFSET: usize = 0x88;

fn streams() -> Option<&'static Streams> {
    static STREAMS: OnceLock<Option<Streams>> = OnceLock::new();
    let find = |name: &CStr| symbol::next(name).map(std::ptr::NonNull::as_ptr);
    let found = STREAMS.get_or_init(|| {
        let names = [c"_IO_list_lock", c"_IO_list_unlock", c"_IO_iter_begin", c"_IO_iter_end", c"_IO_iter_next"];
        let [lock, unlock, begin, end, next] = names.map(find);
        // SAFETY: glibc's functions of these names have these types, in all versions that have them.
        unsafe {
            Some(Streams {
                lock: std::mem::transmute::<*mut (), extern "C" fn()>(lock?),
                unlock: std::mem::transmute::<*mut (), extern "C" fn()>(unlock?),
                begin: std::mem::transmute::<*mut (), extern "C" fn() -> *const c_void>(begin?),
                end: std::mem::transmute::<*mut (), extern "C" fn() -> *const c_void>(end?),
                next: std::mem::transmute::<*mut (), extern "C" fn(*const c_void) -> *const c_void>(next?),
                file: std::mem::transmute::<*mut (), extern "C" fn(*const c_void) -> *const u8>(find(
                    c"_IO_iter_file",
                )?),
            })
        }
    });
    found.as_ref()
}

/// Looks the streams' functions up, which may take the dynamic linker's lock: to be called before it matters.
pub fn find_streams() -> bool {
    streams().is_some()
}

/// Reads what a forked child will write of each open stream, so that it is in memory.
pub fn touch_streams() {
    if !cfg!(target_pointer_width = "64") {
        return;
    }
    let Some(streams) = streams() else { return };
    (streams.lock)();
    let (mut at, end) = ((streams.begin)(), (streams.end)());
    while at != end {
        let file = (streams.file)(at);
        // SAFETY: streams stay while the list is locked; each has the address of its lock at that place, or null.
        unsafe {
            let lock = file.add(LOCK_OFFSET).cast::<*const u8>().read_volatile();
            if !lock.is_null() {
                lock.read_volatile();
            }
        }
        at = (streams.next)(at);
    }
    (streams.unlock)();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Of this thread alone: other tests fork, too.
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    extern "C" fn before() {
        touch_streams();
        CALLS.set(CALLS.get() + 1);
    }

    extern "C" fn after() {
        CALLS.set(CALLS.get() + 10);
    }

    #[test]
    fn forks_are_noticed_and_streams_are_found() {
        // SAFETY: a variable of the thread without a destructor, and reading streams under their lock.
        unsafe { around_forks(before, after, after) }.unwrap();
        assert_eq!(find_streams(), cfg!(target_env = "gnu"));
        // SAFETY: the child ends at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            crate::child::exit(i32::from(CALLS.get() != 11));
        }
        let mut child = crate::child::Child::adopt(pid.cast_unsigned()).unwrap();
        assert_eq!(child.wait(), crate::child::WaitStatus::Exited(0));
        assert_eq!(CALLS.get(), 11);
    }
}
