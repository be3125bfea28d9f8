//! `fi_getinfo`: descriptions of what the provider has, as far as it is asked for.
#![allow(unsafe_code)]
// Invariant: descriptions are made of memory of `malloc(3)`, zeroed and as long as any version's,
// since libfabric frees them, and reads fields of later versions.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use crate::{
    address::{self, Address},
    attr::{Limits, Wish},
    ffi::{
        flags::{FI_PROV_ATTR_ONLY, FI_SOURCE},
        info::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr, ROOM},
    },
    guard::{self, Answer, Code},
    prov::NAME,
};

/// Asked by layered providers alone, which need what this one does not have.
const FOR_LAYERS: u64 = 1 << 59;

/// `fi_getinfo`.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int {
    guard::status(|| {
        if info.is_null() {
            return Err(Code::INVALID);
        }
        // SAFETY: the program's place for the result.
        unsafe { *info = ptr::null_mut() };
        if flags & FOR_LAYERS != 0 {
            return Err(Code::NO_DATA);
        }
        // SAFETY: null, or hints that are there during the call, with all their parts.
        let wish = unsafe { Wish::read(hints) };
        let limits = wish.meet(version)?;
        let ends = if flags & FI_PROV_ATTR_ONLY != 0 {
            Ends::default()
        } else {
            // SAFETY: null, or texts of the program's.
            let (node, service) = unsafe { (text(node)?, text(service)?) };
            // SAFETY: as above.
            unsafe { Ends::find(node, service, flags, hints)? }
        };
        let made = make(&limits, &ends, version)?;
        // SAFETY: the program's place for the result.
        unsafe { *info = made };
        Ok(())
    })
}

/// A text of the program's.
///
/// # Safety
/// Null, or a text that ends with a zero.
unsafe fn text<'a>(at: *const c_char) -> Answer<Option<&'a str>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(at) }.to_str().map(Some).map_err(|_| Code::INVALID)
}

/// The addresses in a description.
#[derive(Default)]
struct Ends {
    source: Option<Address>,
    dest: Option<Address>,
}

impl Ends {
    /// # Safety
    /// The hints are null or there.
    unsafe fn find(
        node: Option<&str>,
        service: Option<&str>,
        flags: u64,
        hints: *const FiInfo,
    ) -> Answer<Ends> {
        let mut ends = Ends::default();
        // SAFETY: the caller's.
        if let Some(hints) = unsafe { hints.as_ref() } {
            // SAFETY: as long as the hints say.
            ends.source = unsafe { given(hints.src_addr, hints.src_addrlen)? };
            // SAFETY: as above.
            ends.dest = unsafe { given(hints.dest_addr, hints.dest_addrlen)? };
        }
        if node.is_some() || service.is_some() {
            let named = Address::of_service(node, service).ok_or(Code::NO_DATA)?;
            if flags & FI_SOURCE != 0 {
                ends.source = Some(named);
            } else {
                ends.dest = Some(named);
            }
        }
        Ok(ends)
    }
}

/// # Safety
/// `at` is null or has `len` bytes.
unsafe fn given(at: *const c_void, len: usize) -> Answer<Option<Address>> {
    if at.is_null() || len == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
    Address::read(bytes).map(Some).ok_or(Code::NO_DATA)
}

/// Memory for one part of a description, zeroed.
fn room<T>() -> Answer<*mut T> {
    const { assert!(size_of::<T>() <= ROOM) };
    // SAFETY: takes any numbers.
    let at = unsafe { libc::calloc(1, ROOM) };
    if at.is_null() { Err(Code(libc::ENOMEM)) } else { Ok(at.cast()) }
}

fn copy_text(text: &CStr) -> *mut c_char {
    // SAFETY: ends with a zero. Without memory the description has no name.
    unsafe { libc::strdup(text.as_ptr()) }
}

fn copy_address(address: Option<&Address>) -> (*mut c_void, usize) {
    let Some(address) = address else { return (ptr::null_mut(), 0) };
    // SAFETY: takes any number; the bytes fit.
    unsafe {
        let at = libc::malloc(address::BYTES);
        if at.is_null() {
            return (at, 0);
        }
        ptr::copy_nonoverlapping(address.bytes().as_ptr(), at.cast(), address::BYTES);
        (at, address::BYTES)
    }
}

/// Makes a description. What was made before memory ran out is leaked.
fn make(limits: &Limits, ends: &Ends, version: u32) -> Answer<*mut FiInfo> {
    let (tx, rx): (*mut FiTxAttr, *mut FiRxAttr) = (room()?, room()?);
    let (ep, domain): (*mut FiEpAttr, *mut FiDomainAttr) = (room()?, room()?);
    let (fabric, info): (*mut FiFabricAttr, *mut FiInfo) = (room()?, room()?);
    let name = CString::from(NAME);
    let (src_addr, src_addrlen) = copy_address(ends.source.as_ref());
    let (dest_addr, dest_addrlen) = copy_address(ends.dest.as_ref());
    // SAFETY: all of it was allocated just now, long enough for its type.
    unsafe {
        tx.write(limits.tx);
        rx.write(limits.rx);
        ep.write(limits.ep);
        domain.write(FiDomainAttr { name: copy_text(&name), ..limits.domain });
        fabric.write(FiFabricAttr {
            fabric: ptr::null_mut(),
            name: copy_text(&name),
            // libfabric puts it in.
            prov_name: ptr::null_mut(),
            prov_version: crate::prov::VERSION,
            api_version: version,
        });
        info.write(FiInfo {
            next: ptr::null_mut(),
            caps: limits.caps,
            mode: 0,
            addr_format: address::FORMAT,
            src_addrlen,
            dest_addrlen,
            src_addr,
            dest_addr,
            handle: ptr::null_mut(),
            tx_attr: tx,
            rx_attr: rx,
            ep_attr: ep,
            domain_attr: domain,
            fabric_attr: fabric,
            nic: ptr::null_mut(),
        });
    }
    Ok(info)
}
