//! Playing a case: what each line means.

use std::net::SocketAddr;

use coua_tcp::stack::{ConnectionState, Failure, Received};

use crate::hosts::{own_byte, peer_byte};
use crate::notation::{Notation, micros, small, words};
use crate::script::{Case, Line};
use crate::world::{Wait, World};
use crate::write;

/// The port to which `connect` goes.
const SERVER_PORT: u16 = 80;

/// Plays a case over one family. An error says at which line what was wrong.
pub(crate) fn play(case: &Case, is_v6: bool) -> Result<(), String> {
    let mut world = World::new(is_v6);
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    for line in &case.lines {
        play_line(&mut world, &line.text).map_err(|why| {
            let Line { number, text } = line;
            format!(
                "{}:{number}: {} ({family})\n    {text}\n{why}",
                case.file, case.name
            )
        })?;
    }
    nothing_left(&mut world)
        .map_err(|why| format!("{}: {} ({family}), at the end\n{why}", case.file, case.name))
}

fn play_line(world: &mut World, text: &str) -> Result<(), String> {
    let mut parts = Vec::new();
    for part in text.split(';') {
        parts.push(words(part)?);
    }
    let mut wait = None;
    if let Some(time) = parts[0].first().and_then(|word| word.strip_prefix('+')) {
        let (least, most) = time.split_once("..").unwrap_or((time, time));
        wait = Some(Wait {
            least_us: micros(least)?,
            most_us: micros(most)?,
        });
        parts[0].remove(0);
    }
    let verb = parts[0].first().cloned().unwrap_or_default();
    if verb == ">" && parts[0].get(1).is_some_and(|word| word == "frames") {
        return frames_left(world, &parts[0][2..]);
    }
    if verb == ">" {
        if let Some(wait) = wait {
            if wait.least_us > 0 {
                nothing_left(world)?;
            }
            world.pass_to_frame(wait)?;
        }
        return leaves(world, &parts[0][1..]);
    }
    nothing_left(world)?;
    if let Some(wait) = wait {
        let passed = world.pass(wait);
        if let Err(why) = passed {
            return Err(format!("{why}\n{}", shown_left(world)));
        }
    }
    match verb.as_str() {
        "" => Ok(()),
        "set" | "peer" | "flow" | "renew" | "expect" => one(world, &parts[0]),
        "established" => established(world, &parts[0][1..]),
        "flood" => flood(world, text),
        _ => turn(world, &parts),
    }
}

/// A handshake from outside, in one line: `established [win N] [rtt SECONDS] [<options>]`.
fn established(world: &mut World, words: &[String]) -> Result<(), String> {
    let (mut win, mut rtt, mut options) = ("65535", "0.1", "<mss 1000, sack>");
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "win" => win = rest.next().ok_or("win what?")?,
            "rtt" => rtt = rest.next().ok_or("rtt what?")?,
            word if word.starts_with('<') => options = word,
            word => return Err(format!("{word} says nothing of a handshake")),
        }
    }
    // A millisecond passes on the peer's clock.
    let stamps = match options.split("ts ").nth(1) {
        Some(rest) => {
            let value = rest.split(' ').next().unwrap_or_default();
            format!("<ts {} *>", crate::notation::number(value)? + 1)
        }
        None => "<>".to_owned(),
    };
    for line in [
        "listen",
        &format!("< SYN seq 0 win 65535 {options}"),
        "> SYN ACK seq 0 ack 1",
        &format!("+{rtt} < ACK seq 1 ack 1 win {win} {stamps}"),
        "accept",
    ] {
        play_line(world, line).map_err(|why| format!("in the handshake, at {line}\n{why}"))?;
    }
    Ok(())
}

/// `flood N < FRAME`: a turn for each of so many frames, in which `{A+B*$}` counts. What leaves stays
/// to be looked at.
fn flood(world: &mut World, text: &str) -> Result<(), String> {
    let (count, frame) = text
        .split_once("flood ")
        .and_then(|(_, rest)| rest.split_once(" < "))
        .ok_or("it is written flood N < FRAME")?;
    for round in 0..small(count)? {
        let frame = crate::script::counted(frame, round)?;
        let mut words = words(&frame)?;
        words.insert(0, "<".to_owned());
        turn(world, &[words])?;
    }
    Ok(())
}

/// `> frames N`: so many have left, whichever.
fn frames_left(world: &mut World, words: &[String]) -> Result<(), String> {
    let wanted = words.first().ok_or("how many frames?")?;
    let left = std::mem::take(&mut world.card.left).len().to_string();
    match crate::notation::is_value(wanted, &left) {
        true => Ok(()),
        false => Err(format!("  {left} left")),
    }
}

/// What happens in one turn: frames first, then what the user does.
fn turn(world: &mut World, parts: &[Vec<String>]) -> Result<(), String> {
    world.stack();
    let (frames, acts): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part[0] == "<");
    for words in frames {
        let line = Notation::read(&words[1..])?;
        let hosts = world.hosts.clone();
        let frame = write::frame(&line, &hosts, &world.end().flow)?;
        world.card.arriving.push_back(frame);
    }
    world.turn(|world| acts.iter().try_for_each(|words| act(world, words)))
}

