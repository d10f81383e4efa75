//! A client's core: whatever a server answers, in whatever pieces, it does not panic, stays within its
//! bounds, gives each answer to the oldest request, and comes to the same however the bytes are cut.
#![no_main]

use coua_client::wire::{Completion, Conversation, Dialect, Limits, ProtocolError, Request};
use coua_client::{Expiry, Meta, StoreMode};
use libfuzzer_sys::fuzz_target;

const VALUE_LEN_MAX: usize = 1 << 10;

fuzz_target!(|data: &[u8]| {
    let Some((&[seed, count], rest)) = data.split_first_chunk() else {
        return;
    };
    let (kinds, answers) = rest.split_at(rest.len().min(usize::from(count % 16)));
    let mut random = u32::from(seed) | 1;
    let mut piece = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        match seed / 2 {
            0 => 1,
            _ => random as usize % 32 + 1,
        }
    };
    let dialect = match seed % 2 {
        0 => Dialect::Meta,
        _ => Dialect::Classic,
    };
    let pieces = run(dialect, kinds, answers, &mut piece);
    assert_eq!(pieces, run(dialect, kinds, answers, &mut || usize::MAX));
});

type Outcome = (Vec<Completion>, Option<ProtocolError>);

fn run(
    dialect: Dialect,
    kinds: &[u8],
    answers: &[u8],
    piece: &mut impl FnMut() -> usize,
) -> Outcome {
    let limits = Limits {
        value_len_max: VALUE_LEN_MAX,
        in_flight_max: 64,
        binary_keys: true,
    };
    let mut conversation = Conversation::new(dialect, limits);
    for kind in kinds {
        push(&mut conversation, *kind);
    }
    let pending = conversation.pending();
    let sent = conversation.output().len();
    conversation.sent(sent);
    let mut completions: Vec<Completion> = Vec::new();
    let mut rest = answers;
    loop {
        match conversation.poll() {
            Ok(Some(completion)) => {
                // Within a multi-get in classic text hits come in any order, as proxies send them.
                if let Some(last) = completions.last() {
                    assert!(last.ticket < completion.ticket + 3);
                }
                completions.push(completion);
            }
            Ok(None) => {
                let space = conversation.space();
                assert!(!space.is_empty());
                let len = piece().min(space.len()).min(rest.len());
                if len == 0 {
                    break;
                }
                space[..len].copy_from_slice(&rest[..len]);
                rest = &rest[len..];
                conversation.received(len);
            }
            Err(error) => {
                assert!(conversation.abandon().len() <= pending);
                return (completions, Some(error));
            }
        }
    }
    conversation.abandon();
    (completions, None)
}

fn push(conversation: &mut Conversation, kind: u8) {
    let request = match kind % 12 {
        0 => Request::get(b"key"),
        1 => Request::gets(b"a key"),
        2 => Request::store(StoreMode::Set, b"key", b"value", 1, Expiry::NEVER),
        3 => Request::delete(b"key"),
        4 => Request::touch(b"key", Expiry::NOW),
        5 => Request::increment(b"key", 1, None),
        6 => Request::stats(b""),
        7 => Request::version(),
        8 => Request::flush_all(1),
        9 => Request::meta(b"key", Meta::get().value().key().flag(b'x')),
        10 => Request::noop(),
        _ => {
            // With a binary key it is quiet.
            let second: &[u8] = if kind < 128 { b"b" } else { b" b" };
            let keys = [&b"a"[..], second, b"c"];
            let _ = conversation.push_multi_get(keys.into_iter(), true);
            return;
        }
    };
    // Some need the meta commands.
    let _ = conversation.push(&request);
}
