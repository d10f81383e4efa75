//! A server in this process that does wrong on purpose: it cuts, delays and sends in pieces.
//!
//! It answers `mn` and `version`, `mg KEY` and `get KEY...` with the keys as the values, unless they begin
//! with `miss`, and `ms` and `md` with `HD`. So a client
//! that takes one request's answer for another's is found out by the value.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What becomes of a connection's answers.
pub(crate) trait Mischief: Send + Sync + 'static {
    /// What to do with `answer`, the `number`th of connection `connection`, both from 0.
    fn act(&self, connection: usize, number: usize, answer: &[u8]) -> Act;
}

/// What becomes of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// It is sent.
    Send,
    /// It is sent in pieces of so many bytes.
    Pieces(usize),
    /// It is sent after a while.
    Late(Duration),
    /// So many bytes of it are sent, then the connection is closed.
    Cut(usize),
    /// Neither it nor anything behind it is ever sent.
    Hang,
}

impl<F: Fn(usize, usize, &[u8]) -> Act + Send + Sync + 'static> Mischief for F {
    fn act(&self, connection: usize, number: usize, answer: &[u8]) -> Act {
        self(connection, number, answer)
    }
}

/// The server. Its threads end with their connections, and the listener with the server.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Fake {
    pub(crate) fn start(mischief: impl Mischief) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (counter, is_over, mischief) = (connections.clone(), over.clone(), Arc::new(mischief));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let connection = counter.fetch_add(1, Ordering::Relaxed);
                let mischief = mischief.clone();
                thread::spawn(move || serve(stream, connection, &*mischief));
            }
        });
        Fake {
            address,
            connections,
            over,
        }
    }

    pub(crate) fn honest() -> Fake {
        Fake::start(|_: usize, _: usize, _: &[u8]| Act::Send)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves a connection to its end; an error is one.
fn serve(stream: TcpStream, connection: usize, mischief: &dyn Mischief) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut output = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    let mut number = 0;
    loop {
        let answer = answer(&mut input)?;
        match mischief.act(connection, number, &answer) {
            Act::Send => output.write_all(&answer).ok()?,
            Act::Pieces(len) => {
                for piece in answer.chunks(len.max(1)) {
                    output.write_all(piece).ok()?;
                    thread::yield_now();
                }
            }
            Act::Late(delay) => {
                thread::sleep(delay);
                output.write_all(&answer).ok()?;
            }
            Act::Cut(len) => {
                output.write_all(&answer[..len.min(answer.len())]).ok()?;
                return None;
            }
            Act::Hang => {
                std::io::copy(&mut input, &mut std::io::sink()).ok()?;
                return None;
            }
        }
        number += 1;
    }
}

/// Reads a request and makes its answer.
pub(crate) fn answer(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    if input.read_line(&mut line).ok()? == 0 {
        return None;
    }
    if !line.ends_with('\n') {
        return None;
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let flags = words.get(2..).unwrap_or_default();
    Some(match *words.first()? {
        "mn" => b"MN\r\n".to_vec(),
        "version" => b"VERSION fake\r\n".to_vec(),
        "get" => {
            let keys = words[1..].iter().filter(|key| !key.starts_with("miss"));
            let values = keys.map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len()));
            (values.collect::<String>() + "END\r\n").into_bytes()
        }
        "mg" if words[1].starts_with("miss") => b"EN\r\n".to_vec(),
        "mg" if flags.contains(&"v") => {
            let key = words[1];
            format!("VA {} f0\r\n{key}\r\n", key.len()).into_bytes()
        }
        "set" => {
            let len: u64 = words[4].parse().ok()?;
            let mut body = input.take(len + 2);
            std::io::copy(&mut body, &mut std::io::sink()).ok()?;
            b"STORED\r\n".to_vec()
        }
        "ms" => {
            let len: u64 = words[2].parse().ok()?;
            let mut body = input.take(len + 2);
            std::io::copy(&mut body, &mut std::io::sink()).ok()?;
            b"HD\r\n".to_vec()
        }
        _ => b"HD\r\n".to_vec(),
    })
}
