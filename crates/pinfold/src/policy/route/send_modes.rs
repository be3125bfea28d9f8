//! Send modes: which way to send long messages to another host is cheapest for them. No I/O.
//!
//! The ways are those of Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*, sections 4.1
//! and 5.2, as Linux has them today. The cost of each is measured when the program starts
//! ([`SendModes::learn`]) and predicted from there: a fixed cost, a cost for each piece, and a cost
//! that grows with the bytes, by straight lines between the sizes that were measured.

use serde::{Deserialize, Serialize};

/// A way to send.
///
/// ```
/// use pinfold::{Endpoint, Progress, SendMode};
///
/// # fn main() -> pinfold::Result<()> {
/// let server = Endpoint::builder().listen("tcp:127.0.0.1:0").progress(Progress::Dedicated);
/// let server = server.local_shortcut(false).build()?;
/// let client = Endpoint::builder().local_shortcut(false).send_mode(SendMode::Plain).build()?;
/// let peer = client.connect(&server.listens_at().expect("it listens"))?;
/// let receiving = server.recv_request(.., 1);
/// let receipt = client.send(peer, 1, &vec![1; 1 << 20])?;
/// assert_eq!(receiving.wait()?.len(), 1 << 20);
/// assert_eq!(receipt.sent_by(), Some(SendMode::Plain));
/// assert!(SendMode::Plain.copies() && !SendMode::Cached.copies());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendMode {
    /// The kernel copies, asked by a system call: `sendmsg(2)`.
    Plain,
    /// The kernel copies, asked by a ring: `IORING_OP_SEND`. The paper's two-copy driver.
    TwoCopy,
    /// The network takes the bytes from where they lie; their pages are held for the time of the
    /// send: `IORING_OP_SEND_ZC`, or `MSG_ZEROCOPY` where there is no ring. The paper's SCDA.
    PerSend,
    /// The same from memory that is registered, so held already, and still after the send. The
    /// paper's SCDB. Endpoints keep
    /// memory registered only where they can check that it is still the memory mapped there
    /// (`CAP_SYS_ADMIN`).
    Cached,
    /// The same from the start of a page, which is a page less to name. The paper's SCDC, which
    /// places each message there: a caller's matter, so endpoints, which send a message from where
    /// it lies, do nothing else for it than for [`SendMode::Cached`], and say that.
    Aligned,
}

impl SendMode {
    /// Every mode.
    pub const ALL: [SendMode; 5] = [
        SendMode::Plain,
        SendMode::TwoCopy,
        SendMode::PerSend,
        SendMode::Cached,
        SendMode::Aligned,
    ];

    /// The name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            SendMode::Plain => "plain",
            SendMode::TwoCopy => "two-copy",
            SendMode::PerSend => "per-send",
            SendMode::Cached => "cached",
            SendMode::Aligned => "aligned",
        }
    }

    /// Returns whether the kernel copies.
    pub fn copies(self) -> bool {
        matches!(self, SendMode::Plain | SendMode::TwoCopy)
    }
}

/// The interface by which the kernel is asked to send.
///
/// ```
/// use pinfold::{Endpoint, Progress, SendDriver};
///
/// # fn main() -> pinfold::Result<()> {
/// let server = Endpoint::builder().listen("tcp:127.0.0.1:0").progress(Progress::Dedicated);
/// let server = server.local_shortcut(false).build()?;
/// let client = Endpoint::builder().local_shortcut(false).io_uring(false).build()?;
/// let peer = client.connect(&server.listens_at().expect("it listens"))?;
/// let receiving = server.recv_request(.., 1);
/// let receipt = client.send(peer, 1, &vec![1; 1 << 20])?;
/// assert_eq!(receiving.wait()?.len(), 1 << 20);
/// assert_eq!(receipt.send_driver(), Some(SendDriver::Calls));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendDriver {
    /// A system call for each send: `sendmsg(2)`.
    Calls,
    /// An io_uring.
    Ring,
}

impl SendDriver {
    /// The name of the driver.
    pub fn name(self) -> &'static str {
        match self {
            SendDriver::Calls => "calls",
            SendDriver::Ring => "ring",
        }
    }
}

/// Where the kernel finds the bytes that it copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SentFrom {
    /// In a cache: they were written a moment ago.
    Cache,
    /// In main memory.
    Memory,
}

/// The kind of memory that a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendMemory {
    /// Any memory.
    Unregistered,
    /// Registered with the ring, at an address that is given.
    Registered,
    /// Registered, and the message is placed where it suits: at the start of a page.
    Placed,
}

/// A message, as far as it matters for how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The length of the message.
    pub bytes: usize,
    /// The number of its pieces; 0 counts as 1.
    pub pieces: usize,
    /// The number of pages of all pieces, those that two pieces share counted twice; 0 where that
    /// does not matter, since the pieces need not go as one packet.
    pub pages: usize,
    /// Where the bytes are.
    pub from: SentFrom,
    /// The kind of memory they are in.
    pub memory: SendMemory,
}

/// Pages that one packet can name (`MAX_SKB_FRAGS` of a kernel with pages of 4 KiB, unless it was
/// built otherwise). The kernel refuses more with `EMSGSIZE`, where it does not copy.
pub const PAGES_MAX: usize = 17;

/// Messages to other hosts from this length on, in bytes, go past the lane, by one of these modes:
/// the copy through the lane costs more than a frame of its own.
pub const DIRECT_FROM: u64 = 16 << 10;

/// A cost over size: straight lines between points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostCurve {
    /// Bytes and nanoseconds, by size; neither ever falls.
    points: Vec<(f64, f64)>,
}

