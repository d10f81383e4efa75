//! Our stack with one connection.

use std::net::SocketAddr;
use std::time::Duration;

use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::simulated;
use coua_tcp::stack::{ConnectionId, ConnectionState, Received, Stack};
use coua_tcp::time::Instant;

use crate::case::{Case, PORT, RECEIVE_LEN_MAX};
use crate::end::{Came, End, Socket};

pub(crate) struct Ours {
    pub(crate) stack: Stack,
    nic: simulated::End,
    id: Option<ConnectionId>,
    pub(crate) end: End,
    /// The most bytes that were received and not read.
    pub(crate) unread_max: u64,
}

impl Ours {
    pub(crate) fn new(case: &Case, nic: simulated::End, end: End) -> Ours {
        let address = if case.is_v6 {
            "2001:db8::1/64"
        } else {
            "192.0.2.1/24"
        };
        let address = address.parse().expect("an address");
        let mut config = Config::new(vec![address], [1; 32]);
        config.receive_len_max = RECEIVE_LEN_MAX;
        config.user_timeout = Duration::from_secs(600);
        let features = nic.features();
        let mut ours = Ours {
            stack: Stack::new(config, features, Instant::default()),
            nic,
            id: None,
            end,
            unread_max: 0,
        };
        ours.stack.listen(PORT);
        ours
    }

    /// Opens the connection.
    pub(crate) fn connect(&mut self, to: SocketAddr) {
        let id = self.stack.connect(to, |_| true);
        self.id = Some(id.expect("a route, a port and room"));
    }

    /// One turn.
    pub(crate) fn turn(&mut self, now_us: u64) -> Result<(), String> {
        self.stack
            .begin(Instant::from_micros(now_us), &mut self.nic);
        while let Some(id) = self.stack.next_accepted() {
            if self.id.replace(id).is_some() {
                return Err("a second connection was accepted".to_owned());
            }
        }
        while self.stack.next_ready().is_some() {}
        if let Some(id) = self.id
            && !self.is_opening(id)
            && !self.end.is_done()
        {
            self.unread_max = self.unread_max.max(self.stack.unread(id) as u64);
            let mut socket = Connection {
                stack: &mut self.stack,
                nic: &self.nic,
                id,
            };
            self.end.act(&mut socket, now_us)?;
            if self.end.is_done() {
                self.stack.close(id);
            }
        }
        self.stack.end(&mut self.nic);
        Ok(())
    }

    /// Who ends before the peer has answered takes the opening back.
    fn is_opening(&self, id: ConnectionId) -> bool {
        let described = self.stack.describe(id);
        described.is_some_and(|connection| connection.state == ConnectionState::SynSent)
    }

    /// When it has something to do, in microseconds.
    pub(crate) fn next_us(&self, now_us: u64) -> Option<u64> {
        let frames = (self.nic.arrived() > 0).then_some(now_us);
        let deadline = self.stack.deadline().map(|at| at.micros());
        let next = [frames, deadline, self.end.next_us(now_us)];
        next.into_iter().flatten().min()
    }
}

/// The connection in its stack.
struct Connection<'a> {
    stack: &'a mut Stack,
    nic: &'a simulated::End,
    id: ConnectionId,
}

impl Socket for Connection<'_> {
    fn receive(&mut self, space: &mut [u8]) -> Result<Came, String> {
        match self.stack.receive(self.nic, self.id, space) {
            Received::Bytes(count) => Ok(Came::Bytes(count)),
            Received::Nothing => Ok(Came::Nothing),
            Received::Ended => Ok(Came::End),
            Received::Failed(failure) => Err(format!("ours fails: {failure:?}")),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let taken = self.stack.send(self.id, bytes);
        taken.map_err(|failure| format!("ours fails: {failure:?}"))
    }

    fn shut_down(&mut self) {
        self.stack.shut_down(self.id);
    }
}
