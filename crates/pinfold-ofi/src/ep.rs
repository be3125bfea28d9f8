//! Endpoints: reliable datagrams to any other endpoint of the provider.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    collections::VecDeque,
    ffi::{c_int, c_void},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold::CompletionQueue;
use rustc_hash::FxHashMap;

use crate::{
    access::Memory,
    address::{self, Address},
    atomic, attr, av,
    contacts::Contacts,
    domain::{Domain, or_default},
    fabric,
    fence::Fence,
    ffi::{
        ep::{FiOpsCm, FiOpsEp, FidEp},
        flags::*,
        info::FiInfo,
        object::{FiOps, Fid, FidAv, FidDomain, FidEq},
        queue::{FidCntr, FidCq},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
    lock::{Guarded, Held},
    msg, newest,
    op::Ops,
    rma,
    state::{Inside, Side, State, listen},
    tagged,
};

/// The number of the next endpoint.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// How long an endpoint that closes waits for operations to end.
const CLOSING: Duration = Duration::from_secs(2);

/// An endpoint.
pub struct Ep {
    pub domain: Arc<Domain>,
    pub caps: u64,
    /// The queue of what ends in the library.
    pub queue: CompletionQueue,
    /// Its number in this process.
    pub number: u64,
    state: Guarded<State>,
    pub uses: Arc<()>,
    _domain: Arc<()>,
}

impl Ep {
    /// Enters the endpoint.
    pub fn inside<R>(self: &Arc<Ep>, run: impl FnOnce(&mut Inside<'_>) -> R) -> R {
        let held = self.domain.hold();
        self.inside_held(&held, run)
    }

    /// Enters the endpoint, its domain's lock being held.
    pub fn inside_held<R>(
        self: &Arc<Ep>,
        held: &Held<'_>,
        run: impl FnOnce(&mut Inside<'_>) -> R,
    ) -> R {
        let mut inside = Inside { held, ep: self, state: self.state.open(held) };
        let result = run(&mut inside);
        // The library takes back the request to be woken with every call.
        for side in [&inside.state.tx, &inside.state.rx] {
            side.cq.iter().for_each(|cq| cq.disturb());
        }
        result
    }

    /// A turn of progress.
    pub fn progress(self: &Arc<Ep>, held: &Held<'_>) {
        self.inside_held(held, |inside| inside.turn());
    }
}

impl Face for FidEp {
    type Inner = Ep;
    const CLASS: usize = FI_CLASS_EP;
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

static EP_OPS: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: guard::no_context,
    rx_ctx: guard::no_context,
    rx_size_left: guard::no_size_left,
    tx_size_left: guard::no_size_left,
};

static CM_OPS: FiOpsCm = FiOpsCm {
    size: size_of::<FiOpsCm>(),
    setname,
    getname,
    getpeer: guard::no_getpeer,
    connect: guard::no_connect,
    listen: guard::no_listen,
    accept: guard::no_accept,
    reject: guard::no_reject,
    shutdown: guard::no_shutdown,
    join: guard::no_join,
};

/// `fi_endpoint`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's domain.
        let domain = unsafe { handle::of(domain)? };
        // SAFETY: the program's description, with its parts, which are there during the call.
        let info = unsafe { info.as_ref() }.ok_or(Code::INVALID)?;
        let address = if info.src_addr.is_null() || info.src_addrlen == 0 {
            Address::fresh().map_err(|_| Code::OTHER)?
        } else {
            let first = info.src_addr.cast::<u8>();
            // SAFETY: as long as the description says.
            let bytes = unsafe { std::slice::from_raw_parts(first, info.src_addrlen) };
            Address::read(bytes).ok_or(Code::INVALID)?
        };
        // SAFETY: as above.
        let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
        let side = |op_flags: Option<u64>, size: Option<usize>| Side {
            op_flags: op_flags.unwrap_or(0),
            size: or_default(size.unwrap_or(0), attr::OPERATIONS),
            ..Side::default()
        };
        let queue = CompletionQueue::new().map_err(|_| Code(libc::EMFILE))?;
        let (endpoint, address) = listen(address)?;
        let state = State {
            endpoint,
            address,
            is_enabled: false,
            av: None,
            tx: side(tx.map(|it| it.op_flags), tx.map(|it| it.size)),
            rx: side(rx.map(|it| it.op_flags), rx.map(|it| it.size)),
            counters: Vec::new(),
            min_multi_recv: 64,
            contacts: Contacts::default(),
            ops: Ops::default(),
            fence: Fence::default(),
            deferred: VecDeque::new(),
            newest: None,
            short: Box::new([0; newest::BYTES_MAX]),
            claims: FxHashMap::default(),
            parked: VecDeque::new(),
            unconfirmed: Vec::new(),
            memory: Memory::default(),
            turns: 0,
            batch: Vec::new(),
        };
        let inner = Arc::new(Ep {
            domain: Arc::clone(domain),
            caps: info.caps,
            queue,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            state: Guarded::new(state),
            uses: Arc::new(()),
            _domain: Arc::clone(&domain.uses),
        });
        let face = FidEp {
            fid: handle::fid::<FidEp>(context, &OPS),
            ops: &EP_OPS,
            cm: &CM_OPS,
            msg: &msg::OPS,
            rma: &rma::OPS,
            tagged: &tagged::OPS,
            atomic: &atomic::OPS,
            collective: std::ptr::null(),
        };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(ep, || Ok(handle::give(face, inner))) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        let ep = unsafe { handle::take::<FidEp>(fid, |it| fabric::unused(&it.uses))? };
        shut(&ep);
        Ok(())
    })
}

