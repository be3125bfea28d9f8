//! Names of peers, looked up while the endpoint goes on.
//!
//! The system's resolver takes as long as it likes, so a thread asks it, which ends with its
//! answer.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use pinfold_sys::{io::poll::EventFd, threads::Kind};

use super::address::Address;
use crate::Result;

/// Lookups of one endpoint under way at a time.
const AT_ONCE: usize = 16;
/// The resolver may bring modules of the system's along.
const LOOKUP: Kind = Kind::new("pinfold-lookup", Kind::STACK_OF_PROGRAMS);

/// Asks for an address, and waits for that.
type Resolve = fn(&Address) -> Result<Vec<SocketAddr>>;

/// The lookups of one endpoint.
#[derive(Debug)]
pub(crate) struct Lookups {
    resolve: Resolve,
    under_way: Arc<AtomicUsize>,
    /// Signalled when one has ended.
    bell: Arc<EventFd>,
}

/// A lookup that was begun.
#[derive(Debug)]
pub(crate) struct Lookup(Arc<Mutex<Option<Result<Vec<SocketAddr>>>>>);

impl Lookup {
    /// The result, once, if it has ended.
    pub(crate) fn take(&self) -> Option<Result<Vec<SocketAddr>>> {
        self.0.lock().take()
    }
}

impl Lookups {
    pub(crate) fn new(resolve: Resolve, bell: Arc<EventFd>) -> Lookups {
        Lookups { resolve, under_way: Arc::default(), bell }
    }

    /// Begins to ask where `address` leads. Nothing here waits. `None` if too many lookups are
    /// under way, or there is no thread to be had.
    pub(crate) fn ask(&self, address: &Address) -> Option<Lookup> {
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let (resolve, address, bell) = (self.resolve, address.clone(), Arc::clone(&self.bell));
        let (found, under_way) = (Arc::default(), Arc::clone(&self.under_way));
        let lookup = Lookup(Arc::clone(&found));
        let asks = LOOKUP.start(move || {
            let answer =
                resolve(&address).inspect_err(|error| tracing::debug!(%error, "not found"));
            *found.lock() = Some(answer);
            under_way.fetch_sub(1, Ordering::Relaxed);
            if let Err(error) = bell.signal() {
                tracing::warn!(%error, "nobody hears of a name that was looked up");
            }
        });
        match asks {
            Ok(_) => Some(lookup),
            Err(error) => {
                tracing::debug!(%error, "no thread to look a name up");
                self.under_way.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Two places, and a name that the resolver does not know.
    fn resolve(address: &Address) -> Result<Vec<SocketAddr>> {
        pinfold_sys::cpu::clock::pause(Duration::from_millis(20));
        match address.to_string().as_str() {
            "tcp:two:7" => Ok(vec![([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 7).into()]),
            _ => Err(crate::Error::Closed),
        }
    }

    fn until<T>(mut is_so: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(it) = is_so() {
                return it;
            }
            assert!(Instant::now() < end);
            pinfold_sys::cpu::clock::pause(Duration::from_millis(1));
        }
    }

    #[test]
    fn answers_come_once_and_are_told() {
        let bell = Arc::new(EventFd::new().unwrap());
        let lookups = Lookups::new(resolve, Arc::clone(&bell));
        let two = lookups.ask(&"tcp:two:7".parse().unwrap()).unwrap();
        let nobody = lookups.ask(&"tcp:nobody:7".parse().unwrap()).unwrap();
        assert_eq!(until(|| two.take()).unwrap().len(), 2);
        assert!(two.take().is_none());
        assert!(until(|| nobody.take()).is_err());
        until(|| bell.clear().unwrap().then_some(()));
    }

    #[test]
    fn some_are_asked_at_a_time() {
        let lookups = Lookups::new(resolve, Arc::new(EventFd::new().unwrap()));
        let address = "tcp:two:7".parse().unwrap();
        let asked: Vec<Lookup> = (0..AT_ONCE).map(|_| lookups.ask(&address).unwrap()).collect();
        assert!(lookups.ask(&address).is_none());
        until(|| asked[0].take()).unwrap();
        until(|| lookups.ask(&address));
    }
}
