//! The arithmetic of atomic operations: one element's new bits from its old ones. No memory.
//!
//! Elements are carried as bits, at most 128 of them, the first byte in memory lowest.

use std::ffi::c_int;

/// The types of elements, by libfabric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int { bytes: usize, signed: bool },
    Float,
    Double,
    FloatComplex,
    DoubleComplex,
}

/// The operations, by libfabric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Min,
    Max,
    Sum,
    Product,
    LogicalOr,
    LogicalAnd,
    Or,
    And,
    LogicalXor,
    Xor,
    Read,
    Write,
    Swap(Compare),
    MaskedSwap,
}

/// The comparison of a swap: of the given value with the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    Unequal,
    AtMost,
    Less,
    AtLeast,
    Greater,
}

/// The calls that an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `fi_atomic`.
    Change,
    /// `fi_fetch_atomic`.
    Fetch,
    /// `fi_compare_atomic`.
    Compare,
}

impl Type {
    /// The type with this number. `None`: there is none, or it is not served (`long double`).
    pub fn numbered(number: c_int) -> Option<Type> {
        Some(match number {
            0..=7 => Type::Int { bytes: 1 << (number / 2), signed: number % 2 == 0 },
            8 => Type::Float,
            9 => Type::Double,
            10 => Type::FloatComplex,
            11 => Type::DoubleComplex,
            14 => Type::Int { bytes: 16, signed: true },
            15 => Type::Int { bytes: 16, signed: false },
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Type::Int { bytes, .. } => bytes,
            Type::Float => 4,
            Type::Double | Type::FloatComplex => 8,
            Type::DoubleComplex => 16,
        }
    }

    fn is_complex(self) -> bool {
        matches!(self, Type::FloatComplex | Type::DoubleComplex)
    }
}

impl Op {
    /// The operation with this number.
    pub fn numbered(number: c_int) -> Option<Op> {
        Some(match number {
            0 => Op::Min,
            1 => Op::Max,
            2 => Op::Sum,
            3 => Op::Product,
            4 => Op::LogicalOr,
            5 => Op::LogicalAnd,
            6 => Op::Or,
            7 => Op::And,
            8 => Op::LogicalXor,
            9 => Op::Xor,
            10 => Op::Read,
            11 => Op::Write,
            12 => Op::Swap(Compare::Equal),
            13 => Op::Swap(Compare::Unequal),
            14 => Op::Swap(Compare::AtMost),
            15 => Op::Swap(Compare::Less),
            16 => Op::Swap(Compare::AtLeast),
            17 => Op::Swap(Compare::Greater),
            18 => Op::MaskedSwap,
            _ => return None,
        })
    }

