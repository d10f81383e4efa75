//! What a fuzzer gives, as numbers.

/// Takes numbers from the input; zeros at its end.
pub struct Input<'d>(pub &'d [u8]);

impl Input<'_> {
    /// The next.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    /// The next two.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
}
