//! `libfabric`: tagged messages over its provider for TCP, by the calls of fabtests'
//! `fi_rdm_tagged_bw`, polling for completions.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket},
    time::{Duration, Instant},
};

use crate::fabric::{Endpoint, Error};

use super::Subject;
use crate::{
    fail::{Fail, Result},
    pair::Pair,
    payload::Messages,
    sync::Watch,
    terms::Side,
};

/// Time that the first messages may take, which open the connection.
const SOON: Duration = Duration::from_secs(5);

/// One end of it.
pub(crate) struct Fabric {
    end: Endpoint,
    watch: Watch,
}

impl Fabric {
    /// This side's end; the first process is at `at`.
    ///
    /// # Errors
    /// An error if libfabric is missing, or lacks a provider.
    pub(crate) fn set_up(at: IpAddr, pair: &mut Pair) -> Result<Fabric> {
        let mut end = Endpoint::open(own_address(at, pair.side())?)?;
        pair.tell(&end.address())?;
        end.connect(pair.hear::<SocketAddrV4>()?)?;
        let start = Instant::now();
        let mut pass = |out: &[u8], into: &mut [u8]| {
            end.transfer([out], [into], || match start.elapsed() > SOON {
                true => Err(Fail::Said("libfabric does not connect".into())),
                false => Ok(()),
            })
        };
        let mut into = [0; 8];
        pass(b"greeting", &mut into)?;
        if into != *b"greeting" {
            return Err(Fail::Said("libfabric has brought something else".into()));
        }
        Ok(Fabric { end, watch: pair.watch() })
    }
}

/// The address of this side, on the way to the first process.
fn own_address(at: IpAddr, side: Side) -> Result<Ipv4Addr> {
    let own = match side {
        Side::First => at,
        Side::Second => {
            // Connecting sends nothing, but tells the local address.
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
            let found = socket.and_then(|socket| {
                socket.connect((at, 9))?;
                socket.local_addr()
            });
            found.map_err(Fail::os("connect"))?.ip()
        }
    };
    match own {
        IpAddr::V4(own) => Ok(own),
        IpAddr::V6(_) => Err(Fail::Said("libfabric is set beside others over IPv4 only".into())),
    }
}

impl Subject for Fabric {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut patience = self.watch.patience();
        self.end.transfer([message], [], || patience.again())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let mut patience = self.watch.patience();
        self.end.transfer([], [into], || patience.again())
    }

    fn provider(&self) -> Option<String> {
        Some(self.end.provider().to_owned())
    }

    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        let mut patience = self.watch.patience();
        let out = (0..count).map(|number| messages.get(number));
        self.end.transfer(out, [], || patience.again())
    }

    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        let mut patience = self.watch.patience();
        // As many at a time as there are memories.
        let mut left = count;
        while left > 0 {
            let some = left.min(into.count());
            self.end.transfer([], into.each_mut().take(some), || patience.again())?;
            left -= some;
        }
        Ok(())
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let mut patience = self.watch.patience();
        let mut done = 0;
        while done < count {
            let some = into.count().min(count - done);
            let out = (done..done + some).map(|number| out.get(number));
            self.end.transfer(out, into.each_mut().take(some), || patience.again())?;
            done += some;
        }
        Ok(())
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Fail {
        match error {
            // The other side may know more.
            Error::Refused { call, .. } => {
                Fail::Os { call, source: std::io::Error::other(error.to_string()) }
            }
            _ => Fail::Said(error.to_string()),
        }
    }
}
