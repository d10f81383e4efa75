//! The client's end of the control channel: it looks for a server, tells it about memory and rings,
//! and starts again when the server has left.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::channel::{Channel, ChannelRead};
use super::layout::Layout;
use super::look::Look;
use super::mailbox::{Event, QueueLink};
use super::message::{AddRing, Hello, Init, Message, SECRET_LEN};
use super::news::News;
use super::options::Options;
use super::receive::Consumer;
use super::region::Memory;
use super::transmit::Producer;

/// Seconds between attempts to reach a server.
const RETRY_S: i64 = 1;

/// The client gives up a server that has not answered within so many of these intervals.
const PATIENCE: u32 = 5;

/// The most messages that are read at a time.
const MESSAGES_MAX: usize = 64;

/// Looks for a server.
pub(super) struct Client {
    path: PathBuf,
    id: u32,
    secret: [u8; SECRET_LEN],
    frame_len: usize,
    log2_len: u8,
    queues: usize,
    timer: OwnedFd,
    session: Option<ServerLink>,
}

/// A server that was found.
struct ServerLink {
    channel: Channel,
    /// Ticks of the timer since it was found.
    age: u32,
    name: String,
    offer: Option<Offer>,
    is_connected: bool,
}

/// What the server is told about.
struct Offer {
    layout: Layout,
    memory: Arc<Memory>,
    file: OwnedFd,
    /// For each queue, the server's event and the client's.
    events: Vec<[Event; 2]>,
    /// Messages that have not been sent yet.
    rest: VecDeque<Message>,
}

impl Client {
    /// The key of the timer, besides that of the server.
    pub(super) const TIMER: u64 = 0;
    const SERVER: u64 = 1;

