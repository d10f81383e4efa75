use coua_protocol::{Limits, Parser, Step};

use super::{limits_for, replay};

/// Whatever the number of requests that were executed, the parser goes on at the next.
#[test]
fn a_parser_that_is_taken_back_finds_the_same_requests_again() {
    let limits = Limits {
        gather_max: 64,
        line_max: 4096,
        sasl: false,
        item_size_max: 1024,
        ..Limits::default()
    };
    let input = [
        &b"get a b c\r\nset k 0 0 2\r\nhi\r\nset no 0 0 2000\r\n"[..],
        &[b'z'; 2000],
        b"\r\nmg k v\r\nset big 0 0 900\r\n",
        &[b'v'; 500],
    ]
    .concat();
    let all = requests(Parser::new(), &input, &limits);
    // Three keys, a value, a refusal and its answer, a meta lookup, the beginning and a part of a
    // large value.
    assert_eq!(all.len(), 9, "{all:?}");
    for executed in 0..=all.len() {
        let (parser, used) = replay(Parser::new(), &input, executed, &limits);
        assert_eq!(
            requests(parser, &input[used..], &limits),
            all[executed..],
            "{executed}"
        );
    }
}

fn requests(mut parser: Parser, mut input: &[u8], limits: &Limits) -> Vec<String> {
    let mut found = Vec::new();
    while !input.is_empty() {
        match parser.next(input, &limits_for(input, limits)) {
            Step::Op { consumed, op } => {
                found.push(format!("{op:?}"));
                input = &input[consumed as usize..];
            }
            Step::Skip { consumed } => input = &input[consumed as usize..],
            Step::More { .. } | Step::Close { .. } => break,
        }
    }
    found
}
