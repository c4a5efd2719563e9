//! The mappings of this process, read from `/proc/self/maps` without allocating, or of another one.
//!
//! Relies on procfs and on the format `start-end rwxp offset device inode name`. The file is read in pieces, so a mapping
//! that is made meanwhile may be missing: what is listed was there at some time during the read.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: usize,
    /// One past its last address.
    pub end: usize,
    /// Private, readable and writable memory that belongs to no file.
    pub anonymous: bool,
    /// What lies there may be read.
    pub readable: bool,
    /// What lies there may be executed.
    pub executable: bool,
    /// A thread's or the program's first stack, by its name.
    pub stack: bool,
}

/// Bytes that [`each`] needs to read with: the longest line is a path of 4096 bytes and some.
pub const BUFFER_BYTES: usize = 16 << 10;

/// Calls `visit` for every mapping in order of address until it returns false; `buffer` is working space of at least
/// [`BUFFER_BYTES`].
///
/// # Errors
/// When the file cannot be read.
pub fn each(buffer: &mut [u8], visit: impl FnMut(Mapping) -> bool) -> io::Result<()> {
    let file = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    visit_lines(&file, buffer, visit)
}

/// As [`each`], for the process `pid`. Allocates.
///
/// # Errors
/// As [`each`]: there is no such process, or this one may not look into it.
pub fn each_of(pid: u32, buffer: &mut [u8], visit: impl FnMut(Mapping) -> bool) -> io::Result<()> {
    let file = rustix::fs::open(format!("/proc/{pid}/maps"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    visit_lines(&file, buffer, visit)
}

fn visit_lines(file: &OwnedFd, buffer: &mut [u8], mut visit: impl FnMut(Mapping) -> bool) -> io::Result<()> {
    let mut held = 0;
    loop {
        let count = match rustix::io::read(file, &mut buffer[held..]) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let filled = held + count;
        let mut from = 0;
        while let Some(at) = buffer[from..filled].iter().position(|&byte| byte == b'\n') {
            if let Some(mapping) = parse(&buffer[from..from + at])
                && !visit(mapping)
            {
                return Ok(());
            }
            from += at + 1;
        }
        if count == 0 {
            return Ok(());
        }
        // A line that fills the whole buffer can't be one of the kernel's; it is dropped rather than looped on.
        held = if from == 0 && filled == buffer.len() { 0 } else { filled - from };
        buffer.copy_within(from..from + held, 0);
    }
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or_default();
    Some(Mapping {
        start,
        end,
        anonymous: rights.starts_with(b"rw") && rights.ends_with(b"p") && inode == b"0" && !name.starts_with(b"[v"),
        readable: rights.first() == Some(&b'r'),
        executable: rights.get(2) == Some(&b'x'),
        stack: name.starts_with(b"[stack"),
    })
}

fn hex(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_usize, |value, &digit| Some((value << 4) | (digit as char).to_digit(16)? as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_heap_and_stack_are_among_the_mappings() {
        let held = vec![1_u8; 4 << 20];
        let (heap, stack) = (held.as_ptr() as usize, (&raw const held) as usize);
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut heap_found, mut stack_found, mut last) = (false, false, 0);
        each(&mut buffer, |mapping| {
            assert!(mapping.start >= last && mapping.end > mapping.start);
            last = mapping.end;
            heap_found |= (mapping.start..mapping.end).contains(&heap) && mapping.anonymous;
            stack_found |= (mapping.start..mapping.end).contains(&stack);
            true
        })
        .unwrap();
        assert!(heap_found && stack_found);
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let mapping = parse(b"7ffe-8ffe rw-p 00000000 00:00 0                  [stack]").unwrap();
        let stack =
            Mapping { start: 0x7ffe, end: 0x8ffe, anonymous: true, readable: true, executable: false, stack: true };
        assert_eq!(mapping, stack);
        assert!(!parse(b"1000-2000 ---p 00000000 00:00 0").unwrap().readable);
        assert!(parse(b"1000-2000 rwxp 00000000 00:00 0").unwrap().executable);
        assert!(parse(b"1000-2000 rw-p 00000000 00:00 0").unwrap().anonymous);
        assert!(!parse(b"1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)").unwrap().anonymous);
        assert!(!parse(b"1000-2000 r--p 00000000 00:00 0").unwrap().anonymous);
        assert!(!parse(b"1000-2000 rw-p 00000000 fe:01 1234 /usr/lib/x.so").unwrap().anonymous);
        assert_eq!(parse(b"nonsense"), None);
    }
}
