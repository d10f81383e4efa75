//! Everything that is about the server rather than about an item.

use coua_memory_errors::poison::report_untouched;
use coua_protocol::reply::Line;
use coua_protocol::{AdminCommand, ErrorLine, ShutdownMode, Span, Tokens};
use coua_store::{Burst, PoisonMeans, PoisonTarget, UnixSeconds};

use super::{Answers, Executor, Request, To};
use crate::cluster::VALUE_LEN_MAX;
use crate::connections::Activity;
use crate::dump::Dump;
use crate::outcome::Outcome;
use crate::output::IN_PLACE_LEN_MIN;
use crate::permissions::Permissions;
use crate::session::Session;
use crate::shared::Shared;
use crate::stats::{self, Report};
use crate::version::PROTOCOL_VERSION;
use crate::watch::{LogStreams, Unwatched};

impl Executor<'_, '_> {
    pub(super) fn flush_all(
        &mut self,
        request: Request<'_>,
        delay: Option<i32>,
        to: To,
    ) -> Outcome {
        self.answers.counters.cmd_flush.add(1);
        if !request.session.may.flush {
            return self.answers.error(ErrorLine::FlushDisabled, to);
        }
        let Some(delay) = delay else {
            return self.answers.error(ErrorLine::BadExptime, to);
        };
        let at: Option<UnixSeconds> = if delay > 0 {
            self.answers.expiry(delay).second()
        } else {
            None
        };
        self.burst.flush_all(at);
        self.answers.line(to, Line::Ok)
    }
}

