//! Memory that peers can map, for C.

use std::ffi::c_void;

use pinfold::{Arena, ArenaBuf, ArenaBuilder, DonatedBuf, SharedArena, SharedBuf};

use crate::status::{Failure, give_out, given, pinfold_status, place, run, take_back, value};

/// A heap whose buffers peers can map: messages out of it are copied once, or not at all.
pub struct pinfold_arena(Heap);

/// The heap, by whether peers may write it.
enum Heap {
    Private(Arena),
    Shared(SharedArena),
}

/// A buffer of an arena.
pub struct pinfold_buf {
    memory: Memory,
    at: *mut u8,
    len: usize,
}

enum Memory {
    Private(ArenaBuf),
    Shared(SharedBuf),
}

impl pinfold_buf {
    fn private(mut buf: ArenaBuf) -> pinfold_buf {
        let (at, len) = (buf.as_mut_ptr(), buf.len());
        pinfold_buf { memory: Memory::Private(buf), at, len }
    }

    fn shared(buf: SharedBuf) -> pinfold_buf {
        let at = std::ptr::with_exposed_provenance_mut(buf.addresses().start);
        pinfold_buf { at, len: buf.len(), memory: Memory::Shared(buf) }
    }

    /// The memory to be given away.
    pub(crate) fn donate(self) -> DonatedBuf {
        match self.memory {
            Memory::Private(buf) => buf.into(),
            Memory::Shared(buf) => buf.into(),
        }
    }

    /// Memory that was not given after all. `None`: a receiver may still be looking at it.
    pub(crate) fn returned(donation: DonatedBuf, was_shared: bool) -> Option<pinfold_buf> {
        if was_shared {
            donation.into_shared_buf().map(pinfold_buf::shared)
        } else {
            donation.into_arena_buf().map(pinfold_buf::private)
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared(_))
    }
}

/// Makes an arena of at most `bytes_max` bytes of address space (0: 64 GiB), which are taken piece
/// by piece. Peers can read its buffers; with `writable`, write them, too, which long receives gain
/// from. Its memory counts as this process's.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_arena_open(
    bytes_max: usize,
    writable: bool,
    arena: *mut *mut pinfold_arena,
) -> pinfold_status {
    run(|| {
        let place = place(arena, "arena")?;
        let builder = match bytes_max {
            0 => ArenaBuilder::default(),
            bytes => ArenaBuilder::default().bytes_max(bytes),
        };
        let heap = match writable {
            false => Heap::Private(builder.build()?),
            true => Heap::Shared(builder.build_shared()?),
        };
        // SAFETY: the caller's.
        unsafe { give_out(place, pinfold_arena(heap)) };
        Ok(())
    })
}

/// Frees the handle. Its buffers stay good.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_arena_free(arena: *mut pinfold_arena) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(arena) }));
}

/// A buffer of `len` bytes at a multiple of `align`, a power of two up to 2 MiB (0: a cache line).
/// Its contents are not cleared: they are what another buffer of the arena left, or 0.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_arena_alloc(
    arena: *const pinfold_arena,
    len: usize,
    align: usize,
    buf: *mut *mut pinfold_buf,
) -> pinfold_status {
    run(|| {
        let place = place(buf, "buf")?;
        if align != 0 && !align.is_power_of_two() || align > 2 << 20 {
            return Err(Failure::invalid(format!("align is {align}, no power of two up to 2 MiB")));
        }
        let align = align.max(64);
        // SAFETY: the caller's.
        let made = match &unsafe { given(arena, "arena") }?.0 {
            Heap::Private(arena) => pinfold_buf::private(arena.alloc_aligned(len, align)?),
            Heap::Shared(arena) => pinfold_buf::shared(arena.alloc_aligned(len, align)?),
        };
        // SAFETY: the caller's.
        unsafe { give_out(place, made) };
        Ok(())
    })
}

/// Its memory, good until it is freed or given away; NULL for NULL. Any function takes parts of it
/// as it takes other memory, and finds out by itself that it lies in an arena.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_buf_data(buf: *const pinfold_buf) -> *mut c_void {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's.
    value(none, || unsafe { buf.as_ref() }.map_or(none, |it| it.at.cast()))
}

/// Its length, bytes; 0 for NULL.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_buf_len(buf: *const pinfold_buf) -> usize {
    // SAFETY: the caller's.
    value(0, || unsafe { buf.as_ref() }.map_or(0, |it| it.len))
}

/// Frees it. No operation may be using its memory.
///
/// # Safety
/// As the head of pinfold.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinfold_buf_free(buf: *mut pinfold_buf) {
    // SAFETY: the caller's.
    value((), || drop(unsafe { take_back(buf) }));
}
