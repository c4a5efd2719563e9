//! Numbers of 64 significant bits, as an x87 long double has them: what INCRBYFLOAT calculates with.
//!
//! With 53 bits 10.5 + 0.1 would print as 10.59999999999999964. Reading rounds exactly (with big integers), adding is
//! exact but for one rounding, printing gives 17 decimals less trailing zeros. Very small numbers keep all their bits
//! where the hardware's would lose some; nothing of that is visible in 17 decimals. As strtold does, reading also takes
//! hexadecimal numbers (0x1.8p3).

use crate::numbers::big::BigUint;

/// Longest text that is looked at.
const TEXT_MAX: usize = 5 * 1024;
/// Largest exponent of a number's lowest bit.
const EXPONENT_MAX: i32 = 16383 - 63;
/// Smallest exponent of a number's lowest bit that counts as a number.
const EXPONENT_MIN: i32 = -16445 - 63;
/// Powers of ten beyond which any number is out of range.
const DECIMAL_MAX: i64 = 5000;
/// Decimals that are printed.
const DECIMALS: u32 = 17;

/// A number of 64 significant bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongDouble {
    negative: bool,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// `mantissa * 2^exponent`; the mantissa's top bit is set unless the number is 0.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
}

impl LongDouble {
    /// 0.
    pub const ZERO: LongDouble = LongDouble { negative: false, size: Size::Finite { mantissa: 0, exponent: 0 } };

    /// The number that the whole of `text` spells: decimal or hexadecimal, with an exponent or not, or an infinity.
    /// Nothing that is out of range, no NaN, no spaces.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(LongDouble { negative, size: Size::Infinite });
        }
        if let [b'0', b'x' | b'X', digits @ ..] = text {
            return from_hexadecimal(negative, digits);
        }
        let (digits, exponent) = split_decimal(text)?;
        from_decimal(negative, &digits, exponent)
    }

    /// Whether this is no infinity.
    pub fn is_finite(self) -> bool {
        self.size != Size::Infinite
    }

    /// Whether this is in range.
    fn is_normal(self) -> bool {
        matches!(self.size, Size::Finite { exponent, .. } if (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent))
    }

    /// The nearest number of 53 bits, or nearly.
    pub fn to_f64(self) -> f64 {
        let size = match self.size {
            Size::Infinite => f64::INFINITY,
            // In two steps, because 2^exponent alone may be out of range where the product is not.
            Size::Finite { mantissa, exponent } => {
                let half = exponent / 2;
                mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
            }
        };
        if self.negative { -size } else { size }
    }

    /// The sum, rounded to nearest; `None` for infinities that cancel out.
    pub fn plus(self, other: LongDouble) -> Option<LongDouble> {
        let (Size::Finite { mantissa: m1, exponent: e1 }, Size::Finite { mantissa: m2, exponent: e2 }) =
            (self.size, other.size)
        else {
            return match (self.is_finite(), other.is_finite()) {
                (false, false) if self.negative != other.negative => None,
                (false, _) => Some(self),
                _ => Some(other),
            };
        };
        if m1 == 0 {
            return Some(other);
        }
        if m2 == 0 {
            return Some(self);
        }
        if (e2, m2) > (e1, m1) {
            return other.plus(self);
        }
        // 63 bits below the larger number's lowest one; what falls off at the end counts as a trace.
        let large = u128::from(m1) << 63;
        let shift = e1.abs_diff(e2);
        let small = u128::from(m2) << 63;
        let (small, trace) = match shift {
            0..=127 => (small >> shift, small & ((1 << shift) - 1) != 0),
            _ => (0, true),
        };
        let sum = if self.negative == other.negative { large + small } else { large - small - u128::from(trace) };
        Some(rounded(self.negative, sum, trace, e1 - 63))
    }

    /// The number with up to 17 decimals and no exponent.
    pub fn format(self) -> String {
        let Size::Finite { mantissa, exponent } = self.size else {
            return if self.negative { "-inf".into() } else { "inf".into() };
        };
        let mut text = if exponent >= 0 {
            let mut big = BigUint::from(mantissa);
            big.shift_left(exponent as u32);
            big.to_decimal()
        } else {
            format_fraction(mantissa, exponent.unsigned_abs())
        };
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// `mantissa / 2^shift` with up to 17 decimals, rounded to nearest, ties to even.
fn format_fraction(mantissa: u64, shift: u32) -> String {
    const UNIT: u128 = 10u128.pow(DECIMALS);
    // Fits: 64 bits and 57.
    let scaled = u128::from(mantissa) * UNIT;
    let value = if shift >= 127 {
        0
    } else {
        let half = 1u128 << (shift - 1);
        let rest = scaled & ((half << 1) - 1);
        let floor = scaled >> shift;
        floor + u128::from(rest > half || (rest == half && floor & 1 == 1))
    };
    let decimals = format!("{:017}", value % UNIT);
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{}{point}{decimals}", value / UNIT)
}

/// A text's digits without the point, and the power of ten of the last.
fn split_decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let (number, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (whole, decimals) = match number.iter().position(|&byte| byte == b'.') {
        Some(at) => (&number[..at], &number[at + 1..]),
        None => (number, &[][..]),
    };
    let digits: Vec<u8> = whole.iter().chain(decimals).copied().collect();
    let sound = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| (digits, exponent.saturating_sub(decimals.len() as i64)))
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some(if negative { -size } else { size })
}

