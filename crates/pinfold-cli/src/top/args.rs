//! The options of `pinfold top`.

use std::time::Duration;

/// Watch the endpoints of this user: peers, rates, paths, refusals, memory
///
/// Reads what each endpoint keeps in a memory file of its own; nothing is asked of it and nothing
/// wakes it. Root sees the endpoints of every user. On a terminal the table is drawn anew each
/// second, sorted by traffic; Ctrl-C ends it. Elsewhere it is printed once, with totals.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct TopArgs {
    /// Print once, with totals, and end
    #[arg(long)]
    once: bool,

    /// Print JSON, one object a line; once, unless --interval is given
    #[arg(long)]
    json: bool,

    /// Print metrics for Prometheus (its text format), once
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    prometheus: bool,

    /// Seconds between two looks, 0.1 to 3600 [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    interval: Option<Duration>,

    /// Only the endpoints of this process, whoever's it is
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
}

const AFTER: &str = "\
Examples:
  pinfold top
  pinfold top --once
  pinfold top --json | jq 'select(.kind == \"peer\" and .blocked)'
  pinfold top --json --interval 5 --pid 4711
  pinfold top --prometheus > /var/lib/node_exporter/pinfold.prom.new

Columns: messages and bytes, sent and received, a second (with --once: ever); QUEUED sends that are
not out yet, or that the receiver has not asked for; HELD bytes that came before anybody asked for
them; MEMORY of lanes and held messages. Below a peer: what is done to its memory, and its active
messages, if there are any; they are among the messages. Below an endpoint: bytes in bulk copies, for
which an algorithm is chosen, and those of them that are streamed past the caches. Where a terminal is too narrow, a row takes
two lines.

Fields of --json. Every object has kind and time_ms (since 1970).
  endpoint  id, pid, command, uid, user, label, address (null if it does not listen),
            name_lost (whether another endpoint has taken that name), age_s, state (awake, asleep or
            armed: its program waits on its descriptor), looked_ago_s (since
            it last looked around or fell asleep), peers, peers_unlisted (without an object of
            their own), newcomers (not accepted yet), posted (receives that wait), stored
            (messages that wait), copying (long messages), sent and received (by path: messages,
            bytes), copied_user, copied_bulk (of it and of what is done to regions, by an algorithm
            chosen for the copy), copied_streamed (of that, past the caches), copied_by (of
            copied_bulk, by algorithm: copies, bytes) and copied_by_size (by the least bytes of a
            class), both put down now and then, copied_kernel, unexpected, credit_stalls, room_stalls,
            doorbells_sent, one_sided (done by it on memory of peers: writes, written_bytes, reads,
            read_bytes, atomics; of the writes and reads by_kernel and by_agent, what was not done
            through a mapping), called (calls and requests it made), handled (that a handler has
            seen to), handlers_panicked, unhandled (dropped), undelivered (that nobody had waited for),
            given_stalls (waits until something given was back), replaced (by newer ones), sleeps,
            barriers (membarrier, by its process), tlb_hits, pin_hits and pin_misses (parts of
            messages sent from memory, by the level of translation that had it), pin_evictions,
            pinned_bytes, peers_joined, peers_gone, lane_bytes, lane_bytes_max, granted_bytes,
            unexpected_bytes_max, mapped_bytes (arenas of peers), mapped_bytes_max, arena_files,
            arena_bytes (of its process), rates
  peer      of (id of the endpoint whose peer it is), of_pid, peer (which of its peers), id (of the
            peer's endpoint), pid (0 if it is not known here), uid, label, address (null if it was
            the peer that connected), paths, refused (by path: why), sent, received, unexpected,
            credit_stalls, room_stalls, doorbells_sent, one_sided (on its memory), called (to
            it), handled (of it), given_stalls, replaced, given_bytes (given to it and not back),
            queued, answers, waiting and waiting_max (announced to it), waits_s (how long the send
            has waited that has waited longest, queued or announced, or null), credit_used and
            credit_max, owed and granted (credit of the peer in use here), announced and announced_max (by it), arriving, lane_bytes, blocked,
            leaving, encrypted, rates
  trouble   pid, command, problem (other_version, nonsense, unsteady or unreadable), text
  summary   endpoints, peers, hidden (processes of this user that may not be looked into)
rates is null at the first look; then sent_messages, sent_bytes, received_messages, received_bytes,
writes, written_bytes, reads, read_bytes, atomics, called and handled a second.

Exit status:
  0  done, or interrupted
  1  nothing could be read or written, or --pid names a process without an endpoint
  2  the command line makes no sense";

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("it is not between 0.1 and 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A table, for people.
    Table,
    Json,
    Prometheus,
}

impl TopArgs {
    pub(super) fn form(&self) -> Form {
        match (self.json, self.prometheus) {
            (_, true) => Form::Prometheus,
            (true, false) => Form::Json,
            (false, false) => Form::Table,
        }
    }

    /// Time from look to look, if there is to be more than one.
    pub(super) fn again(&self, terminal: bool) -> Option<Duration> {
        let interval = self.interval.unwrap_or(Duration::from_secs(1));
        let again = match self.form() {
            Form::Table => terminal,
            Form::Json => self.interval.is_some(),
            Form::Prometheus => false,
        };
        (again && !self.once).then_some(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_look_again() {
        let args = |once, json, interval: Option<u64>| TopArgs {
            once,
            json,
            prometheus: false,
            interval: interval.map(Duration::from_secs),
            pid: None,
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(args(false, false, None).again(true), second);
        assert_eq!(args(false, false, Some(1)).again(false), None);
        assert_eq!(args(true, false, None).again(true), None);
        assert_eq!(args(false, true, None).again(true), None);
        assert_eq!(args(false, true, Some(1)).again(false), second);
        assert_eq!(args(true, true, Some(1)).again(true), None);
        let metrics = TopArgs { prometheus: true, ..args(false, false, None) };
        assert_eq!((metrics.form(), metrics.again(true)), (Form::Prometheus, None));
    }

    #[test]
    fn intervals() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "3601", "soon", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
