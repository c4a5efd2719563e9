//! The functions of the C library that the library stands in front of: `fork`, `_Fork`, `_exit`, `_Exit`, `prctl`, `syscall`, and
//! the library's own beginning and end.
//!
//! Relies on the dynamic linker taking the library's first. Each calls the next definition, so that other libraries in
//! `LD_PRELOAD` get their turn. `exit` and returning from `main` end in the library's closing function, so they need no hook. The
//! allocator's functions are in [`crate::heap::hooks`]. `prctl` and `syscall` matter for seccomp only (see [`confinement`]).

use std::ffi::{CStr, c_int, c_long, c_ulong};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use quire_sys::{guest, symbol};

use crate::heap::{real_libc, setup};
use crate::settings::PreloadSettings;
use crate::zread;
use crate::{child, confinement, log, lookup, parent, process, quiesce, state};

static REAL_FORK: AtomicPtr<()> = AtomicPtr::new(null_mut());
static REAL_BARE_FORK: AtomicPtr<()> = AtomicPtr::new(null_mut());
static REAL_EXIT: AtomicPtr<()> = AtomicPtr::new(null_mut());
static REAL_PRCTL: AtomicPtr<()> = AtomicPtr::new(null_mut());
static REAL_SYSCALL: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Runs when the library is loaded, before `main` and before there are threads.
extern "C" fn opened() {
    resolve();
    if symbol::is_loaded_late() {
        // By `dlopen`: the program calls the C library's functions, and may unload this library at any time.
        return;
    }
    real_libc::find_all();
    if confinement::begin() {
        process::end_inherited();
    }
    // SAFETY: the dynamic linker runs this before `main`, in the only thread, so no other thread changes the environment; the
    // settings are read here and nothing of it is kept.
    let value_of = |name: &CStr| unsafe { guest::setting(name) };
    let mut settings = PreloadSettings::read(value_of);
    let heap = value_of(c"QUIRE_HEAP").filter(|value| !value.is_empty());
    // Copying ahead would bring in what the heap has on its file.
    settings.enabled &= heap.is_none();
    state::configure(settings);
    zread::hooks::open_library(value_of, heap.is_some());
    if let Some(heap) = heap
        && let Err(heap_error) = setup::set_up(heap, value_of(c"QUIRE_HEAP_PAGE"))
    {
        // An operator who asks for more heap than there is memory is not helped by a program that runs without.
        log::line(format_args!(
            "no heap, so the program is not started: {heap_error} (unset QUIRE_HEAP to do without)"
        ));
        guest::exit_now(NOT_STARTED);
    }
}

/// The exit status of a program that did not get the heap that was asked for; `env` and `nohup` have it for their own
/// failures.
const NOT_STARTED: i32 = 125;

/// Runs in `exit`, after the program's own exit handlers.
extern "C" fn closed() {
    if confinement::is_quiesced() {
        return;
    }
    child::about_to_end();
    process::stop();
    setup::about_to_end();
    zread::stats::about_to_end();
}

// Unit tests are programs of their own that need no hooks.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static OPENED: extern "C" fn() = opened;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static CLOSED: extern "C" fn() = closed;

fn resolve() {
    let find = lookup::next;
    REAL_FORK.store(find(c"fork"), Ordering::Relaxed);
    REAL_BARE_FORK.store(find(c"_Fork"), Ordering::Relaxed);
    REAL_EXIT.store(find(c"_exit"), Ordering::Relaxed);
    REAL_PRCTL.store(find(c"prctl"), Ordering::Relaxed);
    REAL_SYSCALL.store(find(c"syscall"), Ordering::Relaxed);
}

/// What `real` has found; looks for it where another library's opening function calls before this library's has run.
fn real_function(real: &AtomicPtr<()>) -> *mut () {
    if real.load(Ordering::Relaxed).is_null() {
        resolve();
    }
    real.load(Ordering::Relaxed)
}

/// Stands in front of the C library's `fork`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn fork() -> c_int {
    let real = real_function(&REAL_FORK);
    if real.is_null() {
        guest::set_errno(guest::NO_SUCH_CALL);
        return -1;
    }
    // SAFETY: the dynamic linker's address for `fork`, which has this type in every C library.
    let real: extern "C" fn() -> c_int = unsafe { std::mem::transmute(real) };
    let errno = guest::errno();
    let prepared = parent::before_fork();
    guest::set_errno(errno);
    let pid = real();
    let errno = guest::errno();
    match pid {
        0 => parent::in_child(prepared),
        _ => parent::after_fork(prepared, pid),
    }
    guest::set_errno(errno);
    pid
}

