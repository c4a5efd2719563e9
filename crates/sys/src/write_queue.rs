//! Buffers that are written to a file while the caller fills the next one, for a process that may allocate nothing.
//!
//! Relies on `io_uring` (Linux 5.6 for these operations); where the system has none or forbids it, each write is done at once by the
//! caller. Buffers and ring lie in memory of their own. The memory goes only after the kernel's last answer.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::slice;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use crate::area::AnonymousMap;

/// Most buffers of a queue.
pub const MOST_BUFFERS: usize = 16;
/// Most parts of a buffer that are in flight; the caller writes further ones itself.
const MOST_PARTS: usize = 7;
/// Longest part that the kernel gets at once.
const MOST_BYTES: usize = 1 << 30;
/// The kernel has room for the answers to all parts.
const ENTRIES: u32 = 128;
const _: () = assert!(MOST_BUFFERS * MOST_PARTS <= ENTRIES as usize);

/// A part of a buffer, and where it goes.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    len: usize,
    offset: u64,
}

#[derive(Clone, Copy, Default)]
struct Parts {
    given: [Part; MOST_PARTS],
    count: usize,
    in_flight: usize,
}

/// What a queue writes to.
pub trait WriteSink {
    /// The file, if the kernel may write to it while the caller goes on.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Writes all of `bytes` at `offset`, now. A queue asks for it where the kernel has not written a part as a whole, too: because the
    /// file system takes no direct writes, say, or a disk is full.
    ///
    /// # Errors
    /// What the system says.
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// The buffers, used in turns.
pub struct WriteQueue {
    /// `None`: every write is done at once.
    ring: Option<IoUring>,
    area: ManuallyDrop<AnonymousMap>,
    buffer_bytes: usize,
    buffers: usize,
    /// The buffer that is being filled.
    current: usize,
    parts: [Parts; MOST_BUFFERS],
    in_flight: usize,
}

impl std::fmt::Debug for WriteQueue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WriteQueue").field("buffers", &self.buffers).field("in_flight", &self.in_flight).finish()
    }
}

impl WriteQueue {
    /// A queue of `buffers` buffers (at most [`MOST_BUFFERS`]) of `buffer_bytes` bytes each.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn new(buffers: usize, buffer_bytes: usize) -> io::Result<Self> {
        let buffers = buffers.clamp(1, MOST_BUFFERS);
        let bytes = buffers.checked_mul(buffer_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let area = AnonymousMap::private(bytes)?;
        // A child that copied the pages while the device reads them would cost memory for nothing.
        area.keep_from_children();
        let (ring, area) = (IoUring::new(ENTRIES).ok(), ManuallyDrop::new(area));
        let parts = [Parts::default(); MOST_BUFFERS];
        Ok(Self { ring, area, buffer_bytes, buffers, current: 0, parts, in_flight: 0 })
    }

    /// Whether the kernel writes while the caller goes on.
    pub fn is_asynchronous(&self) -> bool {
        self.ring.is_some()
    }

    /// Addresses of the buffers.
    pub fn range(&self) -> Range<usize> {
        let base = self.area.base() as usize;
        base..base + self.area.len()
    }

    /// The next buffer, with bytes of any value, after what it held before is written.
    ///
    /// # Errors
    /// As [`WriteQueue::wait`].
    pub fn next_buffer(&mut self, sink: &mut impl WriteSink) -> io::Result<&mut [u8]> {
        let next = (self.current + 1) % self.buffers;
        self.wait_for(next, sink)?;
        self.current = next;
        self.parts[next] = Parts::default();
        let at = self.area.base().wrapping_add(next * self.buffer_bytes);
        // SAFETY: the buffer lies inside the area, which began as zeros. The kernel has answered for all parts of it, so nothing
        // else uses it, and `self` is borrowed mutably as long as the slice lives.
        Ok(unsafe { slice::from_raw_parts_mut(at, self.buffer_bytes) })
    }

    /// The buffer that [`WriteQueue::next_buffer`] gave last. Parts of it may be on their way to the file.
    pub fn buffer(&self) -> &[u8] {
        self.bytes(self.current, 0..self.buffer_bytes)
    }

