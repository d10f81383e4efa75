//! Decimal numbers, two digits at a time.

const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut at: u8 = 0;
    while at < 100 {
        pairs[at as usize] = [b'0' + at / 10, b'0' + at % 10];
        at += 1;
    }
    pairs
};

/// The digit of a number below 10.
#[inline]
pub(super) fn digit(number: u64) -> [u8; 1] {
    [pair(number)[1]]
}

/// The two digits of a number below 100.
#[inline]
pub(super) fn pair(number: u64) -> [u8; 2] {
    PAIRS[(number % 100) as usize]
}

/// The digits of a number.
pub(super) struct Digits {
    text: [u8; 20],
    start: usize,
}

impl Digits {
    /// Formats `number`.
    #[inline]
    pub(super) fn of(mut number: u64) -> Self {
        let mut text = [0; 20];
        let mut start = text.len();
        while number >= 10 {
            start -= 2;
            text[start..start + 2].copy_from_slice(&pair(number));
            number /= 100;
        }
        // The rest is 0 after an even number of digits, otherwise the first digit.
        if number > 0 || start == text.len() {
            start -= 1;
            [text[start]] = digit(number);
        }
        Digits { text, start }
    }

    /// The digits; there is at least one.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}
