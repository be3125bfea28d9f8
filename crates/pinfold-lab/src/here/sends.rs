//! Messages over TCP out of memory that stays pinned, for traces of an endpoint's translations.
//! Which buffer a message leaves from follows Zipf's law.

use std::{thread, time::Duration};

use pinfold::{Counters, Endpoint, Progress, SendMode, TagMatch};

use crate::{random::Random, workloads::zipf::Zipf};

/// The tag of all messages.
const TAG: u64 = 1;

/// The receiver waits no longer for a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// Buffers at most, and bytes of all of them.
const BUFFERS_MAX: u64 = 1 << 16;
const BYTES_MAX: u64 = 4 << 30;

/// The messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sends {
    /// How many.
    pub messages: u64,
    /// Buffers that they leave from.
    pub buffers: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// The seed of the choice.
    pub seed: u64,
}

fn builder() -> pinfold::Builder {
    // As on different hosts: otherwise the messages would not go over TCP.
    Endpoint::builder().progress(Progress::Inline).local_shortcut(false)
}

/// The choice of buffers, which the receiver makes again.
fn choice(sends: &Sends) -> (Zipf, Random) {
    let mut random = Random::new(sends.seed, 0);
    (Zipf::new(&mut random, sends.buffers), random)
}

fn words(why: impl ToString) -> String {
    why.to_string()
}

/// Sends the messages from one endpoint to another of this process, which checks them. Returns the
/// sender's counters.
///
/// # Errors
/// An endpoint could not be made or connected, a message was lost or is another one, or no memory
/// is kept pinned here; in words.
pub fn run(sends: &Sends) -> Result<Counters, String> {
    let Sends { messages, buffers, bytes, .. } = *sends;
    let is_small = (bytes as u64).checked_mul(buffers).is_some_and(|all| all <= BYTES_MAX);
    if !(1..=BUFFERS_MAX).contains(&buffers) || !is_small {
        return Err(format!("{buffers} buffers of {bytes} bytes: take 1 to 65536, 4 GiB in all"));
    }
    let to = builder().listen("tcp:127.0.0.1:0").build().map_err(words)?;
    let address = to.listens_at().ok_or("the receiver has no address")?;
    let from = builder().send_mode(SendMode::Cached).io_uring(true).build().map_err(words)?;
    let memory: Vec<Vec<u8>> = (0..buffers).map(|at| vec![at as u8; bytes]).collect();
    thread::scope(|scope| {
        let taken = scope.spawn(|| -> Result<(), String> {
            let peer = to.accept_timeout(PATIENCE).map_err(words)?;
            let (zipf, mut random) = choice(sends);
            for at in 0..messages {
                let message = to.recv(peer, TagMatch::exact(TAG)).map_err(words)?;
                let expected = zipf.pick(&mut random) as u8;
                if message.len() != bytes || message.iter().any(|byte| *byte != expected) {
                    return Err(format!("message {at} is another one"));
                }
            }
            Ok(())
        });
        let (zipf, mut random) = choice(sends);
        let sent = from.connect(&address).map_err(words).and_then(|peer| {
            for _ in 0..messages {
                let buffer = &memory[zipf.pick(&mut random) as usize];
                from.send(peer, TAG, buffer).map_err(words)?;
            }
            Ok(())
        });
        if sent.is_err() {
            // The receiver hears of it by the end of the connection.
            from.close();
        }
        let taken = taken.join().unwrap_or_else(|_| Err("the receiver panicked".into()));
        sent.and(taken)
    })?;
    let counters = from.counters();
    if counters.tlb_hits + counters.pin_hits + counters.pin_misses == 0 {
        return Err("no memory is kept pinned here: `pinfold doctor` says why".into());
    }
    Ok(counters)
}
