//! Two endpoints, one in each process, that have some of the paths.

use std::{collections::VecDeque, time::Instant};

use pinfold::{Arena, ArenaBuf, Endpoint, Path, PathSet, PeerId};

use super::{Pattern, Result, Scenario};

const TAG: u64 = 1;
/// The tag of messages between turns.
const SAID: u64 = 2;
/// Round trips of a few bytes by which the distance of the two processors is known.
const HOPS: u32 = 50;
const GO_ON: [u8; 1] = [1];
const END: [u8; 1] = [0];

/// The place of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Ordinary memory.
    Heap,
    /// Memory that the other side maps.
    Arena,
}

/// One message's memory.
enum Place {
    Heap(Vec<u8>),
    Arena(ArenaBuf),
}

impl Place {
    fn new(memory: Memory, arena: &Arena, len: usize, byte: u8) -> Result<Place> {
        let mut place = match memory {
            Memory::Heap => Place::Heap(vec![0; len]),
            Memory::Arena => Place::Arena(arena.alloc(len)?),
        };
        place.bytes_mut().fill(byte);
        Ok(place)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Place::Heap(bytes) => bytes,
            Place::Arena(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Place::Heap(bytes) => bytes,
            Place::Arena(bytes) => bytes,
        }
    }
}

/// A side that waits for the other.
pub struct Listening(Endpoint);

/// One side of a pair.
pub struct Pair {
    endpoint: Endpoint,
    peer: PeerId,
    arena: Arena,
    out: Vec<Place>,
    into: Vec<Place>,
}

fn set(paths: &[Path]) -> PathSet {
    PathSet::only(paths).with(Path::Inline)
}

impl Listening {
    /// Listens at `address`, with these long paths.
    pub fn at(address: &str, paths: &[Path]) -> Result<Listening> {
        Ok(Listening(Endpoint::builder().paths(set(paths)).listen(address).build()?))
    }

    /// Accepts the other side.
    pub fn accept(self) -> Result<Pair> {
        let peer = self.0.accept()?;
        Pair::over(self.0, peer)
    }
}

impl Pair {
    /// Connects to the other side.
    pub fn connect(address: &str, paths: &[Path]) -> Result<Pair> {
        let endpoint = Endpoint::builder().paths(set(paths)).build()?;
        let peer = endpoint.connect(address)?;
        Pair::over(endpoint, peer)
    }

    fn over(endpoint: Endpoint, peer: PeerId) -> Result<Pair> {
        Ok(Pair { endpoint, peer, arena: Arena::new()?, out: Vec::new(), into: Vec::new() })
    }

    /// Memory for a turn of that scenario, written once.
    pub fn prepare(&mut self, scenario: &Scenario) -> Result<()> {
        let Scenario { memory, sizes, .. } = *scenario;
        (self.out, self.into) = (Vec::new(), Vec::new());
        for number in 0..scenario.batch() {
            let len = sizes[number % sizes.len()];
            self.out.push(Place::new(memory, &self.arena, len, number as u8 + 1)?);
            self.into.push(Place::new(memory, &self.arena, len, 0)?);
        }
        Ok(())
    }

    /// Asks for a turn. Returns the time of a hop to the other side, ns.
    pub fn ask(&mut self) -> Result<u64> {
        let begun = Instant::now();
        for _ in 0..HOPS {
            self.endpoint.send(self.peer, SAID, &GO_ON)?;
            self.endpoint.recv_into(self.peer, SAID, &mut [0])?;
        }
        Ok(begun.elapsed().as_nanos() as u64 / u64::from(2 * HOPS))
    }

    /// No more turns.
    pub fn end(&mut self) -> Result<()> {
        self.endpoint.send(self.peer, SAID, &END)?;
        Ok(())
    }

