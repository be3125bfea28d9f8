//! Two sides in one process that know each other's addresses.

use std::ffi::c_void;

use pinfold_fi::ffi::{
    ep::*,
    flags::*,
    queue::{FiCqErrEntry, FiCqTaggedEntry, FidCq},
};

use crate::{
    host::Host,
    side::{PATIENCE, Side, Terms, context},
};

/// Two sides.
pub struct Couple {
    pub one: Side,
    pub two: Side,
    /// The name of the second in the first's address vector, and the other way round.
    pub to_two: u64,
    pub to_one: u64,
}

impl Couple {
    #[track_caller]
    pub fn new(host: &'static Host, terms: Terms) -> Couple {
        let (one, two) = (Side::new(host, terms), Side::new(host, terms));
        let to_two = one.insert(&two.name());
        let to_one = two.insert(&one.name());
        Couple { one, two, to_two, to_one }
    }

    /// The first, as it uses the second.
    pub fn toward(&self) -> Toward<'_> {
        Toward { side: &self.one, other: Some(&self.two), to: self.to_two }
    }

    /// Calls until the answer is not that it would have to wait, while both make progress.
    #[track_caller]
    pub fn post(&self, call: &str, post: impl FnMut() -> isize) {
        posted(call, &[&self.one, &self.two], post);
    }

    /// The completion of a queue of the first's.
    #[track_caller]
    pub fn at_one(&self, cq: *mut FidCq) -> Result<FiCqTaggedEntry, FiCqErrEntry> {
        self.one.take(cq, &[&self.two])
    }

    /// The completion of a queue of the second's.
    #[track_caller]
    pub fn at_two(&self, cq: *mut FidCq) -> Result<FiCqTaggedEntry, FiCqErrEntry> {
        self.two.take(cq, &[&self.one])
    }

    /// Both make progress until something is so.
    #[track_caller]
    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = std::time::Instant::now() + PATIENCE;
        while !is_so() {
            self.one.progress();
            self.two.progress();
            assert!(std::time::Instant::now() < end, "{what}");
        }
    }
}

/// A side that uses another's memory.
#[derive(Clone, Copy)]
pub struct Toward<'a> {
    pub side: &'a Side,
    /// The other, if it is in this process.
    pub other: Option<&'a Side>,
    /// The name of the other in the side's address vector.
    pub to: u64,
}

impl Toward<'_> {
    /// Calls until the answer is not that it would have to wait.
    #[track_caller]
    pub fn post(&self, call: &str, post: impl FnMut() -> isize) {
        let sides: Vec<&Side> = std::iter::once(self.side).chain(self.other).collect();
        posted(call, &sides, post);
    }

    /// The next completion of what was posted.
    #[track_caller]
    pub fn take(&self) -> Result<FiCqTaggedEntry, FiCqErrEntry> {
        self.side.take(self.side.tx, self.other.as_slice())
    }
}

/// Calls until the answer is not `-FI_EAGAIN`, while the sides make progress.
#[track_caller]
pub fn posted(call: &str, sides: &[&Side], mut post: impl FnMut() -> isize) {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        match post() {
            0 => return,
            code if code == -(libc::EAGAIN as isize) => {
                sides.iter().for_each(|side| side.progress());
                assert!(std::time::Instant::now() < end, "{call} would have to wait for ever");
            }
            code => panic!("{call}: {}", sides[0].host.error(code)),
        }
    }
}

/// The parts of some memory: each call with several of them takes these.
pub fn parts(memory: &mut [u8], count: usize) -> Vec<libc::iovec> {
    let (base, len) = (memory.as_mut_ptr(), memory.len());
    let mut at = 0;
    (0..count)
        .map(|part| {
            let next = len * (part + 1) / count;
            let iov = libc::iovec {
                iov_base: base.wrapping_add(at).cast::<c_void>(),
                iov_len: next - at,
            };
            at = next;
            iov
        })
        .collect()
}

/// The kinds of sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    Plain,
    Vector,
    Message,
    Inject,
    Data,
    InjectData,
}

impl Send {
    pub const ALL: [Send; 6] =
        [Send::Plain, Send::Vector, Send::Message, Send::Inject, Send::Data, Send::InjectData];

    pub fn has_data(self) -> bool {
        matches!(self, Send::Data | Send::InjectData)
    }

    /// True if nothing tells of its end.
    pub fn is_silent(self) -> bool {
        matches!(self, Send::Inject | Send::InjectData)
    }
}

/// A message to be sent.
pub struct Outgoing<'a> {
    pub memory: &'a mut [u8],
    pub to: u64,
    /// `None`: a message without a tag.
    pub tag: Option<u64>,
    pub data: u64,
    pub flags: u64,
    pub context: *mut c_void,
}

