//! One end for tagged messages.
#![allow(unsafe_code)]
// Invariant: a transfer holds the endpoint, and leaves with all of its memory back: either every
// message is done, or the endpoint is closed, and with it all that it knew of that memory.

use std::{
    ffi::c_void,
    net::{Ipv4Addr, SocketAddrV4},
    process,
    ptr::{self, NonNull},
};

use super::{
    Error,
    abi::{
        Av, AvAttr, Cq, CqAttr, CqEntry, CqErrEntry, Domain, Ep, FI_AV_TABLE, FI_CQ_FORMAT_MSG,
        FI_EAGAIN, FI_EAVAIL, FI_ENABLE, FI_RECV, FI_SEND, Fabric, FiAddr, Fid,
    },
    library::{Library, Offer, PROVIDERS},
};

/// The tag of every message.
const TAG: u64 = 1;
/// Sends, and receives, under way at once: as many as fabtests' `fi_rdm_tagged_bw` has.
const WINDOW: usize = 64;
/// Completions that are looked for at once.
const LOOK: usize = 16;
/// Entries of the completion queue.
const QUEUE: usize = 1024;

/// One end for tagged messages between two processes, over TCP. It waits by polling: the way of
/// using libfabric that has the least latency.
///
/// It belongs to one thread: there is no lock in it, and nothing moves but while it is called.
pub struct Endpoint {
    library: &'static Library,
    // In the order in which they are to be closed.
    /// `None` after a transfer that failed.
    end: Option<Object<Ep>>,
    queue: Object<Cq>,
    peers: Object<Av>,
    _domain: Object<Domain>,
    _fabric: Object<Fabric>,
    provider: String,
    at: SocketAddrV4,
    peer: FiAddr,
}

/// An object of the library's, closed when dropped.
struct Object<T>(NonNull<T>);

impl<T> Object<T> {
    /// # Safety
    /// `at` points to an open object that begins with a [`Fid`], and that nobody else closes.
    unsafe fn new(at: *mut T) -> Result<Object<T>, Error> {
        NonNull::new(at).map(Object).ok_or(Error::Broken)
    }

    fn fid(&self) -> *mut Fid {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        let fid = self.fid();
        // SAFETY: open, says `new`, and closed only here.
        let closed = unsafe { ((*(*fid).ops).close)(fid) };
        if closed != 0 {
            // It may still write into memory that is about to be used for something else.
            process::abort();
        }
    }
}

impl Endpoint {
    /// An endpoint at this address of this machine, port and all else left to the library. Loads
    /// the library if that has not been done, which takes a tenth of a second.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Old`] and [`Error::NoProvider`] where it cannot be had;
    /// [`Error::Refused`] at limits of the system.
    pub fn open(at: Ipv4Addr) -> Result<Endpoint, Error> {
        let library = Library::get()?;
        Endpoint::over(library, library.offer(at, &PROVIDERS)?)
    }

    pub(super) fn over(library: &'static Library, offer: Offer) -> Result<Endpoint, Error> {
        let mut queues = CqAttr::new(QUEUE, FI_CQ_FORMAT_MSG);
        let mut vectors = AvAttr::new(FI_AV_TABLE);
        let nothing: *mut c_void = ptr::null_mut();
        // SAFETY: every object is open while it is used; the description is the library's own, the
        // attributes are whole, and it may write where its answers go.
        unsafe {
            let fabric = Object::new(offer.open()?)?;
            let mut domain = nothing.cast();
            let open = (*(*fabric.0.as_ptr()).ops).domain;
            let done = open(fabric.0.as_ptr(), offer.info, &mut domain, nothing);
            library.check("fi_domain", done)?;
            let domain = Object::new(domain)?;
            let calls = (*domain.0.as_ptr()).ops;
            let mut queue = nothing.cast();
            let done = ((*calls).cq_open)(domain.0.as_ptr(), &mut queues, &mut queue, nothing);
            library.check("fi_cq_open", done)?;
            let queue = Object::new(queue)?;
            let mut peers = nothing.cast();
            let done = ((*calls).av_open)(domain.0.as_ptr(), &mut vectors, &mut peers, nothing);
            library.check("fi_av_open", done)?;
            let peers = Object::new(peers)?;
            let mut end = nothing.cast();
            let done = ((*calls).endpoint)(domain.0.as_ptr(), offer.info, &mut end, nothing);
            library.check("fi_endpoint", done)?;
            let end = Object::new(end)?;
            let calls = (*end.fid()).ops;
            library.check("fi_ep_bind", ((*calls).bind)(end.fid(), peers.fid(), 0))?;
            let both = FI_SEND | FI_RECV;
            library.check("fi_ep_bind", ((*calls).bind)(end.fid(), queue.fid(), both))?;
            library.check("fi_enable", ((*calls).control)(end.fid(), FI_ENABLE, nothing))?;
            let mut name = Name::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
            let mut len = size_of::<Name>();
            let ask = (*(*end.0.as_ptr()).cm).getname;
            let done = ask(end.fid(), ptr::from_mut(&mut name).cast(), &mut len);
            library.check("fi_getname", done)?;
            Ok(Endpoint {
                library,
                end: Some(end),
                queue,
                peers,
                _domain: domain,
                _fabric: fabric,
                provider: offer.provider(),
                at: name.address(),
                peer: 0,
            })
        }
    }

