//! A ring of reads and writes that the kernel works on while the caller goes on.
//!
//! Relies on `io_uring` (Linux 5.6 for these operations). Everything that the kernel uses belongs to the [`Ring`] until
//! it has finished: buffers go in by value and come out by value, and dropping a ring waits for the kernel.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::slice;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use crate::rw::{self, RwFlags};
use crate::transfer::{Direction, Transfer, TransferError};

/// Pieces that the kernel holds at once, whatever the number of transfers.
const ENTRIES: u32 = 128;

/// A transfer that has ended, with its buffer.
#[derive(Debug)]
pub struct RingCompletion {
    /// What was asked for.
    pub transfer: Transfer,
    /// How it ended.
    pub result: Result<(), TransferError>,
}

struct Slot {
    file: Arc<File>,
    flags: RwFlags,
    transfer: Transfer,
    /// Pieces that haven't ended.
    left: usize,
    error: Option<TransferError>,
}

/// An extent of a slot's transfer, and how much of it is done.
#[derive(Clone, Copy)]
struct Piece {
    slot: usize,
    extent: usize,
    done: usize,
}

/// Transfers in flight, driven by one thread.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free_slots: Vec<usize>,
    /// Pieces that the kernel doesn't have yet.
    waiting: VecDeque<Piece>,
    /// Pieces that the kernel has, by the number that comes back with its answer.
    given: Vec<Option<Piece>>,
    /// Numbers that no piece has.
    free_numbers: Vec<usize>,
    ended: VecDeque<RingCompletion>,
    /// Why the ring itself can't be used any more. Late answers would be taken for those of new pieces.
    broken: Option<io::Error>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ring").field("given", &self.given_count()).field("waiting", &self.waiting.len()).finish()
    }
}

