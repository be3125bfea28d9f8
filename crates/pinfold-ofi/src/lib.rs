//! A libfabric provider: programs that speak libfabric, MPI above all, run over Pinfold.
//!
//! libfabric loads `libpinfold-fi.so` from the folders that `FI_PROVIDER_PATH` names and calls
//! [`fi_prov_ini`](prov::fi_prov_ini). Nothing here is linked with libfabric: its binary interface
//! is written down in [`ffi`]. A page of the documentation, `docs/design/libfabric.md`, has the
//! reasons.
//!
//! The modules, top to bottom:
//!
//! - `prov`, `getinfo` (policy: `attr`), `fabric`, `domain`, `av`, `mr`, `ep`, `cq`, `cntr`, `eq`:
//!   an object of the interface each, with the functions of its table; `msg`, `tagged`, `rma`,
//!   `atomic`: the tables of an endpoint.
//! - `state`: the part of an endpoint behind the lock: `send`, `receive` and `claim` post to the
//!   library, `progress` takes what has ended, `contacts` knows who is connected.
//! - `op`, `header`, `buffer`, `address`: an operation, the bytes before each message, its memory,
//!   and the names of endpoints.
//! - `guard`, `handle`, `lock`: panics and refusals, objects in the hands of C, the domain's lock.
//! - `ffi`: the binary interface.

pub mod ffi;

mod access;
mod address;
mod arithmetic;
mod atomic;
mod attr;
mod auto;
mod av;
mod buffer;
mod change;
mod claim;
mod cntr;
mod contacts;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod fence;
mod getinfo;
mod greeting;
mod guard;
mod handle;
mod header;
mod idle;
mod lock;
mod mr;
mod msg;
mod newest;
mod op;
mod progress;
pub mod prov;
mod receive;
mod regions;
mod rma;
mod send;
mod served;
mod served_wire;
mod state;
mod tagged;