    /// Begins to write `part` of the buffer that [`WriteQueue::next_buffer`] gave last, to `offset` of `sink`.
    ///
    /// # Panics
    /// If the part reaches outside the buffer.
    ///
    /// # Errors
    /// The kernel refuses, or the sink does.
    pub fn begin_write(&mut self, part: Range<usize>, offset: u64, sink: &mut impl WriteSink) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.buffer_bytes, "the part lies inside the buffer");
        let (index, count) = (self.current, self.parts[self.current].count);
        let descriptor = sink.descriptor().filter(|_| count < MOST_PARTS && part.len() <= MOST_BYTES);
        let (Some(ring), Some(file)) = (&mut self.ring, descriptor) else {
            return sink.write(self.bytes(index, part), offset);
        };
        let from = self.area.base().wrapping_add(index * self.buffer_bytes + part.start);
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), from, part.len() as u32).offset(offset).build();
        let entry = entry.user_data((index * MOST_PARTS + count) as u64);
        // SAFETY: the entry points into the area, within its bounds as asserted above. The area stays mapped until the kernel has
        // answered for the part: `next_buffer` waits for it, and `drop` waits too or leaves the area mapped. The kernel takes the file
        // when the entry is submitted, which happens below, while the sink keeps it open. If it is refused there, only a later call
        // with the sink submits it, and `drop` never does.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.parts[index].given[count] = Part { start: part.start, len: part.len(), offset };
        self.parts[index].count += 1;
        self.parts[index].in_flight += 1;
        self.in_flight += 1;
        self.submit(sink)
    }

    /// Waits until all buffers but the `newest` last ones are written.
    ///
    /// # Errors
    /// What the system said to a write, or what the sink says.
    pub fn wait(&mut self, newest: usize, sink: &mut impl WriteSink) -> io::Result<()> {
        for age in (newest..self.buffers).rev() {
            self.wait_for((self.current + self.buffers - age) % self.buffers, sink)?;
        }
        Ok(())
    }

    fn bytes(&self, buffer: usize, part: Range<usize>) -> &[u8] {
        let at = self.area.base().wrapping_add(buffer * self.buffer_bytes + part.start);
        // SAFETY: the part lies inside the buffer, which lies inside the area and began as zeros. The kernel only reads it, and the
        // one mutable slice of it (`next_buffer`) borrows `self` mutably.
        unsafe { slice::from_raw_parts(at, part.len()) }
    }

    /// Hands the entries to the kernel, all of them: one that stayed would name its file later, when another may have the number.
    fn submit(&mut self, sink: &mut impl WriteSink) -> io::Result<()> {
        while let Some(ring) = &mut self.ring {
            let left = ring.submission().len();
            if left == 0 {
                break;
            }
            match ring.submit() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory, or has answers that it can't leave before older ones are taken.
                Err(error) if is_busy(&error) && self.in_flight > left => self.collect(sink)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, buffer: usize, sink: &mut impl WriteSink) -> io::Result<()> {
        while self.parts[buffer].in_flight > 0 {
            self.collect(sink)?;
        }
        Ok(())
    }

    /// Takes the kernel's answers; sleeps until there is one.
    fn collect(&mut self, sink: &mut impl WriteSink) -> io::Result<()> {
        if let Some(ring) = &mut self.ring
            && ring.completion().is_empty()
            && let Err(error) = ring.submit_and_wait(1)
            && error.kind() != io::ErrorKind::Interrupted
            && !is_busy(&error)
        {
            return Err(error);
        }
        while let Some(answer) = self.ring.as_mut().and_then(|ring| ring.completion().next()) {
            let number = answer.user_data() as usize;
            let (buffer, part) = (number / MOST_PARTS, number % MOST_PARTS);
            self.parts[buffer].in_flight -= 1;
            self.in_flight -= 1;
            let Part { start, len, offset } = self.parts[buffer].given[part];
            match answer.result() {
                written if written == len as i32 => {}
                // All of the part again: the bytes are the same, and the caller knows what to do about a file that takes no direct
                // writes, and about the end of a full disk.
                written if written >= 0 || must_be_redone(-written) => {
                    sink.write(self.bytes(buffer, start..start + len), offset)?;
                }
                refused => return Err(io::Error::from_raw_os_error(-refused)),
            }
        }
        Ok(())
    }
}

fn is_busy(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether the answer says nothing about the device: interrupted, out of room for now, cancelled as signals kept coming, or a direct
/// write that the file system does not take.
fn must_be_redone(errno: i32) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::CANCELED, Errno::INVAL].iter().any(|one| one.raw_os_error() == errno)
}

/// The caller has given its writes up: what the kernel left of them stays unwritten.
struct GivenUp;

impl WriteSink for GivenUp {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn write(&mut self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let before = self.in_flight;
            // An entry that the kernel refused is not handed over any more: its file may be closed by now.
            let is_unsubmitted = self.ring.as_mut().is_some_and(|ring| !ring.submission().is_empty());
            if is_unsubmitted || self.collect(&mut GivenUp).is_err() && self.in_flight == before {
                // The kernel may use the buffers still: they stay.
                return;
            }
        }
        // SAFETY: the area is taken once, here, and nothing of this struct is used afterwards. The kernel has answered for all writes.
        unsafe { ManuallyDrop::drop(&mut self.area) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const BYTES: usize = 64 << 10;
    /// The offset that the kernel wants for files without offsets.
    const A_PIPE: u64 = u64::MAX;

    /// A file, and what had to be written at once.
    struct Plain<F> {
        file: F,
        now: Vec<(usize, u64)>,
    }

    impl<F: AsFd> Plain<F> {
        fn new(file: F) -> Self {
            Self { file, now: Vec::new() }
        }
    }

    impl<F: AsFd> WriteSink for Plain<F> {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.file.as_fd())
        }

        fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.now.push((bytes.len(), offset));
            if offset != A_PIPE {
                assert_eq!(rustix::io::pwrite(&self.file, bytes, offset)?, bytes.len());
            }
            Ok(())
        }
    }

    fn contents(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn queues(buffers: usize) -> [WriteQueue; 2] {
        let mut synchronous = WriteQueue::new(buffers, BYTES).unwrap();
        synchronous.ring = None;
        let asynchronous = WriteQueue::new(buffers, BYTES).unwrap();
        if asynchronous.ring.is_none() {
            crate::testing::skipped("io_uring can't be used here");
        }
        [synchronous, asynchronous]
    }

    #[test]
    fn what_is_written_is_in_the_file_after_waiting_however_many_buffers_there_are() {
        for buffers in [1, 2, MOST_BUFFERS, MOST_BUFFERS + 1] {
            for mut queue in queues(buffers) {
                let scratch = ScratchFile::new("write-queue");
                let mut sink = Plain::new(scratch.file("a"));
                for number in 0..40_u8 {
                    queue.next_buffer(&mut sink).unwrap().fill(number + 1);
                    for part in [0..4096, 8192..BYTES] {
                        let offset = usize::from(number) * BYTES + part.start;
                        queue.begin_write(part, offset as u64, &mut sink).unwrap();
                    }
                    // All buffers but the last two can be read back.
                    queue.wait(2, &mut sink).unwrap();
                    if number >= 2 {
                        let mut byte = [0];
                        sink.file.read_exact_at(&mut byte, u64::from(number - 2) * BYTES as u64).unwrap();
                        assert_eq!(byte, [number - 1]);
                    }
                }
                queue.wait(0, &mut sink).unwrap();
                assert_eq!(sink.now.is_empty(), queue.is_asynchronous());
                let bytes = contents(&sink.file);
                assert_eq!(bytes.len(), 40 * BYTES);
                for (number, bytes) in bytes.chunks(BYTES).enumerate() {
                    assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|&byte| byte == number as u8 + 1));
                    assert!(bytes[4096..8192].iter().all(|&byte| byte == 0));
                }
            }
        }
    }

    #[test]
    fn more_parts_of_a_buffer_than_the_ring_takes_are_written_too() {
        for mut queue in queues(2) {
            let scratch = ScratchFile::new("write-queue-parts");
            let mut sink = Plain::new(scratch.file("a"));
            queue.next_buffer(&mut sink).unwrap().fill(7);
            for start in (0..BYTES).step_by(4096) {
                queue.begin_write(start..start + 4096, start as u64, &mut sink).unwrap();
            }
            queue.wait(0, &mut sink).unwrap();
            assert!(contents(&sink.file) == [7; BYTES]);
        }
    }

    #[test]
    fn a_refused_write_is_an_error_and_a_short_one_is_done_again_as_a_whole() {
        let [_, mut queue] = queues(2);
        if !queue.is_asynchronous() {
            return;
        }
        let mut sink = Plain::new(File::open("/dev/null").unwrap());
        queue.next_buffer(&mut sink).unwrap();
        let refused = queue.begin_write(0..4096, 0, &mut sink).and_then(|()| queue.wait(0, &mut sink));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert!(sink.now.is_empty());

        // A pipe that has room for some bytes only.
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        rustix::io::write(&writer, &[0; 4096]).unwrap();
        let mut sink = Plain::new(writer);
        queue.next_buffer(&mut sink).unwrap();
        queue.begin_write(0..BYTES, A_PIPE, &mut sink).unwrap();
        queue.wait(0, &mut sink).unwrap();
        assert_eq!(sink.now, [(BYTES, A_PIPE)]);
        drop(reader);
    }

    #[test]
    fn a_queue_that_is_dropped_waits_for_the_writes_under_way() {
        let [_, mut queue] = queues(MOST_BUFFERS);
        let scratch = ScratchFile::new("write-queue-drop");
        let mut sink = Plain::new(scratch.file("a"));
        for number in 0..MOST_BUFFERS {
            queue.next_buffer(&mut sink).unwrap().fill(9);
            queue.begin_write(0..BYTES, (number * BYTES) as u64, &mut sink).unwrap();
        }
        drop(queue);
        assert!(contents(&sink.file) == [9; MOST_BUFFERS * BYTES]);
    }
}
