//! As much of HTTP/1.1 (RFC 9112) as a scrape needs: one GET or HEAD a connection, without a body.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a request's line and headers at most.
const HEAD_LEN_MAX: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// How long a request may take to arrive, and its answer to be read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a browser is told of all answers. What the page may do stands in the page.
const OF_BROWSERS: &str = "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
     Content-Security-Policy: base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

/// What is asked for.
pub(super) struct Request<'r> {
    /// The path, without what follows a question mark.
    pub(super) path: &'r str,
    /// The formats that the client accepts, as it names them.
    pub(super) accept: &'r str,
}

/// What is answered.
pub(super) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: Cow<'static, str>,
}

impl Answer {
    pub(super) fn ok(content_type: &'static str, body: impl Into<Cow<'static, str>>) -> Answer {
        Answer {
            status: "200 OK",
            content_type,
            body: body.into(),
        }
    }

    pub(super) fn unavailable(why: &str) -> Answer {
        Answer::error("503 Service Unavailable", why)
    }

    pub(super) fn not_found() -> Answer {
        Answer::error("404 Not Found", "not found\n")
    }

    fn error(status: &'static str, why: &str) -> Answer {
        Answer {
            status,
            content_type: super::TEXT,
            body: why.to_owned().into(),
        }
    }
}

/// Reads one request, answers it and closes.
pub(super) fn serve(
    stream: &TcpStream,
    answer: impl FnOnce(&Request<'_>) -> Answer,
) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut head = Vec::with_capacity(1 << 10);
    let (answer, has_body) = match read_head(stream, &mut head)? {
        true => answer_to(&head, answer),
        false => (
            Answer::error("431 Request Header Fields Too Large", "too long\n"),
            true,
        ),
    };
    let Answer {
        status,
        content_type,
        body,
    } = answer;
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\n{OF_BROWSERS}Connection: close\r\n\r\n",
        body.len()
    );
    if has_body {
        reply.push_str(&body);
    }
    let mut stream = stream;
    stream.write_all(reply.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Reads up to the empty line behind the headers. False if there is none within the limit.
fn read_head(stream: &TcpStream, head: &mut Vec<u8>) -> io::Result<bool> {
    let until = Instant::now() + TIMEOUT;
    let mut stream = stream;
    let mut part = [0; 1 << 10];
    while !ends(head) {
        if head.len() > HEAD_LEN_MAX {
            return Ok(false);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => head.extend_from_slice(&part[..len]),
        }
    }
    Ok(true)
}

fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|window| window == b"\r\n\r\n")
}

/// The answer to a request whose headers are complete, and whether its body is sent.
fn answer_to(head: &[u8], answer: impl FnOnce(&Request<'_>) -> Answer) -> (Answer, bool) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let bad = (Answer::error("400 Bad Request", "not a request\n"), true);
    if !matches!(parsed.parse(head), Ok(httparse::Status::Complete(_))) {
        return bad;
    }
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return bad;
    };
    if !matches!(method, "GET" | "HEAD") {
        let why = "only GET and HEAD\n";
        return (Answer::error("405 Method Not Allowed", why), true);
    }
    let path = target.split('?').next().unwrap_or_default();
    let accept = parsed
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("accept"))
        .and_then(|header| std::str::from_utf8(header.value).ok())
        .unwrap_or_default();
    (answer(&Request { path, accept }), method == "GET")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(head: &str) -> (String, bool) {
        let (answer, has_body) = answer_to(head.as_bytes(), |request| {
            Answer::ok(
                super::super::TEXT,
                format!("{} {}", request.path, request.accept),
            )
        });
        (format!("{} {}", answer.status, answer.body), has_body)
    }

    #[test]
    fn path_and_accept_are_read() {
        let (answer, has_body) = asked("GET /metrics?x=1 HTTP/1.1\r\nACCEPT: a/b\r\n\r\n");
        assert_eq!(answer, "200 OK /metrics a/b");
        assert!(has_body);
        assert!(!asked("HEAD / HTTP/1.0\r\n\r\n").1);
    }

    #[test]
    fn what_is_no_get_is_refused() {
        assert!(asked("POST / HTTP/1.1\r\n\r\n").0.starts_with("405"));
        assert!(asked("get a b c\r\n\r\n").0.starts_with("400"));
        assert!(asked("\0\r\n\r\n").0.starts_with("400"));
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert!(
            asked(&format!("GET / HTTP/1.1\r\n{many}\r\n"))
                .0
                .starts_with("400")
        );
    }
}
