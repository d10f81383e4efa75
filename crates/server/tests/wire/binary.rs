//! Binary requests and answers as text: `@set key=a val=1 flags=5` and `set+ flags=5`.

use std::fmt::Write as _;

use crate::script::{Piece, join, parse_pieces};
use crate::transcript::{CasNames, shown_body};

/// Bytes of a header.
const HEADER_LEN: usize = 24;

/// Commands by opcode.
const NAMES: [(u8, &str); 36] = [
    (0x00, "get"),
    (0x01, "set"),
    (0x02, "add"),
    (0x03, "replace"),
    (0x04, "delete"),
    (0x05, "increment"),
    (0x06, "decrement"),
    (0x07, "quit"),
    (0x08, "flush"),
    (0x09, "getq"),
    (0x0a, "noop"),
    (0x0b, "version"),
    (0x0c, "getk"),
    (0x0d, "getkq"),
    (0x0e, "append"),
    (0x0f, "prepend"),
    (0x10, "stat"),
    (0x11, "setq"),
    (0x12, "addq"),
    (0x13, "replaceq"),
    (0x14, "deleteq"),
    (0x15, "incrementq"),
    (0x16, "decrementq"),
    (0x17, "quitq"),
    (0x18, "flushq"),
    (0x19, "appendq"),
    (0x1a, "prependq"),
    (0x1b, "verbosity"),
    (0x1c, "touch"),
    (0x1d, "gat"),
    (0x1e, "gatq"),
    (0x20, "sasl_list"),
    (0x21, "sasl_auth"),
    (0x22, "sasl_step"),
    (0x23, "gatk"),
    (0x24, "gatkq"),
];

/// Reads a request: a command's name or its opcode, then what it has.
///
/// `key= val=` are text as in any line, without a space; `flags= exp= delta= initial=` become the
/// extras in the order in which they stand, `ext=` adds to them in hexadecimal; `cas=` is a number
/// or `of:KEY`, `opaque=` is hexadecimal. `keylen= extlen= bodylen= magic=` say something else
/// than what is there.
pub(crate) fn request(text: &str) -> Result<Vec<Piece>, String> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let opcode = opcode(words.next().unwrap_or_default())?;
    let (mut key, mut value, mut extras) = (Vec::new(), Vec::new(), Vec::new());
    let (mut opaque, mut magic, mut cas) = (0u32, 0x80u8, Piece::Bytes(vec![0; 8]));
    let (mut key_len, mut extras_len, mut body_len) = (None, None, None);
    for word in words {
        let (name, given) = word.split_once('=').ok_or("name=value expected")?;
        match name {
            "key" => key = plain(given)?,
            "val" => value = plain(given)?,
            "flags" | "exp" => extras.extend(number::<u32>(given)?.to_be_bytes()),
            "delta" | "initial" => extras.extend(number::<u64>(given)?.to_be_bytes()),
            "ext" => extras.extend(hexadecimal(given)?),
            "cas" => {
                cas = match given.strip_prefix("of:") {
                    Some(key) => Piece::BinaryCasOf {
                        key: key.to_owned(),
                    },
                    None => Piece::Bytes(number::<u64>(given)?.to_be_bytes().to_vec()),
                }
            }
            "opaque" => {
                opaque = u32::from_str_radix(given, 16).map_err(|_| "hexadecimal expected")?;
            }
            "magic" => {
                magic = u8::from_str_radix(given, 16).map_err(|_| "hexadecimal expected")?;
            }
            "keylen" => key_len = Some(number::<u16>(given)?),
            "extlen" => extras_len = Some(number::<u8>(given)?),
            "bodylen" => body_len = Some(number::<u32>(given)?),
            _ => return Err(format!("{name} is no part of a binary request")),
        }
    }
    let too_long = |_| "too long";
    let mut head = vec![magic, opcode];
    let key_len = key_len.map_or_else(|| u16::try_from(key.len()).map_err(too_long), Ok)?;
    head.extend(key_len.to_be_bytes());
    head.push(extras_len.map_or_else(|| u8::try_from(extras.len()).map_err(too_long), Ok)?);
    head.extend([0, 0, 0]);
    let body = [extras, key, value].concat();
    let body_len = body_len.map_or_else(|| u32::try_from(body.len()).map_err(too_long), Ok)?;
    head.extend(body_len.to_be_bytes());
    head.extend(opaque.to_be_bytes());
    Ok(join([Piece::Bytes(head), cas, Piece::Bytes(body)]))
}