fn act(world: &mut World, words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["listen"] => world.stack().listen(crate::hosts::PORT),
        ["listen", "udp"] => world.stack().listen_for_datagrams(crate::hosts::PORT),
        ["stop-listening"] => world.stack().stop_listening(crate::hosts::PORT),
        ["connect"] => connect(world)?,
        ["accept"] => {
            let id = world.accepted.pop_front().ok_or("there is no connection")?;
            world.end().id = Some(id);
        }
        ["read", what] => read(world, what)?,
        ["write", "fails"] => {
            let id = world.id()?;
            if let Ok(taken) = world.stack().send(id, b"?") {
                return Err(format!("it takes {taken}"));
            }
        }
        ["write", len] => write_bytes(world, small(len)?, None)?,
        ["write", len, "takes", taken] => write_bytes(world, small(len)?, Some(small(taken)?))?,
        ["close"] => {
            let id = world.id()?;
            world.stack().close(id);
        }
        ["shutdown"] => {
            let id = world.id()?;
            world.stack().shut_down(id);
        }
        ["abort"] => {
            let id = world.id()?;
            world.stack().abort(id);
        }
        ["answer", text] => {
            let datagram = world.stack().next_datagram().ok_or("no datagram came")?;
            let text = text.trim_matches('"').to_owned();
            let mut card = std::mem::replace(&mut world.card, crate::card::Card::new(1280));
            let is_sent = world
                .stack()
                .answer(&mut card, &datagram, &[text.as_bytes()]);
            world.card = card;
            if !is_sent {
                return Err("it is not sent".to_owned());
            }
        }
        _ => return Err(format!("{} is not understood", words.join(" "))),
    }
    Ok(())
}

fn connect(world: &mut World) -> Result<(), String> {
    let to = SocketAddr::new(world.hosts.address("peer")?, SERVER_PORT);
    let id = world.stack().connect(to, |_| true);
    let id = id.map_err(|error| error.to_string())?;
    let local = world.stack().describe(id).ok_or("it is gone")?.local;
    let end = world.end();
    end.id = Some(id);
    (end.flow.own_port, end.flow.peer_port) = (local.port(), SERVER_PORT);
    Ok(())
}

/// `read LEN` or `read "TEXT"`: exactly that is there first.
fn read(world: &mut World, what: &str) -> Result<(), String> {
    let id = world.id()?;
    let from = world.end().read;
    let right: Vec<u8> = match what.strip_prefix('"') {
        Some(text) => text.trim_end_matches('"').bytes().collect(),
        None => (from..from + small::<u32>(what)?).map(peer_byte).collect(),
    };
    let mut found = vec![0; right.len()];
    let mut len = 0;
    while len < found.len() {
        let card = std::mem::replace(&mut world.card, crate::card::Card::new(1280));
        let received = world.stack().receive(&card, id, &mut found[len..]);
        world.card = card;
        match received {
            Received::Bytes(count) => len += count,
            other => return Err(format!("{len} bytes are there, then {other:?}")),
        }
    }
    world.end().read += u32::try_from(len).expect("short");
    match found == right {
        true => Ok(()),
        false => Err(format!(
            "other bytes are there: {:?}",
            String::from_utf8_lossy(&found)
        )),
    }
}

fn write_bytes(world: &mut World, len: u32, takes: Option<usize>) -> Result<(), String> {
    let id = world.id()?;
    let from = world.end().written;
    let bytes: Vec<u8> = (from..from + len).map(own_byte).collect();
    let taken = world.stack().send(id, &bytes);
    let taken = taken.map_err(|failure| format!("it fails: {failure:?}"))?;
    world.end().written += u32::try_from(taken).expect("short");
    match taken == takes.unwrap_or(bytes.len()) {
        true => Ok(()),
        false => Err(format!("it takes {taken}")),
    }
}

/// A line that is no turn.
fn one(world: &mut World, words: &[String]) -> Result<(), String> {
    match words[0].as_str() {
        "set" if world.is_begun() => Err("settings come first".to_owned()),
        "set" => {
            let mut hosts = world.hosts.clone();
            world.settings.set(&mut hosts, &words[1..])?;
            world.hosts = hosts;
            Ok(())
        }
        "peer" => {
            let name = words.get(1).ok_or("which peer?")?;
            name.clone_into(&mut world.hosts.peer);
            Ok(())
        }
        "flow" => {
            let number = words.get(1).ok_or("which flow?")?;
            world.switch_to(small(number)?);
            Ok(())
        }
        "renew" => {
            let step = words.get(1).ok_or("renew by how much?")?;
            let peer_iss = world.end().flow.peer(crate::notation::number(step)?);
            world.renew(peer_iss);
            Ok(())
        }
        _ => expect(world, &words[1..]),
    }
}

