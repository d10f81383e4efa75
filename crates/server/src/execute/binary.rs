//! What the binary protocol answers differently from the text protocol, apart from the form.

use coua_protocol::reply::BinaryAnswer;
use coua_protocol::{Binary, BinaryCommand, BinaryRequestId, ErrorLine, Status, Tokens};
use coua_store::{Access, Arithmetic, Burst, Item, NO_TAGS};

use super::{Answers, Executor, Request, To, complaints};
use crate::closing::CloseCause;
use crate::connections::Activity;
use crate::outcome::Outcome;
use crate::output::IN_PLACE_LEN_MIN;
use crate::stats::{self, Report, packets};
use crate::version::PROTOCOL_VERSION;

/// How an item is answered.
#[derive(Clone, Copy)]
pub(super) enum ItemForm {
    /// `VALUE`, and `END` behind the last.
    Classic {
        /// With its CAS.
        cas: bool,
        /// `END` follows.
        last: bool,
    },
    /// A binary answer.
    Binary(BinaryForm),
}

/// How a binary request wants an item answered.
#[derive(Clone, Copy)]
pub(super) struct BinaryForm {
    pub(super) asked: BinaryRequestId,
    pub(super) with_key: bool,
    pub(super) with_value: bool,
}

impl ItemForm {
    /// How the lookup accesses the item.
    #[inline]
    pub(super) fn access(self, bump: bool) -> Access {
        let cas = match self {
            ItemForm::Classic { cas, .. } => cas,
            ItemForm::Binary(_) => true,
        };
        Access { bump, cas }
    }

    /// Whether the value, if any, is copied into the reply. Otherwise it is sent from the store.
    #[inline]
    pub(super) fn is_copied(self, item: &Item<'_>) -> bool {
        let sends_value = match self {
            ItemForm::Classic { .. } => true,
            ItemForm::Binary(form) => form.with_value,
        };
        !sends_value || item.value_len() < IN_PLACE_LEN_MIN
    }
}

impl Executor<'_, '_> {
    pub(super) fn binary(&mut self, request: Request<'_>, binary: &Binary) -> Outcome {
        let asked = binary.asked;
        let to = To::Binary(asked);
        match binary.command {
            BinaryCommand::Get {
                key,
                touch,
                with_key,
                with_value,
            } => {
                let form = ItemForm::Binary(BinaryForm {
                    asked,
                    with_key,
                    with_value,
                });
                match touch {
                    None => self.get_in_form(request, key, form),
                    Some(exptime) => self.get_and_touch(request, key, exptime, form),
                }
            }
            BinaryCommand::Delete { key, cas } => {
                self.delete(request, key, Some(cas).filter(|&cas| cas != 0), to)
            }
            BinaryCommand::Arithmetic {
                key,
                delta,
                initial,
                vivify,
                decrement,
                cas,
            } => {
                let arithmetic = Arithmetic {
                    delta,
                    decrement,
                    compare: cas,
                    cas: None,
                    return_cas: true,
                    vivify: vivify.map(|exptime| (initial, self.answers.expiry(exptime))),
                    tags: NO_TAGS,
                    touch: None,
                };
                self.arithmetic(request, key, &arithmetic, to)
            }
            BinaryCommand::FlushAll { delay } => self.flush_all(request, Some(delay), to),
            BinaryCommand::Noop => self.answers.succeed(asked, 0),
            BinaryCommand::Version => self.answers.binary_version(asked),
            BinaryCommand::SaslMechanisms => self.answers.sasl_mechanisms(asked),
            BinaryCommand::Quit => {
                self.answers.succeed(asked, 0);
                request.session.quit();
                Outcome::CloseWhenSent
            }
            BinaryCommand::Stats { args } => {
                let args = args.of(request.input);
                self.answers.binary_stats(request, asked, args, &self.burst)
            }
            BinaryCommand::Error { status, closes } => {
                // As after a refused body in the text protocol.
                let connection = &request.session.connection;
                connection.set_activity(Activity::Reading);
                complaints::bad_binary(connection, status, self.answers.now);
                self.answers.refuse(asked, status);
                if closes {
                    request.session.close_cause = Some(CloseCause::Protocol);
                    return Outcome::CloseWhenSent;
                }
                Outcome::Done
            }
        }
    }
}

impl Answers<'_> {
    /// Appends the answer to a lookup up to the value.
    pub(super) fn binary_head(&mut self, item: &Item<'_>, form: BinaryForm) {
        let answer = BinaryAnswer {
            cas: self.shown_cas(item.cas()),
            client_flags: Some(item.client_flags()),
            key: if form.with_key { item.key() } else { b"" },
            value_len: if form.with_value { item.value_len() } else { 0 },
        };
        self.output.reply(|reply| reply.binary(form.asked, &answer));
    }

    pub(super) fn copied_binary_value(&mut self, item: &Item<'_>, form: BinaryForm) -> Outcome {
        self.binary_head(item, form);
        if form.with_value {
            self.copy_value(item);
        }
        Outcome::Done
    }

    pub(super) fn binary_miss(&mut self, key: &[u8], form: BinaryForm) -> Outcome {
        if form.asked.is_quiet() {
            return Outcome::Done;
        }
        if !form.with_key {
            return self.refuse(form.asked, Status::KeyNotFound);
        }
        self.output
            .reply(|reply| reply.binary_miss(form.asked, key));
        Outcome::Done
    }

    pub(super) fn binary_number(&mut self, asked: BinaryRequestId, number: u64, cas: u64) {
        if asked.is_quiet() {
            return;
        }
        let answer = BinaryAnswer {
            cas: self.shown_cas(cas),
            value_len: size_of::<u64>(),
            ..BinaryAnswer::default()
        };
        self.output.reply(|reply| reply.binary(asked, &answer));
        self.output
            .reply(|reply| reply.bytes(&number.to_be_bytes()));
    }

    fn binary_version(&mut self, asked: BinaryRequestId) -> Outcome {
        let version = PROTOCOL_VERSION.as_bytes();
        let answer = BinaryAnswer {
            value_len: version.len(),
            ..BinaryAnswer::default()
        };
        self.output.reply(|reply| reply.binary(asked, &answer));
        self.output.reply(|reply| reply.bytes(version));
        Outcome::Done
    }

    fn binary_stats(
        &mut self,
        request: Request<'_>,
        asked: BinaryRequestId,
        args: &[u8],
        burst: &Burst<'_>,
    ) -> Outcome {
        match stats::report(Tokens::new(args), self.shared, request.session.may) {
            Report::Text(write) => {
                let start = self.output.next_start();
                write(self.shared, self.now, self.output);
                packets::repack(self.output, start, asked);
                Outcome::Done
            }
            Report::Line(line) => {
                if line == ErrorLine::NotPermitted.as_bytes() {
                    return self.error(ErrorLine::NotPermitted, To::Binary(asked));
                }
                if line.starts_with(b"ERROR") || line.starts_with(b"CLIENT_ERROR") {
                    return self.refuse(asked, Status::KeyNotFound);
                }
                if !packets::pack(self.output, asked, line) {
                    packets::end(self.output, asked);
                }
                Outcome::Done
            }
            Report::Dump(dump) if dump.is_of_items() => self.refuse(asked, Status::KeyNotFound),
            Report::Dump(dump) => self.begin_dump(dump.packed(asked), request.session, burst),
        }
    }
}
