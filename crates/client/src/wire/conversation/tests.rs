use proptest::prelude::*;

use super::*;
use crate::expiry::Expiry;
use crate::wire::meta::Meta;
use crate::wire::reply::{ItemReply, Status};
use crate::wire::request::StoreMode;

/// Puts all of `answers` in, in pieces of up to `piece` bytes, and collects what comes out.
fn feed(
    conversation: &mut Conversation,
    answers: &[u8],
    piece: usize,
) -> Result<Vec<Completion>, ProtocolError> {
    let mut completions = Vec::new();
    let mut rest = answers;
    loop {
        while let Some(completion) = conversation.poll()? {
            completions.push(completion);
        }
        let space = conversation.space();
        assert!(!space.is_empty(), "a conversation that waits has room");
        let len = piece.min(space.len()).min(rest.len());
        if len == 0 {
            return Ok(completions);
        }
        space[..len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
        conversation.received(len);
    }
}

fn meta() -> Conversation {
    Conversation::new(Dialect::Meta, Limits::default())
}

/// With binary keys, for which a multi-get is quiet.
fn binary() -> Conversation {
    let limits = Limits {
        binary_keys: true,
        ..Limits::default()
    };
    Conversation::new(Dialect::Meta, limits)
}

fn classic() -> Conversation {
    Conversation::new(Dialect::Classic, Limits::default())
}

fn send_all(conversation: &mut Conversation) {
    let len = conversation.output().len();
    conversation.sent(len);
}

fn set(value: &[u8]) -> Request<'_> {
    Request::store(StoreMode::Set, b"k", value, 0, Expiry::NEVER)
}

fn item(status: Status) -> Reply {
    Reply::Item(ItemReply {
        status,
        ..ItemReply::default()
    })
}

fn hit(value: &[u8], client_flags: u32, cas: Option<u64>) -> Reply {
    Reply::Item(ItemReply {
        status: Status::Done,
        value: Some(value.to_vec()),
        flags: ReplyFlags {
            client_flags,
            cas,
            ..ReplyFlags::default()
        },
    })
}

/// A request, an answer to it, and what the answer means.
type Exchange = (Request<'static>, &'static str, Reply);

fn refused(refusal: fn(String) -> Refusal, text: &str) -> Reply {
    Reply::Refused(refusal(text.to_owned()))
}

/// What both dialects answer in the same way.
fn common_exchanges() -> Vec<Exchange> {
    let lines = [("pid", "1"), ("version", "1.6.45 x"), ("empty", "")];
    let lines = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
    vec![
        (Request::flush_all(0), "OK\r\n", item(Status::Done)),
        (
            Request::version(),
            "VERSION 1.6.45\r\n",
            Reply::Version("1.6.45".to_owned()),
        ),
        (
            Request::stats(b""),
            "STAT pid 1\r\nSTAT version 1.6.45 x\r\nSTAT empty \r\nEND\r\n",
            Reply::Stats(lines.to_vec()),
        ),
        (
            Request::stats(b"reset"),
            "RESET\r\n",
            Reply::Stats(Vec::new()),
        ),
        (
            Request::cluster(),
            "CONFIG cluster 0 14\r\n12\nname||11211\r\nEND\r\n",
            hit(b"12\nname||11211", 0, None),
        ),
        (Request::cluster(), "END\r\n", item(Status::Missing)),
        (
            Request::cluster(),
            "ERROR\r\n",
            refused(Refusal::Unknown, ""),
        ),
        (
            Request::get(b"k"),
            "SERVER_ERROR out of memory\r\n",
            refused(Refusal::Server, "out of memory"),
        ),
        (
            Request::increment(b"k", 1, None),
            "CLIENT_ERROR no number\r\n",
            refused(Refusal::Client, "no number"),
        ),
        (
            Request::delete(b"k"),
            "ERROR\r\n",
            refused(Refusal::Unknown, ""),
        ),
        (
            set(b"v"),
            "SERVER_ERROR too large\r\n",
            refused(Refusal::Server, "too large"),
        ),
    ]
}

