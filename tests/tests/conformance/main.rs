//! One suite for all transports: each property is a function of a transport, most of them over a
//! [`Pair`](pair::Pair), and the table says on which transports it holds, and why not on others.

mod back_pressure;
mod budgets;
mod close;
mod credit;
mod death;
mod donated;
mod fill;
mod one_sided;
mod order;
mod pair;
mod processes;
mod resume;
mod watchdog;
mod wildcards;

use self::{
    death::{mortal, survivor},
    processes::talker,
};

pinfold_tests::roles!(talker, survivor, mortal);

/// The table. A row names all properties; `holds` makes a test of the two, a text says why there is
/// none.
macro_rules! table {
    ($($transport:ident ($kind:ident) {
        order: $order:tt,
        wildcards: $wildcards:tt,
        credit: $credit:tt,
        back_pressure: $back_pressure:tt,
        resume: $resume:tt,
        close: $close:tt,
        death: $death:tt,
        budgets: $budgets:tt,
        one_sided: $one_sided:tt,
        donated: $donated:tt,
    })*) => { $(
        mod $transport {
            table!(@test $kind order $order);
            table!(@test $kind wildcards $wildcards);
            table!(@test $kind credit $credit);
            table!(@test $kind back_pressure $back_pressure);
            table!(@test $kind resume $resume);
            table!(@test $kind close $close);
            table!(@test $kind death $death);
            table!(@test $kind budgets $budgets);
            table!(@test $kind one_sided $one_sided);
            table!(@test $kind donated $donated);
        }
    )* };
    (@test $kind:ident $property:ident holds) => {
        #[test]
        fn $property() {
            crate::watchdog::watched(crate::$property::holds, crate::pair::Transport::$kind);
        }
    };
    (@test $kind:ident $property:ident $why:literal) => {};
}

table! {
    shm (Shm) {
        order: holds,
        wildcards: holds,
        credit: holds,
        back_pressure: holds,
        resume: "there is no connection that could break: a peer is there, or has gone for good",
        close: holds,
        death: holds,
        budgets: holds,
        one_sided: holds,
        donated: holds,
    }
    tcp (Tcp) {
        order: holds,
        wildcards: holds,
        credit: holds,
        back_pressure: holds,
        resume: "nothing is on the way that could break a connection: see `faulty`",
        close: holds,
        death: holds,
        budgets: holds,
        one_sided: holds,
        donated: holds,
    }
    loopback (Loopback) {
        order: holds,
        wildcards: holds,
        credit: holds,
        back_pressure: "each call of the sender is one of the receiver: it always looks",
        resume: "as for `shm`",
        close: holds,
        death: "both ends are one process: nobody is left",
        budgets: holds,
        one_sided: holds,
        donated: holds,
    }
    faulty (Faulty) {
        order: holds,
        wildcards: holds,
        credit: holds,
        back_pressure: holds,
        resume: holds,
        close: "a goodbye may be lost in its relay; then the other side waits for a connection",
        death: holds,
        budgets: holds,
        one_sided: holds,
        donated: holds,
    }
}
