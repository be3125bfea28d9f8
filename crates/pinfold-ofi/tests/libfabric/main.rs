//! The provider as programs use it: through libfabric's interface in C, never by its inner parts.
//!
//! libfabric is the system's, opened at run time; where there is none, all of this is skipped.
#![allow(unsafe_code)]
// Invariant: objects are made and used as the manual pages of libfabric ask.

mod addresses;
mod atomics;
mod bad;
mod counters;
mod couple;
mod deaths;
mod denied;
mod fences;
mod floods;
mod forks;
mod formats;
mod host;
mod hosts;
mod many;
mod mapper;
mod messages;
mod newest;
mod peeks;
mod pinned;
mod rma;
mod side;

use deaths::{survivor, victim};
use denied::{asker, server};
use hosts::{owner, user};
use pinned::{sender, taker};

pinfold_tests::roles!(victim, survivor, server, asker, owner, user, sender, taker);