fn meta_exchanges() -> Vec<Exchange> {
    let flags = ReplyFlags::parse(b" W t-1 y7").expect("it is well formed");
    let status = Status::Done;
    let ttl = ItemReply {
        status,
        value: None,
        flags,
    };
    let mut exchanges = vec![
        (
            Request::get(b"k"),
            "VA 2 f7\r\n\r\n\r\n",
            hit(b"\r\n", 7, None),
        ),
        (
            Request::gets(b"k"),
            "VA 0 f0 c9\r\n\r\n",
            hit(b"", 0, Some(9)),
        ),
        (Request::get(b"k"), "EN\r\n", item(Status::Missing)),
        (set(b"v"), "HD\r\n", item(Status::Done)),
        (set(b"v"), "NS\r\n", item(Status::NotStored)),
        (set(b"v"), "EX\r\n", item(Status::Exists)),
        (set(b"v"), "NF\r\n", item(Status::Missing)),
        (Request::delete(b"k"), "HD\r\n", item(Status::Done)),
        (
            Request::touch(b"k", Expiry::NOW),
            "HD\r\n",
            item(Status::Done),
        ),
        (
            Request::decrement(b"k", 1, None),
            "VA 2\r\n10\r\n",
            hit(b"10", 0, None),
        ),
        (
            Request::meta(b"k", Meta::get().ttl()),
            "HD t-1 W y7\r\n",
            Reply::Item(ttl),
        ),
        (Request::noop(), "MN\r\n", item(Status::Done)),
    ];
    exchanges.extend(common_exchanges());
    exchanges
}

fn classic_exchanges() -> Vec<Exchange> {
    let mut exchanges = vec![
        (
            Request::get(b"k"),
            "VALUE k 7 5\r\nEND\r\n\r\nEND\r\n",
            hit(b"END\r\n", 7, None),
        ),
        (
            Request::gets(b"k"),
            "VALUE k 0 0 9\r\n\r\nEND\r\n",
            hit(b"", 0, Some(9)),
        ),
        (Request::get(b"k"), "END\r\n", item(Status::Missing)),
        (set(b"v"), "STORED\r\n", item(Status::Done)),
        (set(b"v"), "NOT_STORED\r\n", item(Status::NotStored)),
        (set(b"v"), "EXISTS\r\n", item(Status::Exists)),
        (set(b"v"), "NOT_FOUND\r\n", item(Status::Missing)),
        (Request::delete(b"k"), "DELETED\r\n", item(Status::Done)),
        (
            Request::touch(b"k", Expiry::NOW),
            "TOUCHED\r\n",
            item(Status::Done),
        ),
        (
            Request::decrement(b"k", 1, None),
            "10   \r\n",
            hit(b"10", 0, None),
        ),
        (
            Request::increment(b"k", 1, None),
            "NOT_FOUND\r\n",
            item(Status::Missing),
        ),
    ];
    exchanges.extend(common_exchanges());
    exchanges
}

