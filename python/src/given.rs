//! Memory of Python objects, as operations own it.
//!
//! **Invariant.** The object's export stays until the operation has ended: then it is put on a
//! list, whose entries are released by the next call that has the interpreter's lock. An operation
//! may end in a thread that does not have it, or below the endpoint's lock, where nobody may wait
//! for it.
#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use pinfold::{OwnedBuf, OwnedBufMut};
use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    types::PyBytes,
};

/// `Py_buffer`, whose layout is the same since Python 3.0; the limited API has it since 3.11.
#[repr(C)]
pub(crate) struct Buffer {
    pub buf: *mut c_void,
    pub obj: *mut ffi::PyObject,
    pub len: isize,
    pub itemsize: isize,
    pub readonly: c_int,
    pub ndim: c_int,
    pub format: *mut c_char,
    pub shape: *mut isize,
    pub strides: *mut isize,
    pub suboffsets: *mut isize,
    pub internal: *mut c_void,
}

pub(crate) const WRITABLE: c_int = 0x1;
const FORMAT: c_int = 0x4;
const STRIDES: c_int = 0x10 | 0x8;
const INDIRECT: c_int = 0x100 | STRIDES;

// Functions of every CPython since 3.0; the limited API has them since 3.11.
unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut Buffer, flags: c_int) -> c_int;
    fn PyBuffer_IsContiguous(view: *const Buffer, order: c_char) -> c_int;
    fn PyBuffer_ToContiguous(
        to: *mut c_void,
        view: *const Buffer,
        len: isize,
        order: c_char,
    ) -> c_int;
    fn PyBuffer_Release(view: *mut Buffer);
}

/// One export of an object's memory. Boxed, since exporters may point into it.
struct Export {
    view: Buffer,
    next: *mut Export,
}

/// The exports to be released.
static ENDED: AtomicPtr<Export> = AtomicPtr::new(ptr::null_mut());

/// Releases the exports of operations that have ended.
pub(crate) fn release_ended(_: Python<'_>) {
    if ENDED.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut at = ENDED.swap(ptr::null_mut(), Ordering::Acquire);
    while !at.is_null() {
        // SAFETY: put there by `Held`, whose box it was; the list is this thread's alone now.
        let mut export = unsafe { Box::from_raw(at) };
        at = export.next;
        // SAFETY: exported once and released here, with the interpreter's lock.
        unsafe { PyBuffer_Release(&raw mut export.view) };
    }
}

/// An export that an operation holds.
struct Held(*mut Export);

// SAFETY: a pointer to plain memory; the export is released by a thread that has the lock.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut first = ENDED.load(Ordering::Relaxed);
        loop {
            // SAFETY: the box of this export, on no list yet.
            unsafe { (*self.0).next = first };
            match ENDED.compare_exchange_weak(first, self.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// Memory to send from: an object's own, or a copy of one whose bytes do not lie in a row.
pub(crate) enum Source {
    Export { at: *const u8, len: usize, _held: KeptExport },
    Gathered(Vec<u8>),
}

/// Kept for its drop.
pub(crate) struct KeptExport(#[allow(dead_code, reason = "kept for its drop")] Held);

// SAFETY: plain memory, which stays while the export is held.
unsafe impl Send for Source {}
// SAFETY: as above; by a reference it is only read, and the export is not reached at all.
unsafe impl Sync for Source {}

fn export(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Held> {
    let empty = Buffer {
        buf: ptr::null_mut(),
        obj: ptr::null_mut(),
        len: 0,
        itemsize: 0,
        readonly: 0,
        ndim: 0,
        format: ptr::null_mut(),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        suboffsets: ptr::null_mut(),
        internal: ptr::null_mut(),
    };
    let place = Box::into_raw(Box::new(Export { view: empty, next: ptr::null_mut() }));
    // SAFETY: a place of the right size; `object` lives.
    let status = unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut (*place).view, flags) };
    if status == 0 {
        return Ok(Held(place));
    }
    // SAFETY: made above, and nothing was exported into it.
    drop(unsafe { Box::from_raw(place) });
    Err(PyErr::fetch(object.py()))
}

/// The object to ask for its memory: itself, or what its DLPack capsule leads to.
fn exporting<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    // SAFETY: a function of the interpreter's, with a live object.
    if unsafe { is_exporter(object) } {
        return Ok(object.clone());
    }
    if object.hasattr("__dlpack__")? {
        return py.import("pinfold.dlpack")?.getattr("from_dlpack")?.call1((object,));
    }
    let name = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a {name} has no memory to send or receive: bytes, bytearray, memoryview, an array, or \
         anything with the buffer protocol or __dlpack__ has; send_object takes any object"
    )))
}