impl Ring {
    /// A new ring.
    ///
    /// # Errors
    /// The system has no `io_uring` or forbids it: use threads instead.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(ENTRIES)?,
            slots: Vec::new(),
            free_slots: Vec::new(),
            waiting: VecDeque::new(),
            given: vec![None; ENTRIES as usize],
            free_numbers: (0..ENTRIES as usize).rev().collect(),
            ended: VecDeque::new(),
            broken: None,
        })
    }

    /// Starts `transfer` on `file`, with one system call. It comes back from [`Ring::wait`], whatever becomes of it.
    ///
    /// # Panics
    /// If a part of the transfer is empty or reaches outside its buffer.
    pub fn submit(&mut self, file: &Arc<File>, flags: RwFlags, transfer: Transfer) {
        self.line_up(file, flags, transfer);
        self.give();
    }

    /// As [`Ring::submit`] for each of them, with one system call for as many parts as the ring holds.
    ///
    /// # Panics
    /// If a part of a transfer is empty or reaches outside its buffer; those before it have been taken then.
    pub fn submit_all(&mut self, file: &Arc<File>, flags: RwFlags, transfers: impl IntoIterator<Item = Transfer>) {
        for transfer in transfers {
            self.line_up(file, flags, transfer);
        }
        self.give();
    }

    fn line_up(&mut self, file: &Arc<File>, flags: RwFlags, transfer: Transfer) {
        transfer.check();
        let count = transfer.extents.len();
        if count == 0 {
            self.ended.push_back(RingCompletion { transfer, result: Ok(()) });
            return;
        }
        if let Some(error) = &self.broken {
            self.ended.push_back(unmoved(transfer, same(error)));
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Slot { file: Arc::clone(file), flags, transfer, left: count, error: None });
        self.waiting.extend((0..count).map(|extent| Piece { slot, extent, done: 0 }));
    }

    /// Transfers that haven't been returned by [`Ring::wait`].
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len() + self.ended.len()
    }

    /// The next transfer that has ended; sleeps until there is one. `None` if none is in flight.
    pub fn wait(&mut self) -> Option<RingCompletion> {
        self.advance(true);
        self.ended.pop_front()
    }

    /// The next transfer that has ended, if there is one. A system call only if parts were waiting for room.
    pub fn poll(&mut self) -> Option<RingCompletion> {
        self.advance(false);
        self.ended.pop_front()
    }

    fn given_count(&self) -> usize {
        self.given.len() - self.free_numbers.len()
    }

    fn advance(&mut self, sleep: bool) {
        self.collect();
        while self.ended.is_empty() && (self.given_count() > 0 || !self.waiting.is_empty()) {
            self.give();
            if !sleep || !self.ended.is_empty() {
                break;
            }
            if self.given_count() > 0
                && let Err(error) = self.ring.submit_and_wait(1)
                && !passing(&error)
            {
                self.abandon(error);
                break;
            }
            self.collect();
        }
    }

    /// Hands waiting pieces to the kernel as far as there is room.
    fn give(&mut self) {
        while let Some(&number) = self.free_numbers.last() {
            let Some(piece) = self.waiting.pop_front() else { break };
            let slot = self.slots[piece.slot].as_ref().expect("a waiting piece has a slot");
            if slot.error.is_some() {
                self.end_piece(piece.slot);
                continue;
            }
            let entry = Self::entry(slot, piece).user_data(number as u64);
            // SAFETY: the entry points into the slot's buffer, within its bounds (checked at submission), and names the
            // slot's file. Both stay in the slot until the kernel has answered for every piece given (`collect`); a
            // ring that is dropped earlier waits for the answers, or leaks the slots if it can't.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.waiting.push_front(piece);
                break;
            }
            self.free_numbers.pop();
            self.given[number] = Some(piece);
        }
        if !self.ring.submission().is_empty() {
            // What isn't accepted now stays in the ring and goes with the next call.
            let _ = self.ring.submit();
        }
    }

    fn entry(slot: &Slot, piece: Piece) -> io_uring::squeue::Entry {
        let extent = slot.transfer.extents[piece.extent];
        let fd = types::Fd(slot.file.as_raw_fd());
        let at = slot.transfer.buffer.address().wrapping_add(extent.start + piece.done);
        let len = (extent.len - piece.done).min(1 << 30) as u32;
        let offset = extent.offset + piece.done as u64;
        match slot.transfer.direction {
            Direction::Read => opcode::Read::new(fd, at, len).offset(offset).rw_flags(slot.flags.bits()).build(),
            Direction::Write => opcode::Write::new(fd, at, len).offset(offset).rw_flags(slot.flags.bits()).build(),
        }
    }

    /// Takes the kernel's answers.
    fn collect(&mut self) {
        loop {
            let Some(answer) = self.ring.completion().next() else { return };
            let number = answer.user_data() as usize;
            let Some(mut piece) = self.given.get_mut(number).and_then(Option::take) else { continue };
            self.free_numbers.push(number);
            let slot = self.slots[piece.slot].as_mut().expect("a given piece has a slot");
            let extent = slot.transfer.extents[piece.extent];
            let failure = match answer.result() {
                moved if moved > 0 => {
                    piece.done += moved as usize;
                    if piece.done < extent.len {
                        self.waiting.push_back(piece);
                        continue;
                    }
                    None
                }
                0 => Some(slot.transfer.direction.end()),
                refused => Some(io::Error::from_raw_os_error(-refused)),
            };
            match failure {
                Some(error) if passing(&error) => {
                    self.waiting.push_back(piece);
                    continue;
                }
                // The kernel could not start a thread for the piece, as signals kept coming (a profiler's timer): this process
                // cancels nothing. The calling thread moves the rest itself, so that no storm of signals can delay it for ever.
                Some(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                    if let Err(error) = Self::move_here(slot, piece) {
                        slot.error.get_or_insert(error);
                    }
                }
                Some(source) => {
                    let (offset, len) = (extent.offset + piece.done as u64, extent.len - piece.done);
                    let source = slot.transfer.direction.failure(source, piece.done, offset);
                    slot.error.get_or_insert(TransferError { offset, len, source });
                }
                None => {}
            }
            self.end_piece(piece.slot);
        }
    }

    /// Moves what is left of `piece` by calls of the calling thread. The kernel must have answered for the piece.
    fn move_here(slot: &Slot, mut piece: Piece) -> Result<(), TransferError> {
        let extent = slot.transfer.extents[piece.extent];
        while piece.done < extent.len {
            let at = slot.transfer.buffer.address().wrapping_add(extent.start + piece.done);
            let (offset, len) = (extent.offset + piece.done as u64, extent.len - piece.done);
            let moved = match slot.transfer.direction {
                Direction::Read => {
                    // SAFETY: the extent lies inside the slot's buffer (`Transfer::check` at submission). The kernel has
                    // answered for this piece, so only this thread uses these bytes: the kernel fills other extents, and
                    // no reference to the whole buffer is made while the slot is held here.
                    let into = unsafe { slice::from_raw_parts_mut(at, len) };
                    rw::read_at(&slot.file, into, offset, slot.flags)
                }
                Direction::Write => {
                    // SAFETY: the extent lies inside the slot's buffer (`Transfer::check` at submission). The slot owns the buffer of a
                    // transfer that writes to a file: until it is given back the kernel and this thread only read it.
                    let from = unsafe { slice::from_raw_parts(at, len) };
                    rw::write_at(&slot.file, from, offset, slot.flags)
                }
            };
            let source = match moved {
                Ok(0) => slot.transfer.direction.end(),
                Ok(moved) => {
                    piece.done += moved;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => slot.transfer.direction.failure(error, piece.done, offset),
            };
            return Err(TransferError { offset, len, source });
        }
        Ok(())
    }

    fn end_piece(&mut self, number: usize) {
        let slot = self.slots[number].as_mut().expect("the piece's slot");
        slot.left -= 1;
        if slot.left == 0
            && let Some(slot) = self.slots[number].take()
        {
            self.free_slots.push(number);
            let result = slot.error.map_or(Ok(()), Err);
            self.ended.push_back(RingCompletion { transfer: slot.transfer, result });
        }
    }

    /// The ring itself failed: every transfer ends with its error, now and later. Those that the kernel has keep their
    /// memory for ever, since it may still be used; they come back with a buffer of no bytes.
    fn abandon(&mut self, error: io::Error) {
        let mut held = vec![false; self.slots.len()];
        for piece in self.given.iter().flatten() {
            held[piece.slot] = true;
        }
        self.waiting.clear();
        for (slot, held) in self.slots.drain(..).zip(held) {
            let Some(mut slot) = slot else { continue };
            if held {
                let hollow = slot.transfer.buffer.hollow();
                std::mem::forget(std::mem::replace(&mut slot.transfer.buffer, hollow));
                std::mem::forget(slot.file);
            }
            self.ended.push_back(unmoved(slot.transfer, same(&error)));
        }
        self.free_slots.clear();
        self.given.fill(None);
        self.free_numbers = (0..self.given.len()).collect();
        self.broken = Some(error);
    }
}

