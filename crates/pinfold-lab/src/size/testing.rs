//! Inputs for tests.

use super::Inputs;

/// A program with 8 peers and this mix.
pub(super) fn inputs(mix: &str) -> Inputs {
    Inputs {
        peers: 8,
        mix: mix.split(',').map(|part| part.parse().unwrap()).collect(),
        nic_tlb: 1024,
        memlock: 8 << 20,
        reuse_percent: 90,
        tlb_misses_percent: 1.0,
        seed: 1,
    }
}
