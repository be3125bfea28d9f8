//! Random orders, where no item is always to come after the same one.

/// Draws lots: xorshift64 (Marsaglia, "Xorshift RNGs").
#[derive(Clone, Debug)]
pub struct Shuffle(u64);

impl Default for Shuffle {
    fn default() -> Shuffle {
        Shuffle::new()
    }
}

impl Shuffle {
    /// A generator that always gives the same lots.
    pub const fn new() -> Shuffle {
        Shuffle(1)
    }

    /// A generator of other lots, but the same for each `seed`, which is not 0.
    pub const fn of(seed: u64) -> Shuffle {
        Shuffle(seed)
    }

    /// A number below `end`: each is as likely as any other, up to the remainder of 2^53 divided by
    /// `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// Brings `all` into an order: each order is as likely as any other.
    pub fn shuffle(&mut self, all: &mut [usize]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_are_fair_enough() {
        let mut rng = Shuffle::new();
        let (mut first, mut after_none) = ([0; 4], 0);
        for _ in 0..4000 {
            let mut order = vec![0, 1, 2, 3];
            rng.shuffle(&mut order);
            first[order[0]] += 1;
            after_none += usize::from(order.windows(2).any(|two| two == [0, 1]));
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        assert!(first.iter().all(|&count| (850..1150).contains(&count)), "{first:?}");
        // One item comes right after another in a quarter of the orders.
        assert!((850..1150).contains(&after_none), "{after_none}");
    }
}
