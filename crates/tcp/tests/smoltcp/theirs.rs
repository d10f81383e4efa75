//! smoltcp with one connection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;

use coua_tcp::nic::{Features, Nic, Offload};
use coua_tcp::simulated;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{RecvError, Socket as TcpSocket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress};

use crate::case::{Case, PORT};
use crate::end::{Came, End, Socket};

/// Bytes of Ethernet header, which smoltcp counts as part of the MTU.
const ETHERNET_LEN: usize = 14;

/// Bytes that smoltcp keeps for a connection in each direction.
const BUFFER_LEN: usize = 20_000;

/// The port from which smoltcp connects.
const OWN_PORT: u16 = 50_000;

thread_local! {
    /// What smoltcp's timestamps show; it takes a function for them that takes nothing.
    static NOW_MS: Cell<u32> = const { Cell::new(0) };
}

pub(crate) struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    card: Card,
    pub(crate) end: End,
    now: Instant,
}

impl Theirs {
    pub(crate) fn new(case: &Case, nic: simulated::End, end: End) -> Theirs {
        let mut card = Card {
            nic,
            arrived: VecDeque::new(),
            leaving: VecDeque::new(),
        };
        let mac = HardwareAddress::Ethernet(EthernetAddress(card.nic.features().mac.0));
        let mut config = Config::new(mac);
        config.random_seed = case.seed;
        let mut interface = Interface::new(config, &mut card, Instant::ZERO);
        let address = if case.is_v6 {
            "2001:db8::2/64"
        } else {
            "192.0.2.2/24"
        };
        interface.update_ip_addrs(|all| {
            let address = address.parse().expect("an address");
            all.push(address).expect("room for one");
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_LEN]);
        let mut socket = TcpSocket::new(buffer(), buffer());
        if case.has_timestamps {
            socket.set_tsval_generator(Some(|| NOW_MS.get()));
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Theirs {
            interface,
            sockets,
            handle,
            card,
            end,
            now: Instant::ZERO,
        }
    }

    /// Waits for a connection.
    pub(crate) fn listen(&mut self) {
        let socket = self.sockets.get_mut::<TcpSocket>(self.handle);
        socket.listen(PORT).expect("it is closed");
    }

    /// Opens the connection.
    pub(crate) fn connect(&mut self, to: SocketAddr) {
        let socket = self.sockets.get_mut::<TcpSocket>(self.handle);
        let context = self.interface.context();
        let connected = socket.connect(context, to, OWN_PORT);
        connected.expect("a route");
    }

    /// Where the connection stands.
    pub(crate) fn state(&self) -> State {
        self.sockets.get::<TcpSocket>(self.handle).state()
    }

    /// One turn.
    pub(crate) fn turn(&mut self, now_us: u64) -> Result<(), String> {
        self.now = Instant::from_micros(i64::try_from(now_us).expect("hours"));
        NOW_MS.set(u32::try_from(now_us / 1000).expect("hours"));
        self.card.receive_frames();
        let mut has_changed = true;
        while has_changed {
            let (card, sockets) = (&mut self.card, &mut self.sockets);
            let polled = self.interface.poll(self.now, card, sockets);
            has_changed = polled == PollResult::SocketStateChanged;
            let socket = self.sockets.get_mut::<TcpSocket>(self.handle);
            let is_open = !matches!(
                socket.state(),
                State::Listen | State::SynSent | State::SynReceived
            );
            if is_open && !self.end.is_done() {
                self.end.act(&mut Connection { socket }, now_us)?;
            }
        }
        self.card.send_frames();
        Ok(())
    }

    /// When it has something to do, in microseconds.
    pub(crate) fn next_us(&mut self, now_us: u64) -> Option<u64> {
        let waits = self.card.nic.arrived() > 0 || !self.card.leaving.is_empty();
        let waits = waits.then_some(now_us);
        let timer = self.interface.poll_at(self.now, &self.sockets);
        let timer = timer.map(|at| u64::try_from(at.total_micros()).expect("after the beginning"));
        let next = [waits, timer, self.end.next_us(now_us)];
        next.into_iter().flatten().min()
    }
}

/// The connection.
struct Connection<'a> {
    socket: &'a mut TcpSocket<'static>,
}

impl Socket for Connection<'_> {
    fn receive(&mut self, space: &mut [u8]) -> Result<Came, String> {
        match self.socket.recv_slice(space) {
            Ok(0) => Ok(Came::Nothing),
            Ok(count) => Ok(Came::Bytes(count)),
            Err(RecvError::Finished) => Ok(Came::End),
            Err(RecvError::InvalidState) => Err("theirs was reset".to_owned()),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let taken = self.socket.send_slice(bytes);
        taken.map_err(|error| format!("theirs fails: {error}"))
    }

    fn shut_down(&mut self) {
        self.socket.close();
    }
}

/// An end of the cable as smoltcp wants a card.
struct Card {
    nic: simulated::End,
    arrived: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
}

impl Card {
    fn receive_frames(&mut self) {
        let count = self.nic.receive();
        let frames = (0..count).map(|at| self.nic.frame(at).bytes.to_vec());
        self.arrived.extend(frames);
        self.nic.release();
    }

    fn send_frames(&mut self) {
        while let Some(frame) = self.leaving.front()
            && let Some(slot) = self.nic.slot()
        {
            slot[..frame.len()].copy_from_slice(frame);
            self.nic.commit(frame.len(), Offload::None);
            self.leaving.pop_front();
        }
        self.nic.flush();
    }
}

impl Device for Card {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Leaving(&mut self.leaving)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let Features { mtu, .. } = self.nic.features();
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET_LEN + usize::from(mtu);
        capabilities
    }
}

/// A frame that has come.
struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

/// Room for a frame.
struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}
