//! What is written to a client and not yet sent: because its socket did not take it, or because it waits for the log.
//!
//! A reply to a write waits until the write is durable, and all replies behind it wait with it. A message that the client has not asked
//! for there and then owes the log nothing, so it goes before the replies that wait, unless it must follow one of them
//! ([`OutputBuffer::fence`]).

use std::collections::VecDeque;

/// Replies and messages that the socket did not take yet, or that may not be sent yet.
#[derive(Default, Debug)]
pub struct OutputBuffer {
    /// What may be sent.
    bytes: Vec<u8>,
    sent: usize,
    /// What waits for the log, behind all that may be sent.
    held: Vec<u8>,
    /// So much of it may be sent meanwhile, and was moved.
    released: usize,
    /// Where bytes of `held` begin that wait for a later record, in order: the first at `released`.
    marks: VecDeque<OutputMark>,
    /// Messages may not pass what lies before here in `held`.
    fence: usize,
    /// Since when it has been above the soft limit.
    pub above_soft_since_ms: Option<u64>,
}

/// From here on bytes may be sent only when a record of the log is durable.
#[derive(Clone, Copy, Debug)]
struct OutputMark {
    at: usize,
    sequence: u64,
}

impl OutputBuffer {
    /// How much is not sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.held.len() - self.released
    }

    /// Memory that the buffer takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.held.capacity() + self.marks.capacity() * size_of::<OutputMark>()
    }

    /// True when nothing is left to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What may be sent: it waits for the client alone.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// What is added from here on may be sent only when record `sequence` of the log is durable.
    pub fn hold(&mut self, sequence: u64) {
        if self.marks.back().is_none_or(|mark| mark.sequence < sequence) {
            self.marks.push_back(OutputMark { at: self.held.len(), sequence });
        }
    }

    /// The last record that anything waits for.
    #[inline]
    pub fn held_for(&self) -> Option<u64> {
        self.marks.back().map(|mark| mark.sequence)
    }

    /// Lets go what waits for records up to `durable`.
    pub fn settle(&mut self, durable: u64) {
        if self.marks.front().is_none_or(|mark| mark.sequence > durable) {
            return;
        }
        while self.marks.front().is_some_and(|mark| mark.sequence <= durable) {
            self.marks.pop_front();
        }
        let end = self.marks.front().map_or(self.held.len(), |mark| mark.at);
        if self.marks.is_empty() && self.released == 0 && self.sent == self.bytes.len() {
            (self.bytes, self.sent) = (std::mem::take(&mut self.held), 0);
            self.fence = 0;
            return;
        }
        self.drop_sent();
        self.bytes.extend_from_slice(&self.held[self.released..end]);
        self.released = end;
        self.drop_released();
    }

    /// Gives the room of what was released back before it is more than what waits.
    fn drop_released(&mut self) {
        if self.released == self.held.len() {
            self.held = Vec::new();
        } else if self.released >= self.held.len() / 2 {
            self.held.drain(..self.released);
        } else {
            return;
        }
        let released = std::mem::take(&mut self.released);
        self.fence = self.fence.saturating_sub(released);
        self.marks.iter_mut().for_each(|mark| mark.at -= released);
    }

    /// Takes over a whole buffer whose first `sent` bytes have been sent. There must be nothing that waits.
    pub fn adopt(&mut self, bytes: Vec<u8>, sent: usize) {
        debug_assert!(self.is_empty());
        if self.marks.is_empty() {
            (self.bytes, self.sent) = (bytes, sent);
        } else {
            debug_assert!(sent == 0, "what is held is not sent");
            (self.held, self.released, self.fence) = (bytes, 0, 0);
            self.marks.iter_mut().for_each(|mark| mark.at = 0);
        }
    }

    /// Adds a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.marks.is_empty() {
            self.drop_sent();
            self.bytes.extend_from_slice(bytes);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Messages that are added from here on follow what was added before, also while it waits for the log: it tells the client what
    /// it listens to, or in which protocol.
    pub fn fence(&mut self) {
        self.fence = self.held.len();
    }

    /// Adds a message, of which the first byte differs between the protocols: before the replies that wait for the log.
    pub fn push_message(&mut self, first: u8, rest: &[u8]) {
        if self.fence > self.released {
            self.held.push(first);
            self.held.extend_from_slice(rest);
            self.fence = self.held.len();
        } else {
            self.drop_sent();
            self.bytes.push(first);
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Gives the memory of what was sent back at once.
    pub fn shrink(&mut self) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.shrink_to_fit();
    }

    /// What was sent is dropped before the buffer would grow because of it.
    fn drop_sent(&mut self) {
        if self.sent > 0 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// `count` bytes of what waits were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            // An idle connection holds no buffer.
            (self.bytes, self.sent) = (Vec::new(), 0);
            if self.is_empty() && self.marks.is_empty() {
                *self = OutputBuffer::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_keeps_order_and_gives_its_memory_back() {
        let mut output = OutputBuffer::default();
        output.push(b"abcdef");
        output.advance(4);
        output.push(b"gh");
        assert_eq!((output.waiting(), output.len()), (&b"efgh"[..], 4));
        output.advance(4);
        assert!(output.is_empty());
        assert_eq!(output.memory_bytes(), 0);
        output.adopt(b"0123".to_vec(), 1);
        output.push(b"4");
        assert_eq!(output.waiting(), b"1234");
    }

    #[test]
    fn output_is_held_until_the_log_is_durable() {
        let mut output = OutputBuffer::default();
        output.push(b"free");
        output.hold(5);
        output.push(b"five");
        output.hold(5);
        output.push(b"more");
        output.hold(7);
        output.push(b"seven");
        assert_eq!((output.waiting(), output.len(), output.held_for()), (&b"free"[..], 17, Some(7)));
        output.advance(4);
        assert!(output.waiting().is_empty() && !output.is_empty());
        output.settle(4);
        assert!(output.waiting().is_empty());
        output.settle(6);
        assert_eq!(output.waiting(), b"fivemore");
        output.advance(8);
        output.push(b"!");
        assert!(output.waiting().is_empty());
        output.settle(7);
        assert_eq!((output.waiting(), output.held_for()), (&b"seven!"[..], None));
        output.advance(6);
        assert_eq!((output.len(), output.memory_bytes()), (0, 0));
    }

    #[test]
    fn a_message_passes_replies_that_wait_for_the_log() {
        let mut output = OutputBuffer::default();
        output.push(b"ab");
        output.advance(1);
        output.hold(3);
        output.push(b"held");
        output.push_message(b'>', b"1");
        output.push_message(b'>', b"2");
        assert_eq!((output.waiting(), output.len()), (&b"b>1>2"[..], 9));
        output.settle(3);
        output.push_message(b'>', b"3");
        assert_eq!(output.waiting(), b"b>1>2held>3");
    }

    #[test]
    fn a_message_follows_the_reply_that_announces_it() {
        let mut output = OutputBuffer::default();
        output.hold(3);
        output.push(b"set");
        output.hold(4);
        output.push(b"subscribed");
        output.fence();
        output.hold(5);
        output.push(b"more");
        output.push_message(b'>', b"1");
        assert!(output.waiting().is_empty());
        output.settle(4);
        output.push_message(b'>', b"2");
        assert_eq!(output.waiting(), b"setsubscribed", "the first message waits, so the second does");
        output.settle(5);
        output.push_message(b'>', b"3");
        assert_eq!(output.waiting(), b"setsubscribedmore>1>2>3");
    }

    #[test]
    fn parts_come_out_in_order_however_they_are_held_and_sent() {
        use quire_rng::SplitMix64;
        let mut random = SplitMix64::new(7);
        for _ in 0..200 {
            let (mut output, mut expected, mut sent) = (OutputBuffer::default(), Vec::new(), Vec::new());
            let (mut sequence, mut durable) = (0u64, 0u64);
            for step in 0..200u32 {
                match random.below(5) {
                    0 => {
                        sequence += 1;
                        output.hold(sequence);
                    }
                    1 | 2 => {
                        let part = step.to_le_bytes().repeat(1 + random.below(9) as usize);
                        output.push(&part);
                        expected.extend_from_slice(&part);
                    }
                    3 => {
                        durable = (durable + random.below(3)).min(sequence);
                        output.settle(durable);
                    }
                    _ => {
                        let count = (random.below(40) as usize).min(output.waiting().len());
                        sent.extend_from_slice(&output.waiting()[..count]);
                        output.advance(count);
                    }
                }
                assert_eq!(sent.len() + output.len(), expected.len());
            }
            output.settle(sequence);
            sent.extend_from_slice(output.waiting());
            assert!(sent == expected);
        }
    }
}
