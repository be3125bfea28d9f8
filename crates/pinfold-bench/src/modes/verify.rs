//! A check that messages arrive as they were sent, by each mode, with a receiver at the far end;
//! and that the kernel then copied nothing that was not to be copied.

use std::{net::UdpSocket, time::Duration};

use crate::datagram::Sender;
use pinfold::route::{SendMode, SentFrom};

use super::{
    cell::{self, AREA_BYTES, Cell},
    ground::Ground,
};
use crate::{
    fail::{Fail, Result},
    verify::{check, fill, seed},
};

/// Messages that are checked; the longest ones are several datagrams.
const CELLS: [(usize, usize); 5] = [(136, 1), (3936, 1), (3936, 4), (16_000, 8), (63_000, 1)];

const LIMIT: Duration = Duration::from_secs(5);

/// The checks of one mode.
pub(super) struct Verified {
    pub(super) mode: SendMode,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) notified: u64,
    pub(super) copied: u64,
    /// The reason why no check was made, or not all.
    pub(super) absent: Option<String>,
}

/// Checks all modes.
///
/// # Errors
/// [`Fail::Wrong`], and any failure of the network.
pub(super) fn verify(ground: &Ground) -> Result<Vec<Verified>> {
    SendMode::ALL.into_iter().map(|mode| one(ground, mode)).collect()
}

fn one(ground: &Ground, mode: SendMode) -> Result<Verified> {
    let way = cell::way(mode);
    let mut all = Verified { mode, messages: 0, bytes: 0, notified: 0, copied: 0, absent: None };
    let (socket, there) = ground.to_somebody()?;
    let registered = matches!(mode, SendMode::Cached | SendMode::Aligned);
    let made = match mode {
        SendMode::Plain => Sender::without_ring(socket, 1, AREA_BYTES),
        _ => Sender::new(socket, 1, AREA_BYTES, registered),
    };
    let mut sender = match made {
        Ok(sender) => sender,
        Err(why) => return Ok(Verified { absent: Some(why.to_string()), ..all }),
    };
    for (at, (bytes, pieces)) in CELLS.into_iter().enumerate() {
        let cell = Cell { bytes, pieces, from: SentFrom::Cache };
        let parts = cell.pieces(mode == SendMode::Aligned);
        if let Err(why) = sender.check(way, pieces) {
            all.absent = Some(why.to_string());
            continue;
        }
        let said = |why: &dyn std::fmt::Display| Fail::Said(format!("{}: {why}", mode.name()));
        let mut area = sender.take().ok_or_else(|| said(&"memory is still in flight"))?;
        let (seed, mut message) = (seed(at as u64), vec![0; bytes]);
        fill(&mut message, seed);
        // Bytes between the pieces are not to be sent.
        let (memory, mut rest) = (sender.bytes_mut(&mut area), &message[..]);
        memory.fill(0xee);
        for part in &parts {
            let (piece, later) = rest.split_at(part.len());
            memory[part.clone()].copy_from_slice(piece);
            rest = later;
        }
        sender.send(area, &parts, way).map_err(|refused| said(&refused.error))?;
        sender.settle(LIMIT).map_err(|why| said(&why))?;
        let counts = sender.counts();
        if counts.failed > 0 {
            let errno = counts.errno.map_or("?".into(), |errno| errno.to_string());
            all.absent = Some(format!("{}: {errno}", way.call(pieces)));
            break;
        }
        let got = receive(&there, bytes).map_err(|why| said(&why))?;
        check(&got, seed).map_err(|source| Fail::Wrong {
            subject: mode.name().into(),
            size: bytes,
            source,
        })?;
        (all.messages, all.bytes) = (counts.sent, counts.bytes);
        (all.notified, all.copied) = (counts.notified, counts.copied);
    }
    Ok(all)
}

/// Receives `bytes` bytes, of as many datagrams as it takes.
fn receive(from: &UdpSocket, bytes: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut one) = (Vec::new(), vec![0; 1 << 16]);
    while all.len() < bytes {
        let len = from.recv(&mut one)?;
        all.extend_from_slice(&one[..len]);
    }
    Ok(all)
}
