//! A thread that the C library knows nothing of, for code that is a guest in another program.
//!
//! Relies on `clone`. To the C library a program with such a thread still has one thread: its allocator takes no locks for
//! it, `fork` in a signal handler stays as safe as it was, and the program ends with its own last thread. Nothing is taken
//! from the program's allocator to start it, so it may be started where only async-signal-safe calls are allowed.
//!
//! The price is a duty: the thread shares the thread-local storage of the one that started it. It must not call what uses
//! that: `errno`, so every libc function that may fail; the allocator; `std::thread`, `println!`, formatting of
//! `std::io::Error`; a panic may not unwind. Functions of this crate that are fit for it say "bare"; they make system
//! calls directly.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::area::AnonymousMap;

/// The flags of a thread: everything is shared, and it is a part of the process.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_PARENT_SETTID;

/// The latest bare thread of this process; the kernel writes it before the thread runs.
static LATEST: AtomicI32 = AtomicI32::new(0);

/// What the kernel makes, and where it writes what about it.
pub(crate) struct CloneSettings {
    /// The flags of `clone`; the lowest byte is the signal at the end.
    pub(crate) flags: i32,
    /// With `CLONE_PARENT_SETTID`: gets the number before anything runs.
    pub(crate) number: *const AtomicI32,
    /// With `CLONE_CHILD_CLEARTID`: is set to 0 at the end.
    pub(crate) cleared: *const AtomicI32,
    /// With `CLONE_SETTLS`: the thread pointer.
    pub(crate) storage: usize,
}

/// Starts a bare thread on `stack` that has every signal blocked, runs `run` and ends. `errno` stays as it is unless this
/// fails.
///
/// # Errors
/// As `clone`; [`io::ErrorKind::Unsupported`] on processors for which this was not written.
///
/// # Safety
/// `stack` is used by no other code and lives as long as the thread, and `run` keeps the duty of a bare thread.
pub unsafe fn start(stack: &AnonymousMap, run: extern "C" fn()) -> io::Result<()> {
    let settings = CloneSettings { flags: FLAGS, number: &raw const LATEST, cleared: std::ptr::null(), storage: 0 };
    // SAFETY: `start_as` demands what `start` demands of its caller, and places that outlive the thread: `LATEST` is static.
    unsafe { start_as(&settings, stack.base() as usize + stack.len(), run) }.map(|_| ())
}

/// Starts what `settings` say with every signal blocked, on the stack that ends at `top`; returns its number.
///
/// # Errors
/// As `clone`.
///
/// # Safety
/// As [`start`]; the places in `settings` outlive what is started.
pub(crate) unsafe fn start_as(settings: &CloneSettings, top: usize, run: extern "C" fn()) -> io::Result<i32> {
    let (all, mut before) = (u64::MAX, 0_u64);
    // A thread takes over its creator's mask, so all signals are blocked around its creation.
    // SAFETY: both sets are 8 bytes, the size that is said.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8_usize) };
    // SAFETY: `clone` demands a stack and a function as `start_as` demands them of its caller; the top is aligned here.
    let result = unsafe { clone(settings, top & !15, run) };
    // SAFETY: the set is 8 bytes, the size that is said.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0_usize, 8_usize) };
    match i32::try_from(result) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(io::Error::from_raw_os_error(-result as i32)),
    }
}

/// Kernel id of the bare thread that was started last.
pub fn latest() -> i32 {
    LATEST.load(Ordering::Relaxed)
}

/// Whether the calling thread is the bare thread that was started last.
pub fn is_current() -> bool {
    rustix::thread::gettid().as_raw_nonzero().get() == LATEST.load(Ordering::Relaxed)
}

/// # Safety
/// As [`start`]; `top` is the aligned upper end of the stack.
#[cfg(target_arch = "x86_64")]
unsafe fn clone(settings: &CloneSettings, top: usize, run: extern "C" fn()) -> isize {
    let result: isize;
    // SAFETY: the parent goes on behind the call with nothing but the named registers changed. The child has a stack of
    // its own, never returns into Rust code of the parent, and ends by the system call.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call r12",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") settings.flags as usize,
            in("rsi") top,
            in("rdx") settings.number,
            in("r10") settings.cleared,
            in("r8") settings.storage,
            in("r12") run,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// # Safety
/// As [`start`]; `top` is the aligned upper end of the stack.
#[cfg(target_arch = "aarch64")]
unsafe fn clone(settings: &CloneSettings, top: usize, run: extern "C" fn()) -> isize {
    let result: isize;
    // SAFETY: the parent goes on behind the call with nothing but x0 changed: the kernel keeps all other registers. The child has a stack
    // of its own, never returns into Rust code of the parent, and ends by the system call.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "blr x20",
            "mov x0, xzr",
            "mov x8, 93",
            "svc 0",
            "brk 1",
            "2:",
            inlateout("x0") settings.flags as usize => result,
            in("x1") top,
            in("x2") settings.number,
            in("x3") settings.storage,
            in("x4") settings.cleared,
            in("x8") libc::SYS_clone as usize,
            in("x20") run,
        );
    }
    result
}

/// # Safety
/// None needed: it does nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone(_: &CloneSettings, _: usize, _: extern "C" fn()) -> isize {
    -libc::ENOSYS as isize
}

/// Makes a system call directly, without the C library and its `errno`.
///
/// # Safety
/// As the system call that is made.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: usize, first: usize, second: usize, third: usize, fourth: usize) -> isize {
    let result: isize;
    // SAFETY: `call` demands of its caller what the system call demands of the arguments; the kernel changes no other registers than these.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call directly, without the C library and its `errno`.
