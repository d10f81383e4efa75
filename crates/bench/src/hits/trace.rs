//! Traces from files: recorded requests.
//!
//! Compressed files end in `.gz`, `.xz` or `.zst`. The content is one of these:
//! - `NAME.lis` (ARC's traces): each line has the first block, the count of blocks, and more; each
//!   block of the range is one request.
//! - Text (LIRS's traces): one key on each line; lines without a number are skipped.
//! - Anything else: key numbers of four bytes, big-endian.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use thiserror::Error as ThisError;

use super::stream::Stream;

/// Reads a trace. All of its requests are gets, and all of them count.
pub(crate) fn read(path: &Path) -> Result<Stream, Error> {
    let file = File::open(path)?;
    let compression = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or("");
    let reader: Box<dyn Read> = match compression {
        "gz" => Box::new(flate2::read::GzDecoder::new(BufReader::new(file))),
        "xz" => Box::new(lzma_rust2::XzReader::new(BufReader::new(file), true)),
        "zst" => Box::new(
            ruzstd::decoding::StreamingDecoder::new(BufReader::new(file))
                .map_err(io::Error::other)?,
        ),
        _ => Box::new(file),
    };
    let mut bytes = Vec::new();
    reader.take(Error::BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > Error::BYTES_MAX {
        return Err(Error::TooLong);
    }
    let compressed = matches!(compression, "gz" | "xz" | "zst");
    let name = if compressed {
        path.file_stem()
    } else {
        path.file_name()
    };
    let name = name
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let keys = if name.ends_with(".lis") {
        block_ranges(&bytes)?
    } else if bytes
        .iter()
        .take(4096)
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    {
        lines(&bytes)
    } else {
        numbers(&bytes)
    };
    if keys.is_empty() {
        return Err(Error::Empty);
    }
    Ok(Stream::new(
        name,
        keys.into_iter().map(|key| (key, false)),
        0,
    ))
}

fn block_ranges(bytes: &[u8]) -> Result<Vec<u64>, Error> {
    let mut keys = Vec::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(first)), Some(Ok(count))) = (words.next(), words.next()) {
            if keys.len() as u64 + count > Error::REQUESTS_MAX {
                return Err(Error::TooLong);
            }
            keys.extend((0..count).map(|block| first.wrapping_add(block)));
        }
    }
    Ok(keys)
}

fn lines(bytes: &[u8]) -> Vec<u64> {
    String::from_utf8_lossy(bytes)
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (numbers, _rest) = bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|&number| u64::from(u32::from_be_bytes(number)))
        .collect()
}

/// Why a trace cannot be replayed.
#[derive(Debug, ThisError)]
pub(crate) enum Error {
    /// The file cannot be read or unpacked.
    #[error("the trace cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is larger than what this program keeps in memory.
    #[error("the trace is longer than 4 GiB or 2^30 requests")]
    TooLong,
    /// It has no request.
    #[error("the trace has no request")]
    Empty,
}

impl Error {
    const BYTES_MAX: u64 = 4 << 30;
    const REQUESTS_MAX: u64 = 1 << 30;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_ranges_are_expanded() {
        assert_eq!(
            block_ranges(b"8 3 0 0\n20 1 0 1\n").unwrap(),
            [8, 9, 10, 20]
        );
        assert!(matches!(
            block_ranges(b"1 18446744073709551615 0 0"),
            Err(Error::TooLong)
        ));
    }

    #[test]
    fn text_is_one_key_a_line() {
        assert_eq!(lines(b"5\n7\r\n*\n5\n"), [5, 7, 5]);
    }

    #[test]
    fn numbers_are_big_endian() {
        assert_eq!(numbers(&[0, 0, 1, 2, 255, 0, 0, 0, 9]), [258, 0xff00_0000]);
    }

    #[test]
    fn the_file_tells_its_format() {
        let directory =
            std::env::temp_dir().join(format!("coua-bench-trace-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let text = read(&write("t.trace", b"1\n2\n1\n")).unwrap();
        assert_eq!((text.requests.len(), text.keys), (3, 2));
        let binary = read(&write("b.trace", &[0, 0, 0, 1, 0, 0, 0, 1])).unwrap();
        assert_eq!((binary.requests.len(), binary.keys), (2, 1));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, b"4 2 0 0\n").unwrap();
        let ranges = read(&write("r.lis.gz", &packed.finish().unwrap())).unwrap();
        assert_eq!((ranges.name.as_str(), ranges.keys), ("r.lis", 2));
        assert!(matches!(read(&write("e.trace", b"")), Err(Error::Empty)));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
