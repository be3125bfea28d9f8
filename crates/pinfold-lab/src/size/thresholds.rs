//! The lengths at which the library's costs change their mind, and the ways that it takes.

use pinfold::route::{
    CostModel, DIRECT_FROM, INLINE_MAX, Outgoing, Path, PinLimits, SendMemory, SendMode, SendModes,
    SentFrom,
};

use super::BYTES_MAX;

/// The path of a message to a peer on this host, by the costs that the library begins with.
pub fn path(bytes: u64, is_shareable: bool) -> Path {
    if bytes <= INLINE_MAX {
        return Path::Inline;
    }
    let open: &[Path] = match is_shareable {
        true => &[Path::Eager, Path::Cma, Path::Mapped],
        false => &[Path::Eager, Path::Cma],
    };
    let cost = |path: &Path| CostModel::DEFAULT.predict(*path, bytes);
    let cheapest = open.iter().copied().min_by(|a, b| cost(a).total_cmp(&cost(b)));
    cheapest.unwrap_or(Path::Eager)
}

/// The least length for which `is_past` holds, which holds for all that are longer; `None` up to
/// [`BYTES_MAX`].
fn least(is_past: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, BYTES_MAX);
    if !is_past(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_past(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// The length from which a message is a rendezvous: no copy through the ring.
pub fn rendezvous_from(is_shareable: bool) -> Option<u64> {
    least(|bytes| !matches!(path(bytes, is_shareable), Path::Inline | Path::Eager))
}

/// The cost of a send, by the costs that the library begins with, ns of processor time.
pub fn cost_ns(mode: SendMode, bytes: u64) -> f64 {
    cost_by(&SendModes::priors(), mode, bytes)
}

/// The same by the costs in `modes`; infinite where a mode cannot be used.
pub fn cost_by(modes: &SendModes, mode: SendMode, bytes: u64) -> f64 {
    let it = Outgoing {
        bytes: bytes as usize,
        pieces: 1,
        pages: 0,
        from: SentFrom::Memory,
        memory: SendMemory::Registered,
    };
    modes.predict(mode, &it).unwrap_or(f64::INFINITY)
}

/// The length from which a message to another host costs less by `mode` than by `other`.
pub fn cheaper_from(mode: SendMode, other: SendMode) -> Option<u64> {
    least(|bytes| cost_ns(mode, bytes) < cost_ns(other, bytes))
}

/// The costs of a message to another host by each way of sending, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendCosts {
    /// The kernel copies.
    pub copied: f64,
    /// Its pages are held for this send.
    pub per_send: f64,
    /// From the pin-down cache; a miss costs as much as a send that holds its pages for itself.
    pub cached: f64,
}

/// The costs of a message, where so many of the pin-down cache's look-ups hit, 0 to 1.
pub fn send_costs(bytes: u64, hit_part: f64) -> SendCosts {
    let [copied, per_send, hit] =
        [SendMode::Plain, SendMode::PerSend, SendMode::Cached].map(|mode| cost_ns(mode, bytes));
    SendCosts { copied, per_send, cached: hit_part * hit + (1.0 - hit_part) * per_send }
}

/// Returns whether a message to another host could go uncopied and gain by it, if all look-ups hit.
pub fn may_pin(bytes: u64, memlock: u64) -> bool {
    let costs = send_costs(bytes, 1.0);
    bytes >= DIRECT_FROM
        && memlock >= bytes.min(PinLimits::SEND_BYTES_MAX as u64)
        && costs.per_send.min(costs.cached) < costs.copied
}

/// The mode of a message to another host.
pub fn send_mode(bytes: u64, memlock: u64, hit_part: f64) -> SendMode {
    let costs = send_costs(bytes, hit_part);
    if !may_pin(bytes, memlock) || costs.copied <= costs.per_send.min(costs.cached) {
        SendMode::Plain
    } else if costs.cached < costs.per_send {
        SendMode::Cached
    } else {
        SendMode::PerSend
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_change_where_the_costs_cross() {
        // 120 + 0.10 n against 1100 + 0.075 n, and against 350 + 0.05 n.
        assert_eq!(rendezvous_from(false), Some(39_201));
        assert_eq!(rendezvous_from(true), Some(4601));
        assert_eq!((path(56, true), path(57, true)), (Path::Inline, Path::Eager));
        assert_eq!((path(4601, true), path(39_201, false)), (Path::Mapped, Path::Cma));
    }

    #[test]
    fn modes_follow_length_hits_and_what_may_be_locked() {
        let all = u64::MAX;
        assert_eq!(send_mode(DIRECT_FROM - 1, all, 1.0), SendMode::Plain);
        let per_send = cheaper_from(SendMode::PerSend, SendMode::Plain).unwrap();
        let cached = cheaper_from(SendMode::Cached, SendMode::PerSend).unwrap();
        assert!(DIRECT_FROM < per_send && per_send < cached, "{per_send} {cached}");
        assert_eq!(send_mode(per_send - 1, all, 1.0), SendMode::Plain);
        assert_eq!(send_mode(per_send, all, 1.0), SendMode::PerSend);
        assert_eq!(send_mode(cached, all, 1.0), SendMode::Cached);
        // A cache that never hits is none.
        assert_eq!(send_mode(1 << 20, all, 0.0), SendMode::PerSend);
        assert_eq!(send_mode(1 << 20, (512 << 10) - 1, 1.0), SendMode::Plain);
        assert_eq!(send_mode(1 << 20, 512 << 10, 1.0), SendMode::Cached);
    }
}
