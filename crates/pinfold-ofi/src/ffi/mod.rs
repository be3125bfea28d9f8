//! The binary interface of libfabric: its structures, written down by hand from the headers of libfabric 1.17 and laid
//! out as the C compiler does. Later versions only put fields behind; each structure's size is asserted beside it, and a
//! test compares all of it with the headers where they are installed.
#![allow(missing_docs, reason = "the interface's manual pages say what the fields are")]

pub mod atomic;
pub mod ep;
pub mod flags;
pub mod info;
pub mod object;
pub mod queue;