    /// The provider that carries its messages.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The address at which the other side reaches it.
    pub fn address(&self) -> SocketAddrV4 {
        self.at
    }

    /// Has messages go to the endpoint at `to` from now on, which does the same the other way. The
    /// first message opens the connection.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn connect(&mut self, to: SocketAddrV4) -> Result<(), Error> {
        let name = Name::new(to);
        let mut peer = 0;
        // SAFETY: one address of the format that the endpoint was made for; the vector is open.
        let done = unsafe {
            let insert = (*(*self.peers.0.as_ptr()).ops).insert;
            let name = ptr::from_ref(&name).cast();
            insert(self.peers.0.as_ptr(), name, 1, &mut peer, 0, ptr::null_mut())
        };
        self.library.check("fi_av_insert", done)?;
        if done != 1 {
            return Err(self.library.refused("fi_av_insert", libc::EINVAL));
        }
        self.peer = peer;
        Ok(())
    }

    /// Sends all of `out` and receives all of `into`, whose lengths are those of the messages that
    /// come, at the same time and each in its order: up to 64 sends and 64 receives are under way
    /// at once. After each look in vain, `again` is asked whether to look once more.
    ///
    /// # Errors
    /// [`Error::Refused`] if libfabric fails, [`Error::Short`] if messages were shorter (longer
    /// ones are refused), and the error of `again`. The endpoint is closed after all of these:
    /// [`Error::Broken`] from then on.
    #[inline]
    pub fn transfer<'a, E: From<Error>>(
        &mut self,
        out: impl IntoIterator<Item = &'a [u8]>,
        into: impl IntoIterator<Item = &'a mut [u8]>,
        mut again: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // Leaving early, or by a panic, closes it.
        let end = self.end.take().ok_or(Error::Broken)?;
        let (mut out, mut into) = (out.into_iter(), into.into_iter());
        let (mut next_out, mut next_in) = (out.next(), into.next());
        let mut course = Course::default();
        loop {
            while course.receiving < WINDOW
                && let Some(memory) = next_in.as_deref_mut()
            {
                // SAFETY: the memory is borrowed until this call is over, and the endpoint has it
                // no longer.
                if !unsafe { self.post_receive(&end, memory) }? {
                    break;
                }
                course.receiving += 1;
                course.wanted += memory.len() as u64;
                next_in = into.next();
            }
            while course.sending < WINDOW
                && let Some(message) = next_out
            {
                // SAFETY: as above.
                if !unsafe { self.post_send(&end, message) }? {
                    break;
                }
                course.sending += 1;
                next_out = out.next();
            }
            if course.is_idle() && next_in.is_none() && next_out.is_none() {
                break;
            }
            if !self.look(&mut course)? {
                again()?;
            }
        }
        if course.came != course.wanted {
            return Err(Error::Short { came: course.came, wanted: course.wanted }.into());
        }
        self.end = Some(end);
        Ok(())
    }

    /// Returns whether there was room for it.
    ///
    /// # Safety
    /// The message stays as it is until it is done, or the endpoint closed.
    #[inline]
    unsafe fn post_send(&self, end: &Object<Ep>, message: &[u8]) -> Result<bool, Error> {
        let (end, nothing) = (end.0.as_ptr(), ptr::null_mut());
        let (at, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: the endpoint is open, and the message stays, says the caller.
        let done =
            unsafe { ((*(*end).tagged).send)(end, at, len, nothing, self.peer, TAG, nothing) };
        self.posted("fi_tsend", done)
    }

    /// Returns whether there was room for it.
    ///
    /// # Safety
    /// Nobody else touches the memory until the receive is done, or the endpoint closed.
    #[inline]
    unsafe fn post_receive(&self, end: &Object<Ep>, memory: &mut [u8]) -> Result<bool, Error> {
        let (end, nothing) = (end.0.as_ptr(), ptr::null_mut());
        let (at, len) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
        // SAFETY: the endpoint is open, and the memory is its own, says the caller.
        let done =
            unsafe { ((*(*end).tagged).recv)(end, at, len, nothing, self.peer, TAG, 0, nothing) };
        self.posted("fi_trecv", done)
    }

    #[inline]
    fn posted(&self, call: &'static str, returned: isize) -> Result<bool, Error> {
        match returned as i64 {
            0.. => Ok(true),
            no if no == -FI_EAGAIN => Ok(false),
            no => Err(self.library.refused(call, no.unsigned_abs() as i32)),
        }
    }

    /// Has the library make progress, and counts completions. Returns whether there were any.
    #[inline]
    fn look(&self, course: &mut Course) -> Result<bool, Error> {
        let mut entries = [CqEntry::NONE; LOOK];
        let queue = self.queue.0.as_ptr();
        // SAFETY: the queue is open, and its entries are of that format.
        let done = unsafe { ((*(*queue).ops).read)(queue, entries.as_mut_ptr(), LOOK) };
        match done as i64 {
            no if no == -FI_EAGAIN || no == 0 => Ok(false),
            no if no == -FI_EAVAIL => Err(self.failure()),
            no if no < 0 => Err(self.library.refused("fi_cq_read", no.unsigned_abs() as i32)),
            done => {
                let done = entries.iter().take(done as usize);
                done.for_each(|entry| course.done(entry.flags, entry.len));
                Ok(true)
            }
        }
    }

    /// The error of an operation that failed.
    #[cold]
    fn failure(&self) -> Error {
        let mut entry = CqErrEntry::new();
        let queue = self.queue.0.as_ptr();
        // SAFETY: the queue is open, and the entry has room for the fields that later versions add,
        // too.
        let read = unsafe { ((*(*queue).ops).readerr)(queue, &mut entry, 0) };
        if read < 0 {
            return self.library.refused("fi_cq_readerr", read.unsigned_abs() as i32);
        }
        let call = if entry.flags & FI_RECV != 0 { "a receive" } else { "a send" };
        self.library.refused(call, entry.err)
    }
}

/// The course of a transfer.
#[derive(Default)]
struct Course {
    sending: usize,
    receiving: usize,
    /// Bytes of the memory, and bytes that came. No message is longer than its memory, so that if
    /// the sums are alike, so are all parts.
    wanted: u64,
    came: u64,
}

impl Course {
    #[inline]
    fn done(&mut self, flags: u64, len: usize) {
        if flags & FI_RECV != 0 {
            self.receiving = self.receiving.saturating_sub(1);
            self.came += len as u64;
        } else {
            self.sending = self.sending.saturating_sub(1);
        }
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.sending == 0 && self.receiving == 0
    }
}

/// An address as `FI_SOCKADDR_IN` has it: `struct sockaddr_in`.
#[repr(transparent)]
struct Name(libc::sockaddr_in);

impl Name {
    fn new(address: SocketAddrV4) -> Name {
        Name(libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: address.ip().to_bits().to_be() },
            sin_zero: [0; 8],
        })
    }

    fn address(&self) -> SocketAddrV4 {
        let ip = Ipv4Addr::from_bits(u32::from_be(self.0.sin_addr.s_addr));
        SocketAddrV4::new(ip, u16::from_be(self.0.sin_port))
    }
}
