//! Statistics in the binary protocol: each line of the text is an answer of its own.

use coua_protocol::BinaryRequestId;

use crate::output::Output;

/// Turns the text in the output, from `start` on, into answers.
pub fn repack(output: &mut Output, start: usize, asked: BinaryRequestId) {
    let text = output.written_from(start).to_vec();
    output.truncate(start);
    pack(output, asked, &text);
}

/// Appends an answer for each line of a text. Returns whether the text's end was among them.
pub fn pack(output: &mut Output, asked: BinaryRequestId, text: &[u8]) -> bool {
    let mut ended = false;
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(stat) = line.strip_prefix(b"STAT ") {
            let name_len = stat.iter().position(|&byte| byte == b' ');
            let (name, value) = stat.split_at(name_len.unwrap_or(stat.len()));
            add(output, asked, name, value.get(1..).unwrap_or_default());
        } else if line == b"END" {
            add(output, asked, b"", b"");
            ended = true;
        } else if line.starts_with(b"PREFIX ") {
            add(output, asked, b"detailed", line);
        }
    }
    ended
}

/// Appends the answer that ends statistics whose text has no end line.
pub fn end(output: &mut Output, asked: BinaryRequestId) {
    add(output, asked, b"", b"");
}

fn add(output: &mut Output, asked: BinaryRequestId, name: &[u8], value: &[u8]) {
    output.reply(|reply| reply.binary_stat(asked, name, value));
}