/// Stands in front of the C library's `_Fork`, which tells none of those who watch forks.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case)]
pub extern "C" fn _Fork() -> c_int {
    let real = real_function(&REAL_BARE_FORK);
    if real.is_null() {
        guest::set_errno(guest::NO_SUCH_CALL);
        return -1;
    }
    // SAFETY: the dynamic linker's address for `_Fork`, which has this type.
    let real: extern "C" fn() -> c_int = unsafe { std::mem::transmute(real) };
    zread::forks::around(|| real())
}

/// Stands in front of the C library's `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(status: c_int) -> ! {
    if !confinement::is_quiesced() {
        child::about_to_end();
        process::stop();
    }
    let real = REAL_EXIT.load(Ordering::Relaxed);
    if !real.is_null() {
        // SAFETY: the dynamic linker's address for `_exit`, which has this type in every C library.
        let real: extern "C" fn(c_int) -> ! = unsafe { std::mem::transmute(real) };
        real(status)
    }
    guest::exit_now(status)
}

/// Stands in front of the C library's `_Exit`, which is another name of `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// Stands in front of the C library's `prctl`. On the processors that this library works on, arguments of a variable number go
/// where fixed ones do.
///
/// # Safety
/// As the option's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    let real = real_function(&REAL_PRCTL);
    if real.is_null() {
        guest::set_errno(guest::NO_SUCH_CALL);
        return -1;
    }
    // SAFETY: the dynamic linker's address for `prctl`, which reads no more than four arguments behind the option.
    let real: unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the arguments are passed on as they came, and `prctl` demands of its caller what the option
    // asks for.
    let ask = || unsafe { real(option, second, third, fourth, fifth) };
    if option != guest::SET_SECCOMP {
        return ask();
    }
    quiesce::around(ask, |&result| result == 0)
}

/// Stands in front of the C library's `syscall`: all calls but `seccomp` and those that concern memory which was remapped go on at once, without a frame of the library's
/// between, since some (`clone`) return twice, on different stacks.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {uring}",
        "je 2f",
        "cmp rdi, {aio}",
        "je 2f",
        "cmp rdi, {vmsplice}",
        "je 2f",
        "cmp rdi, {userfaultfd}",
        "je 2f",
        "mov rax, qword ptr [rip + {real}@GOTPCREL]",
        "mov rax, qword ptr [rax]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "jmp {slowly}",
        seccomp = const guest::CALL_SECCOMP,
        uring = const guest::FRAME_CALLS[0],
        aio = const guest::FRAME_CALLS[1],
        vmsplice = const guest::FRAME_CALLS[2],
        userfaultfd = const guest::FRAME_CALLS[3],
        real = sym REAL_SYSCALL,
        slowly = sym syscall_slowly,
    )
}

/// As on x86-64.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    core::arch::naked_asm!(
        "cmp x0, #{seccomp}",
        "b.eq 2f",
        "cmp x0, #{uring}",
        "b.eq 2f",
        "cmp x0, #{aio}",
        "b.eq 2f",
        "cmp x0, #{vmsplice}",
        "b.eq 2f",
        "cmp x0, #{userfaultfd}",
        "b.eq 2f",
        "adrp x16, :got:{real}",
        "ldr x16, [x16, :got_lo12:{real}]",
        "ldr x16, [x16]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "b {slowly}",
        seccomp = const guest::CALL_SECCOMP,
        uring = const guest::FRAME_CALLS[0],
        aio = const guest::FRAME_CALLS[1],
        vmsplice = const guest::FRAME_CALLS[2],
        userfaultfd = const guest::FRAME_CALLS[3],
        real = sym REAL_SYSCALL,
        slowly = sym syscall_slowly,
    )
}

/// `syscall` for `seccomp`, and for what another library calls before this one has begun.
unsafe extern "C" fn syscall_slowly(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let real = real_function(&REAL_SYSCALL);
    if real.is_null() {
        guest::set_errno(guest::NO_SUCH_CALL);
        return -1;
    }
    // SAFETY: the dynamic linker's address for `syscall`, which reads no more than six arguments behind the number.
    let real: unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long =
        unsafe { std::mem::transmute(real) };
    // SAFETY: the arguments are passed on as they came, and the caller of `syscall` promises what the system call asks for.
    let ask = || unsafe { real(number, first, second, third, fourth, fifth, sixth) };
    zread::descriptor_hooks::before_frame_call(number);
    if number != guest::CALL_SECCOMP || !guest::confines(first) {
        return ask();
    }
    quiesce::around(ask, |&result| result >= 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_opens_and_closes_in_a_program_that_does_not_fork() {
        let _alone = crate::state::alone();
        super::opened();
        super::closed();
        assert!(!super::REAL_FORK.load(super::Ordering::Relaxed).is_null());
    }
}
