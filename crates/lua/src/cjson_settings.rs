//! The settings of `cjson`, as `cjson.encode_max_depth` and its kin set them.

/// What is done with numbers that JSON doesn't have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvalidNumbers {
    Refused,
    Taken,
    Null,
}

/// The settings of one instance of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub sparse_convert: bool,
    pub sparse_ratio: i64,
    pub sparse_safe: i64,
    pub encode_max_depth: i64,
    pub decode_max_depth: i64,
    pub encode_invalid_numbers: InvalidNumbers,
    pub decode_invalid_numbers: bool,
    pub precision: i64,
    /// As in the library; there is no buffer to keep.
    pub keep_buffer: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            encode_invalid_numbers: InvalidNumbers::Refused,
            decode_invalid_numbers: true,
            precision: 14,
            keep_buffer: true,
        }
    }
}
