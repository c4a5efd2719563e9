//! Arrays, maps and sets whose length is known only when they have been written.
//!
//! Relies on the reply's buffer staying where it is in the meantime: nothing is sent from inside of a reply.

use super::reply::Reply;

/// Where an array of yet unknown length began; hand it back to [`Reply::end_array`].
#[derive(Debug)]
#[must_use = "an array that is begun must be ended"]
pub struct ArrayMark(usize);

/// Room kept for the header of an array of unknown length: marker, ten digits, CR LF.
const DEFERRED_HEADER_BYTES: usize = 13;

impl Reply {
    /// Begins an array whose length is not known yet. Arrays of this kind may nest.
    pub fn begin_array(&mut self) -> ArrayMark {
        let mark = ArrayMark(self.buffer.len());
        self.raw(&[0; DEFERRED_HEADER_BYTES]);
        mark
    }

    /// Ends what [`Reply::begin_array`] began: `len` elements were written.
    pub fn end_array(&mut self, mark: ArrayMark, len: usize) {
        self.end_deferred(mark, b'*', len);
    }

    /// Ends as a map of `pairs` pairs what [`Reply::begin_array`] began.
    pub fn end_map(&mut self, mark: ArrayMark, pairs: usize) {
        if self.is_resp3() {
            self.end_deferred(mark, b'%', pairs);
        } else {
            self.end_deferred(mark, b'*', 2 * pairs);
        }
    }

    /// Ends as a set of `len` elements what [`Reply::begin_array`] began.
    pub fn end_set(&mut self, mark: ArrayMark, len: usize) {
        self.end_deferred(mark, if self.is_resp3() { b'~' } else { b'*' }, len);
    }

    /// Takes back an array that was begun and everything written since.
    pub fn abandon_array(&mut self, mark: ArrayMark) {
        self.buffer.truncate(mark.0);
    }

    fn end_deferred(&mut self, mark: ArrayMark, marker: u8, len: usize) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(len as u64).as_bytes();
        let header_bytes = 1 + digits.len() + 2;
        let header = &mut self.buffer[mark.0..];
        if header_bytes <= DEFERRED_HEADER_BYTES {
            header[0] = marker;
            header[1..=digits.len()].copy_from_slice(digits);
            header[digits.len() + 1..header_bytes].copy_from_slice(b"\r\n");
        }
        // The room that the header did not need is closed by moving the elements down.
        let end = self.buffer.len();
        self.buffer.copy_within(mark.0 + DEFERRED_HEADER_BYTES..end, mark.0 + header_bytes);
        self.buffer.truncate(end - (DEFERRED_HEADER_BYTES - header_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::Protocol;
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        String::from_utf8(reply.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn deferred_arrays_nest() {
        let text = written(Protocol::Resp2, |r| {
            let outer = r.begin_array();
            r.int(7);
            let inner = r.begin_array();
            for i in 0..12 {
                r.int(i);
            }
            r.end_array(inner, 12);
            r.end_array(outer, 2);
        });
        assert!(text.starts_with("*2\r\n:7\r\n*12\r\n:0\r\n:1\r\n"));
        assert!(text.ends_with(":11\r\n"));
        assert_eq!(
            written(Protocol::Resp3, |r| {
                let m = r.begin_array();
                r.int(1);
                r.int(2);
                r.end_map(m, 1);
            }),
            "%1\r\n:1\r\n:2\r\n"
        );
    }

    #[test]
    fn abandoning_an_array_leaves_no_trace() {
        let text = written(Protocol::Resp2, |r| {
            r.int(1);
            let mark = r.begin_array();
            r.int(2);
            r.abandon_array(mark);
        });
        assert_eq!(text, ":1\r\n");
    }
}
