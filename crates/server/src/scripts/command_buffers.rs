//! The words and the reply of a command that a script calls. They are kept between scripts, so that a small script takes no memory.

use crate::args::ArgRange;
use crate::resp::{Protocol, Reply};

/// Memory of replies, and of words, that is kept between two commands or scripts.
const KEPT_BYTES: usize = 64 * 1024;
/// Words whose places are kept.
const KEPT_WORDS: usize = 1024;

/// What the commands of a script are written into, one after the other.
#[derive(Default, Debug)]
pub struct CommandBuffers {
    /// The bytes of the words.
    pub words: Vec<u8>,
    /// Where each word lies.
    pub ranges: Vec<ArgRange>,
    /// The reply, which is for the script first, whose memory is bounded: it has no limit.
    pub reply: Reply,
}

impl CommandBuffers {
    /// Forgets the last command.
    pub fn begin_command(&mut self) {
        self.words.clear();
        self.ranges.clear();
        self.reply.clear(KEPT_BYTES);
    }

    /// Adds a word.
    pub fn add_word(&mut self, word: &[u8]) {
        let start = self.words.len() as u32;
        self.words.extend_from_slice(word);
        self.ranges.push(ArgRange { start, len: word.len() as u32 });
    }

    /// Forgets the last script: the next one's replies are those of the first protocol again. Much memory is given back.
    pub fn reset(&mut self) {
        self.begin_command();
        self.words.shrink_to(KEPT_BYTES);
        self.ranges.shrink_to(KEPT_WORDS);
        self.reply.set_protocol(Protocol::Resp2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_script_is_left_for_the_next_one_but_some_room() {
        let mut buffers = CommandBuffers::default();
        for len in [3, 10 * KEPT_BYTES] {
            buffers.begin_command();
            (0..4 * KEPT_WORDS).for_each(|_| buffers.add_word(b""));
            buffers.add_word(&vec![b'x'; len]);
            buffers.reply.set_protocol(Protocol::Resp3);
            buffers.reply.bulk(&buffers.words);
        }
        buffers.reset();
        assert_eq!((buffers.words.len(), buffers.ranges.len(), buffers.reply.len()), (0, 0, 0));
        assert_eq!(buffers.reply.protocol(), Protocol::Resp2);
        assert!(buffers.words.capacity() <= 2 * KEPT_BYTES && buffers.ranges.capacity() <= 2 * KEPT_WORDS);
        assert!(buffers.words.capacity() > 0);
    }
}
