//! One program's objects of libfabric: fabric, domain, address vector, queues, counters, endpoint.

use std::{
    cell::Cell,
    ffi::{CStr, c_int, c_void},
    ptr::null_mut,
    time::{Duration, Instant},
};

use pinfold_fi::ffi::{
    ep::FidEp,
    flags::*,
    info::FiInfo,
    object::*,
    queue::{FiCntrAttr, FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FidCntr, FidCq},
};

use crate::host::{API, Host};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The wishes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub caps: u64,
    pub mr_mode: i32,
    pub format: i32,
    pub wait: i32,
    pub cq_size: usize,
    pub progress: i32,
    pub threading: i32,
    pub av: i32,
    /// Flags of every operation.
    pub op_flags: u64,
    /// Flags with which the queue is bound, beside the direction.
    pub bind: u64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            caps: FI_MSG
                | FI_TAGGED
                | FI_RMA
                | FI_ATOMIC
                | FI_DIRECTED_RECV
                | FI_MULTI_RECV
                | FI_SOURCE,
            mr_mode: FI_MR_VIRT_ADDR | FI_MR_PROV_KEY,
            format: FI_CQ_FORMAT_TAGGED,
            wait: FI_WAIT_NONE,
            cq_size: 0,
            progress: FI_PROGRESS_MANUAL,
            threading: FI_THREAD_SAFE,
            av: FI_AV_TABLE,
            op_flags: 0,
            bind: 0,
        }
    }
}

/// One program's objects.
pub struct Side {
    pub host: &'static Host,
    pub terms: Terms,
    pub info: *mut FiInfo,
    pub fabric: *mut FidFabric,
    pub domain: *mut FidDomain,
    pub av: *mut FidAv,
    pub tx: *mut FidCq,
    pub rx: *mut FidCq,
    pub ep: *mut FidEp,
    /// Counters of what was sent, received, read, written, and of what peers read and wrote.
    pub counters: [*mut FidCntr; 4],
    /// The endpoint is closed already.
    is_closed: Cell<bool>,
}

// SAFETY: the objects are made for several threads, if their threading says so.
unsafe impl Send for Side {}

/// The result of a call that must not fail.
#[track_caller]
pub fn good(host: &Host, call: &str, code: c_int) {
    assert_eq!(code, 0, "{call}: {}", host.error(code as isize));
}

impl Host {
    /// Hints for our provider alone, by these terms.
    pub fn hints(&self, terms: &Terms) -> *mut FiInfo {
        // SAFETY: libfabric makes an empty description for a null one, with all of its parts.
        unsafe {
            let hints = (self.dupinfo)(std::ptr::null());
            assert!(!hints.is_null());
            (*hints).caps = terms.caps;
            (*hints).mode = 0;
            (*(*hints).ep_attr).kind = FI_EP_RDM;
            let domain = &mut *(*hints).domain_attr;
            domain.mr_mode = terms.mr_mode;
            domain.threading = terms.threading;
            domain.data_progress = terms.progress;
            domain.control_progress = terms.progress;
            domain.av_type = terms.av;
            domain.resource_mgmt = FI_RM_ENABLED;
            (*(*hints).tx_attr).op_flags = terms.op_flags;
            (*(*hints).fabric_attr).prov_name = libc::strdup(c"pinfold".as_ptr());
            hints
        }
    }

    /// The first description of our provider that fits the hints, or the error.
    pub fn info(&self, hints: *mut FiInfo) -> Result<*mut FiInfo, c_int> {
        let mut info = null_mut();
        // SAFETY: no node and no service; the hints are a description.
        let code =
            unsafe { (self.getinfo)(API, std::ptr::null(), std::ptr::null(), 0, hints, &mut info) };
        if code == 0 { Ok(info) } else { Err(code) }
    }
}

impl Side {
    /// All objects by these terms, enabled.
    #[track_caller]
    pub fn new(host: &'static Host, terms: Terms) -> Side {
        let side = Side::unbound(host, terms);
        side.bind();
        side
    }

    /// All objects, of which the endpoint is bound to none and not enabled.
    #[track_caller]
    pub fn unbound(host: &'static Host, terms: Terms) -> Side {
        let hints = host.hints(&terms);
        let info = host.info(hints).unwrap_or_else(|code| {
            panic!("fi_getinfo of {terms:?}: {}", host.error(code as isize));
        });
        let mut side = Side {
            host,
            terms,
            info,
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            tx: null_mut(),
            rx: null_mut(),
            ep: null_mut(),
            counters: [null_mut(); 4],
            is_closed: Cell::new(false),
        };
        // SAFETY: objects are made in their order, of descriptions that live long enough.
        unsafe {
            (host.freeinfo)(hints);
            let name = CStr::from_ptr((*(*info).fabric_attr).prov_name);
            assert_eq!(name, c"pinfold");
            let of = (*info).fabric_attr;
            good(host, "fi_fabric", (host.fabric)(of, &mut side.fabric, null_mut()));
            let make = (*(*side.fabric).ops).domain;
            good(host, "fi_domain", make(side.fabric, info, &mut side.domain, null_mut()));
            let mut attr = FiAvAttr {
                kind: terms.av,
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: std::ptr::null(),
                map_addr: null_mut(),
                flags: 0,
            };
            let make = (*(*side.domain).ops).av_open;
            good(host, "fi_av_open", make(side.domain, &mut attr, &mut side.av, null_mut()));
            side.tx = side.open_cq();
            side.rx = side.open_cq();
            for at in 0..side.counters.len() {
                side.counters[at] = side.open_counter(FI_WAIT_UNSPEC);
            }
            let make = (*(*side.domain).ops).endpoint;
            good(host, "fi_endpoint", make(side.domain, info, &mut side.ep, null_mut()));
        }
        side
    }

