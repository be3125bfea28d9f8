//! The nouns of all other modules here. They know nothing of the rest.

mod cell;
mod group;
mod id;
mod memory;
mod outcome;
mod setting;
mod side;
mod spec;
mod what;

pub(crate) use self::{
    cell::Cell,
    group::Group,
    id::{Id, Kind, REGION_BYTES_MAX},
    memory::Memory,
    outcome::Outcome,
    setting::Setting,
    side::Side,
    spec::Spec,
};
pub use self::{id::Route, what::What};