///
/// # Safety
/// As the system call that is made.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn call(number: usize, first: usize, second: usize, third: usize, fourth: usize) -> isize {
    let result: isize;
    // SAFETY: `call` demands of its caller what the system call demands of the arguments; the kernel changes no other register than x0.
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") first => result,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x8") number,
            options(nostack),
        );
    }
    result
}

/// # Safety
/// None needed: it does nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) unsafe fn call(_: usize, _: usize, _: usize, _: usize, _: usize) -> isize {
    -libc::ENOSYS as isize
}

fn checked(result: isize) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
}

/// Bare: ends the calling thread alone. Only for bare threads: the C library would not notice the end of its own.
pub fn end() -> ! {
    loop {
        // SAFETY: the call ends this thread; its stack is leaked.
        unsafe { call(libc::SYS_exit as usize, 0, 0, 0, 0) };
    }
}

/// Bare: makes the pages at `address` this process's own, so that no write to them has to copy.
///
/// # Errors
/// As `madvise`.
pub fn populate_write(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the advice does not change what memory holds.
    checked(unsafe { call(libc::SYS_madvise as usize, address, bytes, libc::MADV_POPULATE_WRITE as usize, 0) })
}

/// Bare: makes huge pages of whole ones at `address`, this process's own.
///
/// # Errors
/// As `madvise`.
pub fn collapse(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the advice does not change what memory holds.
    checked(unsafe { call(libc::SYS_madvise as usize, address, bytes, libc::MADV_COLLAPSE as usize, 0) })
}

/// Bare: gives the calling thread a table of file descriptors of its own, which is empty. What it opens from now on, the
/// rest of the program neither sees nor has to count with, and what the program closes is closed.
///
/// # Errors
/// As `close_range` (Linux 5.9).
pub fn take_own_descriptors() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    // SAFETY: the call unshares the table first, so no descriptor of another thread is closed; a bare thread
    // holds none of its own yet.
    checked(unsafe { call(libc::SYS_close_range as usize, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0) })
}

/// Bare: as [`take_own_descriptors`], but two descriptors stay open in the new table.
///
/// # Errors
/// As `close_range` (Linux 5.9).
pub fn take_own_descriptors_but(keep: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    let [low, high] = keep.map(|fd| fd.as_raw_fd() as usize);
    let (low, high) = (low.min(high), low.max(high));
    // The last of a table always goes, so the first call has something to close and unshares the table.
    for (first, last) in [(high + 1, u32::MAX as usize), (low + 1, high.saturating_sub(1)), (0, low.saturating_sub(1))]
    {
        if first <= last && !(first == 0 && low == 0) {
            // SAFETY: the first call unshares the table, so no descriptor of another thread is closed; a bare
            // thread holds none but those two.
            checked(unsafe { call(libc::SYS_close_range as usize, first, last, CLOSE_RANGE_UNSHARE, 0) })?;
        }
    }
    Ok(())
}

/// Bare: as [`take_own_descriptors`], but standard error stays open in the new table.
///
/// # Errors
/// As `close_range` (Linux 5.9).
pub fn take_own_descriptors_but_standard_error() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    for (first, last) in [(3, u32::MAX as usize), (0, 1)] {
        // SAFETY: the first call unshares the table, so no descriptor of another thread is closed; a bare thread holds none of
        // its own yet.
        checked(unsafe { call(libc::SYS_close_range as usize, first, last, CLOSE_RANGE_UNSHARE, 0) })?;
    }
    Ok(())
}

/// Bare: closes descriptor `number` in the calling thread's table, whatever it is.
///
/// # Safety
/// No thread that shares the table uses it.
pub unsafe fn close_number(number: RawFd) {
    // SAFETY: `close_number` demands that no thread which shares the table uses the descriptor.
    unsafe { rustix::io::close(number) };
}

/// Bare: sleeps.
pub fn sleep(time: std::time::Duration) {
    let time = rustix::thread::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // All signals are blocked, so nothing interrupts it.
    let _ = rustix::thread::nanosleep(&time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futex::{self, FutexScope};
    use crate::guest::{FileId, PidFd, errno, process_id, set_errno, standard_error};
    use std::sync::atomic::AtomicU32;

    static DONE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn run() {
        let alone = take_own_descriptors().is_ok() && FileId::of(standard_error()).is_none();
        let fetched = PidFd::open(process_id()).and_then(|this| this.descriptor(2)).is_ok();
        let refused = populate_write(1, 1).is_err() && collapse(1, 1).is_err();
        sleep(std::time::Duration::from_micros(10));
        DONE.store(1 + u32::from(alone && fetched && refused && is_current()), Ordering::Release);
        futex::wake_all(&DONE, FutexScope::Process);
        end()
    }

    #[test]
    fn a_bare_thread_has_its_own_descriptors_and_leaves_errno_alone() {
        let stack = AnonymousMap::private(256 << 10).unwrap();
        set_errno(99);
        // SAFETY: the stack is leaked, and the function uses nothing thread-local.
        unsafe { start(&stack, run) }.unwrap();
        std::mem::forget(stack);
        while DONE.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        assert_eq!((errno(), DONE.load(Ordering::Acquire)), (99, 2));
        assert!(FileId::of(standard_error()).is_some(), "the other threads keep theirs");
        assert!(!is_current());
    }
}