/// Ends what runs, and takes the endpoint off what it is bound to.
fn shut(ep: &Arc<Ep>) {
    let held = ep.domain.hold();
    ep.inside_held(&held, |inside| {
        inside.state.endpoint.close();
        let end = Instant::now() + CLOSING;
        let mut ended = Vec::new();
        // The program's memory is its own again once nothing is outstanding.
        while ep.queue.outstanding() > 0 && Instant::now() < end {
            if ep.queue.poll(&mut ended, 64).is_err() {
                break;
            }
            ended.clear();
        }
        inside.state.newest = None;
        inside.state.claims.clear();
        inside.state.fence = Fence::default();
        inside.state.memory = Memory::default();
    });
    ep.domain.regions.forget(ep.number);
    if let Some(driver) = &ep.domain.driver {
        driver.forget(&ep.queue);
    }
    ep.domain.endpoints.open(&held).retain(|other| !Arc::ptr_eq(other, ep));
    let queues = ep.inside_held(&held, |inside| {
        inside.state.av = None;
        inside.state.counters.clear();
        [inside.state.tx.cq.take(), inside.state.rx.cq.take()]
    });
    queues.iter().flatten().for_each(|cq| cq.detach(&held, ep));
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the program's objects, here and below.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        // SAFETY: as above.
        match unsafe { handle::class(other) } {
            FI_CLASS_AV => {
                // SAFETY: as above.
                let av = unsafe { handle::of_fid::<FidAv>(other)? };
                ep.inside(|inside| inside.state.av = Some(Arc::clone(av)));
                Ok(())
            }
            FI_CLASS_CQ => {
                // SAFETY: as above.
                let cq = unsafe { handle::of_fid::<FidCq>(other)? };
                if !Arc::ptr_eq(&cq.domain, &ep.domain) {
                    return Err(Code(FI_EDOMAIN));
                }
                let held = ep.domain.hold();
                cq.attach(&held, ep)?;
                ep.inside_held(&held, |inside| {
                    let is_selective = flags & FI_SELECTIVE_COMPLETION != 0;
                    let state = &mut *inside.state;
                    for (side, flag) in [(&mut state.tx, FI_SEND), (&mut state.rx, FI_RECV)] {
                        if flags & flag != 0 {
                            side.cq = Some(Arc::clone(cq));
                            side.is_selective = is_selective;
                        }
                    }
                });
                Ok(())
            }
            FI_CLASS_CNTR => {
                // SAFETY: as above.
                let counter = unsafe { handle::of_fid::<FidCntr>(other)? };
                let held = ep.domain.hold();
                ep.inside_held(&held, |inside| {
                    inside.state.counters.push((flags, Arc::clone(counter)));
                    if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                        inside.state.memory.news.count();
                    }
                });
                Ok(())
            }
            FI_CLASS_EQ => {
                // SAFETY: as above. Reliable datagrams have no events of connections.
                unsafe { handle::of_fid::<FidEq>(other) }.map(drop)
            }
            _ => Err(Code::INVALID),
        }
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    guard::status(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        match command {
            FI_ENABLE => enable(ep),
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                // SAFETY: for these commands it points to flags.
                let flags = unsafe { arg.cast::<u64>().as_mut() }.ok_or(Code::INVALID)?;
                ep.inside(|inside| {
                    let state = &mut *inside.state;
                    let side = match *flags & (FI_SEND | FI_RECV) {
                        FI_SEND => &mut state.tx,
                        FI_RECV => &mut state.rx,
                        _ => return Err(Code::INVALID),
                    };
                    if command == FI_GETOPSFLAG {
                        *flags = side.op_flags;
                    } else {
                        side.op_flags = *flags & !(FI_SEND | FI_RECV);
                    }
                    Ok(())
                })
            }
            _ => Err(Code::NO_SYS),
        }
    })
}

