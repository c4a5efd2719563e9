//! A page read without a lock: its bytes may change or go meanwhile, and the reader validates its read afterwards.
//!
//! Relies on every load being volatile, so that the compiler assumes nothing about bytes that another thread may be changing,
//! and on evicted pages reading as zero instead of faulting.

use std::marker::PhantomData;

/// The bytes of a page that may be changing. What is read from it means something only if the read is validated; until then
/// an offset read from the page may lie outside it, for which every access answers `None`.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    at: *const u8,
    len: usize,
    _map: PhantomData<&'a u8>,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        #[doc = concat!("The little-endian `", stringify!($type), "` at `offset`; `None` if it reaches outside the page.")]
        #[inline]
        pub fn $name(&self, offset: usize) -> Option<$type> {
            let at = self.at(offset, size_of::<$type>())?.cast::<$type>();
            if at.is_aligned() {
                // SAFETY: inside the page, whose address is mapped for as long as the view lives, and aligned. Volatile: it
                // may be changed meanwhile, which validating the read tells.
                return Some(<$type>::from_le(unsafe { at.read_volatile() }));
            }
            let mut bytes = [0; size_of::<$type>()];
            self.copy_to(offset, &mut bytes)?;
            Some(<$type>::from_le_bytes(bytes))
        }
    };
}

impl<'a> PageView<'a> {
    /// # Safety
    /// `len` bytes at `at`, aligned to 8, are mapped for `'a`.
    #[inline]
    pub(crate) unsafe fn new(at: *const u8, len: usize) -> Self {
        Self { at, len, _map: PhantomData }
    }

    /// Bytes of the page that are in the file.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none; there always are some.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the page is, for reading it by other means: with volatile or atomic loads only.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.at
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<*const u8> {
        (offset <= self.len && len <= self.len - offset).then(|| self.at.wrapping_add(offset))
    }

    number!(u16, u16);
    number!(u32, u32);
    number!(u64, u64);

    /// The byte at `offset`; `None` outside the page.
    #[inline]
    pub fn u8(&self, offset: usize) -> Option<u8> {
        // SAFETY: `at` found the byte inside the page, which is mapped for as long as the view lives. Volatile: another thread may
        // be changing it, which validating the read tells.
        self.at(offset, 1).map(|at| unsafe { at.read_volatile() })
    }

    /// Copies the bytes from `offset` on; `None`, with nothing copied, if they reach outside the page.
    #[inline]
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let from = self.at(offset, to.len())?;
        // Byte by byte up to an aligned one, then in words, then byte by byte again.
        let head = from.align_offset(8).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<8>();
        let middle = from.wrapping_add(head);
        let tail = middle.wrapping_add(words.len() * 8);
        // SAFETY: `at` found all of the bytes inside the page, which is mapped for as long as the view lives; `middle` is aligned to
        // words. Volatile: another thread may be changing them, which validating the read tells.
        unsafe {
            first.iter_mut().enumerate().for_each(|(index, byte)| *byte = from.add(index).read_volatile());
            for (index, word) in words.iter_mut().enumerate() {
                *word = middle.cast::<u64>().add(index).read_volatile().to_ne_bytes();
            }
            last.iter_mut().enumerate().for_each(|(index, byte)| *byte = tail.add(index).read_volatile());
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_read_anywhere_inside_and_nowhere_outside() {
        let words: Vec<u64> = (0..8).map(|word| 0x0706_0504_0302_0100 + word * 0x0808_0808_0808_0808).collect();
        // SAFETY: the vector's 64 bytes, for as long as it lives.
        let view = unsafe { PageView::new(words.as_ptr().cast(), 64) };
        assert_eq!((view.u8(63), view.u8(64)), (Some(63), None));
        assert_eq!((view.u16(2), view.u16(3), view.u16(63)), (Some(0x0302), Some(0x0403), None));
        assert_eq!((view.u32(60), view.u32(usize::MAX)), (Some(0x3f3e_3d3c), None));
        assert_eq!((view.u64(56), view.u64(1)), (Some(0x3f3e_3d3c_3b3a_3938), Some(0x0807_0605_0403_0201)));
        for (offset, len) in [(0, 64), (3, 2), (3, 40), (8, 16), (5, 3), (64, 0)] {
            let mut bytes = vec![0; len];
            view.copy_to(offset, &mut bytes).unwrap();
            assert!(bytes.iter().enumerate().all(|(index, &byte)| usize::from(byte) == offset + index));
        }
        assert!(view.copy_to(60, &mut [0; 5]).is_none());
    }
}