    /// A completion queue by the terms.
    #[track_caller]
    pub fn open_cq(&self) -> *mut FidCq {
        let mut attr = FiCqAttr {
            size: self.terms.cq_size,
            flags: 0,
            format: self.terms.format,
            wait_obj: self.terms.wait,
            signaling_vector: 0,
            wait_cond: FI_CQ_COND_NONE,
            wait_set: null_mut(),
        };
        let mut cq = null_mut();
        // SAFETY: the domain is open.
        let code =
            unsafe { ((*(*self.domain).ops).cq_open)(self.domain, &mut attr, &mut cq, null_mut()) };
        good(self.host, "fi_cq_open", code);
        cq
    }

    /// A counter.
    #[track_caller]
    pub fn open_counter(&self, wait: i32) -> *mut FidCntr {
        let mut attr = FiCntrAttr {
            events: FI_CNTR_EVENTS_COMP,
            wait_obj: wait,
            wait_set: null_mut(),
            flags: 0,
        };
        let mut counter = null_mut();
        // SAFETY: the domain is open.
        let code = unsafe {
            ((*(*self.domain).ops).cntr_open)(self.domain, &mut attr, &mut counter, null_mut())
        };
        good(self.host, "fi_cntr_open", code);
        counter
    }

    /// Binds all and enables the endpoint.
    #[track_caller]
    pub fn bind(&self) {
        let bind = |to: *mut Fid, flags: u64| {
            let ep = self.ep.cast::<Fid>();
            // SAFETY: both are open.
            let code = unsafe { ((*(*ep).ops).bind)(ep, to, flags) };
            good(self.host, "fi_ep_bind", code);
        };
        bind(self.av.cast(), 0);
        bind(self.tx.cast(), FI_SEND | self.terms.bind);
        bind(self.rx.cast(), FI_RECV | self.terms.bind);
        bind(self.counters[0].cast(), FI_SEND);
        bind(self.counters[1].cast(), FI_RECV);
        bind(self.counters[2].cast(), FI_READ);
        bind(self.counters[3].cast(), FI_WRITE);
        let ep = self.ep.cast::<Fid>();
        // SAFETY: the endpoint is open.
        let code = unsafe { ((*(*ep).ops).control)(ep, FI_ENABLE, null_mut()) };
        good(self.host, "fi_enable", code);
    }

    /// The endpoint's address.
    #[track_caller]
    pub fn name(&self) -> Vec<u8> {
        let ep = self.ep.cast::<Fid>();
        let mut len = 0;
        // SAFETY: first the length alone is asked for, then there is room for it.
        unsafe {
            let getname = (*(*self.ep).cm).getname;
            assert_eq!(getname(ep, null_mut(), &mut len), -FI_ETOOSMALL);
            assert!((1..=64).contains(&len), "{len}");
            let mut name = vec![0; len];
            good(self.host, "fi_getname", getname(ep, name.as_mut_ptr().cast(), &mut len));
            name.truncate(len);
            name
        }
    }

    /// Puts an address into the vector.
    #[track_caller]
    pub fn insert(&self, name: &[u8]) -> FiAddr {
        let mut addr = FI_ADDR_UNSPEC;
        // SAFETY: one address.
        let count = unsafe {
            let insert = (*(*self.av).ops).insert;
            insert(self.av, name.as_ptr().cast(), 1, &mut addr, 0, null_mut())
        };
        assert_eq!(count, 1);
        addr
    }

    /// Reads the queues, which makes progress. Returns the entries, or the error that is there.
    pub fn poll(&self, cq: *mut FidCq) -> Result<Option<FiCqTaggedEntry>, FiCqErrEntry> {
        assert_eq!(self.terms.format, FI_CQ_FORMAT_TAGGED);
        let mut entry = blank();
        // SAFETY: room for one entry of the queue's format.
        let read = unsafe { ((*(*cq).ops).read)(cq, (&raw mut entry).cast(), 1) };
        match read {
            1 => Ok(Some(entry)),
            read if read == -(libc::EAGAIN as isize) => Ok(None),
            read if read == -(FI_EAVAIL as isize) => Err(self.error(cq)),
            other => panic!("fi_cq_read: {}", self.host.error(other)),
        }
    }