impl Answers<'_> {
    pub(super) fn version(&mut self) -> Outcome {
        self.output
            .reply(|reply| reply.version(PROTOCOL_VERSION.as_bytes()));
        Outcome::Done
    }

    pub(super) fn verbosity(&mut self, may: Permissions, level: u32, noreply: bool) -> Outcome {
        if !may.admin {
            return self.error(ErrorLine::NotPermitted, To::line_unless(noreply));
        }
        self.shared.set_verbosity(level);
        self.line(To::line_unless(noreply), Line::Ok)
    }

    pub(super) fn shutdown(
        &mut self,
        request: Request<'_>,
        mode: ShutdownMode,
        noreply: bool,
    ) -> Outcome {
        let to = To::line_unless(noreply);
        if !request.session.may.shutdown {
            return self.error(ErrorLine::ShutdownDisabled, to);
        }
        match mode {
            ShutdownMode::Now | ShutdownMode::Graceful => {
                self.shared.stop();
                request.session.quit();
                Outcome::CloseWhenSent
            }
            ShutdownMode::Unknown => self.error(ErrorLine::BadShutdownMode, to),
        }
    }

    pub(super) fn stats(&mut self, request: Request<'_>, args: Span, burst: &Burst<'_>) -> Outcome {
        let args = Tokens::new(args.of(request.input));
        let report = stats::report(args, self.shared, request.session.may);
        self.report(request, report, burst)
    }

    fn report(&mut self, request: Request<'_>, report: Report, burst: &Burst<'_>) -> Outcome {
        match report {
            Report::Text(write) => {
                write(self.shared, self.now, self.output);
                Outcome::Done
            }
            Report::Line(line) => {
                self.output.reply(|reply| reply.bytes(line));
                Outcome::Done
            }
            Report::Dump(dump) => self.begin_dump(dump, request.session, burst),
        }
    }

    /// Begins an answer of any length, and produces this turn's part of it.
    pub(super) fn begin_dump(
        &mut self,
        dump: Dump,
        session: &mut Session,
        burst: &Burst<'_>,
    ) -> Outcome {
        session.dump = Some(Box::new(dump));
        let (output, pool) = (&mut *self.output, &mut *self.pool);
        stats::produce(self.shared, self.now, burst, output, session, pool)
    }

    /// Commands for memcached's own mechanisms. For those that coua lacks it answers as a memcached
    /// that has them switched off.
    pub(super) fn administer(
        &mut self,
        request: Request<'_>,
        command: AdminCommand,
        args: Span,
        noreply: bool,
        burst: &Burst<'_>,
    ) -> Outcome {
        let args = Tokens::new(args.of(request.input));
        let report = match command {
            AdminCommand::Poison if self.shared.live.permits_poison() => {
                let answer = poison(args, self.shared, burst);
                if !noreply {
                    self.output.reply(|reply| reply.bytes(&answer));
                }
                return Outcome::Done;
            }
            AdminCommand::Rdma if self.rdma.is_some() => return self.offer_rdma(&request),
            AdminCommand::Rdma => Report::Line(ErrorLine::Unknown.as_bytes()),
            AdminCommand::Watch if !request.session.may.watch => {
                return self.error(ErrorLine::WatchDisabled, To::Line);
            }
            AdminCommand::Watch if request.session.may.admin => {
                return self.watch(request, args, burst);
            }
            AdminCommand::Config => return self.config(args, To::line_unless(noreply)),
            _ if !request.session.may.admin => {
                return self.error(ErrorLine::NotPermitted, To::line_unless(noreply));
            }
            AdminCommand::LruCrawler => {
                stats::crawl(args, &self.shared.crawler, request.session.may)
            }
            _ => Report::Line(admin_answer(command, args, self.shared)),
        };
        match noreply {
            true => Outcome::Done,
            false => self.report(request, report, burst),
        }
    }

    /// `config get cluster`: which servers the fleet has. There is nothing else to be had by it.
    fn config(&mut self, mut words: Tokens<'_>, to: To) -> Outcome {
        let asked = (words.next(), words.next(), words.next());
        let (Some(cluster), (Some(b"get"), Some(name), None)) = (self.shared.cluster(), asked)
        else {
            return self.error(ErrorLine::Unknown, to);
        };
        if to == To::Nobody {
            return Outcome::Done;
        }
        if name == b"cluster" {
            let head = format!("CONFIG cluster 0 {}\r\n", cluster.value.len());
            self.output.reply(|reply| reply.bytes(head.as_bytes()));
            self.output.reply(|reply| reply.bytes(&cluster.value));
            self.output.reply(|reply| reply.bytes(b"\r\n"));
        }
        self.end_if(true)
    }

    /// `watch`: from now on the connection is sent lines, and nothing of it is executed any more.
    fn watch(&mut self, request: Request<'_>, words: Tokens<'_>, burst: &Burst<'_>) -> Outcome {
        if self.output.next_start() > 0 {
            return self.refuse_watch(b"ERROR cannot pipeline other commands before watch\r\n");
        }
        let mut streams = LogStreams::NONE;
        for word in words {
            match LogStreams::named(word) {
                Some(named) => streams = streams | named,
                None => return self.error(ErrorLine::Unknown, To::Line),
            }
        }
        if streams == LogStreams::NONE {
            streams = LogStreams::FETCHERS;
        }
        // A server that stops would wait for it.
        if request.session.message.is_some() || self.shared.is_stopping() {
            return self.refuse_watch(WATCHER_FAILED);
        }
        match self.shared.watchers.watch(streams) {
            Ok(watch) => {
                let connection = &request.session.connection;
                connection.set_activity(Activity::Watching);
                self.begin_dump(Dump::watch(watch), request.session, burst)
            }
            Err(Unwatched::TooMany) => {
                self.refuse_watch(b"WATCHER_TOO_MANY log watcher limit reached\r\n")
            }
            Err(Unwatched::NoMemory) => self.refuse_watch(WATCHER_FAILED),
        }
    }

    /// `rdma`: tells a client where to connect to.
    fn offer_rdma(&mut self, request: &Request<'_>) -> Outcome {
        let session = &*request.session;
        // Who comes by a message has no connection that the other could end with; and a server that stops waits for nobody.
        let may = session.message.is_none() && !self.shared.is_stopping();
        let now_ms = self.now.since_start_ms;
        let rdma = self.rdma.as_deref_mut().filter(|_| may);
        match rdma.and_then(|rdma| rdma.offer(request.id, session, now_ms)) {
            Some(offer) => {
                let line = offer.encode();
                self.output.reply(|reply| reply.bytes(line.as_bytes()));
                self.output.reply(|reply| reply.bytes(b"\r\n"));
            }
            None => {
                let line = b"SERVER_ERROR no more clients over RDMA\r\n";
                self.output.reply(|reply| reply.bytes(line));
            }
        }
        Outcome::Done
    }

    fn refuse_watch(&mut self, line: &'static [u8]) -> Outcome {
        self.output.reply(|reply| reply.bytes(line));
        Outcome::Done
    }
}

/// The list of servers is one reply.
const _: () = assert!(VALUE_LEN_MAX <= IN_PLACE_LEN_MIN);

const WATCHER_FAILED: &[u8] = b"WATCHER_FAILED failed to add log watcher\r\n";

/// Answers `cache_memlimit` and changes the limit.
fn limit_memory(shared: &Shared, megabytes: &[u8]) -> &'static [u8] {
    match parse_u32(megabytes) {
        None => ErrorLine::Unknown.as_bytes(),
        Some(0..8) => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        Some(1_000_000_001..) => b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        Some(megabytes) => match shared.limit_memory((megabytes as usize) << 20) {
            Ok(()) => {
                tracing::info!("cache_memlimit: {megabytes} MiB of memory from now on");
                Line::Ok.as_bytes()
            }
            Err(why) => {
                tracing::warn!("cache_memlimit {megabytes}: {why}");
                b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
            }
        },
    }
}

/// Answers `refresh_certs`.
fn refresh_certificates(shared: &Shared) -> &'static [u8] {
    match shared.refresh_certificates("refresh_certs") {
        None => b"Error TLS not enabled\r\n",
        Some(true) => Line::Ok.as_bytes(),
        Some(false) => b"Error refreshing certificates; the log says why\r\n",
    }
}

