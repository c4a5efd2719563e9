//! SIGBUS: the signal by which a thread learns that a page it touched needs attention. And the end by SIGPIPE.
//!
//! Relies on `sigaction`. Handlers are asked one after the other; what none of them knows goes to the handler that was
//! there before (a Rust program's own, or the system's default, which ends the program).

use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What a thread has done when it gets the signal.
#[derive(Clone, Copy, Debug)]
pub struct FaultAccess {
    /// The address that it touched.
    pub address: *mut u8,
    /// It was a store. Where the processor's account isn't understood here, every touch is taken for a load.
    pub is_store: bool,
}

/// Told of a touch, says whether the fault is dealt with, so that the access can be tried again.
pub type BusHandler = fn(FaultAccess) -> bool;

/// The C library keeps it to itself, for the cancellation of threads.
const FIRST_OF_THE_LIBRARY: libc::c_int = 32;
/// Most handlers at a time; each mechanism of the engine has one.
const MOST: usize = 4;

static HANDLERS: [AtomicPtr<()>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// The handler that had the signal before has asked for the default action since.
static DEFAULTED: AtomicBool = AtomicBool::new(false);
/// Our function is in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);
static INSTALLING: Mutex<()> = Mutex::new(());

/// Has `handler` asked about every SIGBUS of this process. Asking twice for the same one changes nothing.
///
/// # Safety
/// `handler` does only what a signal handler may: no locks, no allocation, no panics, and it returns.
///
/// # Errors
/// As `sigaction`, or four other handlers are there already.
pub unsafe fn on_bus_error(handler: BusHandler) -> io::Result<()> {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let handler = handler as *mut ();
    if HANDLERS.iter().any(|place| place.load(Ordering::Acquire) == handler) {
        return Ok(());
    }
    let Some(place) = HANDLERS.iter().find(|place| place.load(Ordering::Acquire).is_null()) else {
        return Err(io::Error::other("all places for SIGBUS handlers are taken"));
    };
    if !INSTALLED.load(Ordering::Relaxed) {
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: with no new action this only asks for the present one, which it writes whole.
        let before = unsafe {
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        let _ = BEFORE.set(before);
        install()?;
        INSTALLED.store(true, Ordering::Relaxed);
    }
    place.store(handler, Ordering::Release);
    Ok(())
}

/// So many times in a row a thread is found to sleep with the signal blocked, or to have run on and block it again, before it counts.
const LOOKS: u32 = 100;
/// What lies between two of them, at least.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// A thread counts, too, that is found blocking it for so long, whatever else it does, and in so many looks at least: on a busy
/// machine time passes without either thread running.
const IN_ANY_STATE: Duration = Duration::from_secs(1);
const LOOKS_IN_ANY_STATE: u32 = 300;

/// A thread that has blocked SIGBUS in every look so far.
struct BlockingThread {
    status: PathBuf,
    /// How often it had run since the look before, or slept.
    looks: u32,
    switches: u64,
}

impl BlockingThread {
    /// Looks again; `false` if it doesn't block the signal now, or has ended.
    fn look(&mut self) -> bool {
        let status = std::fs::read_to_string(&self.status).unwrap_or_default();
        if !blocks(&status, libc::SIGBUS) {
            return false;
        }
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(|name| {
            let number = status.lines().find_map(|line| line.strip_prefix(name));
            number.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
        });
        let switches: u64 = switches.iter().sum();
        // The library's own signal no program can block by way of the library: that is within it, starting a thread. And a
        // thread that waits for a processor, or within the kernel, may be about to leave a handler.
        let sleeps = status.lines().any(|line| line.starts_with("State:\tS"));
        if !blocks(&status, FIRST_OF_THE_LIBRARY) && (sleeps || switches != self.switches) {
            self.looks += 1;
        }
        self.switches = switches;
        true
    }
}

/// Whether a thread of this process blocks SIGBUS for good: a fault kills it, whatever the handlers say. `false` if the system
/// doesn't tell. Takes a moment where one blocks it now: so does a thread that starts another, or runs a signal's handler.
pub fn is_blocked_somewhere() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let paths = tasks.filter_map(|task| Some(task.ok()?.path().join("status")));
    let mut suspects: Vec<_> = paths.map(|status| BlockingThread { status, looks: 0, switches: 0 }).collect();
    let start = Instant::now();
    let mut looks = 0;
    loop {
        suspects.retain_mut(BlockingThread::look);
        looks += 1;
        if suspects.is_empty() {
            return false;
        }
        let is_long = looks >= LOOKS_IN_ANY_STATE && start.elapsed() > IN_ANY_STATE;
        if is_long || suspects.iter().any(|thread| thread.looks >= LOOKS) {
            return true;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Blocks every signal in the calling thread, SIGBUS too, as programs do that want signals in one thread only.
pub fn block_all_here() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call initialises the set, the second reads it.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

fn blocks(status: &str, signal: libc::c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Puts our function in the place of the one before. May be called in a signal handler.
fn install() -> io::Result<()> {
    // SAFETY: all zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as *const () as usize;
    // On the alternate stack where there is one, so that a program with small stacks isn't overrun.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the set is ours, and the action is whole; `on_signal` has the signature that SA_SIGINFO asks for. All
    // signals wait while it runs: a handler of the program's own could otherwise meet a page in the middle of its copy.
    unsafe {
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Ends the process by SIGPIPE, as programs end that write to a closed pipe and don't ignore the signal. Returns if the signal
/// is blocked.
pub fn end_by_closed_pipe() {
    // SAFETY: the default action replaces no handler of ours, and raising a signal touches no memory.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: glibc's errno of this thread; the program must find it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is this thread's own errno, valid as long as the thread lives.
    let saved = unsafe { *errno };
    // SAFETY: the kernel hands a valid structure to a SA_SIGINFO handler.
    let code = unsafe { (*info).si_code };
    // SAFETY: the kernel's structure is valid, and a SIGBUS of the kernel has an address; that of a sent one is not used.
    let address = unsafe { (*info).si_addr() }.cast::<u8>();
    let touch = FaultAccess { address, is_store: was_store(context) };
    // Broken memory and the signals that a process sends are not faults that a handler could deal with.
    let is_known = code == libc::BUS_ADRERR
        && HANDLERS.iter().any(|place| {
            let handler = place.load(Ordering::Acquire);
            // SAFETY: only `on_bus_error` stores here, and only functions of this type.
            !handler.is_null() && unsafe { std::mem::transmute::<*mut (), BusHandler>(handler) }(touch)
        });
    if !is_known {
        hand_on(signal, info, context, code <= 0);
    }
    // SAFETY: the pointer is this thread's own errno, valid as long as the thread lives.
    unsafe { *errno = saved };
}

/// Whether the access that raised a signal with this context was a store.
fn was_store(context: *mut libc::c_void) -> bool {
    /// Of a page fault's error code.
    const STORE: i64 = 2;
    if cfg!(miri) || context.is_null() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel hands its `ucontext_t` to a SA_SIGINFO handler.
    let is_store =
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] } & STORE != 0;
    #[cfg(not(target_arch = "x86_64"))]
    let is_store = STORE == 0;
    is_store
}

/// Gives the signal to the handler that had it before us. One that a process has sent must not cost us our place: the next protected
/// write would end the program.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, is_sent: bool) {
    let before = BEFORE.get();
    let wanted = if DEFAULTED.load(Ordering::Relaxed) { None } else { before };
    match wanted.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // An access is tried again and faults again; a signal that was sent is sent again, and comes when this function
            // returns. The system does what it does by default.
            // SAFETY: sets the default action, which needs no function.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if is_sent {
                    libc::raise(signal);
                }
            }
        }
        function => {
            let takes_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
            // SAFETY: a function that was installed for this signal, with SA_SIGINFO or without.
            unsafe { call(function, takes_info, signal, info, context) };
            if is_sent {
                keep_place();
            }
        }
    }
}