    /// The error entry that is there.
    #[track_caller]
    pub fn error(&self, cq: *mut FidCq) -> FiCqErrEntry {
        // SAFETY: all zero is an entry; later versions' is longer, so there is room behind.
        let mut entry: [FiCqErrEntry; 2] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let read = unsafe { ((*(*cq).ops).readerr)(cq, entry.as_mut_ptr(), 0) };
        assert_eq!(read, 1, "fi_cq_readerr: {}", self.host.error(read));
        entry[0]
    }

    /// Waits for an entry of a queue as its wait object asks, while `others` make progress.
    #[track_caller]
    pub fn take(&self, cq: *mut FidCq, others: &[&Side]) -> Result<FiCqTaggedEntry, FiCqErrEntry> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(entry) = self.poll(cq)? {
                return Ok(entry);
            }
            for other in others {
                other.progress();
            }
            match self.terms.wait {
                FI_WAIT_NONE => {}
                FI_WAIT_FD => self.sleep(cq),
                _ => {
                    let mut entry = blank();
                    // SAFETY: room for one entry.
                    let read = unsafe {
                        let to = (&raw mut entry).cast();
                        ((*(*cq).ops).sread)(cq, to, 1, std::ptr::null(), 1)
                    };
                    match read {
                        1 => return Ok(entry),
                        read if read == -(FI_EAVAIL as isize) => return Err(self.error(cq)),
                        read if read == -(libc::EAGAIN as isize) => {}
                        read if read == -(libc::ETIMEDOUT as isize) => {}
                        other => panic!("fi_cq_sread: {}", self.host.error(other)),
                    }
                }
            }
            assert!(Instant::now() < end, "no completion came");
        }
    }

    /// Sleeps a moment on the queue's descriptor, if that is allowed now.
    fn sleep(&self, cq: *mut FidCq) {
        let mut fd: c_int = -1;
        let fid = cq.cast::<Fid>();
        // SAFETY: the queue has a descriptor by its terms.
        let code = unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
        good(self.host, "fi_control(FI_GETWAIT)", code);
        let mut fids = [fid];
        // SAFETY: one object.
        let code = unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) };
        if code == -libc::EAGAIN {
            return;
        }
        good(self.host, "fi_trywait", code);
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&mut poll, 1, 1) };
    }

    /// Makes progress; entries stay where they are.
    pub fn progress(&self) {
        for cq in [self.tx, self.rx] {
            // SAFETY: room for no entry is enough for none.
            unsafe { ((*(*cq).ops).read)(cq, null_mut(), 0) };
        }
    }

    /// Closes the endpoint before the rest.
    pub fn close_endpoint(&self) -> c_int {
        self.is_closed.set(true);
        close(self.ep)
    }

    /// A counter's value.
    pub fn count(&self, at: usize) -> u64 {
        let counter = self.counters[at];
        // SAFETY: the counter is open.
        unsafe { ((*(*counter).ops).read)(counter) }
    }

    /// The number of a byte of registered memory, as peers name it: `memory` is all of it.
    pub fn place(&self, memory: &[u8]) -> u64 {
        // SAFETY: the description is whole.
        let mode = unsafe { (*(*self.info).domain_attr).mr_mode };
        let by_address = mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) != 0;
        if by_address { memory.as_ptr().addr() as u64 } else { 0 }
    }

    /// Registers memory for peers. Returns the object and the key.
    #[track_caller]
    pub fn register(&self, memory: &mut [u8], access: u64, wish: u64) -> (*mut FidMr, u64) {
        let mut mr = null_mut();
        let of = self.domain.cast::<Fid>();
        // SAFETY: the memory outlives the object: tests close it first.
        let code = unsafe {
            let reg = (*(*self.domain).mr).reg;
            reg(of, memory.as_ptr().cast(), memory.len(), access, 0, wish, 0, &mut mr, null_mut())
        };
        good(self.host, "fi_mr_reg", code);
        // SAFETY: it was made just now.
        (mr, unsafe { (*mr).key })
    }
}

/// Bytes as a word that roles tell each other.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such a word.
pub fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// An entry of which nothing is known.
pub fn blank() -> FiCqTaggedEntry {
    FiCqTaggedEntry { context: null_mut(), flags: 0, len: 0, buf: null_mut(), data: 0, tag: 0 }
}

/// Closes an object.
pub fn close<T>(object: *mut T) -> c_int {
    let fid = object.cast::<Fid>();
    // SAFETY: each object begins with a fid, and is closed once.
    unsafe { ((*(*fid).ops).close)(fid) }
}

/// A context of an operation: its number, in the place that the program lends the provider.
pub fn context(number: usize) -> *mut c_void {
    // The address is compared, never followed: no mode asks for memory there.
    std::ptr::without_provenance_mut(number)
}

impl Drop for Side {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: all were opened, and none is used after this.
        unsafe {
            if !self.is_closed.get() {
                assert_eq!(close(self.ep), 0);
            }
            for object in [self.tx.cast::<Fid>(), self.rx.cast(), self.av.cast()] {
                assert_eq!(((*(*object).ops).close)(object), 0);
            }
            for counter in self.counters {
                assert_eq!(close(counter), 0);
            }
            assert_eq!(close(self.domain), 0);
            assert_eq!(close(self.fabric), 0);
            (self.host.freeinfo)(self.info);
        }
    }
}