fn admin_answer(command: AdminCommand, args: Tokens<'_>, shared: &Shared) -> &'static [u8] {
    let error = ErrorLine::Unknown.as_bytes();
    let count = args.clone().count();
    let mut args = args;
    let first = args.next().unwrap_or_default();
    // memcached accepts any prefix of a subcommand's name.
    let is = |name: &[u8]| name.starts_with(first);
    match command {
        AdminCommand::Slabs if count == 3 && is(b"reassign") => match args.all(is_class) {
            true => b"CLIENT_ERROR slab reassignment disabled\r\n",
            false => ErrorLine::BadFormat.as_bytes(),
        },
        AdminCommand::Slabs if count >= 2 && is(b"automove") => {
            b"CLIENT_ERROR slab reassignment disabled\r\n"
        }
        AdminCommand::CacheMemlimit => limit_memory(shared, first),
        AdminCommand::RefreshCerts => refresh_certificates(shared),
        AdminCommand::Slabs
        | AdminCommand::Lru
        | AdminCommand::LruCrawler
        | AdminCommand::Watch
        | AdminCommand::Poison
        | AdminCommand::Config
        | AdminCommand::Rdma
        | AdminCommand::Extstore => error,
    }
}

/// `poison <key> [item|value|index|bucket|buffers|flash|address|superblock|page_table|directory|copies]
/// [untouched|hwpoison|where]`: loses a page on purpose. With `untouched` the machine tells of it before
/// anybody reads there; the tables' are met at once. `hwpoison` has the kernel take the page out of use
/// for ever. For `flash` the key is the number of a page of its buffers, for `address` the address of memory that is not
/// watched, whose loss ends the process. `where` does nothing and answers the address, for whoever makes an error from outside.
fn poison(mut args: Tokens<'_>, shared: &Shared, burst: &Burst<'_>) -> Vec<u8> {
    let Some(key) = args.next() else {
        return ErrorLine::BadFormat.as_bytes().to_vec();
    };
    let word = args.next();
    let target = match word {
        None | Some(b"item") => Some(PoisonTarget::Item),
        Some(b"value") => Some(PoisonTarget::Value),
        Some(b"index") => Some(PoisonTarget::Index),
        Some(b"bucket") => Some(PoisonTarget::Bucket),
        Some(b"buffers") => Some(PoisonTarget::Buffers),
        Some(b"superblock") => Some(PoisonTarget::Superblock),
        Some(b"page_table") => Some(PoisonTarget::PageTable),
        Some(b"directory") => Some(PoisonTarget::Directory),
        Some(b"copies") => Some(PoisonTarget::Copies),
        Some(b"flash" | b"address") => None,
        Some(_) => return ErrorLine::BadFormat.as_bytes().to_vec(),
    };
    let (means, is_reported) = match args.next() {
        None => (PoisonMeans::Userfault, false),
        Some(b"untouched") => (PoisonMeans::Userfault, true),
        Some(b"hwpoison") => (PoisonMeans::Hwpoison, false),
        Some(b"where") => (PoisonMeans::Nothing, false),
        Some(_) => return ErrorLine::BadFormat.as_bytes().to_vec(),
    };
    let lost = match target {
        Some(target) => burst.poison(&burst.key(key), target, means),
        None if word == Some(b"address") => poison_address(key),
        None => poison_flash(shared, key, means),
    };
    let line: &[u8] = match lost {
        Ok(None) => Line::NotFound.as_bytes(),
        Ok(Some(address)) if means == PoisonMeans::Nothing => {
            return format!("{address:#x}\r\n").into_bytes();
        }
        Ok(Some(address)) if is_reported && report_untouched(address).is_err() => {
            b"SERVER_ERROR the error cannot be reported\r\n"
        }
        Ok(Some(_)) => Line::Ok.as_bytes(),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            b"SERVER_ERROR this kernel cannot poison memory\r\n"
        }
        Err(_) => b"SERVER_ERROR the page cannot be poisoned\r\n",
    };
    line.to_vec()
}

/// Loses a page at a hexadecimal address.
fn poison_address(address: &[u8]) -> std::io::Result<Option<usize>> {
    let digits = std::str::from_utf8(address).ok();
    let address = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let address = address.ok_or(std::io::ErrorKind::InvalidInput)?;
    coua_memory_errors::poison::unwatched(address).map(|()| Some(address))
}

/// Loses a page of the memory that flash is read into and written from.
fn poison_flash(
    shared: &Shared,
    number: &[u8],
    means: PoisonMeans,
) -> std::io::Result<Option<usize>> {
    let (Some(memory), Some(number)) = (&shared.flash_memory, parse_u32(number)) else {
        return Ok(None);
    };
    let offset = (number as usize * 4096) % memory.len();
    match means {
        PoisonMeans::Nothing => Ok(Some(memory.start().as_ptr().addr() + offset)),
        _ => memory
            .lose(offset, means == PoisonMeans::Hwpoison)
            .map(Some),
    }
}

/// Whether memcached reads a word as the number of a slab class: it takes -2^31 to 2^31 - 1.
fn is_class(word: &[u8]) -> bool {
    let number = std::str::from_utf8(word).ok();
    number.is_some_and(|number| number.parse::<i32>().is_ok())
}

fn parse_u32(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
