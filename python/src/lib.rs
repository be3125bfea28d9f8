//! Pinfold for Python: the extension module `pinfold._native`, which the package `pinfold` wraps.
//!
//! A thin layer over the library's public interface, one file a noun. The interpreter's lock is
//! released while a call waits or copies.
//!
//! - `error`: exceptions, made of the library's errors.
//! - `given`: memory of Python objects, as operations own it.
//! - `block`: memory of the library's, as Python objects keep it; `exporter`: the buffer protocol.
//! - `arena`: memory that peers can map.
//! - `receipt`: how an operation went.
//! - `operation`: operations under way; `wait`: waiting for them; `request`: as Python holds them;
//!   `queue`: the ends of many.
//! - `settings`, `endpoint`, `messages`: endpoints, how they are made, what they do.
//! - `region`: memory for peers to use; `remote`: peers' memory; `words`: atomic operations.
//! - `active`: handlers of active messages, and calls of peers' handlers.

mod active;
mod arena;
mod block;
mod endpoint;
mod error;
mod exporter;
mod given;
mod messages;
mod operation;
mod queue;
mod receipt;
mod region;
mod remote;
mod request;
mod settings;
mod wait;
mod words;

use pyo3::prelude::*;

/// The module.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(wait::begin_exit, module)?)?;
    wait::note_main_thread();
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add_class::<receipt::Received>()?;
    module.add_class::<arena::Arena>()?;
    module.add_class::<block::Block>()?;
    module.add_class::<active::Active>()?;
    module.add_class::<region::Region>()?;
    module.add_class::<region::Registered>()?;
    module.add_class::<remote::Remote>()?;
    module.add("Exporter", exporter::make(module.py())?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