fn expect(world: &mut World, words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["state", _] => {
            let id = world.id()?;
            let described = world.stack().describe(id).ok_or("it is gone")?;
            state_name(described.state).to_owned()
        }
        ["unacknowledged" | "unread" | "cwnd" | "rtt", _] => {
            let id = world.id()?;
            let described = world.stack().describe(id).ok_or("it is gone")?;
            let number = match words[0] {
                "unacknowledged" => described.unacknowledged,
                "unread" => described.unread,
                "cwnd" => described.window,
                _ => described.rtt_us,
            };
            number.to_string()
        }
        ["ended" | "nothing"] | ["failure", _] => return expect_read(world, &words),
        ["accepted", _] => world.accepted.len().to_string(),
        ["connections", _] => world.stack().connections().to_string(),
        ["buffers", _] => world.stack().buffers_in_use().to_string(),
        ["count", name, _] => {
            let all = world.stack().counters().all();
            let count = all.iter().find(|(known, _)| *known == name);
            count
                .ok_or_else(|| format!("nothing counts {name}"))?
                .1
                .to_string()
        }
        ["told", what] => return expect_told(world, what),
        ["port", _] => world.end().flow.own_port.to_string(),
        // Of a new connection with the same ends (RFC 9293, section 3.10.7.4).
        ["iss", "later-than-before"] => {
            let flow = &world.end().flow;
            let iss = flow.own_iss.ok_or("no SYN has left")?;
            let is_later = iss.wrapping_sub(flow.own_end_before).cast_signed() > 0;
            return is_later
                .then_some(())
                .ok_or_else(|| "it is not later".to_owned());
        }
        ["iss", "differs-from", other] => {
            let iss = |end: &crate::world::End| end.flow.own_iss;
            let other = world.ends.get(small::<usize>(other)?).and_then(iss);
            let own = iss(world.end());
            let differs = own.is_some() && other.is_some() && own != other;
            return differs
                .then_some(())
                .ok_or_else(|| "it does not".to_owned());
        }
        _ => return Err(format!("{} cannot be expected", words.join(" "))),
    };
    let wanted = words[words.len() - 1];
    match crate::notation::is_value(wanted, &found) {
        true => Ok(()),
        false => Err(format!("it is {found}")),
    }
}

fn expect_read(world: &mut World, words: &[&str]) -> Result<(), String> {
    let id = world.id()?;
    let card = std::mem::replace(&mut world.card, crate::card::Card::new(1280));
    let received = world.stack().receive(&card, id, &mut [0]);
    world.card = card;
    let found = match received {
        Received::Bytes(_) => "bytes",
        Received::Nothing => "nothing",
        Received::Ended => "ended",
        Received::Failed(Failure::Reset) => "failure reset",
        Received::Failed(Failure::TimedOut) => "failure timed-out",
        Received::Failed(Failure::Aborted) => "failure aborted",
        Received::Failed(Failure::Misdirected) => "failure misdirected",
        Received::Failed(Failure::Shed) => "failure shed",
    };
    match found == words.join(" ") {
        true => Ok(()),
        false => Err(format!("it is {found}")),
    }
}

fn expect_told(world: &mut World, what: &str) -> Result<(), String> {
    let told = world.end().told.take();
    let is_so = match (what, told) {
        ("nothing", told) => told.is_none(),
        ("readable", Some(told)) => told.readable,
        ("writable", Some(told)) => told.writable,
        ("failure", Some(told)) => told.failure.is_some(),
        _ => false,
    };
    match is_so {
        true => Ok(()),
        false => Err(format!("the user was told {told:?}")),
    }
}

fn state_name(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::SynSent => "SYN-SENT",
        ConnectionState::SynReceived => "SYN-RECEIVED",
        ConnectionState::Established => "ESTABLISHED",
        ConnectionState::FinWait1 => "FIN-WAIT-1",
        ConnectionState::FinWait2 => "FIN-WAIT-2",
        ConnectionState::CloseWait => "CLOSE-WAIT",
        ConnectionState::Closing => "CLOSING",
        ConnectionState::LastAck => "LAST-ACK",
        ConnectionState::TimeWait => "TIME-WAIT",
        ConnectionState::Closed => "CLOSED",
    }
}

/// The next frame that left is this one.
fn leaves(world: &mut World, words: &[String]) -> Result<(), String> {
    let wanted = Notation::read(words)?;
    match world.next_left()? {
        Some(found) if wanted.is_met_by(&found) => Ok(()),
        Some(found) => Err(format!("  left:\n    > {found}\n{}", shown_left(world))),
        None => Err("  nothing left".to_owned()),
    }
}

fn nothing_left(world: &mut World) -> Result<(), String> {
    match world.card.left.is_empty() {
        true => Ok(()),
        false => Err(format!("  before it, these left:\n{}", shown_left(world))),
    }
}

/// All frames that have left and were not looked at.
fn shown_left(world: &mut World) -> String {
    let mut lines = Vec::new();
    loop {
        match world.next_left() {
            Ok(Some(line)) => lines.push(format!("    > {line}")),
            Ok(None) => return lines.join("\n"),
            Err(why) => lines.push(format!("    > {why}")),
        }
    }
}
