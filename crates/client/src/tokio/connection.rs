//! A connection's task: it opens the connection, serves requests on it, and tells how it does.

use std::sync::Arc;
use std::task::Poll;

use ::tokio::sync::mpsc;
use ::tokio::time::timeout;

use crate::address::Address;
use crate::config::{Config, DialectChoice};
use crate::error::Cause;
use crate::handshake::{begin, dialect_of, first_dialect, logged_in};
use crate::tokio::lease::{SharedSlot, Slot};
use crate::tokio::line::{Command, Line, Lost, Pause, Watch};
use crate::tokio::transport::Connect;
use crate::wire::{Effect, Request};

/// Opens a connection and serves `commands` until it fails, or until nobody can send any more. While nothing is under
/// way, the connection lies in `slot` for callers.
pub(super) async fn serve(
    connect: Arc<dyn Connect>,
    address: Address,
    config: Arc<Config>,
    mut commands: mpsc::Receiver<Command>,
    slot: SharedSlot,
    watch: impl Watch,
) {
    let limit = config.opening_limit();
    let opened = timeout(limit, open(&*connect, &address, &config)).await;
    let cause = match opened.unwrap_or(Err(Cause::Timeout(limit))) {
        Err(cause) => {
            watch.failed(&cause);
            cause
        }
        Ok(line) => {
            watch.opened();
            let (mut line, ended) = run(Box::new(line), &mut commands, &slot, &watch).await;
            // Callers try again as soon as they know, and must not find this queue then.
            commands.close();
            let ended_by_server = ended.is_err();
            let cause = ended.err().unwrap_or(Cause::Closed);
            // A server may close a connection that is not used.
            let is_asked = line.conversation.pending() > 0;
            if is_asked || !matches!(cause, Cause::Closed | Cause::Io(..)) {
                watch.failed(&cause);
            } else if ended_by_server {
                watch.closed(&cause);
            }
            line.abandon(&cause);
            cause
        }
    };
    // What waits in the queue was not sent.
    commands.close();
    while let Some(command) = commands.recv().await {
        command.lose(Lost::Connection(Effect::NotSent, cause.clone()));
    }
}

/// Serves a connection to its end.
async fn run(
    mut line: Box<Line>,
    commands: &mut mpsc::Receiver<Command>,
    slot: &Slot,
    watch: &impl Watch,
) -> (Box<Line>, Result<(), Cause>) {
    loop {
        match std::future::poll_fn(|cx| line.poll(cx, commands, watch)).await {
            Ok(Pause::Over) => return (line, Ok(())),
            Err(cause) => return (line, Err(cause)),
            Ok(Pause::Idle) => {}
        }
        slot.park(line);
        let woken = std::future::poll_fn(|cx| match commands.poll_recv(cx) {
            Poll::Ready(command) => Poll::Ready(Some(command)),
            Poll::Pending => slot.poll_need(cx).map(|()| None),
        });
        let woken = woken.await;
        line = slot.take().await;
        if let Some(cause) = line.failure.take() {
            if let Some(Some(command)) = woken {
                command.lose(Lost::Connection(Effect::NotSent, cause.clone()));
            }
            return (line, Err(cause));
        }
        // Without a command nobody can ask any more, or a caller has left something under way.
        if let Some(Some(command)) = woken {
            line.take(command);
        }
    }
}

async fn open(connect: &dyn Connect, address: &Address, config: &Config) -> Result<Line, Cause> {
    let connected = connect.connect(address).await;
    let transport = connected.map_err(|error| Cause::connect(&error))?;
    let mut line = Line::new(transport, begin(config), config.operation_timeout);
    if config.login.is_some() {
        let answer = std::future::poll_fn(|cx| line.poll_first(cx)).await?;
        logged_in(Some(answer))?;
    }
    line.conversation.set_dialect(first_dialect(config.dialect));
    if config.dialect == DialectChoice::Ask {
        // A conversation that is new has room for one.
        let _ = line.conversation.push(&Request::noop());
        let answer = std::future::poll_fn(|cx| line.poll_first(cx)).await?;
        line.conversation.set_dialect(dialect_of(Some(answer))?);
    }
    Ok(line)
}

#[cfg(test)]
mod tests;
