//! The scripts that are known, by the SHA-1 digests of their texts.
//!
//! A script that EVAL has brought is forgotten when there are many newer ones: programs that put values into the text of
//! scripts would fill the memory. What SCRIPT LOAD has brought stays, since clients rely on it.

use std::collections::{HashMap, VecDeque};

use quire_lua::StoredFunction;
use quire_store::numbers;
use sha1::{Digest, Sha1};

use super::shebang::ScriptFlags;

/// Scripts of EVAL that are kept.
const MOST_EVALUATED: usize = 500;
/// Bytes of their texts that are kept.
const MOST_EVALUATED_BYTES: usize = 32 << 20;
/// The digest of a longer text is calculated each time.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// The digest of a script's text, the key that clients name it by.
pub type ScriptDigest = [u8; 20];

/// The digest of a text.
pub fn digest_of(text: &[u8]) -> ScriptDigest {
    Sha1::digest(text).into()
}

/// A script.
#[derive(Clone, Debug)]
pub struct CachedScript {
    /// What is run.
    pub function: StoredFunction,
    /// What its first line says.
    pub flags: ScriptFlags,
    /// The length of its text.
    pub text_bytes: usize,
}

/// All scripts.
#[derive(Debug, Default)]
pub struct ScriptCache {
    scripts: HashMap<ScriptDigest, CachedScript>,
    /// Those that EVAL has brought, the oldest first.
    evaluated: VecDeque<ScriptDigest>,
    evaluated_bytes: usize,
    text_bytes: usize,
    /// The text whose digest was asked for last, and that digest.
    last: Option<(Vec<u8>, ScriptDigest)>,
    /// Scripts that were forgotten for newer ones.
    pub evicted: u64,
}

impl ScriptCache {
    /// The digest of a text, as [`digest_of`] has it. That of the last one is known, as clients send the same text again and again.
    pub fn digest_of(&mut self, text: &[u8]) -> ScriptDigest {
        match &mut self.last {
            Some((last, digest)) if last == text => *digest,
            last => {
                let digest = digest_of(text);
                if text.len() <= REMEMBERED_BYTES {
                    *last = Some((text.to_vec(), digest));
                }
                digest
            }
        }
    }

    /// The script of this digest.
    pub fn get(&self, digest: &ScriptDigest) -> Option<&CachedScript> {
        self.scripts.get(digest)
    }

    /// The digest that a client has written.
    pub fn digest_in(text: &[u8]) -> Option<ScriptDigest> {
        let mut digest = [0; 20];
        if text.len() != 40 {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(digest)
    }

    /// Keeps a script; for good if it `stays`.
    pub fn insert(&mut self, digest: ScriptDigest, script: CachedScript, stays: bool) {
        self.text_bytes += script.text_bytes;
        if !stays {
            self.evaluated.push_back(digest);
            self.evaluated_bytes += script.text_bytes;
        }
        self.scripts.insert(digest, script);
        while self.evaluated.len() > MOST_EVALUATED
            || self.evaluated_bytes > MOST_EVALUATED_BYTES && self.evaluated.len() > 1
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(script) = self.evaluated.pop_front().and_then(|digest| self.scripts.remove(&digest)) {
            self.evaluated_bytes -= script.text_bytes;
            self.text_bytes -= script.text_bytes;
            self.evicted += 1;
        }
    }

    /// A script that is known stays from here on.
    pub fn keep(&mut self, digest: &ScriptDigest) {
        if let Some(at) = self.evaluated.iter().position(|other| other == digest) {
            self.evaluated.remove(at);
            self.evaluated_bytes -= self.scripts.get(digest).map_or(0, |script| script.text_bytes);
        }
    }

    /// How many scripts there are.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Memory of the texts and of what is kept beside them.
    pub fn memory_bytes(&self) -> usize {
        self.text_bytes + self.scripts.len() * (size_of::<ScriptDigest>() + size_of::<CachedScript>())
    }
}

/// A digest as clients read it.
pub fn digest_text(digest: &ScriptDigest) -> String {
    numbers::hex(digest)
}

#[cfg(test)]
mod tests {
    use quire_lua::Interpreter;

    use super::*;

    #[test]
    fn scripts_of_eval_are_forgotten_in_their_order_and_loaded_ones_stay() {
        let interpreter = Interpreter::new(64 << 20).unwrap();
        let mut cache = ScriptCache::default();
        let add = |cache: &mut ScriptCache, number: usize, stays: bool| {
            let text = format!("return {number}");
            let function = interpreter.compile_stored("x", text.as_bytes()).unwrap();
            let script = CachedScript { function, flags: ScriptFlags::default(), text_bytes: text.len() };
            cache.insert(digest_of(text.as_bytes()), script, stays);
        };
        let knows =
            |cache: &ScriptCache, number: usize| cache.get(&digest_of(format!("return {number}").as_bytes())).is_some();
        add(&mut cache, 0, true);
        (1..=MOST_EVALUATED).for_each(|number| add(&mut cache, number, false));
        cache.keep(&digest_of(b"return 1"));
        add(&mut cache, 1000, false);
        add(&mut cache, 1001, false);
        assert!(knows(&cache, 0) && knows(&cache, 1) && !knows(&cache, 2) && knows(&cache, 3) && knows(&cache, 1001));
        assert_eq!((cache.len(), cache.evicted), (MOST_EVALUATED + 2, 1));
    }

    #[test]
    fn a_digest_is_that_of_the_text_whatever_was_asked_for_before() {
        let mut cache = ScriptCache::default();
        let long = vec![b' '; REMEMBERED_BYTES + 1];
        let texts: [&[u8]; 5] = [b"", b"return 1", b"return 2", b"return", &long];
        for first in texts {
            for second in texts {
                for text in [first, second, second, first] {
                    assert_eq!(cache.digest_of(text), digest_of(text));
                }
            }
        }
    }

    #[test]
    fn digests_are_read_whatever_the_case_of_their_digits() {
        let text = digest_text(&digest_of(b"return 1"));
        assert_eq!(text, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(ScriptCache::digest_in(text.to_uppercase().as_bytes()), Some(digest_of(b"return 1")));
        assert_eq!(ScriptCache::digest_in(b"e0e1"), None);
        assert_eq!(ScriptCache::digest_in(&[b'x'; 40]), None);
    }
}
