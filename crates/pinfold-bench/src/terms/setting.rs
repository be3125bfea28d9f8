//! The circumstances under which messages go.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{
    id::{Id, Kind},
    what::What,
};

/// What goes on beside the messages of a row, or is out of the ordinary about them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Setting {
    /// Nothing: each process has a core for itself, and one message follows the other
    Alone,
    /// Beside a third process that computes all the time; no process is bound to a core
    Neighbour,
    /// A message every millisecond
    Paced,
    /// Pinfold with a progress thread in each process; no process is bound to a core
    Dedicated,
    /// Every other message has another tag
    Tags,
    /// 64 receives of other messages are posted
    Posted,
    /// 16 peers take turns
    Peers,
    /// Another pair of processes does the same meanwhile, on the same two cores
    Pairs,
}

impl Setting {
    /// All of them, in the order of their rows.
    pub(crate) const ALL: [Setting; 8] = [
        Setting::Alone,
        Setting::Neighbour,
        Setting::Paced,
        Setting::Dedicated,
        Setting::Tags,
        Setting::Posted,
        Setting::Peers,
        Setting::Pairs,
    ];

    /// The name that options and records use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Setting::Alone => "alone",
            Setting::Neighbour => "neighbour",
            Setting::Paced => "paced",
            Setting::Dedicated => "dedicated",
            Setting::Tags => "tags",
            Setting::Posted => "posted",
            Setting::Peers => "peers",
            Setting::Pairs => "pairs",
        }
    }

    /// Two lines at most below the heading of a table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Setting::Alone => "",
            Setting::Neighbour => {
                "Beside a third process that computes all the time; no process is bound to a core, \
                 all wait asleep:"
            }
            Setting::Paced => "A message every millisecond; all wait asleep:",
            Setting::Dedicated => {
                "Pinfold with a progress thread in each process; no process is bound to a core:"
            }
            Setting::Tags => "Every other message of Pinfold has another tag:",
            Setting::Posted => {
                "64 receives of other messages are posted at either side of Pinfold:"
            }
            Setting::Peers => "16 peers of an endpoint, or 16 pipes or sockets, take turns:",
            Setting::Pairs => {
                "Another pair of processes does the same meanwhile, on the same two cores; all wait asleep:"
            }
        }
    }

    /// Returns whether the kernel may move the processes from core to core meanwhile.
    pub(crate) const fn is_unbound(self) -> bool {
        matches!(self, Setting::Neighbour | Setting::Dedicated)
    }

    /// Returns whether the processes wait for processors, or may move, by right: then that is
    /// measured, and how far apart their cores are cannot be told.
    pub(crate) const fn is_crowded(self) -> bool {
        self.is_unbound() || matches!(self, Setting::Pairs)
    }

    /// Returns whether subjects wait asleep, although they are not measured for their processor
    /// time.
    pub(crate) const fn is_asleep(self) -> bool {
        matches!(self, Setting::Neighbour | Setting::Paced | Setting::Pairs)
    }

    /// Returns whether the measure says something under it.
    pub(crate) const fn measures(self, what: What) -> bool {
        match self {
            Setting::Alone => true,
            Setting::Neighbour => matches!(what, What::Latency),
            Setting::Paced => matches!(what, What::Latency | What::Cpu),
            Setting::Dedicated
            | Setting::Tags
            | Setting::Posted
            | Setting::Peers
            | Setting::Pairs => {
                matches!(what, What::Latency | What::Rate)
            }
        }
    }

    /// Returns whether a subject is set beside others under it: Pinfold as it is used, and its
    /// alternatives that can wait asleep.
    pub(crate) fn has(self, id: Id) -> bool {
        let usual = matches!(id.kind, Kind::Pipe | Kind::Unix | Kind::Tcp) || id == Id::AUTO;
        self == Setting::Alone || usual
    }

    /// The setting for which a subject is set up to be measured under this one: [`Setting::Alone`]
    /// if that makes no difference.
    pub(crate) fn made_for(self, id: Id) -> Setting {
        match self {
            // An endpoint looks at where its thread may run when it is made.
            Setting::Neighbour | Setting::Dedicated if id == Id::AUTO => self,
            Setting::Peers => self,
            _ => Setting::Alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_difference_is_set_up_once() {
        let pipe = Id::plain(Kind::Pipe);
        for setting in Setting::ALL {
            assert!(setting.has(pipe) && setting.has(Id::AUTO));
            assert_eq!(setting.has(Id::ARENA), setting == Setting::Alone);
            let own = setting.made_for(Id::AUTO);
            assert!(own == setting || own == Setting::Alone);
        }
        assert_eq!(Setting::Dedicated.made_for(pipe), Setting::Alone);
        assert_eq!(Setting::Peers.made_for(pipe), Setting::Peers);
    }

    #[test]
    fn beside_others_all_wait_asleep() {
        // Subjects that look again at once, beside another process, would wait for each other.
        assert!(Setting::Neighbour.is_unbound() && Setting::Neighbour.is_asleep());
        assert!(!Setting::Alone.is_unbound() && !Setting::Alone.is_asleep());
    }
}
