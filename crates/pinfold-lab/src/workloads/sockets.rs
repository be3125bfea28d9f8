//! Traffic of sockets, made up: the paper's was recorded from telnet, rlogin, FTP and X, and is not
//! there any more.

use super::references::{BUFFERS, Reference, Way};
use crate::random::Random;

/// Processes (section 6.2).
pub const PROCESSES: u32 = 32;
/// Pages that a process sends from: an interactive one has a buffer of its own, FTP a file's.
const SEND_PAGES: [u32; 4] = [1, 1, 16, 2];

/// Sessions of all processes: each receives `rounds` times as many messages as it has buffers, and
/// sends one for each. So many sessions are alive at once; when one ends the next begins. Returns
/// references with their processes.
pub fn sessions(random: &mut Random, at_once: u32, rounds: u32) -> Vec<(u32, Reference)> {
    let mut left: Vec<u32> = vec![BUFFERS * rounds; PROCESSES as usize];
    let (mut alive, mut next): (Vec<u32>, u32) = (Vec::new(), 0);
    let mut all = Vec::new();
    loop {
        while alive.len() < at_once as usize && next < PROCESSES {
            alive.push(next);
            next += 1;
        }
        if alive.is_empty() {
            return all;
        }
        let at = random.below(alive.len() as u64) as usize;
        let process = alive[at];
        let left = &mut left[process as usize];
        let buffer = (BUFFERS * rounds - *left) % BUFFERS;
        let sends = SEND_PAGES[process as usize % SEND_PAGES.len()];
        let page = BUFFERS + random.below(u64::from(sends)) as u32;
        all.push((process, Reference { way: Way::Receive, page: buffer }));
        all.push((process, Reference { way: Way::Transmit, page }));
        *left -= 1;
        if *left == 0 {
            alive.swap_remove(at);
        }
    }
}
