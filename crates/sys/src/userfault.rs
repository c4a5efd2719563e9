//! userfaultfd: page faults of a range of this process's memory that user space resolves, or that sleep until told.
//!
//! Relies on `userfaultfd(2)` (or `/dev/userfaultfd`) and its ioctls, whose structures and numbers are in
//! `userfault_abi`. Containers often forbid the call; without `CAP_SYS_PTRACE` and with
//! `vm.unprivileged_userfaultfd` 0 only faults of user mode can be had ([`Userfault::is_user_mode_only`]), and a system
//! call that touches a guarded page fails with `EFAULT` instead of waiting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use crate::userfault_abi::features;
use crate::userfault_abi::{
    API_VERSION, Api, COPY_ASLEEP, CopyArgument, EVENT_PAGEFAULT, FLAG_PROTECTED, FLAG_WRITE, IOCTL_API, IOCTL_COPY,
    IOCTL_NEW, IOCTL_REGISTER, IOCTL_UNREGISTER, IOCTL_WAKE, IOCTL_WRITE_PROTECT, IOCTL_ZEROPAGE, MESSAGE_BYTES,
    PROTECTED_COPY, RangeArgument, Register, USER_MODE_ONLY, WriteProtect, Zeropage,
};

/// Which faults of a range are caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterModes {
    /// Pages that aren't there at all.
    pub missing: bool,
    /// Writes to protected pages.
    pub write_protect: bool,
    /// Pages that the file has and the page table has not.
    pub minor: bool,
}

impl RegisterModes {
    fn bits(self) -> u64 {
        u64::from(self.missing) | u64::from(self.write_protect) << 1 | u64::from(self.minor) << 2
    }
}

/// A fault whose thread sleeps until another thread has resolved it and wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Where, to the page.
    pub address: usize,
    /// The access was a store.
    pub is_store: bool,
    /// The page is there and write-protected.
    pub is_protected: bool,
}

impl PageFault {
    /// What a message says; `None` if it is about something else.
    fn of(message: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| message[at + byte]));
        let (flags, address) = (word(8), word(16));
        (message[0] == EVENT_PAGEFAULT).then_some(Self {
            address: address as usize,
            is_store: flags & FLAG_WRITE != 0,
            is_protected: flags & FLAG_PROTECTED != 0,
        })
    }
}

/// Wakes threads from [`Userfault::wait`], all of them and for good.
#[derive(Debug)]
pub struct WaitWaker(OwnedFd);

impl WaitWaker {
    /// One that has not rung.
    ///
    /// # Errors
    /// As `eventfd`.
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?))
    }

    /// Rings.
    pub fn ring(&self) {
        // The count is far from its end, so it can't fail.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// An open userfaultfd, with its features agreed on. Closing it frees every range and wakes all sleepers.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
    features: u64,
    user_mode_only: bool,
}

impl Userfault {
    /// Opens one with at least `wanted` (a union of [`features`]). Asks for faults of user and kernel mode, by system
    /// call and then by `/dev/userfaultfd`; contents itself with faults of user mode if that is all there is.
    ///
    /// # Errors
    /// `PermissionDenied` where it is forbidden, `ENOSYS` where it isn't built in, `Unsupported` where a wanted feature
    /// is missing.
    pub fn open(wanted: u64) -> io::Result<Self> {
        let (fd, user_mode_only) = match open_by_call(0) {
            Ok(fd) => (fd, false),
            Err(forbidden) => match open_by_device() {
                Ok(fd) => (fd, false),
                Err(_) => (open_by_call(USER_MODE_ONLY).map_err(|_| forbidden)?, true),
            },
        };
        let mut api = Api { api: API_VERSION, features: wanted, ioctls: 0 };
        // SAFETY: the argument is the structure this ioctl reads and writes.
        if let Err(refusal) = unsafe { control(&fd, IOCTL_API, &mut api) } {
            let missing = "the kernel's userfaultfd lacks a feature";
            let is_invalid = refusal.raw_os_error() == Some(libc::EINVAL);
            return Err(if is_invalid { io::Error::new(io::ErrorKind::Unsupported, missing) } else { refusal });
        }
        Ok(Self { fd, features: api.features, user_mode_only })
    }

    /// Everything that this kernel's userfaultfd is capable of, agreed on or not.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Whether faults inside system calls fail with `EFAULT` instead of being caught.
    pub fn is_user_mode_only(&self) -> bool {
        self.user_mode_only
    }

