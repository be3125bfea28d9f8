//! Receipts, and the facts of a received message.

use pinfold::Path;
use pyo3::prelude::*;

/// How one operation was done: the path, the bytes copied by this process and by the kernel for it,
/// and why each other path was refused.
#[pyclass(frozen, module = "pinfold", skip_from_py_object)]
#[derive(Clone, Copy)]
pub(crate) struct Receipt(pinfold::Receipt);

impl From<pinfold::Receipt> for Receipt {
    fn from(receipt: pinfold::Receipt) -> Receipt {
        Receipt(receipt)
    }
}

#[pymethods]
impl Receipt {
    /// The path: "inline", "eager", "cma", "mapped" or "handoff".
    #[getter]
    fn path(&self) -> &'static str {
        self.0.path.name()
    }

    /// Bytes of the message that this side sent or took in.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes copied by this process at user level.
    #[getter]
    fn copied_user(&self) -> u64 {
        self.0.copied_user
    }

    /// Bytes copied by the kernel in calls of this process.
    #[getter]
    fn copied_kernel(&self) -> u64 {
        self.0.copied_kernel
    }

    /// Bytes copied on this side, by whomever.
    #[getter]
    fn copied(&self) -> u64 {
        self.0.copied_user + self.0.copied_kernel
    }

    /// By the name of each path that was considered and not taken, the reason as a sentence.
    #[getter]
    fn why(&self) -> std::collections::BTreeMap<&'static str, String> {
        let refused = |path: Path| Some((path.name(), self.0.refused(path)?.to_string()));
        Path::ALL.into_iter().filter_map(refused).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Receipt: {}>", self.0)
    }

    fn __eq__(&self, other: &Receipt) -> bool {
        self.0 == other.0
    }
}

/// The facts of a message that came into the caller's memory.
#[pyclass(frozen, module = "pinfold", skip_from_py_object)]
pub(crate) struct Received {
    /// The peer that sent it.
    #[pyo3(get)]
    peer: u64,
    /// Its tag.
    #[pyo3(get)]
    tag: u64,
    /// Its length, bytes.
    #[pyo3(get)]
    length: u64,
    /// How it came; None: it was not received yet.
    #[pyo3(get)]
    receipt: Option<Receipt>,
}

impl From<&pinfold::Received> for Received {
    fn from(it: &pinfold::Received) -> Received {
        let receipt = Some(it.receipt.into());
        Received { peer: it.peer.to_bits(), tag: it.tag, length: it.len, receipt }
    }
}

impl From<&pinfold::Envelope> for Received {
    fn from(it: &pinfold::Envelope) -> Received {
        Received { peer: it.peer.to_bits(), tag: it.tag, length: it.len, receipt: None }
    }
}

#[pymethods]
impl Received {
    fn __repr__(&self) -> String {
        format!("<Received: {} bytes from peer {}, tag {}>", self.length, self.peer, self.tag)
    }
}
