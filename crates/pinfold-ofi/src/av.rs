//! Address vectors: numbers for addresses. A map's numbers are a table's: indices.
#![allow(unsafe_code)]
// Invariant: pointers of C's are read and written as the manual pages say what they point to.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::Arc,
};

use rustc_hash::FxHashMap;

use crate::{
    address::{self, Address},
    domain::Domain,
    eq::{Eq, Failed},
    fabric,
    ffi::{
        flags::{
            FI_ADDR_UNSPEC, FI_AV_COMPLETE, FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_CLASS_AV,
            FI_CLASS_EQ, FI_COMPLETION, FI_EOPBADSTATE, FI_SYNC_ERR,
        },
        object::{FiAvAttr, FiEqEntry, FiOps, FiOpsAv, Fid, FidAv, FidDomain, FidEq},
    },
    guard::{self, Answer, Code},
    handle::{self, Face},
    lock::Guarded,
};

/// An address vector.
pub struct Av {
    domain: Arc<Domain>,
    pub table: Guarded<Table>,
    /// The queue for the ends of insertions, if they are asked for as events.
    eq: Guarded<Option<Arc<Eq>>>,
    is_async: bool,
    _domain: Arc<()>,
}

/// The addresses, by number. No I/O.
#[derive(Default)]
pub struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The first number of each address.
    numbers: FxHashMap<Address, Vec<u32>>,
    /// Changes whenever a number comes to mean something else.
    pub epoch: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    address: Option<Address>,
}

impl Table {
    /// Gives an address a number. The same address may have several.
    pub fn insert(&mut self, address: Address) -> u64 {
        self.epoch += 1;
        let slot = Slot { address: Some(address) };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.numbers.entry(address).or_default().push(number);
        u64::from(number)
    }

    /// Takes a number back. `false`: it is none.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(address) = self.address(number) else { return false };
        self.epoch += 1;
        self.slots[number as usize].address = None;
        self.free.push(number as u32);
        if let Some(numbers) = self.numbers.get_mut(&address) {
            numbers.retain(|&other| u64::from(other) != number);
            if numbers.is_empty() {
                self.numbers.remove(&address);
            }
        }
        true
    }

    /// The address with this number.
    #[inline]
    pub fn address(&self, number: u64) -> Option<Address> {
        self.slots.get(usize::try_from(number).ok()?)?.address
    }

    /// The number of an address, the first of several.
    pub fn number(&self, address: &Address) -> Option<u64> {
        self.numbers.get(address).and_then(|it| it.first()).map(|&number| u64::from(number))
    }
}

impl Face for FidAv {
    type Inner = Av;
    const CLASS: usize = FI_CLASS_AV;
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control: guard::no_control,
    ops_open: guard::no_ops_open,
    tostr: guard::no_tostr,
    ops_set: guard::no_ops_set,
};

static AV_OPS: FiOpsAv = FiOpsAv {
    size: size_of::<FiOpsAv>(),
    insert,
    insertsvc,
    insertsym: guard::no_insertsym,
    remove,
    lookup,
    straddr,
    av_set: guard::no_av_set,
};

