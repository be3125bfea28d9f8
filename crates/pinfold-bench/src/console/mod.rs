//! The parts of a command that all commands share.
//!
//! - [`exit`]: exit statuses. [`output`]: standard output. [`progress`]: stderr.
//! - [`fold`]: text in lines that fit. [`words`]: the library's messages, in a command's words.

pub mod exit;
pub mod fold;
pub mod output;
pub mod progress;
pub mod words;
