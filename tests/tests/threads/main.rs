//! Threads of the library in a program that has others: their names, their signals, and times when
//! no thread is to be had.

mod kinds;
mod signals;
mod sources;
mod starved;
mod watcher;

use self::{
    kinds::worker,
    signals::signalled,
    starved::{cramped, ignorant, ringless, threadless},
};

pinfold_tests::roles!(worker, signalled, threadless, ringless, ignorant, cramped);