/// `fi_av_open`.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiAvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's domain.
        let domain = unsafe { handle::of(domain)? };
        // SAFETY: the program's attributes, which are there during the call.
        let attr = unsafe { attr.as_mut() }.ok_or(Code::INVALID)?;
        if !attr.name.is_null() {
            // Vectors that processes share.
            return Err(Code::NO_SYS);
        }
        match attr.kind {
            FI_AV_UNSPEC => attr.kind = FI_AV_TABLE,
            FI_AV_MAP | FI_AV_TABLE => {}
            _ => return Err(Code::INVALID),
        }
        let inner = Arc::new(Av {
            domain: Arc::clone(domain),
            table: Guarded::new(Table::default()),
            eq: Guarded::new(None),
            is_async: attr.flags & FI_COMPLETION != 0,
            _domain: Arc::clone(&domain.uses),
        });
        let face = FidAv { fid: handle::fid::<FidAv>(context, &OPS), ops: &AV_OPS };
        // SAFETY: the program's place for the result.
        unsafe { handle::put(av, || Ok(handle::give(face, inner))) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::status(|| {
        // SAFETY: the program closes an object that it has, once.
        unsafe { handle::take::<FidAv>(fid, fabric::unbound) }.map(drop)
    })
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _flags: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the program's objects.
        let av = unsafe { handle::of_fid::<FidAv>(fid)? };
        // SAFETY: as above.
        if unsafe { handle::class(other) } != FI_CLASS_EQ {
            return Err(Code::INVALID);
        }
        // SAFETY: as above.
        let eq = unsafe { handle::of_fid::<FidEq>(other)? };
        let held = av.domain.hold();
        *av.eq.open(&held) = Some(Arc::clone(eq));
        Ok(())
    })
}

/// A result of one insertion: its place, and the code of its error.
type Placed = Result<Address, Code>;