    /// Begins to look for a server: the timer expires at once.
    ///
    /// # Errors
    /// If the system has no timer.
    pub(super) fn new(options: &Options, frame_len: usize) -> io::Result<Client> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let client = Client {
            path: options.socket.clone(),
            id: options.id,
            secret: options.secret_bytes(),
            frame_len,
            log2_len: u8::try_from(options.ring_len.trailing_zeros()).unwrap_or(u8::MAX),
            queues: options.queues,
            timer,
            session: None,
        };
        client.set_timer(0, 1)?;
        Ok(client)
    }

    /// Becomes readable when it is time for an attempt.
    pub(super) fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// It is time for an attempt.
    pub(super) fn tick(&mut self, look: &mut Look<'_>) {
        if let Some(session) = &mut self.session {
            if session.is_connected {
                return;
            }
            session.age += 1;
            if session.age > PATIENCE {
                self.end("it does not answer", look);
            }
        } else {
            self.find(look);
        }
        self.tick_again();
    }

    /// Reads and handles the server's messages.
    pub(super) fn hear(&mut self, look: &mut Look<'_>) {
        for _ in 0..MESSAGES_MAX {
            let Some(session) = &self.session else { return };
            let heeded = match session.channel.receive() {
                ChannelRead::Nothing => return,
                ChannelRead::Message(message, _) => self.heed(message, look),
                ChannelRead::Nonsense => Err("not a message".to_owned()),
                ChannelRead::End => Err("it has ended".to_owned()),
            };
            if let Err(why) = heeded {
                self.end(&why, look);
            }
        }
    }

    /// Ends the connection with a server whose rings cannot be used.
    pub(super) fn break_off(&mut self, why: &str, look: &mut Look<'_>) {
        if let Some(session) = &self.session {
            let farewell = Message::Disconnect(why.to_owned());
            // It may already be gone.
            let _ = session.channel.send(&farewell, None);
            self.end(why, look);
        }
    }

    fn find(&mut self, look: &mut Look<'_>) {
        match Channel::connect(&self.path) {
            Ok(channel) if look.watch(&channel, Client::SERVER) => {
                self.session = Some(ServerLink {
                    channel,
                    age: 0,
                    name: String::new(),
                    offer: None,
                    is_connected: false,
                });
            }
            Ok(_) => {}
            Err(error) => look.tell(News::Waiting {
                why: error.to_string(),
            }),
        }
    }

    fn heed(&mut self, message: Message, look: &mut Look<'_>) -> Result<(), String> {
        match message {
            Message::Hello(hello) => self.introduce(hello),
            Message::Acknowledge => self.say_next(),
            Message::Connected => self.connect(look),
            Message::Disconnect(why) => Err(why),
            _ => Err("unexpected message".to_owned()),
        }
    }

    /// Makes the memory and the rings, and introduces the client to the server.
    fn introduce(&mut self, hello: Hello) -> Result<(), String> {
        let session = self
            .session
            .as_mut()
            .filter(|session| session.offer.is_none());
        let session = session.ok_or("a second hello")?;
        if !hello.is_known_version {
            return Err("it does not speak memif 2.0".to_owned());
        }
        let queues_max = usize::from(hello.to_client_max.min(hello.to_server_max)) + 1;
        let log2_len = self.log2_len.min(hello.log2_len_max);
        let queues = self.queues.min(queues_max);
        let layout = Layout::new(queues, log2_len, self.frame_len).ok_or("too much memory")?;
        let made = |error: io::Error| format!("no memory for the rings: {error}");
        let (memory, file) = layout.create().map_err(made)?;
        let mut events = Vec::new();
        for _ in 0..queues {
            events.push([Event::new().map_err(made)?, Event::new().map_err(made)?]);
        }
        let mut rest = VecDeque::from([Message::AddRegion {
            number: 0,
            len: layout.len() as u64,
        }]);
        for to_server in [true, false] {
            for queue in 0..queues {
                rest.push_back(Message::AddRing(AddRing {
                    to_server,
                    number: u16::try_from(queue).unwrap_or(u16::MAX),
                    region: 0,
                    offset: layout.offset(to_server, queue),
                    log2_len,
                }));
            }
        }
        rest.push_back(Message::Connect);
        session.name = hello.name;
        session.offer = Some(Offer {
            layout,
            memory,
            file,
            events,
            rest,
        });
        let init = Message::Init(Init {
            name: "coua".to_owned(),
            is_known_version: true,
            id: self.id,
            is_ethernet: true,
            secret: self.secret,
        });
        let said = session.channel.send(&init, None);
        said.map_err(|_| "it does not listen".to_owned())
    }

    /// Sends the next message; the server has acknowledged the last one.
    fn say_next(&mut self) -> Result<(), String> {
        let session = self.session.as_mut().ok_or("nobody")?;
        let offer = session.offer.as_mut().ok_or("unexpected message")?;
        let message = offer.rest.pop_front().ok_or("unexpected message")?;
        let descriptor = match &message {
            Message::AddRegion { .. } => Some(offer.file.as_fd()),
            Message::AddRing(ring) => {
                let [to_server, to_client] = &offer.events[usize::from(ring.number)];
                let event = if ring.to_server { to_server } else { to_client };
                Some(event.as_fd())
            }
            _ => None,
        };
        let said = session.channel.send(&message, descriptor);
        said.map_err(|_| "it does not listen".to_owned())
    }

    fn connect(&mut self, look: &mut Look<'_>) -> Result<(), String> {
        let session = self.session.as_mut().ok_or("nobody")?;
        let offer = session.offer.take_if(|offer| offer.rest.is_empty());
        let offer = offer.ok_or("unexpected message")?;
        let queues = offer.events.into_iter().enumerate();
        let links = queues.map(|(queue, [departure, arrival])| {
            let (layout, memory) = (&offer.layout, &offer.memory);
            let refill = layout.buffers(false, queue).len;
            let sent = Some(layout.buffers(true, queue));
            QueueLink {
                consumer: Consumer::new(layout.ring(memory, false, queue), Some(refill)),
                producer: Producer::new(layout.ring(memory, true, queue), sent),
                arrival,
                departure,
            }
        });
        let links: Vec<QueueLink> = links.collect();
        session.is_connected = true;
        let (peer, queues) = (session.name.clone(), links.len());
        look.link(links);
        look.tell(News::Connected { peer, queues });
        Ok(())
    }

    /// The server has left, or cannot be used.
    fn end(&mut self, why: &str, look: &mut Look<'_>) {
        let why = why.to_owned();
        let session = self.session.take();
        match session.is_some_and(|session| session.is_connected) {
            true => {
                look.link(Vec::new());
                look.tell(News::Left { why });
            }
            false => look.tell(News::Refused { why }),
        }
        self.tick_again();
    }

    fn tick_again(&self) {
        // It cannot fail: the descriptor is a timer and the time is valid.
        let _ = self.set_timer(RETRY_S, 0);
    }

    fn set_timer(&self, tv_sec: i64, tv_nsec: i64) -> io::Result<()> {
        set_timer(&self.timer, Timespec { tv_sec, tv_nsec })
    }
}

/// Makes a timer expire once, after this time.
pub(super) fn set_timer(timer: impl AsFd, after: Timespec) -> io::Result<()> {
    let never = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let time = Itimerspec {
        it_interval: never,
        it_value: after,
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &time)?;
    Ok(())
}
