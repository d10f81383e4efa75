//! One request and its answer, with as much of HTTP as a page needs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use httparse::{EMPTY_HEADER, Request};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// A page.
    Ok,
    /// Not HTTP, or a head that is too long.
    Malformed,
    /// No such page.
    NotFound,
    /// A method other than GET.
    NotAllowed,
    /// A page that is wrong.
    Failed,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::Malformed => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed => "405 Method Not Allowed",
            Status::Failed => "500 Internal Server Error",
        }
    }
}

/// The longest head of a request, in bytes.
const HEAD_MAX: usize = 8 << 10;
/// The most headers.
const HEADERS_MAX: usize = 64;
/// How long a client may keep a thread waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a request, answers with what `page` returns for its path, and closes the connection.
pub(super) fn answer(
    mut stream: TcpStream,
    page: impl FnOnce(&str) -> (Status, Vec<u8>),
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match read_path(&mut stream)? {
        Ok(path) => page(&path),
        Err(status) => (status, format!("{}\n", status.line()).into_bytes()),
    };
    let mut reply = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len()
    )
    .into_bytes();
    reply.extend(body);
    stream.write_all(&reply)
}

/// The path that a GET asks for.
fn read_path(stream: &mut impl Read) -> io::Result<Result<String, Status>> {
    let mut head = [0; HEAD_MAX];
    let mut filled = 0;
    loop {
        let bytes = stream.read(&mut head[filled..])?;
        if bytes == 0 && filled < HEAD_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += bytes;
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        match request.parse(&head[..filled]) {
            Ok(parsed) if parsed.is_partial() && filled < HEAD_MAX => {}
            Ok(parsed) if parsed.is_complete() => {
                return Ok(match (request.method, request.path) {
                    (Some("GET"), Some(path)) => Ok(path.to_owned()),
                    _ => Err(Status::NotAllowed),
                });
            }
            _ => return Ok(Err(Status::Malformed)),
        }
    }
}