/// # Safety
/// `function` is a signal handler of the kind that `takes_info` says.
unsafe fn call(
    function: usize,
    takes_info: bool,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if takes_info {
        type DeviceOperation = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: `call` demands a handler of the kind that `takes_info` says: one of three arguments.
        let action = unsafe { std::mem::transmute::<usize, DeviceOperation>(function) };
        action(signal, info, context);
    } else {
        // SAFETY: `call` demands a handler of the kind that `takes_info` says: one of one argument.
        let action = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(function) };
        action(signal);
    }
}

/// The function before us has run. One that asks for the default action (as that of Rust's runtime does) means the next signal
/// that it does not know, not our faults.
fn keep_place() {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action this only asks for the present one, which it writes whole.
    let action = unsafe {
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), now.as_mut_ptr()) != 0 {
            return;
        }
        now.assume_init().sa_sigaction
    };
    if action == libc::SIG_DFL && install().is_ok() {
        DEFAULTED.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{WaitStatus, fork, socket_pair};
    use crate::map::{MapSharing, Protection, map_file_over, memory_file};
    use crate::mem::{PAGE_SIZE, Reservation};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    static PLACE: AtomicUsize = AtomicUsize::new(0);
    /// Held by the test that uses the place.
    static ALONE: Mutex<()> = Mutex::new(());
    static STORED: AtomicBool = AtomicBool::new(false);

    /// Puts a page where the test has mapped a file beyond its end.
    fn supply(touch: FaultAccess) -> bool {
        let place = PLACE.load(Ordering::SeqCst);
        STORED.store(touch.is_store, Ordering::SeqCst);
        if place == 0 || touch.address as usize / PAGE_SIZE != place / PAGE_SIZE {
            return false;
        }
        // SAFETY: the page is the test's, which touches it and nothing else.
        unsafe { crate::map::map_anonymous_over(place as *mut u8, PAGE_SIZE, Protection::ReadWrite) }.is_ok()
    }

    #[test]
    fn an_access_is_tried_again_when_a_handler_has_dealt_with_it() {
        let memory = Reservation::new(1 << 21).unwrap();
        let empty = memory_file("empty", 0).unwrap();
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the memory is this test's; `supply` makes one system call.
        unsafe {
            map_file_over(memory.base(), PAGE_SIZE, &empty, 0, MapSharing::Shared, Protection::ReadWrite).unwrap();
            on_bus_error(supply).unwrap();
            on_bus_error(supply).unwrap();
            PLACE.store(memory.base() as usize, Ordering::SeqCst);
            memory.base().write_volatile(3);
            assert_eq!(memory.base().read_volatile(), 3);
            assert_eq!(STORED.load(Ordering::SeqCst), cfg!(target_arch = "x86_64"));
            map_file_over(memory.base(), PAGE_SIZE, &empty, 0, MapSharing::Shared, Protection::ReadWrite).unwrap();
            assert_eq!(memory.base().read_volatile(), 0);
            assert!(!STORED.load(Ordering::SeqCst));
        }
    }
    #[test]
    fn a_mask_says_which_signals_are_blocked() {
        let status = "Name:\tquire\nSigPnd:\t00000000ffffffff\nSigBlk:\t0000000000000240\n";
        assert!(blocks(status, libc::SIGBUS) && blocks(status, libc::SIGUSR1));
        assert!(!blocks(status, libc::SIGSEGV) && !blocks("Name:\tquire\n", libc::SIGBUS));
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_may_be_about_to_leave_a_handler() {
        let file = std::env::temp_dir().join(format!("quire-sys-status-{}", std::process::id()));
        let mut thread = BlockingThread { status: file.clone(), looks: 0, switches: 0 };
        let mut looks = |state: &str, mask: u64, switches: u64| {
            let counts = format!("voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t5\n");
            std::fs::write(&file, format!("Name:\tx\nState:\t{state}\nSigBlk:\t{mask:016x}\n{counts}")).unwrap();
            thread.look().then_some(thread.looks)
        };
        let sigbus = 1 << (libc::SIGBUS - 1);
        // As when it is first seen, when it has not run since, when it has, and when it sleeps.
        assert_eq!(looks("R (running)", sigbus, 7), Some(1));
        assert_eq!(looks("R (running)", sigbus, 7), Some(1));
        assert_eq!(looks("R (running)", sigbus, 8), Some(2));
        assert_eq!(looks("D (disk sleep)", sigbus, 8), Some(2));
        assert_eq!(looks("S (sleeping)", sigbus, 8), Some(3));
        assert_eq!(looks("S (sleeping)", u64::MAX, 9), Some(3), "the library starts a thread");
        assert_eq!(looks("S (sleeping)", !sigbus, 9), None);
        std::fs::remove_file(&file).unwrap();
        assert!(!thread.look(), "it has ended");
    }

    #[test]
    fn a_thread_counts_that_blocks_the_signal_for_good_and_not_one_that_does_now_and_then() {
        let mut run = || {
            let (stop, blocked) = (AtomicBool::new(false), AtomicBool::new(false));
            let now_and_then = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
                        // SAFETY: asks for the mask, and sets it again.
                        unsafe {
                            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), before.as_mut_ptr());
                            block_all_here();
                            std::thread::sleep(Duration::from_millis(1));
                            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let told = (0..5).any(|_| is_blocked_somewhere());
                stop.store(true, Ordering::SeqCst);
                told
            });
            stop.store(false, Ordering::SeqCst);
            let for_good = std::thread::scope(|scope| {
                scope.spawn(|| {
                    block_all_here();
                    blocked.store(true, Ordering::SeqCst);
                    while !stop.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                while !blocked.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                let told = is_blocked_somewhere();
                stop.store(true, Ordering::SeqCst);
                told
            });
            i32::from(now_and_then) + 2 * i32::from(!for_good)
        };
        // SAFETY: the C library's fork lets the child allocate and start threads.
        let ending = unsafe { crate::child::fork_by_library(&mut run) }.unwrap().wait();
        assert_eq!(
            ending,
            WaitStatus::Exited(0),
            "1: one that does now and then counts; 2: one that does for good does not"
        );
    }

    /// What a child does that is sent the signal `times` times before it touches the page at `place`.
    fn send_and_touch(place: *mut u8, times: usize) -> WaitStatus {
        let (_ours, theirs) = socket_pair().unwrap();
        let mut run = || {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: a set of our own, the signal of this test, and a page that is this test's; `supply` makes one system call.
            unsafe {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
                for _ in 0..times {
                    libc::raise(libc::SIGBUS);
                }
                place.write_volatile(3);
                i32::from(place.read_volatile())
            }
        };
        // SAFETY: the child raises a signal and touches a page.
        unsafe { fork(theirs.as_fd(), &mut run) }.unwrap().wait()
    }

    #[test]
    fn a_signal_that_a_process_sends_does_not_cost_us_our_place() {
        let memory = Reservation::new(1 << 21).unwrap();
        let empty = memory_file("empty", 0).unwrap();
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the memory is this test's; `supply` makes one system call.
        unsafe {
            map_file_over(memory.base(), PAGE_SIZE, &empty, 0, MapSharing::Shared, Protection::ReadWrite).unwrap();
            on_bus_error(supply).unwrap();
        }
        PLACE.store(memory.base() as usize, Ordering::SeqCst);
        // The function of Rust's runtime was there before: it asks for the default action when it does not know a signal, and gets
        // it with the next one.
        assert_eq!(send_and_touch(memory.base(), 0), WaitStatus::Exited(3));
        assert_eq!(send_and_touch(memory.base(), 1), WaitStatus::Exited(3));
        assert_eq!(send_and_touch(memory.base(), 2), WaitStatus::Killed(libc::SIGBUS));
    }
}