impl<'a> Outgoing<'a> {
    /// A message with a tag.
    pub fn tagged(memory: &'a mut [u8], to: u64, tag: u64) -> Outgoing<'a> {
        Outgoing { memory, to, tag: Some(tag), data: 0, flags: 0, context: context(2) }
    }
}

/// Posts a send. `-FI_EAGAIN` comes back as it is.
pub fn send(side: &Side, kind: Send, out: &mut Outgoing<'_>) -> isize {
    let Outgoing { memory, to, tag, data, flags, context } = out;
    let (ep, to, data, flags, context) = (side.ep, *to, *data, *flags, *context);
    let (buf, len) = (memory.as_ptr().cast::<c_void>(), memory.len());
    let iov = parts(memory, 3);
    let desc = std::ptr::null_mut();
    // SAFETY: the endpoint is open; the memory outlives the operation, which the tests wait for.
    unsafe {
        let (msg, tagged) = (&*(*ep).msg, &*(*ep).tagged);
        match (kind, *tag) {
            (Send::Plain, None) => (msg.send)(ep, buf, len, desc, to, context),
            (Send::Vector, None) => (msg.sendv)(ep, iov.as_ptr(), desc.cast(), 3, to, context),
            (Send::Message, None) => {
                let it = FiMsg {
                    msg_iov: iov.as_ptr(),
                    desc: desc.cast(),
                    iov_count: 3,
                    addr: to,
                    context,
                    data,
                };
                (msg.sendmsg)(ep, &it, flags)
            }
            (Send::Inject, None) => (msg.inject)(ep, buf, len, to),
            (Send::Data, None) => (msg.senddata)(ep, buf, len, desc, data, to, context),
            (Send::InjectData, None) => (msg.injectdata)(ep, buf, len, data, to),
            (Send::Plain, Some(tag)) => (tagged.send)(ep, buf, len, desc, to, tag, context),
            (Send::Vector, Some(tag)) => {
                (tagged.sendv)(ep, iov.as_ptr(), desc.cast(), 3, to, tag, context)
            }
            (Send::Message, Some(tag)) => {
                let it = FiMsgTagged {
                    msg_iov: iov.as_ptr(),
                    desc: desc.cast(),
                    iov_count: 3,
                    addr: to,
                    tag,
                    ignore: 0,
                    context,
                    data,
                };
                (tagged.sendmsg)(ep, &it, flags)
            }
            (Send::Inject, Some(tag)) => (tagged.inject)(ep, buf, len, to, tag),
            (Send::Data, Some(tag)) => {
                (tagged.senddata)(ep, buf, len, desc, data, to, tag, context)
            }
            (Send::InjectData, Some(tag)) => (tagged.injectdata)(ep, buf, len, data, to, tag),
        }
    }
}

/// The kinds of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recv {
    Plain,
    Vector,
    Message,
}

impl Recv {
    pub const ALL: [Recv; 3] = [Recv::Plain, Recv::Vector, Recv::Message];
}

/// A receive to be posted.
pub struct Incoming<'a> {
    pub memory: &'a mut [u8],
    pub from: u64,
    /// The tag and the bits that do not count. `None`: a message without a tag.
    pub tag: Option<(u64, u64)>,
    pub flags: u64,
    pub context: *mut c_void,
}

impl<'a> Incoming<'a> {
    /// A message with a tag, from anybody.
    pub fn tagged(memory: &'a mut [u8], tag: u64) -> Incoming<'a> {
        let (from, tag) = (FI_ADDR_UNSPEC, Some((tag, 0)));
        Incoming { memory, from, tag, flags: 0, context: context(1) }
    }
}

/// Posts a receive.
pub fn recv(side: &Side, kind: Recv, into: &mut Incoming<'_>) -> isize {
    let Incoming { memory, from, tag, flags, context } = into;
    let (ep, from, flags, context) = (side.ep, *from, *flags, *context);
    let (buf, len) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
    let iov = parts(memory, 2);
    let desc = std::ptr::null_mut();
    // SAFETY: as in `send`.
    unsafe {
        let (msg, tagged) = (&*(*ep).msg, &*(*ep).tagged);
        match (kind, *tag) {
            (Recv::Plain, None) => (msg.recv)(ep, buf, len, desc, from, context),
            (Recv::Vector, None) => (msg.recvv)(ep, iov.as_ptr(), desc.cast(), 2, from, context),
            (Recv::Message, None) => {
                let it = FiMsg {
                    msg_iov: iov.as_ptr(),
                    desc: desc.cast(),
                    iov_count: if flags & FI_MULTI_RECV != 0 { 1 } else { 2 },
                    addr: from,
                    context,
                    data: 0,
                };
                let whole = [libc::iovec { iov_base: buf, iov_len: len }];
                let it = match flags & FI_MULTI_RECV {
                    0 => it,
                    _ => FiMsg { msg_iov: whole.as_ptr(), ..it },
                };
                (msg.recvmsg)(ep, &it, flags)
            }
            (Recv::Plain, Some((tag, ignore))) => {
                (tagged.recv)(ep, buf, len, desc, from, tag, ignore, context)
            }
            (Recv::Vector, Some((tag, ignore))) => {
                (tagged.recvv)(ep, iov.as_ptr(), desc.cast(), 2, from, tag, ignore, context)
            }
            (Recv::Message, Some((tag, ignore))) => {
                let it = FiMsgTagged {
                    msg_iov: iov.as_ptr(),
                    desc: desc.cast(),
                    iov_count: 2,
                    addr: from,
                    tag,
                    ignore,
                    context,
                    data: 0,
                };
                (tagged.recvmsg)(ep, &it, flags)
            }
        }
    }
}

/// The length of the longest message that is injected.
pub fn inject_max(side: &Side) -> usize {
    // SAFETY: the description is whole.
    unsafe { (*(*side.info).tx_attr).inject_size }
}
