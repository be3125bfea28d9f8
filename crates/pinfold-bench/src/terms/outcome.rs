//! The outcome of one run.

/// The findings of a run. Only the first process has times and hops.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The cache-line hop before and after, nanoseconds.
    pub(crate) hops_ns: (f64, f64),
    /// Picoseconds per message, one for each sample.
    pub(crate) times: Vec<u64>,
    /// Messages in the timed part.
    pub(crate) messages: u64,
    /// Processor time of this process in the timed part, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// The path that messages took, where there is a choice.
    pub(crate) path: Option<&'static str>,
}
