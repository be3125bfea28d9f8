//! The set-up of each contestant. Both processes do it at the same time, and talk meanwhile.

use std::{fs::File, io::Read, net::IpAddr};

use crate::ring_stream::RingStream;
use ::pinfold::Endpoint;

use super::cell::Contestant;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    subject::{Bench, Bytes, Fabric, Pinfold, Subject, Waiting, pinfold, tcp},
    terms::Side,
};

/// Sets this side of a contestant up; the first process listens at `at`.
///
/// # Errors
/// The reason why it cannot be had here; the others still can.
pub(super) fn set_up(who: Contestant, at: IpAddr, pair: &mut Pair) -> Result<Box<dyn Bench>> {
    let stream = |pair: &mut Pair| tcp::connected(pair, at);
    Ok(match who {
        Contestant::Sockets => {
            let stream = stream(pair)?;
            Box::new(Sleeping::new(tcp::over(stream, pair)?)?)
        }
        Contestant::Spinning => {
            let stream = stream(pair)?;
            Box::new(tcp::over(stream, pair)?)
        }
        Contestant::Pinfold => Box::new(connect(at, pair, false)?),
        Contestant::Encrypted => Box::new(connect(at, pair, true)?),
        Contestant::Ring => {
            let stream = stream(pair)?;
            Box::new(Ring(RingStream::new(stream.into()).map_err(Fail::os("io_uring_setup"))?))
        }
        Contestant::Libfabric => Box::new(Fabric::set_up(at, pair)?),
        Contestant::Ucx => {
            return Err(Fail::Said(format!("{} is no part of this program", who.name())));
        }
    })
}

/// An endpoint of this side, connected to one of the other.
fn connect(at: IpAddr, pair: &mut Pair, encrypted: bool) -> Result<Pinfold> {
    // The shortcut within one host is not to be taken.
    let builder = Endpoint::builder().label("pinfold perf").local_shortcut(false);
    let builder = builder.encrypt(encrypted);
    let (endpoint, peer) = match pair.side() {
        Side::First => {
            let mut key = [0; 32];
            let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key));
            drawn.map_err(Fail::os("read of /dev/urandom"))?;
            let endpoint = builder.key(&key).listen(&format!("tcp:{at}:0")).build()?;
            let at = endpoint.listens_at();
            let at = at.ok_or(Fail::Said("the endpoint does not listen".into()))?;
            pair.tell(&(at, key))?;
            let peer = pinfold::accepted(pair, &endpoint)?;
            (endpoint, peer)
        }
        Side::Second => {
            let (at, key): (String, [u8; 32]) = pair.hear()?;
            let endpoint = builder.key(&key).build()?;
            let peer = endpoint.connect(&at)?;
            (endpoint, peer)
        }
    };
    Ok(Pinfold::over(endpoint, peer))
}

/// A stream with calls that always wait in the kernel.
struct Sleeping(Bytes);

impl Sleeping {
    fn new(mut bytes: Bytes) -> Result<Sleeping> {
        bytes.set_waiting(Waiting::Sleep)?;
        Ok(Sleeping(bytes))
    }
}

impl Subject for Sleeping {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message)
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        self.0.recv(into)
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        self.0.exchange(out, into, count)
    }
}

/// A stream by an io_uring.
struct Ring(RingStream);

impl Subject for Ring {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send_all(message).map_err(Fail::os("IORING_OP_SEND"))
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        match self.0.recv_all(into).map_err(Fail::os("IORING_OP_RECV"))? {
            true => Ok(()),
            false => Err(Fail::Gone),
        }
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        // Both directions at once are not measured here: one message goes, then the other.
        (0..count).try_for_each(|number| {
            self.send(out.get(number))?;
            self.recv(into.get_mut(number))
        })
    }
}
