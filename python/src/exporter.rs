//! The type that exports a block's memory by the buffer protocol.
//!
//! The limited API of Python 3.9 and 3.10 has no names for the slots of the buffer protocol, though
//! their interpreters have the slots; so the type is made here by its numbers, of which CPython
//! promises that they stay.
//!
//! **Invariant.** Between its `tp_new` and its `tp_dealloc` an instance has a block, and each
//! export refers to the instance: the block's memory is there as long as an export is.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_int, c_uint, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use pyo3::{
    exceptions::{PyRuntimeError, PyTypeError},
    ffi,
    prelude::*,
    types::PyTuple,
};

use crate::{block::Block, given::Buffer};

const NAME: &CStr = c"pinfold._native.Exporter";
/// `Py_bf_getbuffer` of `typeslots.h`.
const GETBUFFER: c_int = 1;

unsafe extern "C" {
    fn PyBuffer_FillInfo(
        view: *mut Buffer,
        exporter: *mut ffi::PyObject,
        at: *mut c_void,
        len: isize,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// An instance.
#[repr(C)]
struct Exporter {
    head: ffi::PyObject,
    /// A reference to a [`Block`].
    block: *mut ffi::PyObject,
}

/// Runs a slot's function; an exception and `otherwise` if it fails.
fn run<T>(otherwise: T, function: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
    // SAFETY: the interpreter calls slots with its lock held.
    let py = unsafe { Python::assume_attached() };
    let result = catch_unwind(AssertUnwindSafe(|| function(py)));
    let defect = || PyRuntimeError::new_err("the library met a defect of its own");
    match result.unwrap_or_else(|_| Err(defect())) {
        Ok(value) => value,
        Err(error) => {
            error.restore(py);
            otherwise
        }
    }
}

/// The block of an instance.
///
/// # Safety
/// An instance of the type or of a subtype.
unsafe fn block<'a, 'py>(
    py: Python<'py>,
    exporter: *mut ffi::PyObject,
) -> PyResult<&'a Bound<'py, Block>> {
    // SAFETY: the caller's, and the invariant.
    let place = unsafe { &raw mut (*exporter.cast::<Exporter>()).block };
    // SAFETY: as above; `Bound` is a pointer to an object.
    let object: &Bound<'py, PyAny> = unsafe { Bound::ref_from_ptr(py, &*place) };
    Ok(object.cast::<Block>()?)
}

unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    arguments: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    run(ptr::null_mut(), |py| {
        // SAFETY: the interpreter calls this with a tuple.
        let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
        let arguments = arguments.cast::<PyTuple>()?;
        let wrong = || PyTypeError::new_err("memory is made by an arena or a receive");
        let object = arguments.get_item(0).map_err(|_| wrong())?;
        let block = object.cast::<Block>().map_err(|_| wrong())?.clone().unbind();
        // SAFETY: a live type with at least this type's size, as it is this one or a subtype.
        let made = unsafe { ffi::PyType_GenericAlloc(class, 0) };
        if made.is_null() {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: just made, all zeros, with room for an `Exporter`.
        unsafe { (*made.cast::<Exporter>()).block = block.into_ptr() };
        Ok(made)
    })
}

unsafe extern "C" fn dealloc(exporter: *mut ffi::PyObject) {
    // SAFETY: the last reference to an instance is gone, so its fields are this function's. A heap
    // type has `tp_free`, and each of its instances refers to it.
    unsafe {
        let class = ffi::Py_TYPE(exporter);
        let block = (*exporter.cast::<Exporter>()).block;
        if !block.is_null() {
            ffi::Py_DECREF(block);
        }
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        let free: ffi::freefunc = std::mem::transmute(free);
        free(exporter.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn get_buffer(
    exporter: *mut ffi::PyObject,
    view: *mut c_void,
    flags: c_int,
) -> c_int {
    run(-1, |py| {
        // SAFETY: a slot of the type is called with an instance.
        let (at, len, readonly) = unsafe { block(py, exporter) }?.get().memory(py)?;
        // SAFETY: `len` bytes at `at` stay while `exporter` lives, to which the view refers.
        let status = unsafe {
            let view = view.cast::<Buffer>();
            let (at, len) = (at.cast(), len.cast_signed());
            PyBuffer_FillInfo(view, exporter, at, len, readonly.into(), flags)
        };
        if status == 0 { Ok(0) } else { Err(PyErr::fetch(py)) }
    })
}

unsafe extern "C" fn get_block(exporter: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a getter of the type is called with an instance.
    run(ptr::null_mut(), |py| Ok(unsafe { block(py, exporter) }?.clone().into_ptr()))
}

/// The type.
///
/// # Errors
/// As the interpreter has them.
pub(crate) fn make(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // The type keeps a pointer to its getters: they stay for good. A module is made once a process.
    let none = ffi::PyGetSetDef::default();
    let getters: &'static mut [ffi::PyGetSetDef; 2] = Box::leak(Box::new([
        ffi::PyGetSetDef {
            name: c"_block".as_ptr(),
            get: Some(get_block),
            doc: c"The memory.".as_ptr(),
            ..none
        },
        none,
    ]));
    let document = c"Memory of the library's, by the buffer protocol.";
    let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(GETBUFFER, get_buffer as *mut c_void),
        slot(ffi::Py_tp_getset, getters.as_mut_ptr().cast()),
        slot(ffi::Py_tp_doc, document.as_ptr().cast_mut().cast()),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: NAME.as_ptr(),
        basicsize: size_of::<Exporter>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: a specification as the interpreter wants it; the functions have the slots' types.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }
}
