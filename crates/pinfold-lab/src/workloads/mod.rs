//! Parallel programs in the manner of Split-C: each rank has memory that the others read and write,
//! and sends them small messages. They run for real over Pinfold's one-sided operations and active
//! messages ([`live`]), or one rank after the other in one thread ([`lockstep`]); either way their
//! transfers are logged, and the two logs are the same.
//!
//! A program goes in phases. A transfer that is begun in a phase has ended when the next one
//! begins; until then its memory is not used otherwise.

pub mod fourier;
pub mod integer_sort;
pub mod live;
pub mod lockstep;
pub mod matrix;
pub mod processes;
pub mod radix;
pub mod references;
pub mod sample;
pub mod sockets;
#[cfg(test)]
mod tests;
pub mod zipf;

/// The part of a program that a rank runs.
pub trait Program {
    /// Bytes of memory that the other ranks can reach.
    fn memory_bytes(&self) -> usize;

    /// Runs a phase, from 0 on. Returns whether another one follows, which all ranks agree on.
    ///
    /// # Errors
    /// A transfer failed, or the program found something wrong; in words.
    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String>;

    /// Takes a small message. Called between phases: all messages of a rank in their order, the
    /// ranks in theirs.
    fn deliver(&mut self, from: usize, word: u64);

    /// The bytes of this rank's part of the result: the same whenever and however it ran.
    fn result(&self) -> Vec<u8>;
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A small message.
    Store,
    /// Own memory into a rank's.
    Put,
    /// A rank's memory into own.
    Get,
}

/// A transfer, as the rank that began it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its kind.
    pub kind: Kind,
    /// The other rank.
    pub peer: u32,
    /// The offset in own memory.
    pub own: u32,
    /// The offset in the other rank's.
    pub theirs: u32,
    /// Bytes.
    pub bytes: u32,
}

/// The transfers that a rank began, phase by phase.
pub type Log = Vec<Vec<Transfer>>;

/// The way that transfers go.
pub trait Carrier {
    /// Reads own memory.
    ///
    /// # Errors
    /// It is not that long; in words, as for all of these.
    fn read(&self, at: usize, into: &mut [u8]) -> Result<(), String>;

    /// Writes own memory.
    ///
    /// # Errors
    /// As [`Carrier::read`].
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), String>;

    /// Carries a put or a get.
    ///
    /// # Errors
    /// As [`Carrier::read`], or the transfer failed.
    fn carry(&mut self, transfer: Transfer) -> Result<(), String>;

    /// Sends a small message.
    ///
    /// # Errors
    /// The transfer failed.
    fn store(&mut self, to: usize, word: u64) -> Result<(), String>;
}

/// A rank, as its program sees it.
pub struct Node<'a> {
    rank: usize,
    ranks: usize,
    log: &'a mut Vec<Transfer>,
    carrier: &'a mut dyn Carrier,
}

fn offset(at: usize) -> Result<u32, String> {
    u32::try_from(at).map_err(|_| format!("offset {at} is too large"))
}

impl Node<'_> {
    /// Its number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Reads own memory.
    ///
    /// # Errors
    /// As [`Carrier::read`].
    pub fn read(&self, at: usize, bytes: usize) -> Result<Vec<u8>, String> {
        let mut into = vec![0; bytes];
        self.carrier.read(at, &mut into)?;
        Ok(into)
    }

    /// Writes own memory.
    ///
    /// # Errors
    /// As [`Carrier::write`].
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), String> {
        self.carrier.write(at, bytes)
    }

    /// Puts own memory from `own` on into a rank's at `theirs`.
    ///
    /// # Errors
    /// As [`Carrier::carry`].
    pub fn put(
        &mut self,
        to: usize,
        own: usize,
        theirs: usize,
        bytes: usize,
    ) -> Result<(), String> {
        self.carry(Kind::Put, to, own, theirs, bytes)
    }

    /// Gets a rank's memory from `theirs` on into own at `own`.
    ///
    /// # Errors
    /// As [`Carrier::carry`].
    pub fn get(
        &mut self,
        from: usize,
        theirs: usize,
        own: usize,
        bytes: usize,
    ) -> Result<(), String> {
        self.carry(Kind::Get, from, own, theirs, bytes)
    }

    /// Sends a small message.
    ///
    /// # Errors
    /// As [`Carrier::store`].
    pub fn store(&mut self, to: usize, word: u64) -> Result<(), String> {
        let transfer = Transfer { kind: Kind::Store, peer: to as u32, own: 0, theirs: 0, bytes: 8 };
        self.log.push(transfer);
        self.carrier.store(to, word)
    }

    fn carry(
        &mut self,
        kind: Kind,
        peer: usize,
        own: usize,
        theirs: usize,
        bytes: usize,
    ) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let (own, theirs, bytes) = (offset(own)?, offset(theirs)?, offset(bytes)?);
        let transfer = Transfer { kind, peer: peer as u32, own, theirs, bytes };
        self.log.push(transfer);
        self.carrier.carry(transfer)
    }
}

/// The bytes of keys, lowest byte first.
pub fn bytes_of(keys: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(keys.len() * 4);
    for key in keys {
        bytes.extend_from_slice(&key.to_le_bytes());
    }
    bytes
}

/// The keys of bytes.
pub fn keys_of(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
        .collect()
}

/// Checks that the keys of all ranks, one rank's behind the other's, are those of `before`, sorted.
///
/// # Errors
/// They are not; in words.
pub fn check_sorted(before: &[Vec<u32>], after: &[Vec<u32>]) -> Result<(), String> {
    let mut expected = before.concat();
    expected.sort_unstable();
    let found = after.concat();
    if found.len() != expected.len() {
        return Err(format!("{} keys became {}", expected.len(), found.len()));
    }
    match found.iter().zip(&expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("key {at} is {}, not {}", found[at], expected[at])),
        None => Ok(()),
    }
}
