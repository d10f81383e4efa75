//! How bytes reach a server: a seam over sockets and whatever wraps them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use ::tokio::io::{AsyncRead, AsyncWrite};
use ::tokio::net::{TcpStream, UnixStream};

use crate::address::Address;

/// One connection to a server.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection that is being opened.
pub type Connecting<'c> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send + 'c>>;

/// Opens connections. [`Sockets`] makes plain ones; a wrapper, for encryption for one, implements this
/// over another.
pub trait Connect: fmt::Debug + Send + Sync {
    /// Opens a connection. The client bounds how long that takes.
    fn connect<'c>(&'c self, address: &'c Address) -> Connecting<'c>;
}

/// Opens plain sockets: TCP without Nagle's delay, and unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Connect for Sockets {
    fn connect<'c>(&'c self, address: &'c Address) -> Connecting<'c> {
        Box::pin(async move {
            Ok(match address {
                Address::Tcp { host, port } => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Transport>
                }
                Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
            })
        })
    }
}
