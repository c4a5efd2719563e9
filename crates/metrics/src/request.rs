//! The requests that the endpoint answers. Relies on `httparse`.

/// Bytes of a request's head that are read at most.
pub(crate) const MOST_HEAD_BYTES: usize = 8 * 1024;
const MOST_HEADERS: usize = 64;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The metrics; with the body, or only the head that it would have.
    Metrics { body: bool },
    /// The page that says where they are.
    Index,
    /// Something that is not here.
    NotFound,
    /// Something that is not done here.
    NotAllowed,
    /// It is no request.
    Malformed,
}

/// What the request asks for whose first bytes these are; `None` while its head is incomplete.
pub(crate) fn asked(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MOST_HEAD_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(_) => return Some(Request::Malformed),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    Some(match (request.method.unwrap_or_default(), path) {
        ("GET", "/metrics") => Request::Metrics { body: true },
        ("HEAD", "/metrics") => Request::Metrics { body: false },
        ("GET", "/") => Request::Index,
        ("GET" | "HEAD", _) => Request::NotFound,
        _ => Request::NotAllowed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_and_incomplete_ones_are_waited_for() {
        for (text, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Request::Metrics { body: true })),
            ("GET /metrics?name=a HTTP/1.0\r\n\r\n", Some(Request::Metrics { body: true })),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Some(Request::Metrics { body: false })),
            ("GET / HTTP/1.1\r\n\r\n", Some(Request::Index)),
            ("GET /other HTTP/1.1\r\n\r\n", Some(Request::NotFound)),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Request::NotAllowed)),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            ("", None),
            ("\0\0\0\0", Some(Request::Malformed)),
            ("PING\r\n", Some(Request::Malformed)),
        ] {
            assert_eq!(asked(text.as_bytes()), expected, "{text:?}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MOST_HEAD_BYTES));
        assert_eq!(asked(long.as_bytes()), Some(Request::Malformed));
    }
}