/// Makes an endpoint ready for messages.
fn enable(ep: &Arc<Ep>) -> Answer {
    let held = ep.domain.hold();
    ep.inside_held(&held, |inside| {
        let state = &*inside.state;
        if state.is_enabled {
            return Err(Code(FI_EOPBADSTATE));
        }
        if state.av.is_none() {
            return Err(Code(FI_ENOAV));
        }
        if state.tx.cq.is_none() && state.rx.cq.is_none() && state.counters.is_empty() {
            return Err(Code(FI_ENOCQ));
        }
        inside.serve_memory()?;
        inside.state.is_enabled = true;
        inside.open_doors();
        Ok(())
    })?;
    ep.domain.endpoints.open(&held).push(Arc::clone(ep));
    match &ep.domain.driver {
        Some(driver) => driver.watch(&ep.queue),
        None => Ok(()),
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    guard::count(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        let found = ep.inside(|inside| inside.cancel(context as usize));
        if found { Ok(0) } else { Err(Code(libc::ENOENT)) }
    })
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        let number = ep.inside(|inside| match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => Ok(inside.state.min_multi_recv),
            (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => Ok(0),
            _ => Err(Code(libc::ENOPROTOOPT)),
        })?;
        // SAFETY: the program's place for the length.
        let len = unsafe { len.as_mut() }.ok_or(Code::INVALID)?;
        let fits = *len >= size_of::<usize>() && !value.is_null();
        *len = size_of::<usize>();
        if !fits {
            return Err(Code(FI_ETOOSMALL));
        }
        // SAFETY: long enough, says the program.
        unsafe { value.cast::<usize>().write_unaligned(number) };
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => {
                if value.is_null() || len != size_of::<usize>() {
                    return Err(Code::INVALID);
                }
                // SAFETY: as long as the program says.
                let number = unsafe { value.cast::<usize>().read_unaligned() };
                ep.inside(|inside| inside.state.min_multi_recv = number.max(1));
                Ok(())
            }
            _ => Err(Code(libc::ENOPROTOOPT)),
        }
    })
}

unsafe extern "C" fn setname(fid: *mut Fid, addr: *mut c_void, len: usize) -> c_int {
    guard::status(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        if addr.is_null() || len != address::BYTES {
            return Err(Code::INVALID);
        }
        // SAFETY: as long as the program says.
        let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len) };
        let address = Address::read(bytes).ok_or(Code::INVALID)?;
        ep.inside(|inside| {
            if inside.state.is_enabled {
                return Err(Code(FI_EOPBADSTATE));
            }
            let (endpoint, address) = listen(address)?;
            (inside.state.endpoint, inside.state.address) = (endpoint, address);
            Ok(())
        })
    })
}

unsafe extern "C" fn getname(fid: *mut Fid, addr: *mut c_void, len: *mut usize) -> c_int {
    guard::status(|| {
        // SAFETY: the program's endpoint.
        let ep = unsafe { handle::of_fid::<FidEp>(fid)? };
        if len.is_null() {
            return Err(Code::INVALID);
        }
        let address = ep.inside(|inside| inside.state.address);
        // SAFETY: as long as the program says.
        let fits = unsafe { av::hand_out(&address, addr, len) };
        if fits { Ok(()) } else { Err(Code(FI_ETOOSMALL)) }
    })
}