/// Inserts addresses, tells of each, and returns how many went in.
///
/// # Safety
/// `fi_addr` is null or has room for all; `context` is as the flags say.
unsafe fn insert_all(
    av: &Arc<Av>,
    fid: *mut FidAv,
    addresses: impl Iterator<Item = Placed>,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> Answer<usize> {
    let held = av.domain.hold();
    let eq = av.eq.open(&held).clone();
    if av.is_async && eq.is_none() {
        return Err(Code(FI_EOPBADSTATE));
    }
    let mut table = av.table.open(&held);
    let mut inserted = 0;
    let tells_each = flags & FI_SYNC_ERR != 0 && !context.is_null() && !av.is_async;
    for (at, address) in addresses.enumerate() {
        let code = match address {
            Ok(address) => {
                let number = table.insert(address);
                inserted += 1;
                // SAFETY: the caller's.
                unsafe { place(fi_addr, at, number) };
                0
            }
            Err(code) => {
                // SAFETY: the caller's.
                unsafe { place(fi_addr, at, FI_ADDR_UNSPEC) };
                if let Some(eq) = eq.as_ref().filter(|_| av.is_async) {
                    let (fid, context) = (fid as usize, context as usize);
                    eq.push(Err(Failed { fid, context, data: at as u64, code }));
                }
                code.0
            }
        };
        if tells_each {
            // SAFETY: with this flag it is an array of codes, one for each address.
            unsafe { *context.cast::<c_int>().add(at) = code };
        }
    }
    if let Some(eq) = eq.filter(|_| av.is_async) {
        let entry = FiEqEntry { fid: fid.cast(), context, data: inserted as u64 };
        eq.push_entry(FI_AV_COMPLETE, entry);
        return Ok(0);
    }
    Ok(inserted)
}

/// # Safety
/// `fi_addr` is null or has that many places.
unsafe fn place(fi_addr: *mut u64, at: usize, number: u64) {
    if !fi_addr.is_null() {
        // SAFETY: the caller's.
        unsafe { *fi_addr.add(at) = number };
    }
}

unsafe extern "C" fn insert(
    fid: *mut FidAv,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guard::count(|| {
        // SAFETY: the program's vector.
        let av = unsafe { handle::of(fid)? };
        if addr.is_null() && count > 0 {
            return Err(Code::INVALID);
        }
        let read = |at: usize| {
            // SAFETY: the program's array has `count` addresses, as long as this provider's are.
            let bytes = unsafe {
                let first = addr.cast::<u8>().add(at * address::BYTES);
                std::slice::from_raw_parts(first, address::BYTES)
            };
            Address::read(bytes).ok_or(Code::INVALID)
        };
        // SAFETY: the program's arrays.
        unsafe { insert_all(av, fid, (0..count).map(read), fi_addr, flags, context) }
    }) as c_int
}

unsafe extern "C" fn insertsvc(
    fid: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guard::count(|| {
        // SAFETY: the program's vector.
        let av = unsafe { handle::of(fid)? };
        let text = |at: *const c_char| {
            // SAFETY: null, or a text of the program's.
            (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_str())
        };
        let (node, service) = (text(node).transpose(), text(service).transpose());
        let (Ok(node), Ok(service)) = (node, service) else { return Err(Code::INVALID) };
        let address = Address::of_service(node, service).ok_or(Code(libc::EADDRNOTAVAIL));
        let one = std::iter::once(address);
        // SAFETY: the program's places.
        unsafe { insert_all(av, fid, one, fi_addr, flags, context) }
    }) as c_int
}

unsafe extern "C" fn remove(fid: *mut FidAv, fi_addr: *mut u64, count: usize, _: u64) -> c_int {
    guard::status(|| {
        // SAFETY: the program's vector.
        let av = unsafe { handle::of(fid)? };
        let held = av.domain.hold();
        let mut table = av.table.open(&held);
        let mut answer = Ok(());
        for at in 0..count {
            // SAFETY: the program's array has `count` numbers.
            if !table.remove(unsafe { *fi_addr.add(at) }) {
                answer = Err(Code::INVALID);
            }
        }
        answer
    })
}

unsafe extern "C" fn lookup(
    fid: *mut FidAv,
    fi_addr: u64,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    guard::status(|| {
        // SAFETY: the program's vector.
        let av = unsafe { handle::of(fid)? };
        let held = av.domain.hold();
        let address = av.table.open(&held).address(fi_addr).ok_or(Code::INVALID)?;
        // SAFETY: the program's room, as long as it says.
        unsafe { hand_out(&address, addr, addrlen) };
        Ok(())
    })
}

/// Copies as much of an address as there is room for, and puts its length. Returns whether it fits.
///
/// # Safety
/// `addr` has as much room as `addrlen` says.
pub unsafe fn hand_out(address: &Address, addr: *mut c_void, addrlen: *mut usize) -> bool {
    if addrlen.is_null() {
        return false;
    }
    // SAFETY: the caller's.
    unsafe {
        let room = if addr.is_null() { 0 } else { *addrlen };
        ptr::copy_nonoverlapping(address.bytes().as_ptr(), addr.cast(), room.min(address::BYTES));
        *addrlen = address::BYTES;
        room >= address::BYTES
    }
}

unsafe extern "C" fn straddr(
    _: *mut FidAv,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    guard::value(ptr::null(), || {
        if addr.is_null() || len.is_null() {
            return ptr::null();
        }
        // SAFETY: an address of this provider's.
        let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), address::BYTES) };
        let text = Address::read(bytes).map_or_else(String::new, |it| it.to_string());
        // SAFETY: the program's room, as long as it says.
        unsafe {
            let room = if buf.is_null() { 0 } else { *len };
            *len = text.len() + 1;
            if room > 0 {
                let count = text.len().min(room - 1);
                ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), count);
                *buf.add(count) = 0;
            }
        }
        buf
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_indices_and_go_with_their_addresses() {
        let mut table = Table::default();
        let [one, two] = [(); 2].map(|()| Address::fresh().unwrap());
        assert_eq!((table.insert(one), table.insert(two), table.insert(one)), (0, 1, 2));
        assert_eq!(table.number(&one), Some(0));
        assert!(table.remove(0));
        assert!(!table.remove(0));
        assert_eq!((table.address(0), table.number(&one)), (None, Some(2)));
        assert!(table.remove(2));
        assert_eq!(table.number(&one), None);
        assert_eq!(table.address(1), Some(two));
        assert_eq!(table.address(u64::MAX), None);
        let epoch = table.epoch;
        assert!(table.insert(two) < 3);
        assert_ne!(table.epoch, epoch);
    }
}
