//! A server of few words for tests: `get`, `set`, `mg`, `ms`, `stats` over a map that evicts
//! nothing.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::target::Target;

type Items = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Starts a server that lives as long as the test's process.
pub(crate) fn serve() -> Target {
    serve_slowly(|_| Duration::ZERO)
}

/// Starts one that works on one request at a time, and sleeps before each; `pause` says how long, by
/// the number of the request from 0.
pub(crate) fn serve_slowly(pause: impl Fn(u64) -> Duration + Send + Sync + 'static) -> Target {
    let (pause, number) = (Arc::new(pause), Arc::new(Mutex::new(0u64)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let items = Items::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (items, pause, number) = (items.clone(), pause.clone(), number.clone());
            std::thread::spawn(move || {
                converse(stream?, &items, || {
                    let mut number = number.lock().unwrap();
                    let time = pause(*number);
                    *number += 1;
                    if !time.is_zero() {
                        std::thread::sleep(time);
                    }
                })
            });
        }
        io::Result::Ok(())
    });
    Target::Tcp(address)
}

fn converse(stream: TcpStream, items: &Items, pause: impl Fn()) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut value = Vec::new();
        if let "set" | "ms" = words[0] {
            let size = if words[0] == "set" {
                words[4]
            } else {
                words[2]
            };
            value.resize(size.parse::<usize>().unwrap() + 2, 0);
            reader.read_exact(&mut value)?;
            value.truncate(value.len() - 2);
        }
        pause();
        let reply = answer(&words, value, &mut items.lock().unwrap());
        writer.write_all(&reply)?;
        line.clear();
    }
    Ok(())
}

fn answer(words: &[&str], value: Vec<u8>, items: &mut HashMap<String, Vec<u8>>) -> Vec<u8> {
    let mut reply = Vec::new();
    match words[0] {
        "get" => {
            for key in &words[1..] {
                if let Some(value) = items.get(*key) {
                    reply.extend(format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes());
                    reply.extend_from_slice(value);
                    reply.extend_from_slice(b"\r\n");
                }
            }
            reply.extend_from_slice(b"END\r\n");
        }
        "set" => {
            items.insert(words[1].to_owned(), value);
            reply.extend_from_slice(b"STORED\r\n");
        }
        "mg" if items.contains_key(words[1]) => reply.extend_from_slice(b"HD\r\n"),
        "mg" => reply.extend_from_slice(b"EN\r\n"),
        "ms" if words.get(3) == Some(&"ME") && items.contains_key(words[1]) => {
            reply.extend_from_slice(b"NS\r\n");
        }
        "ms" => {
            items.insert(words[1].to_owned(), value);
            reply.extend_from_slice(b"HD\r\n");
        }
        "stats" => reply.extend(format!("STAT curr_items {}\r\nEND\r\n", items.len()).into_bytes()),
        _ => reply.extend_from_slice(b"ERROR\r\n"),
    }
    reply
}