    /// Returns whether there is another turn.
    pub fn is_asked(&mut self) -> Result<bool> {
        for _ in 0..HOPS {
            let mut said = END;
            self.endpoint.recv_into(self.peer, SAID, &mut said)?;
            if said == END {
                return Ok(false);
            }
            self.endpoint.send(self.peer, SAID, &GO_ON)?;
        }
        Ok(true)
    }

    /// A turn of the side that measures; returns the time of a message, ns.
    pub fn turn(&mut self, pattern: Pattern) -> Result<u64> {
        let count = self.out.len() as u64;
        self.endpoint.send(self.peer, SAID, &GO_ON)?;
        self.endpoint.recv_into(self.peer, SAID, &mut [0])?;
        let begun = Instant::now();
        let messages = match pattern {
            Pattern::Turns => {
                for number in 0..self.out.len() {
                    self.send(number)?;
                    self.recv(number)?;
                }
                2 * count
            }
            Pattern::Stream => {
                self.send_all()?;
                self.endpoint.recv_into(self.peer, SAID, &mut [0])?;
                count
            }
            Pattern::Both => {
                self.exchange()?;
                count
            }
        };
        let ns = begun.elapsed().as_nanos() as u64 / messages;
        self.check(pattern != Pattern::Stream)?;
        Ok(ns)
    }

    /// A turn of the other side.
    pub fn answer(&mut self, pattern: Pattern) -> Result<()> {
        self.endpoint.recv_into(self.peer, SAID, &mut [0])?;
        self.endpoint.send(self.peer, SAID, &GO_ON)?;
        match pattern {
            Pattern::Turns => {
                for number in 0..self.out.len() {
                    self.recv(number)?;
                    self.send(number)?;
                }
            }
            Pattern::Stream => {
                for number in 0..self.into.len() {
                    self.recv(number)?;
                }
                self.endpoint.send(self.peer, SAID, &GO_ON)?;
            }
            Pattern::Both => self.exchange()?,
        }
        self.check(true)
    }

    fn send(&mut self, number: usize) -> Result<()> {
        self.endpoint.send(self.peer, TAG, self.out[number].bytes())?;
        Ok(())
    }

    fn recv(&mut self, number: usize) -> Result<()> {
        self.endpoint.recv_into(self.peer, TAG, self.into[number].bytes_mut())?;
        Ok(())
    }

    fn send_all(&mut self) -> Result<()> {
        let (endpoint, peer, out) = (&self.endpoint, self.peer, &self.out);
        endpoint.scope(|scope| -> pinfold::Result<()> {
            let sends: Vec<_> = out
                .iter()
                .map(|place| scope.send(peer, TAG, place.bytes()))
                .collect::<pinfold::Result<_>>()?;
            sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))
        })?;
        Ok(())
    }

    fn exchange(&mut self) -> Result<()> {
        let (endpoint, peer, out, into) = (&self.endpoint, self.peer, &self.out, &mut self.into);
        endpoint.scope(|scope| -> pinfold::Result<()> {
            let mut receives = VecDeque::with_capacity(into.len());
            for place in into.iter_mut() {
                receives.push_back(scope.recv_into(peer, TAG, place.bytes_mut())?);
            }
            let mut sends = Vec::with_capacity(out.len());
            for place in out {
                sends.push(scope.send(peer, TAG, place.bytes())?);
            }
            receives.into_iter().try_for_each(|receive| receive.wait().0.map(|_| ()))?;
            sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))
        })?;
        Ok(())
    }

    /// Checks the first and the last byte of each received message, and clears them.
    fn check(&mut self, came: bool) -> Result<()> {
        if !came {
            return Ok(());
        }
        for (number, place) in self.into.iter_mut().enumerate() {
            let bytes = place.bytes_mut();
            let end = bytes.len() - 1;
            let expected = number as u8 + 1;
            if (bytes[0], bytes[end]) != (expected, expected) {
                return Err(format!("message {number} came with other bytes").into());
            }
            (bytes[0], bytes[end]) = (0, 0);
        }
        Ok(())
    }
}
