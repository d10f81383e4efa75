//! A stack, its card, and the ends of streams on it.

use coua_tcp::nic::Nic;
use coua_tcp::simulated::End;
use coua_tcp::stack::Stack;
use coua_tcp::time::Instant;
use rand::SeedableRng;

use crate::plan::{Dice, Plan};
use crate::stream::{Standing, Stream};

/// The port at which the second host listens.
pub(crate) const PORT: u16 = 11211;

pub(crate) struct Host {
    pub(crate) stack: Stack,
    nic: End,
    pub(crate) streams: Vec<Stream>,
    dice: Dice,
}

impl Host {
    pub(crate) fn new(number: usize, plan: &Plan, nic: End, dice: Dice) -> Host {
        let config = plan.configs[number].clone();
        let stack = Stack::new(config, nic.features(), Instant::default());
        Host {
            stack,
            nic,
            streams: Vec::new(),
            dice,
        }
    }

    /// Opens a stream to the other host.
    pub(crate) fn open(&mut self, plan: &Plan) -> Result<(), String> {
        let to = if plan.is_v6 {
            "[2001:db8::2]"
        } else {
            "192.0.2.2"
        };
        let to = format!("{to}:{PORT}").parse().expect("an address");
        let id = self.stack.connect(to, |_| true);
        let id = id.map_err(|error| format!("it does not connect: {error}"))?;
        let dice = Dice::from_rng(&mut self.dice);
        self.streams.push(Stream::opener(id, dice, plan));
        Ok(())
    }

    /// One turn.
    pub(crate) fn turn(&mut self, now_us: u64, plan: &Plan) -> Result<(), String> {
        let now = Instant::from_micros(now_us);
        self.stack.begin(now, &mut self.nic);
        while let Some(id) = self.stack.next_accepted() {
            let dice = Dice::from_rng(&mut self.dice);
            self.streams.push(Stream::accepter(id, dice, plan));
        }
        while let Some((id, _)) = self.stack.next_ready() {
            if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                stream.is_awake = true;
            }
        }
        for stream in &mut self.streams {
            let acts = stream.is_awake && stream.rests_until <= now_us;
            if acts && matches!(stream.standing, Standing::Goes) {
                stream.act(&mut self.stack, &self.nic, now_us)?;
            }
        }
        self.stack.end(&mut self.nic);
        Ok(())
    }

    /// When it has something to do, in microseconds.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let rests = self
            .streams
            .iter()
            .filter(|stream| stream.is_awake && stream.standing == Standing::Goes);
        let rests = rests.map(|stream| stream.rests_until);
        let deadline = self.stack.deadline().map(|at| at.micros());
        rests.chain(deadline).min()
    }

    /// Frames that have come and were not taken.
    pub(crate) fn has_frames(&self) -> bool {
        self.nic.arrived() > 0
    }

    pub(crate) fn is_done(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| stream.standing != Standing::Goes)
    }
}