impl CostCurve {
    /// A curve through these points, bytes and nanoseconds, in any order. Points without a valid
    /// time are left out. Where more bytes seem to cost less, which only noise can do, they cost
    /// the same.
    pub fn through(points: impl IntoIterator<Item = (usize, f64)>) -> CostCurve {
        let sane = |ns: f64| ns.is_finite() && (0.0..1e12).contains(&ns);
        let mut points: Vec<(f64, f64)> = points
            .into_iter()
            .filter(|point| sane(point.1))
            .map(|(bytes, ns)| (bytes as f64, ns))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup_by(|later, first| later.0 == first.0);
        // The mean of both neighbours is nearer to the truth than either where they contradict each
        // other.
        let mut level: Vec<(f64, f64, usize)> = Vec::new();
        for &(_, ns) in &points {
            let mut block = (ns, 1.0, 1);
            while let Some(last) = level.last().filter(|last| last.0 > block.0).copied() {
                level.pop();
                let weight = last.1 + block.1;
                block = ((last.0 * last.1 + block.0 * block.1) / weight, weight, last.2 + block.2);
            }
            level.push(block);
        }
        let levels = level.iter().flat_map(|&(ns, _, count)| std::iter::repeat_n(ns, count));
        points.iter_mut().zip(levels).for_each(|(point, ns)| point.1 = ns);
        CostCurve { points }
    }

    /// The cost of `bytes`, nanoseconds; beyond the points as between the two nearest. `None` if
    /// there are no points. Some ns.
    pub fn at(&self, bytes: usize) -> Option<f64> {
        let bytes = bytes as f64;
        let [first, .., last] = *self.points else {
            return self.points.first().map(|point| point.1);
        };
        if bytes <= first.0 {
            // Shorter messages are not cheaper than the shortest that was measured.
            return Some(first.1);
        }
        let after = self.points.partition_point(|point| point.0 < bytes);
        let after = after.min(self.points.len() - 1);
        let ((from, low), (to, high)) = (self.points[after - 1], self.points[after]);
        let line = low + (bytes - from) / (to - from) * (high - low);
        Some(if bytes > last.0 { line.max(last.1) } else { line })
    }
}

/// The cost of one mode, for messages that are in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceCost {
    /// The cost of one piece.
    pub curve: CostCurve,
    /// The added cost of more than one piece, nanoseconds.
    pub several_ns: f64,
    /// The cost of each piece beyond the second, nanoseconds.
    pub piece_ns: f64,
}

/// The cost of one mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendCost {
    /// From a cache.
    pub cache: SourceCost,
    /// From memory: also each piece may begin with a wait for it.
    pub memory: SourceCost,
}

impl SendCost {
    fn predict(&self, it: &Outgoing) -> Option<f64> {
        let source = match it.from {
            SentFrom::Cache => &self.cache,
            SentFrom::Memory => &self.memory,
        };
        let cost = |ns: f64| if ns.is_nan() { 0.0 } else { ns.clamp(0.0, 1e12) };
        let pieces = match it.pieces {
            0 | 1 => 0.0,
            more => cost(source.several_ns) + cost(source.piece_ns) * (more - 2) as f64,
        };
        source.curve.at(it.bytes).map(|one| one + pieces)
    }
}

/// The costs of all modes on this machine, and the choice among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendModes {
    /// Costs by [`SendMode::ALL`]; `None` for a mode that cannot be used here.
    costs: [Option<SendCost>; SendMode::ALL.len()],
}

impl SendModes {
    /// Takes note of the cost of one mode. A mode without known costs is not taken.
    pub fn learn(&mut self, mode: SendMode, cost: SendCost) {
        self.costs[mode as usize] = Some(cost);
    }

    /// Returns whether the message can go this way at all.
    pub fn is_possible(mode: SendMode, it: &Outgoing) -> bool {
        let memory = match mode {
            SendMode::Plain | SendMode::TwoCopy | SendMode::PerSend => true,
            SendMode::Cached => it.memory != SendMemory::Unregistered,
            SendMode::Aligned => it.memory == SendMemory::Placed,
        };
        memory && (mode.copies() || it.pages <= PAGES_MAX)
    }

    /// The expected cost, nanoseconds of processor time. `None` if the message cannot go this way,
    /// or if the cost is not known.
    pub fn predict(&self, mode: SendMode, it: &Outgoing) -> Option<f64> {
        let cost = self.costs[mode as usize].as_ref()?;
        cost.predict(it).filter(|_| SendModes::is_possible(mode, it))
    }

    /// The mode that is expected to be cheapest. Without known costs it is [`SendMode::Plain`],
    /// which works everywhere. Some tens of ns.
    pub fn pick(&self, it: &Outgoing) -> SendMode {
        let known =
            SendMode::ALL.into_iter().filter_map(|mode| Some((mode, self.predict(mode, it)?)));
        let best = known.min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(SendMode::Plain, |best| best.0)
    }
}

/// Picks as [`SendModes::pick`] does, and remembers the last answer: messages often come many
/// alike.
#[derive(Clone, Debug, Default)]
pub struct SendPicker {
    modes: SendModes,
    last: Option<(Outgoing, SendMode)>,
}

impl SendPicker {
    /// A picker with these costs.
    pub fn new(modes: SendModes) -> SendPicker {
        SendPicker { modes, last: None }
    }

    /// The mode that is expected to be cheapest. A few ns for a message like the last one.
    #[inline]
    pub fn pick(&mut self, it: &Outgoing) -> SendMode {
        match self.last {
            Some((last, mode)) if last == *it => mode,
            _ => {
                let mode = self.modes.pick(it);
                self.last = Some((*it, mode));
                mode
            }
        }
    }
}

#[cfg(test)]
mod tests;
