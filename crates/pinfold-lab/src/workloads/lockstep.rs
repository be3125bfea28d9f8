//! Programs run one rank after the other, phase by phase: the same whenever it is done.

use super::{Carrier, Kind, Log, Node, Program, Transfer};

/// All ranks' memory and messages.
struct Machine {
    memories: Vec<Vec<u8>>,
    /// Small messages to each rank, with their senders.
    inboxes: Vec<Vec<(usize, u64)>>,
    moves: bool,
}

/// A rank of it.
struct Rank<'a> {
    rank: usize,
    machine: &'a mut Machine,
}

/// The part of a memory.
fn part(memory: &[u8], at: usize, bytes: usize) -> Result<&[u8], String> {
    memory.get(at..at + bytes).ok_or_else(|| format!("{bytes} bytes at {at} are outside"))
}

fn part_mut(memory: &mut [u8], at: usize, bytes: usize) -> Result<&mut [u8], String> {
    memory.get_mut(at..at + bytes).ok_or_else(|| format!("{bytes} bytes at {at} are outside"))
}

impl Carrier for Rank<'_> {
    fn read(&self, at: usize, into: &mut [u8]) -> Result<(), String> {
        if self.machine.moves {
            into.copy_from_slice(part(&self.machine.memories[self.rank], at, into.len())?);
        }
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), String> {
        if self.machine.moves {
            let memory = &mut self.machine.memories[self.rank];
            part_mut(memory, at, bytes.len())?.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn carry(&mut self, transfer: Transfer) -> Result<(), String> {
        if !self.machine.moves {
            return Ok(());
        }
        let (own, theirs) = (transfer.own as usize, transfer.theirs as usize);
        let (peer, bytes) = (transfer.peer as usize, transfer.bytes as usize);
        let (from, to) = match transfer.kind {
            Kind::Get => ((peer, theirs), (self.rank, own)),
            _ => ((self.rank, own), (peer, theirs)),
        };
        if from.0 == to.0 {
            return Err("a transfer to oneself".into());
        }
        let mut memory = std::mem::take(&mut self.machine.memories[to.0]);
        let done = part(&self.machine.memories[from.0], from.1, bytes).and_then(|source| {
            part_mut(&mut memory, to.1, bytes)?.copy_from_slice(source);
            Ok(())
        });
        self.machine.memories[to.0] = memory;
        done
    }

    fn store(&mut self, to: usize, word: u64) -> Result<(), String> {
        self.machine.inboxes[to].push((self.rank, word));
        Ok(())
    }
}

/// Runs a program, each rank's part of it.
///
/// # Errors
/// The sentence of a rank that failed, or that they do not agree on the end.
pub fn run<P: Program>(programs: &mut [P]) -> Result<Vec<Log>, String> {
    let memories = programs.iter().map(|program| vec![0; program.memory_bytes()]).collect();
    drive(programs, memories, true)
}

/// The same without any memory, for a program whose transfers do not depend on its data: nothing is
/// moved by puts and gets, and all memory reads as zeros.
///
/// # Errors
/// As [`run`].
pub fn dry<P: Program>(programs: &mut [P]) -> Result<Vec<Log>, String> {
    drive(programs, Vec::new(), false)
}

fn drive<P: Program>(
    programs: &mut [P],
    memories: Vec<Vec<u8>>,
    moves: bool,
) -> Result<Vec<Log>, String> {
    let ranks = programs.len();
    let mut machine = Machine { memories, inboxes: vec![Vec::new(); ranks], moves };
    let mut logs: Vec<Log> = vec![Vec::new(); ranks];
    for phase in 0.. {
        let mut go_on = 0;
        for (rank, (program, all)) in programs.iter_mut().zip(&mut logs).enumerate() {
            let mut log = Vec::new();
            let mut carrier = Rank { rank, machine: &mut machine };
            let mut node = Node { rank, ranks, log: &mut log, carrier: &mut carrier };
            go_on += usize::from(program.phase(phase, &mut node)?);
            all.push(log);
        }
        for (program, inbox) in programs.iter_mut().zip(&mut machine.inboxes) {
            for (from, word) in inbox.drain(..) {
                program.deliver(from, word);
            }
        }
        match go_on {
            0 => break,
            _ if go_on == ranks => {}
            _ => return Err(format!("in phase {phase} {go_on} of {ranks} ranks go on")),
        }
    }
    Ok(logs)
}