    /// Catches the faults of `len` bytes at `at` from now on.
    ///
    /// # Safety
    /// The range is the caller's, who answers for the threads that will sleep (or be signalled) there.
    ///
    /// # Errors
    /// As `UFFDIO_REGISTER`: unaligned or unmapped, or memory of a kind for which the mode doesn't exist.
    pub unsafe fn register(&self, at: *mut u8, len: usize, modes: RegisterModes) -> io::Result<()> {
        let mut argument = Register { range: range(at, len), mode: modes.bits(), ioctls: 0 };
        // SAFETY: the argument is the structure this ioctl reads and writes; from now on
        // threads sleep at missing pages of the range, for which `register` demands that its caller answers.
        unsafe { control(&self.fd, IOCTL_REGISTER, &mut argument) }
    }

    /// Leaves the faults of the range to the kernel again, lifts write protection and wakes who sleeps there.
    ///
    /// # Errors
    /// As `UFFDIO_UNREGISTER`.
    pub fn unregister(&self, at: *mut u8, len: usize) -> io::Result<()> {
        let mut argument = range(at, len);
        // SAFETY: the argument is the structure this ioctl reads; the range goes back to ordinary faults.
        unsafe { control(&self.fd, IOCTL_UNREGISTER, &mut argument) }
    }

    /// Protects a registered range from writes (`on`) or allows them again, waking who sleeps there unless `dont_wake`.
    /// `dont_wake` has a meaning only when writes are allowed again.
    ///
    /// # Errors
    /// As `UFFDIO_WRITEPROTECT`; `EAGAIN` is tried again here.
    pub fn write_protect(&self, at: *mut u8, len: usize, on: bool, dont_wake: bool) -> io::Result<()> {
        let mode = u64::from(on) | u64::from(!on && dont_wake) << 1;
        let mut argument = WriteProtect { range: range(at, len), mode };
        loop {
            // SAFETY: the argument is the structure this ioctl reads; it changes who may write, not what is there.
            match unsafe { control(&self.fd, IOCTL_WRITE_PROTECT, &mut argument) } {
                Err(busy) if busy.raw_os_error() == Some(libc::EAGAIN) => {}
                result => return result,
            }
        }
    }

    /// Wakes the threads that sleep in a fault of the range; each faults again and finds what is there by then. The
    /// range need not be registered or mapped any more.
    ///
    /// # Errors
    /// As `UFFDIO_WAKE`: unaligned.
    pub fn wake(&self, at: *mut u8, len: usize) -> io::Result<()> {
        let mut argument = range(at, len);
        // SAFETY: the argument is the structure this ioctl reads; a wake too many only costs a fault.
        unsafe { control(&self.fd, IOCTL_WAKE, &mut argument) }
    }

    /// Takes the faults that wait to be told of off the queue (their threads sleep on) and says how many there were.
    pub fn drain(&self) -> usize {
        let mut messages = [0_u8; 16 * MESSAGE_BYTES];
        let mut count = 0;
        // An error is `EAGAIN`, as the descriptor doesn't block: no fault waits any more.
        while let Ok(bytes) = rustix::io::read(&self.fd, &mut messages) {
            if bytes == 0 {
                break;
            }
            count += bytes / MESSAGE_BYTES;
        }
        count
    }