    /// Returns whether this can be asked for by such a call, of elements of this type.
    pub fn is_valid(self, of: Type, call: Call) -> bool {
        let compares = matches!(self, Op::Swap(_) | Op::MaskedSwap);
        if compares != (call == Call::Compare) || self == Op::Read && call == Call::Change {
            return false;
        }
        let is_int = matches!(of, Type::Int { .. });
        match self {
            Op::Or | Op::And | Op::Xor | Op::MaskedSwap => is_int,
            Op::Min | Op::Max => !of.is_complex(),
            Op::Swap(compare) => {
                !of.is_complex() || matches!(compare, Compare::Equal | Compare::Unequal)
            }
            _ => true,
        }
    }
}

/// An element as this process computes with it.
trait Number: Copy + PartialEq {
    fn of_bits(bits: u128) -> Self;
    fn bits(self) -> u128;
    fn sum(self, with: Self) -> Self;
    fn product(self, with: Self) -> Self;
    fn truth(is_so: bool) -> Self;
    fn is_true(self) -> bool;
    /// `None`: they have no order.
    fn order(self, with: Self) -> Option<std::cmp::Ordering>;
}

macro_rules! integers {
    ($($int:ty: $bits:ty;)*) => {$(
        impl Number for $int {
            fn of_bits(bits: u128) -> $int {
                bits as $int
            }
            fn bits(self) -> u128 {
                u128::from(self as $bits)
            }
            fn sum(self, with: $int) -> $int {
                self.wrapping_add(with)
            }
            fn product(self, with: $int) -> $int {
                self.wrapping_mul(with)
            }
            fn truth(is_so: bool) -> $int {
                <$int>::from(is_so)
            }
            fn is_true(self) -> bool {
                self != 0
            }
            fn order(self, with: $int) -> Option<std::cmp::Ordering> {
                Some(self.cmp(&with))
            }
        }
    )*};
}

integers! {
    i8: u8; u8: u8; i16: u16; u16: u16; i32: u32; u32: u32; i64: u64; u64: u64;
    i128: u128; u128: u128;
}

macro_rules! floats {
    ($($float:ty: $bits:ty, $complex:ident;)*) => {$(
        impl Number for $float {
            fn of_bits(bits: u128) -> $float {
                <$float>::from_bits(bits as $bits)
            }
            fn bits(self) -> u128 {
                u128::from(self.to_bits())
            }
            fn sum(self, with: $float) -> $float {
                self + with
            }
            fn product(self, with: $float) -> $float {
                self * with
            }
            fn truth(is_so: bool) -> $float {
                if is_so { 1.0 } else { 0.0 }
            }
            fn is_true(self) -> bool {
                self != 0.0
            }
            fn order(self, with: $float) -> Option<std::cmp::Ordering> {
                self.partial_cmp(&with)
            }
        }

        /// A complex number: its real part comes first.
        #[derive(Clone, Copy, PartialEq)]
        struct $complex($float, $float);

        impl Number for $complex {
            fn of_bits(bits: u128) -> $complex {
                let imaginary = bits >> <$bits>::BITS;
                $complex(Number::of_bits(bits), Number::of_bits(imaginary))
            }
            fn bits(self) -> u128 {
                Number::bits(self.0) | Number::bits(self.1) << <$bits>::BITS
            }
            fn sum(self, with: $complex) -> $complex {
                $complex(self.0 + with.0, self.1 + with.1)
            }
            fn product(self, with: $complex) -> $complex {
                let real = self.0 * with.0 - self.1 * with.1;
                $complex(real, self.0 * with.1 + self.1 * with.0)
            }
            fn truth(is_so: bool) -> $complex {
                $complex(Number::truth(is_so), 0.0)
            }
            fn is_true(self) -> bool {
                self.0 != 0.0 || self.1 != 0.0
            }
            fn order(self, _: $complex) -> Option<std::cmp::Ordering> {
                None
            }
        }
    )*};
}

floats! {
    f32: u32, FloatComplex;
    f64: u64, DoubleComplex;
}

fn changed_number<N: Number>(op: Op, was: u128, with: u128, compare: u128) -> u128 {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (old, operand) = (N::of_bits(was), N::of_bits(with));
    let ordered = |orders: &[std::cmp::Ordering]| {
        N::of_bits(compare).order(old).is_some_and(|order| orders.contains(&order))
    };
    let swapped = |does: bool| if does { with } else { was };
    match op {
        Op::Min => swapped(operand.order(old) == Some(Less)),
        Op::Max => swapped(operand.order(old) == Some(Greater)),
        Op::Sum => old.sum(operand).bits(),
        Op::Product => old.product(operand).bits(),
        Op::LogicalOr => N::truth(old.is_true() || operand.is_true()).bits(),
        Op::LogicalAnd => N::truth(old.is_true() && operand.is_true()).bits(),
        Op::LogicalXor => N::truth(old.is_true() != operand.is_true()).bits(),
        Op::Or => was | with,
        Op::And => was & with,
        Op::Xor => was ^ with,
        Op::Read => was,
        Op::Write => with,
        Op::Swap(Compare::Equal) => swapped(N::of_bits(compare) == old),
        Op::Swap(Compare::Unequal) => swapped(N::of_bits(compare) != old),
        Op::Swap(Compare::AtMost) => swapped(ordered(&[Less, Equal])),
        Op::Swap(Compare::Less) => swapped(ordered(&[Less])),
        Op::Swap(Compare::AtLeast) => swapped(ordered(&[Greater, Equal])),
        Op::Swap(Compare::Greater) => swapped(ordered(&[Greater])),
        Op::MaskedSwap => with & compare | was & !compare,
    }
}

/// The new bits of an element.
pub fn changed(op: Op, of: Type, was: u128, with: u128, compare: u128) -> u128 {
    let change = match of {
        Type::Int { bytes: 1, signed: true } => changed_number::<i8>,
        Type::Int { bytes: 1, signed: false } => changed_number::<u8>,
        Type::Int { bytes: 2, signed: true } => changed_number::<i16>,
        Type::Int { bytes: 2, signed: false } => changed_number::<u16>,
        Type::Int { bytes: 4, signed: true } => changed_number::<i32>,
        Type::Int { bytes: 4, signed: false } => changed_number::<u32>,
        Type::Int { bytes: 8, signed: true } => changed_number::<i64>,
        Type::Int { bytes: 8, signed: false } => changed_number::<u64>,
        Type::Int { signed: true, .. } => changed_number::<i128>,
        Type::Int { signed: false, .. } => changed_number::<u128>,
        Type::Float => changed_number::<f32>,
        Type::Double => changed_number::<f64>,
        Type::FloatComplex => changed_number::<FloatComplex>,
        Type::DoubleComplex => changed_number::<DoubleComplex>,
    };
    change(op, was, with, compare)
}

/// The bits of an element's bytes.
pub fn bits(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: Type = Type::Int { bytes: 4, signed: true };
    const UNSIGNED: Type = Type::Int { bytes: 1, signed: false };

    fn of(op: Op, of: Type, was: u128, with: u128) -> u128 {
        changed(op, of, was, with, 0)
    }

    #[test]
    fn integers_wrap_and_keep_their_signs() {
        let minus = u128::from(-5i32 as u32);
        assert_eq!(of(Op::Min, INT, 3, minus), minus);
        assert_eq!(of(Op::Max, INT, 3, minus), 3);
        assert_eq!(of(Op::Sum, INT, 3, minus), u128::from(-2i32 as u32));
        assert_eq!(of(Op::Product, INT, 3, minus), u128::from(-15i32 as u32));
        assert_eq!(of(Op::Sum, UNSIGNED, 250, 10), 4);
        assert_eq!(of(Op::Min, UNSIGNED, 250, 10), 10);
        assert_eq!(of(Op::LogicalXor, UNSIGNED, 250, 10), 0);
        assert_eq!(of(Op::LogicalOr, UNSIGNED, 0, 10), 1);
        assert_eq!(of(Op::LogicalAnd, UNSIGNED, 0, 10), 0);
        assert_eq!(of(Op::Xor, UNSIGNED, 0b1100, 0b1010), 0b0110);
        assert_eq!(changed(Op::MaskedSwap, UNSIGNED, 0xab, 0xcd, 0x0f), 0xad);
    }

    #[test]
    fn floats_and_complex_numbers_compute() {
        let real = |x: f64| u128::from(x.to_bits());
        assert_eq!(of(Op::Sum, Type::Double, real(1.5), real(2.0)), real(3.5));
        assert_eq!(of(Op::Min, Type::Double, real(1.5), real(f64::NAN)), real(1.5));
        assert_eq!(of(Op::LogicalAnd, Type::Double, real(1.5), real(-0.0)), real(0.0));
        let complex = |x: f32, y: f32| u128::from(x.to_bits()) | u128::from(y.to_bits()) << 32;
        let product = of(Op::Product, Type::FloatComplex, complex(1.0, 2.0), complex(3.0, 4.0));
        assert_eq!(product, complex(-5.0, 10.0));
        let double = |x: f64, y: f64| real(x) | real(y) << 64;
        let sum = of(Op::Sum, Type::DoubleComplex, double(1.0, 2.0), double(3.0, 4.0));
        assert_eq!(sum, double(4.0, 6.0));
    }

    #[test]
    fn swaps_compare_the_given_value_with_the_element() {
        let swap = |compare, was, with| changed(Op::Swap(compare), INT, was, 7, with);
        for (compare, less, equal, greater) in [
            (Compare::Equal, false, true, false),
            (Compare::Unequal, true, false, true),
            (Compare::AtMost, true, true, false),
            (Compare::Less, true, false, false),
            (Compare::AtLeast, false, true, true),
            (Compare::Greater, false, false, true),
        ] {
            assert_eq!(swap(compare, 100, 99) == 7, less, "{compare:?}");
            assert_eq!(swap(compare, 100, 100) == 7, equal, "{compare:?}");
            assert_eq!(swap(compare, 100, 101) == 7, greater, "{compare:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_valid() {
        assert!(!Op::Or.is_valid(Type::Float, Call::Change));
        assert!(!Op::Min.is_valid(Type::FloatComplex, Call::Fetch));
        assert!(!Op::Read.is_valid(INT, Call::Change) && Op::Read.is_valid(INT, Call::Fetch));
        assert!(!Op::Swap(Compare::Equal).is_valid(INT, Call::Fetch));
        assert!(!Op::Sum.is_valid(INT, Call::Compare));
        assert!(!Op::Swap(Compare::Less).is_valid(Type::DoubleComplex, Call::Compare));
        assert!(Type::numbered(12).is_none() && Op::numbered(19).is_none());
        assert!((0..12).all(|number| Type::numbered(number).is_some()));
    }
}
