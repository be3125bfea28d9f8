//! A table of counters that several processes change at the same time, while its owner sleeps. Run
//! it: `cargo run --example key_value`.
//!
//! The program starts itself twice more, with the address as its argument; each of these processes
//! counts events in the table. The table is a region: slots of two words, a key and its count, in
//! which a key takes the first free slot from its place on (linear probing).

use std::{env, error::Error, process::Command, time::Duration};

use pinfold::{Endpoint, RegionKey, RemoteRegion, Rights};

const SLOTS: u64 = 256;
const SLOT_BYTES: u64 = 16;
const KEYS: u64 = 100;
const ROUNDS: u64 = 50;
const WRITERS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(10);
/// The tags: the key of the region, and the word that a writer is done.
const TABLE: u64 = 1;
const DONE: u64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = env::args().nth(1) {
        return Ok(count(&address)?);
    }
    let address = format!("local:key-value-{}", std::process::id());
    let endpoint = Endpoint::listen(&address)?;
    let table = endpoint.region((SLOTS * SLOT_BYTES) as usize, Rights::ReadWrite)?;
    let key = table.key().expect("a region that was not revoked has a key");
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        writers.push(Command::new(env::current_exe()?).arg(&address).spawn()?);
        let peer = endpoint.accept_timeout(PATIENCE)?;
        endpoint.send(peer, TABLE, &key.to_bytes())?;
    }
    for _ in 0..WRITERS {
        endpoint.recv_timeout(pinfold::Source::Any, DONE, PATIENCE)?;
    }

    let bytes = table.to_vec()?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let slots = (0..bytes.len()).step_by(SLOT_BYTES as usize).map(|at| (word(at), word(at + 8)));
    let mut counts: Vec<(u64, u64)> = slots.filter(|&(key, _)| key != 0).collect();
    counts.sort();
    let expected: Vec<(u64, u64)> = (1..=KEYS).map(|key| (key, WRITERS * ROUNDS)).collect();
    assert_eq!(counts, expected);

    for writer in &mut writers {
        assert!(writer.wait()?.success());
    }
    println!("{WRITERS} processes counted {KEYS} keys {ROUNDS} times each, and none was lost");
    Ok(())
}

fn count(address: &str) -> pinfold::Result<()> {
    let endpoint = Endpoint::new()?;
    let owner = endpoint.connect(address)?;
    let key = RegionKey::from_bytes(&endpoint.recv(owner, TABLE)?)?;
    let table = endpoint.open_region(owner, &key)?;
    for _ in 0..ROUNDS {
        for key in 1..=KEYS {
            add(&table, key, 1)?;
        }
    }
    endpoint.send(owner, DONE, &[])?;
    endpoint.drain(PATIENCE)
}

/// Adds to the count of a key that is not 0, and returns what it was. Loops for ever in a table
/// that is full of other keys.
fn add(table: &RemoteRegion, key: u64, by: u64) -> pinfold::Result<u64> {
    // Fibonacci hashing: Knuth, *The Art of Computer Programming* 3, section 6.4.
    let mut slot = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) % SLOTS;
    loop {
        let at = slot * SLOT_BYTES;
        let there = table.compare_swap(at, 0, key)?;
        if there == 0 || there == key {
            return table.fetch_add(at + 8, by);
        }
        slot = (slot + 1) % SLOTS;
    }
}
