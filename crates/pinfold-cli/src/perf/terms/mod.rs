//! The nouns that everything else here is about. They know nothing of the rest.

mod cell;
mod id;
mod outcome;
mod side;
mod spec;
mod what;

pub(crate) use self::{
    cell::Cell,
    id::{Id, Kind, Route},
    outcome::Outcome,
    side::Side,
    spec::Spec,
    what::What,
};
