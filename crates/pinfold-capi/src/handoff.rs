//! Messages that are memory, and messages looked at where they are, for C.

use std::ffi::c_void;

use pinfold::{TagMatch, View};

use crate::{
    arena::pinfold_buf,
    endpoint::{pinfold_endpoint, the},
    memory::{PARTS_MAX, bytes_mut},
    messages::{pinfold_received, source},
    peers::{named, number, pinfold_peer},
    status::{
        Failure, give_out, given, patience, pinfold_status, place, run, store, take_back, value,
    },
};

/// A received message, in the sender's memory if that was given away. It stays good when the sender
/// closes or dies, as long as this endpoint is open; freeing it gives the memory back.
pub struct pinfold_view(View<'static>);

/// Gives a buffer away: the message is the memory itself, whatever its size. Waits at most
/// `timeout` while the peer has as much unreturned memory as it may have. With PINFOLD_OK the
/// handle is the library's, and `*buf` is set to NULL; the memory goes back to its arena when the
/// receiver has done with it. After a failure the handle is the program's as before, but for the
/// rare case in which a receiver may be looking at it: then, too, `*buf` is set to NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_give(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    buf: *mut *mut pinfold_buf,
    timeout: i64,
) -> pinfold_status {
    run(|| {
        let place = place(buf, "buf")?;
        // SAFETY: the caller's.
        let (endpoint, handle) = unsafe { (the(endpoint)?, take_back(place.read())) };
        let buf = *handle.ok_or_else(|| Failure::invalid("*buf is NULL"))?;
        // SAFETY: the caller's.
        unsafe { place.write(std::ptr::null_mut()) };
        let (was_shared, donation) = (buf.is_shared(), buf.donate());
        let limit = patience(timeout).unwrap_or(std::time::Duration::MAX);
        let Err(not) = endpoint.give_timeout(named(peer), tag, donation, limit) else {
            return Ok(());
        };
        if let Some(buf) = pinfold_buf::returned(not.donation, was_shared) {
            // SAFETY: the caller's.
            unsafe { give_out(place, buf) };
        }
        Err(not.error.into())
    })
}

/// As pinfold_give() without a limit, of `count` buffers, up to 1,024, as one message in that
/// order. The handles are the library's, and all of `bufs` are set to NULL, also after a failure,
/// which gives the memory back to its arena; but for PINFOLD_INVALID, which changes nothing. A view
/// of it is contiguous, by mapping the parts in a row where each is whole pages, or by a copy.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_givev(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    bufs: *mut *mut pinfold_buf,
    count: usize,
) -> pinfold_status {
    run(|| {
        if count > PARTS_MAX {
            let why = format!("count is {count}; up to {PARTS_MAX} buffers go in one message");
            return Err(Failure::invalid(why));
        }
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let bufs = match count {
            0 => &mut [],
            _ => {
                let bufs = place(bufs, "bufs")?;
                // SAFETY: the caller's: `count` handles, which nothing else uses meanwhile.
                unsafe { std::slice::from_raw_parts_mut(bufs.as_ptr(), count) }
            }
        };
        let mut sorted = bufs.to_vec();
        sorted.sort_unstable();
        if sorted.iter().any(|buf| buf.is_null()) || sorted.windows(2).any(|two| two[0] == two[1]) {
            return Err(Failure::invalid("one of bufs is NULL, or there twice"));
        }
        let donations = bufs.iter_mut().filter_map(|place| {
            // SAFETY: the caller's; each is taken once, since none is there twice.
            let buf = unsafe { take_back(std::mem::replace(place, std::ptr::null_mut())) };
            buf.map(|buf| buf.donate())
        });
        Ok(endpoint.give_vectored(named(peer), tag, donations.collect::<Vec<_>>())?)
    })
}

/// Waits for a message that may stay where it is, at most `timeout`; see pinfold_recv(). The view
/// is to be freed.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_recv_view(
    endpoint: *const pinfold_endpoint,
    peer: pinfold_peer,
    tag: u64,
    ignore: u64,
    timeout: i64,
    view: *mut *mut pinfold_view,
) -> pinfold_status {
    run(|| {
        let place = place(view, "view")?;
        // SAFETY: the caller's.
        let endpoint = unsafe { the(endpoint) }?;
        let (from, tag) = (source(peer), TagMatch::masked(tag, ignore));
        let came = match patience(timeout) {
            None => endpoint.recv_view(from, tag),
            Some(limit) => endpoint.recv_view_timeout(from, tag, limit),
        }?;
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_view(came.into_owned())) };
        Ok(())
    })
}

/// Its bytes in place, to be read alone, good until it is freed. A sender that does not keep to the
/// rules can change them meanwhile; pinfold_view_read() copies out what then cannot change.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_view_data(
    view: *const pinfold_view,
    data: *mut *const c_void,
) -> pinfold_status {
    run(|| {
        let data = place(data, "data")?;
        // SAFETY: the header leaves the sender's honesty to the caller.
        let bytes = unsafe { given(view, "view")?.0.as_slice() }?;
        // SAFETY: the caller's.
        unsafe { data.write(bytes.as_ptr().cast()) };
        Ok(())
    })
}

/// Copies `len` bytes at `offset` out.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_view_read(
    view: *const pinfold_view,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let (view, to) = unsafe { (given(view, "view")?, bytes_mut(to.cast(), len, "to")?) };
        Ok(view.0.read(offset, to)?)
    })
}

/// Its length, bytes; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_view_len(view: *const pinfold_view) -> usize {
    // SAFETY: the caller's.
    value(0, || unsafe { view.as_ref() }.map_or(0, |it| it.0.len()))
}

/// Its facts.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_view_facts(
    view: *const pinfold_view,
    facts: *mut pinfold_received,
) -> pinfold_status {
    run(|| {
        // SAFETY: the caller's.
        let view = &unsafe { given(view, "view") }?.0;
        let (peer, tag, len) = (number(view.peer()), view.tag(), view.len() as u64);
        let receipt = (&view.receipt()).into();
        // SAFETY: the caller's.
        unsafe { store(facts, pinfold_received { peer, tag, len, receipt }) };
        Ok(())
    })
}

/// Frees it: the memory goes back to the sender.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_view_free(view: *mut pinfold_view) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(view) }));
}