/// A number in hexadecimal digits, its exponent a power of two in decimal digits.
fn from_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (digits, mut exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut value, mut trace) = (0u128, false);
    let (mut any, mut after_point) = (false, false);
    for byte in digits {
        if *byte == b'.' && !after_point {
            after_point = true;
            continue;
        }
        let digit = (*byte as char).to_digit(16)?;
        any = true;
        exponent -= 4 * i64::from(after_point);
        // 128 bits are more than count; of what follows only matters whether it is 0.
        if value >> 124 == 0 {
            value = value << 4 | u128::from(digit);
        } else {
            trace |= digit != 0;
            exponent += 4;
        }
    }
    // Far beyond both ends of the range, and small enough to calculate with.
    let exponent = exponent.clamp(-100_000, 100_000) as i32;
    any.then(|| rounded(negative, value, trace, exponent)).filter(|number| value == 0 || number.is_normal())
}

fn from_decimal(negative: bool, digits: &[u8], exponent: i64) -> Option<LongDouble> {
    let mut top = BigUint::from_decimal(digits);
    if top.is_zero() {
        return Some(LongDouble { negative, ..LongDouble::ZERO });
    }
    let highest = exponent.saturating_add(digits.len() as i64);
    if exponent > DECIMAL_MAX || highest < -DECIMAL_MAX {
        return None;
    }
    let mut bottom = BigUint::from(1);
    if exponent >= 0 {
        top.times_ten_to(exponent as u32);
    } else {
        bottom.times_ten_to(exponent.unsigned_abs() as u32);
    }
    // Shift one of them until 1 <= top / bottom < 2.
    let mut power = top.bits() as i32 - bottom.bits() as i32;
    top.shift_left((-power).max(0) as u32);
    bottom.shift_left(power.max(0) as u32);
    if !top.at_least(&bottom) {
        top.shift_left(1);
        power -= 1;
    }
    // 66 bits of the quotient and whether anything is left.
    let mut quotient = 0u128;
    for _ in 0..66 {
        quotient <<= 1;
        if top.at_least(&bottom) {
            top.subtract(&bottom);
            quotient |= 1;
        }
        top.shift_left(1);
    }
    Some(rounded(negative, quotient, !top.is_zero(), power - 65)).filter(|number| number.is_normal())
}

/// `value * 2^exponent` to 64 bits, to nearest, ties to even; `trace` says that the value is a little larger.
fn rounded(negative: bool, value: u128, trace: bool, exponent: i32) -> LongDouble {
    if value == 0 {
        return LongDouble::ZERO;
    }
    let excess = 64 - value.leading_zeros() as i32;
    if excess <= 0 {
        let size = Size::Finite { mantissa: (value << -excess) as u64, exponent: exponent + excess };
        return LongDouble { negative, size };
    }
    let half = 1u128 << (excess - 1);
    let rest = value & ((half << 1) - 1);
    let floor = value >> excess;
    let up = rest > half || (rest == half && (trace || floor & 1 == 1));
    let (mantissa, exponent) = match floor + u128::from(up) {
        carried if carried >> 64 != 0 => (1 << 63, exponent + excess + 1),
        mantissa => (mantissa as u64, exponent + excess),
    };
    let size = if exponent > EXPONENT_MAX { Size::Infinite } else { Size::Finite { mantissa, exponent } };
    LongDouble { negative, size }
}

impl From<i64> for LongDouble {
    fn from(value: i64) -> LongDouble {
        rounded(value < 0, u128::from(value.unsigned_abs()), false, 0)
    }
}

