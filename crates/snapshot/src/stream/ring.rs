//! A ring of buffer numbers from the reader, who frees them, to the writer, who takes them.
//!
//! Relies on one producer and one consumer; neither ever waits for the other.

use crate::sync::{AtomicU32, Ordering};

/// A bounded queue of numbers with one producer and one consumer.
#[derive(Debug)]
pub struct Ring {
    slots: Box<[AtomicU32]>,
    /// Numbers taken so far; moved by the consumer.
    head: AtomicU32,
    /// Numbers given so far; moved by the producer.
    tail: AtomicU32,
}

impl Ring {
    /// Room for at least `capacity` numbers.
    pub fn new(capacity: u32) -> Self {
        let slots = (0..capacity.next_power_of_two()).map(|_| AtomicU32::new(0)).collect();
        Self { slots, head: AtomicU32::new(0), tail: AtomicU32::new(0) }
    }

    fn slot(&self, position: u32) -> &AtomicU32 {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// PreimageConsumer: the number given longest ago. What its giver did before is visible afterwards.
    pub fn take(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return None;
        }
        let number = self.slot(head).load(Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(number)
    }

    /// Producer: gives a number. There must be room: no more numbers may be on their way than the ring was made for.
    pub fn give(&self, number: u32) {
        let tail = self.tail.load(Ordering::Relaxed);
        debug_assert!(
            tail.wrapping_sub(self.head.load(Ordering::Acquire)) < self.slots.len() as u32,
            "the ring is full"
        );
        self.slot(tail).store(number, Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Empties the ring; call only while neither side uses it.
    pub fn clear(&self) {
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out_in_order_and_places_are_used_again() {
        let ring = Ring::new(3);
        for round in 0..10 {
            assert_eq!(ring.take(), None);
            ring.give(round);
            ring.give(round + 100);
            ring.give(round + 200);
            assert_eq!(ring.take(), Some(round));
            assert_eq!(ring.take(), Some(round + 100));
            assert_eq!(ring.take(), Some(round + 200));
        }
    }
}
