//! Natural numbers of any size: just what reading and printing decimal numbers exactly needs.

/// A natural number: 32-bit digits, lowest first, none of them 0 at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BigUint(Vec<u32>);

impl From<u64> for BigUint {
    fn from(value: u64) -> BigUint {
        let mut big = BigUint(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big
    }
}

impl BigUint {
    /// The number that ASCII digits spell.
    pub(crate) fn from_decimal(digits: &[u8]) -> BigUint {
        let mut big = BigUint(Vec::new());
        for chunk in digits.chunks(9) {
            let value = chunk.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
            big.times_plus(10u32.pow(chunk.len() as u32), value);
        }
        big
    }

    pub(crate) fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut chunks = Vec::new();
        while !rest.is_zero() {
            chunks.push(rest.divide(1_000_000_000));
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:09}"));
        }
        text
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Bits up to the highest that is set.
    pub(crate) fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }

    pub(crate) fn at_least(&self, other: &BigUint) -> bool {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    pub(crate) fn times_ten_to(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.times_plus(1_000_000_000, 0);
        }
        self.times_plus(10u32.pow(power % 9), 0);
    }

    pub(crate) fn shift_left(&mut self, bits: u32) {
        self.times_plus(1 << (bits % 32), 0);
        if !self.is_zero() {
            self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
        }
    }

    /// Subtracts a number that is not larger.
    pub(crate) fn subtract(&mut self, other: &BigUint) {
        let mut borrow = false;
        for (at, digit) in self.0.iter_mut().enumerate() {
            let (rest, first) = digit.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (rest, second) = rest.overflowing_sub(u32::from(borrow));
            *digit = rest;
            borrow = first || second;
        }
        self.trim();
    }

    fn times_plus(&mut self, factor: u32, plus: u32) {
        let mut carry = u64::from(plus);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides by `by` and returns the remainder.
    fn divide(&mut self, by: u32) -> u32 {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let value = rest << 32 | u64::from(*digit);
            *digit = (value / u64::from(by)) as u32;
            rest = value % u64::from(by);
        }
        self.trim();
        rest as u32
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn big(value: u128) -> BigUint {
        BigUint::from_decimal(value.to_string().as_bytes())
    }

    proptest! {
        #[test]
        fn calculates_as_u128_does(a: u64, b: u64, shift in 0u32..60, power in 0u32..15) {
            let (wide, narrow) = (u128::from(a.max(b)), u128::from(a.min(b)));
            let mut number = big(wide);
            prop_assert_eq!(number.to_decimal(), wide.to_string());
            prop_assert_eq!(number.bits(), 128 - wide.leading_zeros());
            prop_assert_eq!(number.at_least(&big(narrow)), true);
            prop_assert_eq!(big(narrow).at_least(&number), a == b);
            number.subtract(&big(narrow));
            prop_assert_eq!(&number, &big(wide - narrow));
            number.shift_left(shift);
            prop_assert_eq!(&number, &big((wide - narrow) << shift));
            let mut number = big(narrow);
            number.times_ten_to(power);
            prop_assert_eq!(number, big(narrow * 10u128.pow(power)));
        }
    }
}