impl From<f64> for LongDouble {
    /// Exact; NaN, which no command lets in, becomes infinity.
    fn from(value: f64) -> LongDouble {
        let negative = value.is_sign_negative();
        if !value.is_finite() {
            return LongDouble { negative, size: Size::Infinite };
        }
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let (mantissa, exponent) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << 52, exponent) };
        rounded(negative, u128::from(mantissa), false, exponent - 1075)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> String {
        let [a, b] = [a, b].map(|text| LongDouble::parse(text.as_bytes()).unwrap());
        a.plus(b).unwrap().format()
    }

    /// Redis 7.0.15 on x86-64: SET k a, INCRBYFLOAT k b.
    const SUMS: &[(&str, &str, &str)] = &[
        ("3.0e3", "200", "3200"),
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "2.0e2", "5200"),
        ("10.6", "-5", "5.6"),
        ("0", "1.23", "1.23"),
        ("3", "1.1", "4.1"),
        ("1.1", "2.2", "3.3"),
        ("0.1", "0.2", "0.3"),
        ("1e17", "0.5", "100000000000000000.5"),
        ("123456789012345678", "0.1", "123456789012345678.1015625"),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("1", "-1", "0"),
        ("-0.5", "0.5", "0"),
        ("1", "1e-17", "1.00000000000000001"),
        ("1", "-1e-18", "1"),
        ("1e-18", "1e-18", "0"),
        ("1e25", "1", "10000000000000000000000000"),
        ("0.3", "-0.1", "0.2"),
        ("2.5e-17", "1e-17", "0.00000000000000004"),
        ("1.00000000000000001", "0", "1.00000000000000001"),
        ("-1.5", "-2.25", "-3.75"),
        ("99999999999999999999", "1", "100000000000000000000"),
        ("0.000000000000000005", "0", "0"),
        ("0.000000000000000015", "0", "0.00000000000000002"),
        ("100", "-99.99", "0.01"),
        (".5", "5.", "5.5"),
        ("-0", "0", "0"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("1e-4000", "1", "1"),
        ("3.14159265358979323846", "2.71828182845904523536", "5.85987448204883847"),
        ("245.80338977940391", "0.5519171348714338", "246.3553069142753438"),
        ("-0.06186190443567252", "83.27", "83.20813809556432748"),
        ("0.594293982862409", "0.9446745793730726", "1.5389685622354816"),
        ("-0.421389664506147", "93.02", "92.59861033549385299"),
        ("-402.4222042922645", "172282517006741.75", "172282517006339.327789306640625"),
        ("-0.2892972854000617", "-37.56322752627227", "-37.8525248116723317"),
        ("9.81", "0.15703765811374915", "9.96703765811374915"),
        ("-50.78", "-311.23637389397607", "-362.01637389397607"),
        ("-40.83", "-0.8176402716564628", "-41.6476402716564628"),
        ("90288074196477.75", "253611537052214.75", "343899611248692.5"),
        ("97.34", "-49.96", "47.38"),
        ("276648745428341.75", "89.96", "276648745428431.7100067138671875"),
        ("-701509310919484.2", "-66.14", "-701509310919550.34002685546875"),
        ("-45.19", "-0.7069872749960371", "-45.8969872749960371"),
        ("-323042479453678.6", "5648990889284.5", "-317393488564394.100006103515625"),
        ("519277472878978.75", "961913238329931.2", "1481190711208909.949951171875"),
        ("-976838685955050.0", "-422346967210178.75", "-1399185653165228.75"),
        ("475654705427813.0", "733942936187043.0", "1209597641614856"),
        ("58680161538792.0", "43.94", "58680161538835.93999862670898438"),
        ("33.11", "-394.6678098479348", "-361.55780984793479998"),
        ("0.17289643646878616", "261.73032400700936", "261.90322044347814617"),
        ("783.6197187532018", "-0.29780032664092126", "783.32191842656087871"),
        ("-998678768418425.8", "711.7094458645925", "-998678768417714.09051513671875"),
        ("-409437335353779.0", "-161796146493512.75", "-571233481847291.75"),
    ];

    #[test]
    fn sums_are_what_redis_says() {
        for &(a, b, expected) in SUMS {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
        let large = sum("1e4000", "1e3999");
        assert!(
            large.len() == 4001 && large.starts_with("11000000000000000000160520957852873049012981676999776360086")
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "1e", "1e+", "1 ", " 1", "nan", "1.2.3", "0y1", "1e5000", "1e-5100", "--1", "infin"]
        {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert!(!LongDouble::parse(b"-Infinity").unwrap().is_finite());
        let infinity = LongDouble::from(f64::INFINITY);
        assert_eq!(infinity.plus(LongDouble::from(f64::NEG_INFINITY)), None);
    }

    #[test]
    fn hexadecimal_numbers_are_read() {
        for (text, expected) in [
            ("0x10", "16"),
            ("0x1p3", "8"),
            ("-0X1.8p1", "-3"),
            ("0x.8", "0.5"),
            ("0xff.p-4", "15.9375"),
            ("0x0p99999", "0"),
            ("0x123456789abcdef0123456789abcdef01p-132", "0.07111111111111111"),
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()).unwrap().format(), expected, "{text}");
        }
        for text in ["0x", "0x.", "0xg", "0x1.2.3", "0x1p", "0x1p99999", "0x1p-99999", "0x 1"] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn doubles_survive(value in prop::num::f64::NORMAL) {
            prop_assert_eq!(LongDouble::from(value).to_f64(), value);
            let text = format!("{value:e}");
            let near = LongDouble::parse(text.as_bytes()).unwrap().to_f64();
            prop_assert!((near - value).abs() <= value.abs() * 1e-15);
        }

        #[test]
        fn integers_are_exact(a in -(1i64 << 62)..1 << 62, b in -(1i64 << 62)..1 << 62) {
            prop_assert_eq!(LongDouble::from(a).plus(LongDouble::from(b)).unwrap().format(), (a + b).to_string());
            prop_assert_eq!(LongDouble::parse(a.to_string().as_bytes()), Some(LongDouble::from(a)));
        }
    }
}
