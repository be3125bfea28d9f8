//! A receiver's answer to the question how long something took: the question's number, and
//! nanoseconds, in one word.

const NS_MASK: u64 = (1 << NUMBER_SHIFT) - 1;
const NUMBER_SHIFT: u32 = 56;

/// The answer to question `number`.
pub(crate) const fn answer(number: u8, ns: u64) -> u64 {
    let ns = if ns < NS_MASK { ns } else { NS_MASK };
    (number as u64) << NUMBER_SHIFT | ns
}

/// The nanoseconds, if `word` answers question `number`.
pub(crate) const fn answered(word: u64, number: u8) -> Option<u64> {
    if (word >> NUMBER_SHIFT) as u8 == number { Some(word & NS_MASK) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        for ns in [0, 1, NS_MASK] {
            assert_eq!(answered(answer(7, ns), 7), Some(ns));
            assert_eq!(answered(answer(7, ns), 8), None);
        }
        assert_eq!(answered(answer(u8::MAX, u64::MAX), u8::MAX), Some(NS_MASK));
    }
}