    /// Sleeps until a fault waits to be seen to (`true`), or `bell` has rung. Bare.
    ///
    /// # Errors
    /// As `poll`.
    pub fn wait(&self, bell: Option<&WaitWaker>) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags};
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(&self.fd, PollFlags::empty())];
        if let Some(bell) = bell {
            polled[1] = PollFd::new(&bell.0, PollFlags::IN);
        }
        loop {
            match rustix::event::poll(&mut polled, None) {
                Ok(_) => return Ok(!polled[1].revents().contains(PollFlags::IN)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next fault off the queue: its thread sleeps until it is woken. `None` if none waits, or another thread
    /// has taken it. Bare.
    ///
    /// # Errors
    /// As `read`.
    pub fn next(&self) -> io::Result<Option<PageFault>> {
        let mut message = [0_u8; MESSAGE_BYTES];
        match rustix::io::read(&self.fd, &mut message) {
            Ok(MESSAGE_BYTES) => Ok(PageFault::of(&message)),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills missing pages at `to` with the bytes at `from`, write-protected if asked, and wakes the threads that wait for them.
    /// Returns the bytes filled, which is less than `len` if something was there already (then with what was done).
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, page-aligned as `to`, which lies in a registered range of the caller's.
    ///
    /// # Errors
    /// As `UFFDIO_COPY` (`AlreadyExists` if the first page is there).
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, len: usize, protected: bool) -> io::Result<usize> {
        let mode = if protected { PROTECTED_COPY } else { 0 };
        // SAFETY: `fill` demands readable pages at `from` and a registered range at `to`; `copy` demands the same of its caller.
        unsafe { self.fill(to, from, len, mode) }
    }

    /// As [`Userfault::copy`], leaving the threads that wait asleep.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn copy_asleep(&self, to: *mut u8, from: *const u8, len: usize, protected: bool) -> io::Result<usize> {
        let mode = COPY_ASLEEP | if protected { PROTECTED_COPY } else { 0 };
        // SAFETY: `fill` demands readable pages at `from` and a registered range at `to`; `copy_asleep` demands the same of its caller.
        unsafe { self.fill(to, from, len, mode) }
    }

    /// # Safety
    /// As [`Userfault::copy`].
    unsafe fn fill(&self, to: *mut u8, from: *const u8, len: usize, mode: u64) -> io::Result<usize> {
        let (to, from) = (to as u64, from as u64);
        let mut argument = CopyArgument { to, from, len: len as u64, mode, done: 0 };
        // SAFETY: the argument is the structure that this ioctl reads and writes. `fill` demands that `from` is readable and that
        // `to` lies in a registered range of the caller's.
        let result = unsafe { control(&self.fd, IOCTL_COPY, &mut argument) };
        partly(result, argument.done)
    }

    /// Fills missing pages with zeroes and wakes the threads that wait for them. Returns the bytes filled, as [`Userfault::copy`].
    ///
    /// # Errors
    /// As `UFFDIO_ZEROPAGE` (`AlreadyExists` if the first page is there).
    pub fn zeropage(&self, at: *mut u8, len: usize) -> io::Result<usize> {
        let mut argument = Zeropage { range: range(at, len), mode: 0, done: 0 };
        // SAFETY: the argument is the structure this ioctl reads and writes; only pages that are missing are filled.
        let result = unsafe { control(&self.fd, IOCTL_ZEROPAGE, &mut argument) };
        partly(result, argument.done)
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Userfault {
    fn as_raw_fd(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}

/// A call that stopped half-way has done what it says it has.
fn partly(result: io::Result<()>, done: i64) -> io::Result<usize> {
    match result {
        Err(error) if done <= 0 => Err(error),
        _ => Ok(done.max(0) as usize),
    }
}

fn range(at: *mut u8, len: usize) -> RangeArgument {
    RangeArgument { start: at as u64, len: len as u64 }
}

/// An ioctl whose argument is a structure that the kernel reads and writes.
struct Call<'a, T> {
    request: rustix::ioctl::Opcode,
    argument: &'a mut T,
}

// SAFETY: the pointer leads to the argument, which the kernel may write, and nothing is made of the result.
unsafe impl<T> rustix::ioctl::Ioctl for Call<'_, T> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        std::ptr::from_mut(self.argument).cast()
    }

    // SAFETY: reads nothing: what the call returns is not used.
    unsafe fn output_from_ptr(_: rustix::ioctl::IoctlOutput, _: *mut libc::c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Bare: `errno` stays as it is.
///
/// # Safety
/// `argument` is of the type that ioctl `request` reads or writes, and the memory that it names may be changed as it asks.
unsafe fn control<T>(fd: &OwnedFd, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    let call = Call { request: request as rustix::ioctl::Opcode, argument };
    // SAFETY: `control` demands an argument of the type of the request, about memory that may be changed so. The argument lives
    // through the call.
    Ok(unsafe { rustix::ioctl::ioctl(fd, call) }?)
}

fn open_by_call(extra_flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | extra_flags;
    // SAFETY: the call takes flags and returns a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just given us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn open_by_device() -> io::Result<OwnedFd> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: this ioctl takes flags as its plain argument and returns a descriptor or an error.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just given us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{PAGE_SIZE, Reservation};

    /// Memory of two pages, and a descriptor, where the machine lets us have one.
    fn guarded(wanted: u64) -> Option<(Reservation, Userfault)> {
        let memory = Reservation::new(2 << 20).unwrap();
        memory.commit(0..memory.len()).unwrap();
        match Userfault::open(wanted) {
            Ok(fault) => Some((memory, fault)),
            Err(refusal) => {
                crate::testing::skipped(format!("userfaultfd can't be had: {refusal}"));
                None
            }
        }
    }

    #[test]
    fn missing_pages_are_filled_once() {
        let Some((memory, fault)) = guarded(0) else { return };
        let source = vec![9u8; 2 * PAGE_SIZE];
        let from = source.as_ptr().wrapping_add(source.as_ptr().align_offset(PAGE_SIZE));
        let modes = RegisterModes { missing: true, ..RegisterModes::default() };
        // SAFETY: memory of this test; `from` is aligned inside a vector that has a page left behind it.
        unsafe {
            fault.register(memory.base(), memory.len(), modes).unwrap();
            assert_eq!(fault.copy(memory.base(), from, PAGE_SIZE, false).unwrap(), PAGE_SIZE);
            let again = fault.copy(memory.base(), from, PAGE_SIZE, false).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
            let next = memory.base().wrapping_add(PAGE_SIZE);
            assert_eq!(fault.zeropage(next, PAGE_SIZE).unwrap(), PAGE_SIZE);
            assert_eq!((memory.base().read(), next.read()), (9, 0));
        }
        fault.unregister(memory.base(), memory.len()).unwrap();
        // SAFETY: memory of this test; the page was never filled and is registered no more, so this is an ordinary fault.
        assert_eq!(unsafe { memory.base().wrapping_add(3 * PAGE_SIZE).read() }, 0);
    }

    #[test]
    fn a_writer_sleeps_until_protection_is_lifted() {
        use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
        let Some((memory, fault)) = guarded(features::PAGEFAULT_FLAG_WP) else { return };
        let modes = RegisterModes { write_protect: true, ..RegisterModes::default() };
        let done = AtomicBool::new(false);
        // SAFETY: memory of this test, used as one atomic byte only.
        let byte = unsafe { AtomicU8::from_ptr(memory.base()) };
        byte.store(1, Ordering::SeqCst);
        // SAFETY: memory of this test, whose faults this test resolves.
        unsafe { fault.register(memory.base(), memory.len(), modes) }.unwrap();
        fault.write_protect(memory.base(), memory.len(), true, false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                byte.store(2, Ordering::SeqCst);
                done.store(true, Ordering::SeqCst);
            });
            assert!(fault.wait(None).unwrap());
            assert_eq!((fault.drain(), fault.drain()), (1, 0));
            assert_eq!((byte.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (1, false));
            fault.write_protect(memory.base(), memory.len(), false, false).unwrap();
        });
        assert_eq!((byte.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (2, true));
    }

    #[test]
    fn a_fault_is_told_and_its_thread_goes_on_when_the_page_is_filled() {
        let Some((memory, fault)) = guarded(features::PAGEFAULT_FLAG_WP) else { return };
        let modes = RegisterModes { missing: true, write_protect: true, ..RegisterModes::default() };
        // SAFETY: memory of this test.
        unsafe { fault.register(memory.base(), memory.len(), modes) }.unwrap();
        let bell = WaitWaker::new().unwrap();
        assert_eq!(fault.next().unwrap(), None);
        std::thread::scope(|scope| {
            // SAFETY: memory of this test; the page is filled below.
            let reader = scope.spawn(|| unsafe { memory.base().wrapping_add(PAGE_SIZE + 5).read_volatile() });
            assert!(fault.wait(Some(&bell)).unwrap());
            let address = memory.base() as usize + PAGE_SIZE;
            assert_eq!(fault.next().unwrap(), Some(PageFault { address, is_store: false, is_protected: false }));
            fault.zeropage(memory.base().wrapping_add(PAGE_SIZE), PAGE_SIZE).unwrap();
            assert_eq!(reader.join().unwrap(), 0);
            bell.ring();
            assert!(!fault.wait(Some(&bell)).unwrap());
        });
    }

    #[test]
    fn what_the_kernel_lacks_is_said_at_once() {
        let Some(_) = guarded(0) else { return };
        assert_eq!(Userfault::open(1 << 63).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