/// `transfer` ended without a byte moved, as far as the engine knows.
fn unmoved(transfer: Transfer, source: io::Error) -> RingCompletion {
    let offset = transfer.extents.first().map_or(0, |extent| extent.offset);
    let len = transfer.bytes() as usize;
    RingCompletion { transfer, result: Err(TransferError { offset, len, source }) }
}

/// Another error that says the same.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Whether asking again is the right answer.
fn passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(libc::EBUSY)
}

impl Drop for Ring {
    fn drop(&mut self) {
        // All that was submitted is carried out, also what the kernel has had no room for. Memory goes only after the kernel's
        // last answer, or never, if the ring has failed (`abandon`).
        while self.wait().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::file::tests::ScratchFile;
    use crate::transfer::Extent;

    fn ring() -> Option<Ring> {
        let ring = Ring::new();
        if let Err(error) = &ring {
            crate::testing::skipped(format!("io_uring can't be used here: {error}"));
        }
        ring.ok()
    }

    fn transfer(direction: Direction, len: usize, offset: u64, tag: u64) -> Transfer {
        let buffer = Buffer::new(len).unwrap();
        Transfer { direction, buffer, extents: vec![Extent { offset, start: 0, len }], tag }
    }

    #[test]
    fn more_pieces_than_the_ring_holds_all_arrive() {
        let Some(mut ring) = ring() else { return };
        let scratch = ScratchFile::new("uring-many");
        let file = Arc::new(scratch.file("a"));
        let pieces = 3 * ENTRIES as usize;
        let mut write = transfer(Direction::Write, pieces * 4096, 0, 9);
        for (index, page) in write.buffer.chunks_mut(4096).enumerate() {
            page.fill(index as u8);
        }
        // Backwards in the file, so that a mix-up would show.
        write.extents = (0..pieces)
            .map(|index| Extent { offset: ((pieces - 1 - index) * 4096) as u64, start: index * 4096, len: 4096 })
            .collect();
        ring.submit(&file, RwFlags::NONE, write);
        let ended = ring.wait().unwrap();
        ended.result.unwrap();
        assert_eq!(ended.transfer.tag, 9);
        assert!(ring.wait().is_none());

        ring.submit(&file, RwFlags::NONE, transfer(Direction::Read, pieces * 4096, 0, 1));
        let read = ring.wait().unwrap().transfer.buffer;
        for (index, page) in read.chunks(4096).enumerate() {
            assert!(page.iter().all(|&byte| byte == (pieces - 1 - index) as u8));
        }
    }

    #[test]
    fn errors_come_back_with_the_buffer_and_the_place() {
        let Some(mut ring) = ring() else { return };
        let scratch = ScratchFile::new("uring-errors");
        let file = Arc::new(scratch.file("a"));
        ring.submit(&file, RwFlags::NONE, transfer(Direction::Read, 4096, 8192, 5));
        let ended = ring.wait().unwrap();
        let error = ended.result.unwrap_err();
        assert_eq!((error.offset, error.len, error.source.kind()), (8192, 4096, io::ErrorKind::UnexpectedEof));
        assert_eq!(ended.transfer.buffer.len(), 4096);

        let closed_for_writing = Arc::new(File::open("/dev/null").unwrap());
        ring.submit(&closed_for_writing, RwFlags::NONE, transfer(Direction::Write, 4096, 0, 6));
        assert!(ring.wait().unwrap().result.is_err());
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn many_transfers_go_with_one_call_and_come_back_by_polling() {
        let Some(mut ring) = ring() else { return };
        let scratch = ScratchFile::new("uring-poll");
        let file = Arc::new(scratch.file("a"));
        let count = 2 * u64::from(ENTRIES) + 7;
        let transfers = (0..count).map(|number| {
            let mut transfer = transfer(Direction::Write, 4096, number * 4096, number);
            transfer.buffer.fill(number as u8);
            transfer
        });
        assert!(ring.poll().is_none());
        ring.submit_all(&file, RwFlags::NONE, transfers);
        assert_eq!(ring.in_flight(), count as usize);
        let mut tags = Vec::new();
        while ring.in_flight() > 0 {
            let Some(ended) = ring.poll().or_else(|| ring.wait()) else { break };
            ended.result.unwrap();
            tags.push(ended.transfer.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..count).collect::<Vec<_>>());
        assert!(ring.slots.len() <= count as usize && ring.free_numbers.len() == ENTRIES as usize);
        // Slots and numbers serve again.
        ring.submit(&file, RwFlags::DURABLE, transfer(Direction::Write, 8192, 0, 1));
        ring.wait().unwrap().result.unwrap();
        assert_eq!((ring.slots.len(), ring.in_flight()), (count as usize, 0));
    }

    #[test]
    fn a_broken_ring_gives_everything_back_and_takes_nothing_more() {
        let Some(mut ring) = ring() else { return };
        let scratch = ScratchFile::new("uring-broken");
        let file = Arc::new(scratch.file("a"));
        ring.submit(&file, RwFlags::NONE, transfer(Direction::Write, 4096, 0, 1));
        ring.abandon(io::Error::from_raw_os_error(libc::ENOMEM));
        ring.submit(&file, RwFlags::NONE, transfer(Direction::Write, 4096, 0, 2));
        for (tag, bytes) in [(1, 0), (2, 4096)] {
            let ended = ring.wait().unwrap();
            assert_eq!((ended.transfer.tag, ended.transfer.buffer.len()), (tag, bytes));
            assert_eq!(ended.result.unwrap_err().source.raw_os_error(), Some(libc::ENOMEM));
        }
        assert!(ring.wait().is_none());
    }

    #[test]
    fn a_ring_dropped_with_work_in_flight_does_all_of_it_first() {
        let Some(mut ring) = ring() else { return };
        let scratch = ScratchFile::new("uring-drop");
        let file = Arc::new(scratch.file("a"));
        let count = 2 * u64::from(ENTRIES) + 9;
        let writes = (0..count).map(|number| transfer(Direction::Write, 8192, number * 8192, number));
        ring.submit_all(&file, RwFlags::NONE, writes);
        drop(ring);
        assert_eq!(file.metadata().unwrap().len(), count * 8192);
    }

    #[test]
    fn what_the_kernel_cancelled_is_moved_by_the_calling_thread() {
        let scratch = ScratchFile::new("uring-cancelled");
        let file = Arc::new(scratch.file("a"));
        let slot = |transfer| Slot { file: Arc::clone(&file), flags: RwFlags::NONE, transfer, left: 1, error: None };
        let mut write = transfer(Direction::Write, 8192, 100, 1);
        write.buffer.fill(7);
        // The kernel had done a part before it was interrupted.
        Ring::move_here(&slot(write), Piece { slot: 0, extent: 0, done: 3000 }).unwrap();
        let mut there = vec![0; 8292];
        assert_eq!(rw::read_at(&file, &mut there, 0, RwFlags::NONE).unwrap(), 8292);
        assert!(there[..3100].iter().all(|&byte| byte == 0) && there[3100..].iter().all(|&byte| byte == 7));

        let read = slot(transfer(Direction::Read, 8192, 100, 2));
        Ring::move_here(&read, Piece { slot: 0, extent: 0, done: 0 }).unwrap();
        assert_eq!(&read.transfer.buffer[..], &there[100..]);
        let beyond = slot(transfer(Direction::Read, 8192, 8000, 3));
        let error = Ring::move_here(&beyond, Piece { slot: 0, extent: 0, done: 0 }).unwrap_err();
        assert_eq!((error.offset, error.len, error.source.kind()), (8292, 7900, io::ErrorKind::UnexpectedEof));
    }
}