/// # Safety
/// None beyond a live object.
unsafe fn is_exporter(object: &Bound<'_, PyAny>) -> bool {
    unsafe extern "C" {
        fn PyObject_CheckBuffer(object: *mut ffi::PyObject) -> c_int;
    }
    // SAFETY: the caller's; the interpreter is attached.
    unsafe { PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// # Errors
/// `TypeError`: its elements are references to objects, which mean nothing elsewhere.
fn refuse_references(view: &Buffer) -> PyResult<()> {
    if view.format.is_null() {
        return Ok(());
    }
    // SAFETY: a string of the exporter's that ends with a 0, for as long as the export stands.
    let format = unsafe { std::ffi::CStr::from_ptr(view.format) };
    if format.to_bytes().contains(&b'O') {
        return Err(PyTypeError::new_err(
            "the elements of an array of objects are references; send_object sends the objects",
        ));
    }
    Ok(())
}

impl Source {
    /// The memory of an object.
    ///
    /// # Errors
    /// `TypeError`: it has none.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Source> {
        let object = exporting(object)?;
        let held = export(&object, INDIRECT | FORMAT)?;
        // SAFETY: the export is this function's, and nothing changes it.
        let view = unsafe { &(*held.0).view };
        refuse_references(view)?;
        let len = view.len.cast_unsigned();
        // SAFETY: an export that was just made.
        if unsafe { PyBuffer_IsContiguous(view, b'C' as c_char) } != 0 {
            return Ok(Source::Export { at: view.buf.cast(), len, _held: KeptExport(held) });
        }
        let mut bytes = vec![0; len];
        // SAFETY: `bytes` has as many as the export says.
        let status = unsafe {
            PyBuffer_ToContiguous(bytes.as_mut_ptr().cast(), view, view.len, b'C' as c_char)
        };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        drop(held);
        release_ended(object.py());
        Ok(Source::Gathered(bytes))
    }

    /// As [`Source::of`], but never a copy: peers are to find the object's own memory.
    ///
    /// # Errors
    /// As [`Source::of`]. `BufferError`: its bytes do not lie in a row.
    pub fn in_place(object: &Bound<'_, PyAny>) -> PyResult<Source> {
        match Source::of(object)? {
            Source::Gathered(_) => Err(PyBufferError::new_err(
                "the elements do not lie in a row, so peers cannot use them where they are; give \
                 a contiguous array",
            )),
            source => Ok(source),
        }
    }

    pub fn len(&self) -> usize {
        self.bytes().1
    }
}

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        let (at, len) = self.bytes();
        // SAFETY: valid as long as the export is held; that nothing writes it meanwhile is the
        // program's part, see below.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

// SAFETY: the bytes stay where they are while the export is held, as a vector's do. That nothing
// writes them meanwhile is the program's part, as the package's documentation says: bytes that
// change in the midst of a transfer arrive as they were before, or after, or in parts.
unsafe impl OwnedBuf for Source {
    fn bytes(&self) -> (*const u8, usize) {
        match self {
            Source::Export { len: 0, .. } => (ptr::NonNull::dangling().as_ptr(), 0),
            Source::Export { at, len, .. } => (*at, *len),
            Source::Gathered(bytes) => (bytes.as_ptr(), bytes.len()),
        }
    }
}

/// Memory to receive into.
pub(crate) struct Target {
    at: *mut u8,
    len: usize,
    _held: KeptExport,
}

// SAFETY: as of `Source`.
unsafe impl Send for Target {}

impl Target {
    /// The memory of an object.
    ///
    /// # Errors
    /// `TypeError`: it has none. `BufferError`: it can only be read, or does not lie in a row.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Target> {
        let object = exporting(object)?;
        let refused = |why: &str| {
            let name = object.get_type().name();
            let name = name.map_or_else(|_| "object".to_owned(), |name| name.to_string());
            PyBufferError::new_err(format!("cannot receive into this {name}: {why}"))
        };
        let read_only = "its memory can only be read; give a bytearray, or a writable array";
        let held = match export(&object, INDIRECT | FORMAT | WRITABLE) {
            Ok(held) => held,
            // NumPy has a ValueError for it, bytes a BufferError.
            Err(_) => return Err(refused(read_only)),
        };
        // SAFETY: the export is this function's, and nothing changes it.
        let view = unsafe { &(*held.0).view };
        if view.readonly != 0 {
            return Err(refused(read_only));
        }
        refuse_references(view)?;
        // SAFETY: an export that was just made.
        if unsafe { PyBuffer_IsContiguous(view, b'C' as c_char) } == 0 {
            let why = "its elements do not lie in a row; receive into a contiguous one and copy";
            return Err(refused(why));
        }
        let (at, len) = (view.buf.cast::<u8>(), view.len.cast_unsigned());
        let at = if len == 0 { ptr::NonNull::dangling().as_ptr() } else { at };
        Ok(Target { at, len, _held: KeptExport(held) })
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as of `Source`.
unsafe impl OwnedBufMut for Target {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.at, self.len)
    }
}

impl AsMut<[u8]> for Target {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: writable as long as the export is held; that nothing else uses it meanwhile is
        // the program's part, as of `Source`.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

/// Bytes that an operation makes: an object that nobody has seen yet.
pub(crate) struct Fresh {
    at: *mut u8,
    len: usize,
    object: Py<PyBytes>,
}

// SAFETY: plain memory, which stays while the object is referred to.
unsafe impl Send for Fresh {}

impl Fresh {
    /// An object of `len` bytes, all 0.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn new(py: Python<'_>, len: usize) -> PyResult<Fresh> {
        let mut at = ptr::null_mut();
        let object = PyBytes::new_with(py, len, |bytes| {
            at = bytes.as_mut_ptr();
            Ok(())
        })?;
        // The interpreter has one object for all empty ones, and for each single byte; the latter
        // are made by other calls than this.
        let at = if len == 0 { ptr::NonNull::dangling().as_ptr() } else { at };
        Ok(Fresh { at, len, object: object.unbind() })
    }

    /// The object, when the operation has ended.
    pub fn into_object(self) -> Py<PyBytes> {
        self.object
    }
}

// SAFETY: the bytes are this object's, which does not move, and nothing else has a reference.
unsafe impl OwnedBufMut for Fresh {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.at, self.len)
    }
}

impl AsMut<[u8]> for Fresh {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}
