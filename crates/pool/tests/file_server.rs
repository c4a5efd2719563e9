//! The example that sends leased pages: what arrives is the file, also when the file is larger than the pool and clients are many, and whatever
//! they ask for.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crate::file_server_example::FileServer;

/// What is answered to `request`.
fn ask(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(server).unwrap();
    // The server may have refused and gone before it has taken all of it.
    let _ = client.write_all(request);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    answer
}

fn body(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

#[test]
fn files_arrive_whole_and_what_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let large: Vec<u8> = (0..3_000_017_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    std::fs::write(folder.path().join("large"), &large).unwrap();
    std::fs::write(folder.path().join("small"), "a few bytes").unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    // An eighth of what is sent.
    let server = FileServer::new(folder.path(), 1 << 20).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve(&listener)
    });
    std::thread::scope(|clients| {
        for _ in 0..4 {
            clients.spawn(|| {
                assert!(body(&ask(address, b"GET /large HTTP/1.0\r\n\r\n")) == large, "another file");
                assert_eq!(body(&ask(address, b"GET /small HTTP/1.0\r\nHost: x\r\n\r\n")), b"a few bytes");
                assert_eq!(body(&ask(address, b"GET /empty HTTP/1.0\r\n\r\n")), b"");
            });
        }
    });
    let endless = [b'x'; 20_000];
    for (request, status) in [
        (&b"GET /none HTTP/1.0\r\n\r\n"[..], "404"),
        (b"GET /../etc/passwd HTTP/1.0\r\n\r\n", "404"),
        (b"GET /.. HTTP/1.0\r\n\r\n", "404"),
        (b"GET small HTTP/1.0\r\n\r\n", "400"),
        (b"PUT /small HTTP/1.0\r\n\r\n", "400"),
        (b"GET /small HTTP/1.0\r\n", "400"),
        (b"\xff\xfe\r\n\r\n", "400"),
        (b"", "400"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(format!("HTTP/1.0 {status}").as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
    // It is cut off, and the others are served on.
    ask(address, &endless);
    assert_eq!(body(&ask(address, b"GET /small HTTP/1.0\r\n\r\n")), b"a few bytes");
}