fn opcode(word: &str) -> Result<u8, String> {
    match NAMES.iter().find(|(_, name)| *name == word) {
        Some((opcode, _)) => Ok(*opcode),
        None => word
            .strip_prefix("0x")
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or_else(|| format!("{word} is no binary command")),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    (0..text.len())
        .step_by(2)
        .map(|at| {
            let digits = text.get(at..at + 2).ok_or("pairs of digits expected")?;
            u8::from_str_radix(digits, 16).map_err(|_| "hexadecimal expected".to_owned())
        })
        .collect()
}

/// Text whose bytes are known when it is read.
fn plain(text: &str) -> Result<Vec<u8>, String> {
    match parse_pieces(text)?.as_slice() {
        [] => Ok(Vec::new()),
        [Piece::Bytes(bytes)] => Ok(bytes.clone()),
        _ => Err("a CAS has no place here".to_owned()),
    }
}

/// A `noop` by which a player knows that everything before it is answered, and its answer.
pub(crate) fn question(number: usize) -> (Vec<u8>, Vec<u8>) {
    let number = u32::try_from(number).expect("few questions") | 0xc00a_0000;
    let header = |magic: u8| {
        let mut header = vec![magic, 0x0a];
        header.resize(12, 0);
        header.extend(number.to_be_bytes());
        header.resize(HEADER_LEN, 0);
        header
    };
    (header(0x80), header(0x81))
}

/// Whether bytes that begin with a request end with the end of one.
pub(crate) fn is_whole(mut requests: &[u8]) -> bool {
    while !requests.is_empty() {
        let Some(header) = requests.first_chunk::<HEADER_LEN>() else {
            return false;
        };
        let body_len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        match requests.get(HEADER_LEN + body_len as usize..) {
            Some(rest) => requests = rest,
            None => return false,
        }
    }
    true
}

/// Takes one answer off the front and shows it.
pub(crate) fn answer(rest: &mut &[u8], names: &mut CasNames<'_>) -> String {
    let whole = *rest;
    let header = whole.first_chunk::<HEADER_LEN>();
    let body_len = header.map_or(0, |header| {
        u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize
    });
    let (Some(header), Some(body)) = (header, whole.get(HEADER_LEN..HEADER_LEN + body_len)) else {
        *rest = &[];
        return format!("{} <cut short>", whole.escape_ascii());
    };
    *rest = &whole[HEADER_LEN + body_len..];
    let key_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras_len = usize::from(header[4]);
    let status = u16::from_be_bytes([header[6], header[7]]);
    let opaque = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let cas = u64::from_be_bytes(header[16..].try_into().expect("eight bytes are left"));
    let name = NAMES.iter().find(|(opcode, _)| *opcode == header[1]);
    let mut text = name.map_or_else(|| format!("{:#04x}", header[1]), |name| name.1.to_owned());
    // Writing to a string does not fail.
    let _ = match status {
        0 => write!(text, "+"),
        _ => write!(text, "-{status:02x}"),
    };
    if opaque != 0 {
        let _ = write!(text, " opaque={opaque:x}");
    }
    if cas != 0 {
        let _ = write!(text, " cas={}", names.name(&cas.to_string()));
    }
    if header[5] != 0 || key_len + extras_len > body_len {
        let _ = write!(text, " <wrong: {}>", header.escape_ascii());
        return text;
    }
    let (extras, body) = body.split_at(extras_len);
    let (key, value) = body.split_at(key_len);
    match *extras {
        [] => {}
        [a, b, c, d] => {
            let _ = write!(text, " flags={}", u32::from_be_bytes([a, b, c, d]));
        }
        _ => {
            let _ = write!(text, " extras={}", extras.escape_ascii());
        }
    }
    if !key.is_empty() {
        let _ = write!(text, " key={}", key.escape_ascii());
    }
    match header[1] {
        _ if value.is_empty() => {}
        0x0b => text.push_str(" | <version>"),
        0x05 | 0x06 | 0x15 | 0x16 if status == 0 && value.len() == 8 => {
            let number = u64::from_be_bytes(value.try_into().expect("eight bytes"));
            let _ = write!(text, " {number}");
        }
        _ => text.push_str(&shown_body(value)),
    }
    text
}

#[test]
fn requests_are_written_and_answers_read() {
    let set = request("@set key=a val={x*3} flags=5 exp=0 opaque=beef").map(|_| ());
    assert!(set.is_err(), "the @ belongs to the line");
    let pieces = request("set key=a val={x*3} flags=5 exp=0 opaque=beef cas=9").unwrap();
    let expected =
        b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x0c\0\0\xbe\xef\0\0\0\0\0\0\0\x09\0\0\0\x05\0\0\0\0axxx";
    assert_eq!(pieces, [Piece::Bytes(expected.to_vec())]);
    assert!(is_whole(expected) && !is_whole(&expected[1..]) && !is_whole(&expected[..30]));
    let mut names = CasNames::new(&[]);
    let mut rest =
        &b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\x05ahi\x81\x00\0\0"[..];
    assert_eq!(
        answer(&mut rest, &mut names),
        "getk+ cas=<cas1> flags=5 key=a | hi"
    );
    assert_eq!(
        answer(&mut rest, &mut names),
        "\\x81\\x00\\x00\\x00 <cut short>"
    );
    assert!(rest.is_empty());
}
