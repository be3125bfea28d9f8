//! The settings of an endpoint, checked.

use std::{sync::Arc, time::Duration};

use crate::{
    Error, PathSet, Result,
    endpoint::{engine::peer::MESSAGE_COST, handlers::Handlers},
    link::{
        local::{Access, Address, Limits},
        tcp::{self, key::Key, outlet::Settings},
    },
    wire::layout::{BULK_BYTES_MAX, RING_SLOTS_MAX},
};

/// Who drives an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The threads that call it, while they call: U-Net/MM's fast trap. A first future that has
    /// to wait starts a thread, for nobody else could complete it.
    #[default]
    Inline,
    /// A thread of its own: U-Net/MM's co-processor. Messages move while the program computes.
    Dedicated,
}

/// The settings of an endpoint. Made by [`Builder`](crate::Builder).
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub listen: Option<Address>,
    /// The same for other hosts.
    pub listen_afar: Option<tcp::address::Address>,
    /// Whether peers that come by host and port and are on this host are to be reached as such.
    pub local_shortcut: bool,
    /// What peers on other hosts have to share.
    pub key: Option<Arc<Key>>,
    /// Whether connections with them are encrypted.
    pub encrypts: bool,
    pub label: String,
    pub access: Access,
    pub paths: PathSet,
    pub strict: bool,
    pub progress: Progress,
    pub connect_timeout: Duration,
    /// How long a peer on another host may be without a connection; zero: not at all.
    pub away_max: Duration,
    /// Memory that lanes to peers may grow by, beyond what each always has.
    pub lane_bytes_max: usize,
    /// Memory for messages nobody has asked for yet, over all peers.
    pub unexpected_bytes_max: usize,
    pub peers_max: usize,
    /// Address space for arenas of peers.
    pub mapped_bytes_max: usize,
    /// Memory for active messages that were fetched for their handlers.
    pub active_bytes_max: usize,
    pub handlers: Handlers,
    /// How long messages go to other hosts.
    pub sending: Settings,
    /// Whether pages of messages may be moved; if the program has not said, where nothing speaks against it.
    pub moves: Option<bool>,
    /// Whether the memory of receives is made ready before their messages come; the same.
    pub prepares: Option<bool>,
}

/// Credit for eager messages a peer is granted at most: more than a full lane holds, so that credit
/// is only ever short while messages really are unexpected.
const GRANT_BYTES_MAX: u64 = 512 << 10;
const _: () =
    assert!(GRANT_BYTES_MAX >= BULK_BYTES_MAX as u64 + RING_SLOTS_MAX as u64 * (MESSAGE_COST + 56));
/// The same for a peer on another host, and its share: what is on the way there, in the buffers of two sockets, is a
/// message that has not come yet. With less, a stream over the loopback announces most of its messages, of 64 KiB as
/// of 1 MiB, and each of these takes two packets more.
const GRANT_AFAR_BYTES_MAX: u64 = 8 << 20;
const GRANT_AFAR_SHARE: u64 = 16;
/// Announced messages a peer is granted at most.
const GRANT_MESSAGES_MAX: u64 = 1 << 17;

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: None,
            listen_afar: None,
            local_shortcut: true,
            key: None,
            encrypts: false,
            label: String::new(),
            access: Access::same_user(),
            paths: PathSet::all(),
            strict: false,
            progress: Progress::Inline,
            connect_timeout: Duration::from_secs(30),
            away_max: Duration::from_secs(10),
            lane_bytes_max: 64 << 20,
            unexpected_bytes_max: 128 << 20,
            peers_max: 1 << 20,
            mapped_bytes_max: 1 << 40,
            active_bytes_max: 256 << 20,
            handlers: Handlers::default(),
            sending: Settings::default(),
            moves: None,
            prepares: None,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, limit, remedy| Err(Error::LimitReached { what, limit, remedy });
        if self.label.len() > 32 {
            return limit("the label of an endpoint, in bytes,", 32, "choose a shorter one");
        }
        if !self.paths.contains(crate::Path::Eager) && !self.paths.contains(crate::Path::Cma) {
            return limit(
                "a message, without a path for longer ones,",
                crate::wire::descriptor::INLINE_MAX as u64,
                "allow eager, which always works, or cma",
            );
        }
        Ok(())
    }

    /// What the next peer, on this host or `afar`, is granted out of `left` bytes of the budget for unexpected
    /// messages.
    ///
    /// An eighth of what is left, up to a ceiling, half of it for bytes and half for announcements:
    /// the sum of all grants never exceeds the budget, and late comers get less, not nothing.
    pub(crate) fn grant(&self, left: usize, afar: bool) -> Limits {
        let left = left as u64;
        let share = (left / 8).max(MESSAGE_COST);
        let messages = (share / MESSAGE_COST / 2).min(GRANT_MESSAGES_MAX);
        let bytes = (share / 2).min(GRANT_BYTES_MAX);
        let on_the_way = (left / GRANT_AFAR_SHARE).min(GRANT_AFAR_BYTES_MAX);
        Limits {
            unexpected_bytes: if afar { bytes.max(on_the_way) } else { bytes },
            rendezvous_max: messages.max(1) as u32,
        }
    }

    /// What a grant takes of the budget.
    pub(crate) fn grant_cost(&self, bytes: u64, messages: u32) -> usize {
        (bytes + u64::from(messages) * MESSAGE_COST) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::budget::Budget;

    #[test]
    fn grants_never_exceed_the_budget_and_never_end() {
        let config = Config { unexpected_bytes_max: 1 << 20, ..Config::default() };
        for afar in [false, true] {
            let mut budget = Budget::new(config.unexpected_bytes_max);
            let mut served = 0;
            for _ in 0..2000 {
                let grant = config.grant(budget.left(), afar);
                assert!(grant.rendezvous_max >= 1);
                if budget.take(config.grant_cost(grant.unexpected_bytes, grant.rendezvous_max)) {
                    served += 1;
                }
            }
            assert!(served > 30);
            assert!(budget.used() <= config.unexpected_bytes_max);
        }
    }

    #[test]
    fn who_is_afar_is_granted_what_may_be_on_the_way() {
        let bytes = |left: usize, afar| Config::default().grant(left, afar).unexpected_bytes;
        assert_eq!([false, true].map(|afar| bytes(64 << 20, afar)), [512 << 10, 4 << 20]);
        assert_eq!([false, true].map(|afar| bytes(1 << 30, afar)), [512 << 10, 8 << 20]);
        // Where little is left, it is the same for all.
        assert_eq!([false, true].map(|afar| bytes(1 << 20, afar)), [64 << 10; 2]);
    }
}