proptest! {
    /// Whatever is asked, in whatever order, and however the answers are cut: each request gets its own.
    #[test]
    fn answers_find_their_requests(
        is_meta in any::<bool>(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        piece in 1usize..60,
    ) {
        let (mut conversation, exchanges) = match is_meta {
            true => (meta(), meta_exchanges()),
            false => (classic(), classic_exchanges()),
        };
        let mut answers = String::new();
        let mut expected = Vec::new();
        for choice in choices {
            let (request, answer, reply) = choice.get(&exchanges);
            let ticket = conversation.push(request).expect("it can be sent");
            answers.push_str(answer);
            expected.push(Completion { ticket, reply: reply.clone() });
        }
        send_all(&mut conversation);
        prop_assert_eq!(feed(&mut conversation, answers.as_bytes(), piece), Ok(expected));
        prop_assert!(conversation.is_idle());
    }

    /// A multi-get between two other requests, with any of its keys there.
    #[test]
    fn hits_find_their_keys(
        form in 0..3,
        there in prop::collection::vec(any::<bool>(), 1..30),
        piece in 1usize..60,
    ) {
        let (mut conversation, miss, name) = match form {
            0 => (classic(), "END\r\n", "key"),
            1 => (meta(), "EN\r\n", "key"),
            _ => (binary(), "EN\r\n", "a key"),
        };
        let before = conversation.push(&Request::get(b"a")).expect("a request");
        let keys: Vec<String> = (0..there.len()).map(|at| format!("{name}{at}")).collect();
        let keys = keys.iter().map(|key| key.as_bytes());
        let first = conversation.push_multi_get(keys, false).expect("a multi-get");
        let behind = conversation.push(&Request::get(b"z")).expect("a request");
        send_all(&mut conversation);

        let mut expected = vec![Completion { ticket: before, reply: item(Status::Missing) }];
        let mut answers = String::from(miss);
        for at in (0..there.len()).filter(|&at| there[at]) {
            let value = format!("v{at}");
            let len = value.len();
            answers += &match form {
                2 => format!("VA {len} f3 O{at}\r\n{value}\r\n"),
                _ => format!("VALUE key{at} 3 {len}\r\n{value}\r\n"),
            };
            let reply = hit(value.as_bytes(), 3, None);
            expected.push(Completion { ticket: first + at as u64, reply });
        }
        answers += if form == 2 { "MN\r\n" } else { "END\r\n" };
        answers += miss;
        let end = first + there.len() as u64;
        expected.push(Completion { ticket: end, reply: item(Status::Done) });
        expected.push(Completion { ticket: behind, reply: item(Status::Missing) });
        prop_assert_eq!(behind, end + 1);
        prop_assert_eq!(feed(&mut conversation, answers.as_bytes(), piece), Ok(expected));
        prop_assert!(conversation.is_idle());
    }

    /// No bytes make it panic, stand still or hold more than it may.
    #[test]
    fn any_bytes(is_meta in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..40) {
        let mut conversation = if is_meta { meta() } else { classic() };
        for (request, ..) in if is_meta { meta_exchanges() } else { classic_exchanges() } {
            conversation.push(&request).expect("it can be sent");
        }
        let _ = feed(&mut conversation, &bytes, piece);
        conversation.abandon();
        prop_assert!(!conversation.is_idle());
    }
}

#[test]
fn what_cannot_be_the_answer_ends_the_conversation() {
    let table: [(Request<'_>, &str, ProtocolError); 16] = [
        (
            Request::cluster(),
            "VALUE k 0 1\r\nv\r\nEND\r\n",
            ProtocolError::Misplaced,
        ),
        (
            Request::cluster(),
            "CONFIG k 0 x\r\n",
            ProtocolError::Malformed,
        ),
        (
            Request::cluster(),
            "CONFIG k 0 1\r\nvv\r\nEND\r\n",
            ProtocolError::Malformed,
        ),
        (
            Request::get(b"k"),
            "CONFIG k 0 1\r\nv\r\nEND\r\n",
            ProtocolError::Misplaced,
        ),
        (
            Request::get(b"k"),
            "HD\r\nHD\r\n",
            ProtocolError::Unsolicited,
        ),
        (Request::get(b"k"), "STORED\r\n", ProtocolError::Misplaced),
        (Request::get(b"k"), "NS\r\n", ProtocolError::Misplaced),
        (
            Request::get(b"k"),
            "VALUE k 0 1\r\nv\r\nEND\r\n",
            ProtocolError::Misplaced,
        ),
        (
            Request::get(b"k"),
            "VA 1 fx\r\nv\r\n",
            ProtocolError::Malformed,
        ),
        (
            Request::get(b"k"),
            "VA 1 f0\r\nvv\r\n",
            ProtocolError::Malformed,
        ),
        (
            // A value that looks like the end of an empty one.
            Request::get(b"k"),
            "VA 2 f0\r\n\r\nxy\r\n",
            ProtocolError::Malformed,
        ),
        (Request::get(b"k"), "VA x f0\r\n", ProtocolError::Malformed),
        (set(b"v"), "VA 1 f0\r\nv\r\n", ProtocolError::Misplaced),
        (Request::noop(), "HD\r\n", ProtocolError::Misplaced),
        (Request::version(), "STAT a b\r\n", ProtocolError::Misplaced),
        (
            set(b"v"),
            "CLIENT_ERROR bad\r\n",
            ProtocolError::BodyRefused,
        ),
    ];
    let in_pieces = table.iter().flat_map(|row| [(row, 1), (row, usize::MAX)]);
    for ((request, answers, expected), piece) in in_pieces {
        let mut conversation = meta();
        conversation.push(request).expect("it can be sent");
        send_all(&mut conversation);
        assert_eq!(
            feed(&mut conversation, answers.as_bytes(), piece),
            Err(expected.clone()),
            "{answers}"
        );
        assert_eq!(conversation.poll(), Err(expected.clone()));
        assert!(!conversation.is_idle());
        assert_eq!(conversation.push(&Request::noop()), Err(RequestError::Full));
    }
}

#[test]
fn a_refused_value_is_told_before_the_end() {
    let mut conversation = meta();
    let ticket = conversation.push(&set(b"flush_all")).expect("a request");
    conversation.push(&Request::get(b"k")).expect("a request");
    send_all(&mut conversation);
    let answer = b"CLIENT_ERROR bad command line format\r\nOK\r\n";
    conversation.space()[..answer.len()].copy_from_slice(answer);
    conversation.received(answer.len());
    let reply = refused(Refusal::Client, "bad command line format");
    assert_eq!(conversation.poll(), Ok(Some(Completion { ticket, reply })));
    assert_eq!(conversation.poll(), Err(ProtocolError::BodyRefused));
    let effect = Effect::Reads;
    assert_eq!(
        conversation.abandon(),
        [Abandoned {
            ticket: ticket + 1,
            effect
        }]
    );
}

#[test]
fn answers_to_a_multi_get_that_do_not_fit() {
    let quiet = [
        "VA 1 f0\r\nv\r\n",
        "VA 1 f0 O2\r\nv\r\n",
        "VA 1 f0 O1\r\nv\r\nVA 1 f0 O1\r\nv\r\n",
        "VALUE b 0 1\r\nv\r\n",
        "EN\r\n",
        "END\r\n",
    ];
    let classic = [
        "VALUE c 0 1\r\nv\r\n",
        "VA 1 f0 O0\r\nv\r\n",
        "EN\r\n",
        "MN\r\n",
        "STORED\r\n",
    ];
    let quiet = quiet.map(|answers| (&b" a"[..], answers));
    let classic = classic.map(|answers| (&b"a"[..], answers));
    for (key, answers) in quiet.into_iter().chain(classic) {
        let mut conversation = binary();
        let keys = [key, b"b"];
        conversation
            .push_multi_get(keys.into_iter(), false)
            .expect("a multi-get");
        send_all(&mut conversation);
        let end = feed(&mut conversation, answers.as_bytes(), 100);
        assert_eq!(end, Err(ProtocolError::Misplaced), "{key:?} {answers}");
    }
}

#[test]
fn a_refusal_within_a_multi_get_is_told_at_its_end() {
    let quiet = "VA 1 f0 c5 O0\r\nv\r\nSERVER_ERROR lost\r\nVA 1 f0 c6 O2\r\nw\r\nMN\r\n";
    // In classic text the error is the end.
    let classic = "VALUE a 0 1 5\r\nv\r\nVALUE c 0 1 6\r\nw\r\nSERVER_ERROR lost\r\n";
    for (second, answers) in [(&b" b"[..], quiet), (b"b", classic)] {
        let mut conversation = binary();
        let keys = [&b"a"[..], second, b"c"];
        let first = conversation
            .push_multi_get(keys.into_iter(), true)
            .expect("a multi-get");
        send_all(&mut conversation);
        let complete = |at: u64, reply: Reply| Completion {
            ticket: first + at,
            reply,
        };
        let expected = vec![
            complete(0, hit(b"v", 0, Some(5))),
            complete(2, hit(b"w", 0, Some(6))),
            complete(3, refused(Refusal::Server, "lost")),
        ];
        assert_eq!(feed(&mut conversation, answers.as_bytes(), 7), Ok(expected));
        assert!(conversation.is_idle());
    }
}

#[test]
fn a_proxy_answers_in_another_order() {
    let mut conversation = classic();
    let keys = [&b"a"[..], b"b", b"bb", b"a"];
    let first = conversation
        .push_multi_get(keys.into_iter(), false)
        .expect("a multi-get");
    assert_eq!(conversation.output(), b"get a b bb a\r\n");
    send_all(&mut conversation);
    let answers = ["bb", "a", "b"].map(|key| format!("VALUE {key} 0 2\r\n{key:2}\r\n"));
    let answers = answers.concat() + "END\r\n";
    let completions = feed(&mut conversation, answers.as_bytes(), 9).expect("they fit");
    let tickets: Vec<Ticket> = completions.iter().map(|one| one.ticket - first).collect();
    assert_eq!(tickets, [2, 3, 1, 4]);
}

#[test]
fn what_is_known_of_requests_without_an_answer() {
    let mut conversation = meta();
    for request in [
        set(b"one"),
        Request::get(b"k"),
        set(b"two"),
        Request::delete(b"k"),
    ] {
        conversation.push(&request).expect("it can be sent");
    }
    // All but the last byte of the second set.
    let third = conversation.output().len() - b"md k\r\n".len();
    conversation.sent(third - 1);
    let effects: Vec<Effect> = conversation
        .abandon()
        .iter()
        .map(|lost| lost.effect)
        .collect();
    use Effect::{NotSent, Reads, Unknown};
    assert_eq!(effects, [Unknown, Reads, NotSent, NotSent]);
    assert_eq!(conversation.pending(), 0);
}

#[test]
fn bounds() {
    let limits = Limits {
        value_len_max: 10,
        in_flight_max: 2,
        binary_keys: false,
    };
    for dialect in [Dialect::Meta, Dialect::Classic] {
        let mut conversation = Conversation::new(dialect, limits);
        conversation.push(&Request::get(b"k")).expect("the first");
        conversation.push(&Request::stats(b"")).expect("the second");
        assert_eq!(
            conversation.push(&Request::version()),
            Err(RequestError::Full)
        );
        send_all(&mut conversation);
        let hit = match dialect {
            Dialect::Meta => "VA 11 f0\r\n",
            Dialect::Classic => "VALUE k 0 11\r\n",
        };
        let too_large = Err(ProtocolError::TooLarge { len: 11, max: 10 });
        assert_eq!(feed(&mut conversation, hit.as_bytes(), 100), too_large);
    }
    let mut conversation = Conversation::new(Dialect::Meta, limits);
    conversation.push(&Request::stats(b"")).expect("a request");
    let lines = b"STAT a\r\nSTAT b\r\n";
    let too_large = Err(ProtocolError::TooLarge { len: 12, max: 10 });
    assert_eq!(feed(&mut conversation, lines, 100), too_large);
}
