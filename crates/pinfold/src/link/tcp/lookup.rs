//! Names of peers that do not come back, asked for again: they may have moved.
//!
//! The system's resolver takes as long as it likes, so a thread asks it: one at a time for an endpoint, which ends with
//! its answer.

use std::{mem, net::SocketAddr, sync::Arc, thread};

use parking_lot::Mutex;

use super::address::{Address, Host};
use crate::Result;

/// Asks for an address, and waits for that.
type Resolve = fn(&Address) -> Result<Vec<SocketAddr>>;

#[derive(Debug, Default)]
struct State {
    asking: bool,
    /// What was found, by what it was asked for.
    found: Vec<(String, Vec<SocketAddr>)>,
}

/// The names of one endpoint's peers.
#[derive(Debug)]
pub(crate) struct Lookups {
    resolve: Resolve,
    state: Arc<Mutex<State>>,
}

impl Lookups {
    pub(crate) fn new(resolve: Resolve) -> Lookups {
        Lookups { resolve, state: Arc::default() }
    }

    /// Begins to ask where `address` leads, if it has a name and nobody asks for another. Nothing here waits.
    pub(crate) fn ask(&self, address: &str) {
        let Ok(to) = address.parse::<Address>() else { return };
        if !matches!(to.host(), Host::Name(_)) || mem::replace(&mut self.state.lock().asking, true)
        {
            return;
        }
        let (resolve, state, address) = (self.resolve, Arc::clone(&self.state), address.to_owned());
        let asks = thread::Builder::new().name("pinfold-lookup".into()).spawn(move || {
            let found = resolve(&to).inspect_err(|error| tracing::debug!(%error, "not found"));
            let mut state = state.lock();
            state.asking = false;
            if let Ok(found) = found {
                state.found.retain(|(other, _)| *other != address);
                state.found.push((address, found));
            }
        });
        if asks.is_err() {
            self.state.lock().asking = false;
        }
    }

    /// Where to call next by that address, if it was asked for since: another place than `last`, if there is one.
    pub(crate) fn take(&self, address: &str, last: SocketAddr) -> Option<SocketAddr> {
        let mut state = self.state.lock();
        let at = state.found.iter().position(|(other, _)| other == address)?;
        let (_, found) = state.found.swap_remove(at);
        let after = found.iter().position(|to| *to == last).map_or(0, |at| at + 1);
        found.get(after).or_else(|| found.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn at(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 7).into()
    }

    /// Three places, and a name that nobody knows.
    fn resolve(address: &Address) -> Result<Vec<SocketAddr>> {
        thread::sleep(Duration::from_millis(20));
        match address.host() {
            Host::Name(name) if name == "three" => Ok(vec![at(1), at(2), at(3)]),
            _ => Err(crate::Error::Closed),
        }
    }

    fn until_asked(lookups: &Lookups) {
        let end = Instant::now() + Duration::from_secs(20);
        while lookups.state.lock().asking {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn places_are_tried_in_turn() {
        let lookups = Lookups::new(resolve);
        for (last, next) in [(9, 1), (1, 2), (2, 3), (3, 1)] {
            lookups.ask("tcp:three:7");
            // Whoever asks does not wait.
            assert_eq!(lookups.take("tcp:three:7", at(last)), None);
            until_asked(&lookups);
            assert_eq!(lookups.take("tcp:other:7", at(last)), None);
            assert_eq!(lookups.take("tcp:three:7", at(last)), Some(at(next)));
            assert_eq!(lookups.take("tcp:three:7", at(last)), None);
        }
    }

    #[test]
    fn only_names_are_asked_for_and_one_at_a_time() {
        let lookups = Lookups::new(resolve);
        for address in ["tcp:10.0.0.1:7", "tcp:[::1]:7", "no address"] {
            lookups.ask(address);
            assert!(!lookups.state.lock().asking, "{address}");
        }
        lookups.ask("tcp:nobody:7");
        lookups.ask("tcp:three:7");
        until_asked(&lookups);
        assert!(lookups.state.lock().found.is_empty());
        lookups.ask("tcp:three:7");
        lookups.ask("tcp:three:7");
        until_asked(&lookups);
        assert_eq!(lookups.state.lock().found.len(), 1);
    }
}
