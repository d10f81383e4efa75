//! Tags and milliseconds, where the answers are not the same on every server: numbers of tags, CASs,
//! and the time that is left. `tests/scripts` has the others.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use support::Server;

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Client {
        Client {
            reader: BufReader::new(server.connect()),
        }
    }

    /// The first line of the answer.
    fn ask(&mut self, request: &str) -> String {
        let mut line = String::new();
        self.reader
            .get_mut()
            .write_all(request.as_bytes())
            .expect("the server reads");
        self.reader.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// The rest of an answer with values, up to `END`.
    fn skip_to_end(&mut self) {
        let mut line = String::new();
        while line.trim_end() != "END" {
            line.clear();
            self.reader.read_line(&mut line).expect("an answer");
        }
    }

    fn stat(&mut self, name: &str) -> u64 {
        let mut found = None;
        let mut line = self.ask("stats\r\n");
        while line.trim_end() != "END" {
            if let Some(number) = line.strip_prefix(&format!("STAT {name} ")) {
                found = number.trim_end().parse().ok();
            }
            line.clear();
            self.reader.read_line(&mut line).expect("an answer");
        }
        found.unwrap_or_else(|| panic!("no {name}"))
    }
}

/// What follows the letter of a flag.
fn flag(answer: &str, letter: char) -> &str {
    let mut words = answer.split(' ').skip(1);
    words
        .find_map(|word| word.strip_prefix(letter))
        .unwrap_or_else(|| panic!("no {letter} in {answer}"))
}

#[test]
fn an_item_shows_the_numbers_of_its_tags() {
    let server = Server::coua(&[]);
    let mut client = Client::new(&server);
    assert_eq!(client.ask("ms a 1 Gone,two\r\n1\r\n"), "HD");
    let shown = client.ask("mg a g\r\n");
    let numbers: Vec<String> = ["one", "two"]
        .map(|name| flag(&client.ask(&format!("mg {name} G g\r\n")), 'g').to_owned())
        .into();
    assert_eq!(flag(&shown, 'g'), numbers.join(","));
    let debug = client.ask("me a\r\n");
    assert!(
        debug.ends_with(&format!(" tags={}", numbers.join(","))),
        "{debug}"
    );
}

#[test]
fn the_cas_of_a_stale_item_is_one_that_stores() {
    let server = Server::coua(&[]);
    let mut client = Client::new(&server);
    let before = client.ask("ms a 1 Gone c\r\n1\r\n");
    client.ask("md one G I\r\n");
    let gets = client.ask("gets a\r\n");
    client.skip_to_end();
    let cas = gets.rsplit(' ').next().expect("a CAS");
    assert_ne!(cas, flag(&before, 'c'));
    let old = flag(&before, 'c');
    assert_eq!(client.ask(&format!("ms a 1 C{old}\r\n2\r\n")), "EX");
    assert_eq!(client.ask(&format!("ms a 1 C{cas} Gone\r\n3\r\n")), "HD");
    client.ask("md one G I\r\n");
    let won = client.ask("mg a c\r\n");
    assert!(won.ends_with(" X W"), "{won}");
    // Made stale again meanwhile, so that what the winner has fetched is out of date.
    client.ask("md one G I\r\n");
    let cas = flag(&won, 'c');
    assert_eq!(client.ask(&format!("ms a 1 C{cas}\r\n4\r\n")), "EX");
    let again = client.ask("mg a c\r\n");
    assert!(again.ends_with(" X W"), "{again}");
    let cas = flag(&again, 'c');
    assert_eq!(client.ask(&format!("ms a 1 C{cas}\r\n5\r\n")), "HD");
    assert_eq!(client.ask("mg a s\r\n"), "HD s1");
}

#[test]
fn the_time_left_is_shown_in_milliseconds() {
    let server = Server::coua(&[]);
    let mut client = Client::new(&server);
    assert_eq!(client.ask("ms a 1 T100500ms\r\n1\r\n"), "HD");
    let shown = client.ask("mg a tms\r\n");
    let left = flag(&shown, 't').strip_suffix("ms").expect("a unit");
    let left: u32 = left.parse().expect("a number");
    // However slow the machine is.
    assert!((40_000..=100_500).contains(&left), "{shown}");
    assert_eq!(client.ask("mg a T0 tms\r\n"), "HD t-1");
}

#[test]
fn what_is_invalidated_is_counted() {
    let server = Server::coua(&[]);
    let mut client = Client::new(&server);
    assert_eq!(client.stat("coua_memory_tags"), 0);
    for key in ["a", "b"] {
        client.ask(&format!("ms {key} 1 Gone\r\n1\r\n"));
    }
    assert!(client.stat("coua_memory_tags") > 0);
    client.ask("md one G\r\n");
    assert_eq!(client.ask("mg a\r\n"), "EN");
    assert_eq!(client.ask("mg a\r\n"), "EN");
    assert_eq!(client.stat("coua_tags_invalidated"), 1);
    assert_eq!(client.stat("coua_get_invalidated"), 1);
    assert_eq!(client.stat("coua_items_invalidated"), 1);
    assert_eq!(client.stat("curr_items"), 1);
}
