//! Target `resp_parser`: any bytes, cut into any pieces, are read without panic and always in the same way.
//!
//! Relies on [`read_all`], which reads as a connection does. The first bytes of the input say how it is cut.

use quire_server::resp::parser::{RequestLimits, read_all};

/// How many bytes at the front describe the cuts.
const CUTS: usize = 4;

/// The promise: requests and error are the same whether the bytes come at once, in pieces, or one by one.
pub fn run(data: &[u8]) {
    let Some((cuts, input)) = data.split_at_checked(CUTS) else { return };
    let limits = RequestLimits { max_bulk_bytes: 1 << 20, authenticated: cuts[0] & 1 == 0 };
    let whole = read_all(input, &[], &limits);
    let pieces: Vec<usize> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    assert_same(&whole, &read_all(input, &pieces, &limits));
    if input.len() < 4096 {
        assert_same(&whole, &read_all(input, &[1], &limits));
    }
    let words: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(words <= input.len(), "more bytes came out than went in");
}

type Read<E> = (Vec<Vec<Vec<u8>>>, Option<E>);

fn assert_same<E: PartialEq + std::fmt::Debug>(whole: &Read<E>, pieces: &Read<E>) {
    assert_eq!(whole.0, pieces.0, "the requests depend on how the bytes came");
    assert_eq!(whole.1, pieces.1, "the error depends on how the bytes came");
}

/// Requests of every form.
pub fn seeds() -> Vec<Vec<u8>> {
    let inputs: [&[u8]; 7] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
        b"PING\r\nset a \"quoted \\x41\\n\" 'single'\r\n\r\nGET a\n",
        b"*1\r\n$0\r\n\r\n*0\r\n*-1\r\n*1\r\n$4\r\nQUIT\r\n",
        b"*2\r\n$4\r\nECHO\r\n$20\r\n01234567890123456789\r\n",
        b"*12\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n",
        b"*1048576\r\n$536870912\r\n",
        b"*1\r\n:3\r\n",
    ];
    inputs.iter().map(|input| [&[6, 0, 40, 2], *input].concat()).collect()
}
