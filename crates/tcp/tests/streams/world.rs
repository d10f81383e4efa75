//! Two hosts, a link, and time.

use coua_tcp::simulated::Link;
use coua_tcp::stack::Failure;
use rand::SeedableRng;

use crate::host::{Host, PORT};
use crate::plan::{Dice, Plan, dice};
use crate::stream::Standing;

/// Microseconds that a run may take, in its own time.
const TIME_MAX_US: u64 = 3600 * 1_000_000;

/// Turns of each host.
const TURNS_MAX: u64 = 2_000_000;

/// What runs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) streams: u64,
    /// Handshakes that the network did not let happen.
    pub(crate) unopened: u64,
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    retransmitted: u64,
    timeouts: u64,
    tail_probes: u64,
    recoveries: u64,
    window_probes: u64,
    keep_alives: u64,
    cookies: u64,
    mtu_lowered: u64,
    dropped_checksum: u64,
    dropped_length: u64,
    dropped_window: u64,
    dropped_memory: u64,
}

impl Summary {
    fn fields(&mut self) -> [(&'static str, &mut u64); 16] {
        [
            ("streams", &mut self.streams),
            ("unopened", &mut self.unopened),
            ("bytes", &mut self.bytes),
            ("segments", &mut self.segments),
            ("retransmitted", &mut self.retransmitted),
            ("timeouts", &mut self.timeouts),
            ("tail probes", &mut self.tail_probes),
            ("recoveries", &mut self.recoveries),
            ("window probes", &mut self.window_probes),
            ("keep-alives", &mut self.keep_alives),
            ("cookies", &mut self.cookies),
            ("MTU lowered", &mut self.mtu_lowered),
            ("wrong checksums", &mut self.dropped_checksum),
            ("wrong lengths", &mut self.dropped_length),
            ("outside of the window", &mut self.dropped_window),
            ("no memory", &mut self.dropped_memory),
        ]
    }

    pub(crate) fn add(&mut self, other: &Summary) {
        let mut other = *other;
        for ((_, sum), (_, more)) in self.fields().into_iter().zip(other.fields()) {
            *sum += *more;
        }
    }

    /// What never happened.
    pub(crate) fn unreached(mut self) -> Vec<&'static str> {
        let fields = self.fields().into_iter();
        // Windows that go by memory do not let it run out.
        let spared = ["unopened", "no memory"];
        let never = fields.filter(|(name, count)| **count == 0 && !spared.contains(name));
        never.map(|(name, _)| name).collect()
    }
}

/// Runs a seed.
pub(crate) fn run(seed: u64, is_loud: bool) -> Result<Summary, String> {
    let mut dice = dice(seed);
    let plan = Plan::new(&mut dice);
    if is_loud {
        eprintln!("{:#?}\n{:#?}\n{:#?}", plan.configs, plan.cards, plan.faults);
    }
    let (link, [first, second]) = Link::new(seed, plan.cards, plan.faults[0]);
    link.set_faults(1, plan.faults[1]);
    let mut hosts = [(0, first), (1, second)]
        .map(|(number, nic)| Host::new(number, &plan, nic, Dice::from_rng(&mut dice)));
    hosts[1].stack.listen(PORT);
    for _ in 0..plan.streams {
        hosts[0].open(&plan)?;
    }
    let mut now_us = 0;
    let mut turns = 0;
    let trouble = |hosts: &[Host; 2], now_us: u64, what: &str| {
        let ends = hosts.each_ref().map(|host| {
            let ends = host.streams.iter().map(|stream| {
                format!(
                    "{}\n{:?}",
                    stream.progress(),
                    host.stack.describe(stream.id)
                )
            });
            ends.collect::<Vec<String>>().join("\n")
        });
        let counters = hosts.each_ref().map(|host| *host.stack.counters());
        format!(
            "{what} after {now_us} µs\n{}\n\n{}\n{counters:#?}",
            ends[0], ends[1]
        )
    };
    loop {
        link.advance_to(now_us);
        for host in &mut hosts {
            if let Err(why) = host.turn(now_us, &plan) {
                return Err(trouble(&hosts, now_us, &why));
            }
        }
        if hosts.iter().all(Host::is_done) && hosts.iter().all(|host| host.stack.connections() == 0)
        {
            break;
        }
        turns += 1;
        if now_us > TIME_MAX_US || turns > TURNS_MAX {
            return Err(trouble(&hosts, now_us, "it is not over"));
        }
        let next = [link.next_event_us(), hosts[0].next_us(), hosts[1].next_us()];
        let next = next.into_iter().flatten().min();
        now_us = if hosts.iter().any(Host::has_frames) {
            now_us + 1
        } else {
            let Some(next) = next else {
                return Err(trouble(&hosts, now_us, "nothing happens any more"));
            };
            next.max(now_us + 1)
        };
    }
    let summary = judge(&hosts, &plan).map_err(|what| trouble(&hosts, now_us, &what))?;
    if is_loud {
        eprintln!("{now_us} µs, {turns} turns\n{summary:#?}");
    }
    Ok(summary)
}

/// What must hold when all is over.
fn judge(hosts: &[Host; 2], plan: &Plan) -> Result<Summary, String> {
    let mut summary = Summary::default();
    for host in hosts {
        if host.stack.buffers_in_use() != 0 {
            return Err(format!("{} buffers are left", host.stack.buffers_in_use()));
        }
        let counters = host.stack.counters();
        summary.add(&Summary {
            segments: counters.segments_sent,
            retransmitted: counters.segments_retransmitted,
            timeouts: counters.timeouts,
            tail_probes: counters.tail_probes,
            recoveries: counters.recoveries,
            window_probes: counters.window_probes,
            keep_alives: counters.keep_alives,
            cookies: counters.cookies_accepted,
            mtu_lowered: counters.mtu_lowered,
            dropped_checksum: counters.dropped_checksum,
            dropped_length: counters.dropped_length,
            dropped_window: counters.dropped_window,
            dropped_memory: counters.dropped_memory,
            ..Summary::default()
        });
    }
    summary.streams = hosts[0].streams.len() as u64;
    // Late copies of a connection's first segments bring up a ghost of it where a cookie lets them.
    let has_ghosts = plan.configs[1].half_open_max == 0;
    let ends = hosts.iter().zip([false, has_ghosts]);
    let ends = ends.flat_map(|(host, ghosts)| host.streams.iter().map(move |end| (end, ghosts)));
    for (stream, may_be_ghost) in ends {
        summary.bytes += stream.received();
        match stream.standing {
            Standing::Done => {}
            // A handshake that the network has not let happen.
            Standing::Failed(Failure::TimedOut | Failure::Reset) if stream.received() == 0 => {
                summary.unopened += 1;
            }
            Standing::Failed(Failure::Reset) if may_be_ghost => {}
            _ => return Err(format!("a stream failed: {}", stream.progress())),
        }
    }
    Ok(summary)
}
