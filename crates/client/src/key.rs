//! What a key may be, and how it is sent.

use coua_protocol::{KEY_LEN_MAX, base64};

/// Why a key cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It has no bytes.
    #[error("a key has at least one byte")]
    Empty,
    /// It is longer than the server takes.
    #[error("the key is sent as {len} bytes, and {KEY_LEN_MAX} are the most")]
    TooLong {
        /// Bytes as they would be sent: a binary key counts in base64.
        len: usize,
    },
    /// It has a blank or a control character, and binary keys are not switched on.
    #[error("byte {at} of the key, 0x{byte:02x}, is a blank or a control character")]
    Unprintable {
        /// Which byte, from 0.
        at: usize,
        /// What it is.
        byte: u8,
    },
}

/// How a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// As it is.
    Plain,
    /// In base64, with the meta flag `b`.
    Base64,
}

/// Decides how `key` is sent. `binary` allows what only base64 can carry.
pub(crate) fn form(key: &[u8], binary: bool) -> Result<KeyForm, KeyError> {
    if key.is_empty() {
        return Err(KeyError::Empty);
    }
    let is_foreign = |byte: u8| byte <= b' ' || byte == 0x7f;
    // Without an early end, so that many bytes are looked at in one instruction.
    let has_foreign = key.iter().fold(false, |any, &byte| any | is_foreign(byte));
    let foreign = match has_foreign {
        true => key.iter().position(|&byte| is_foreign(byte)),
        false => None,
    };
    let (len, form) = match foreign {
        None => (key.len(), KeyForm::Plain),
        Some(_) if binary => (base64::encoded_len(key.len()), KeyForm::Base64),
        Some(at) => return Err(KeyError::Unprintable { at, byte: key[at] }),
    };
    match len <= KEY_LEN_MAX {
        true => Ok(form),
        false => Err(KeyError::TooLong { len }),
    }
}

/// Appends a key that [`form`] has accepted.
pub(crate) fn write(key: &[u8], form: KeyForm, out: &mut Vec<u8>) {
    match form {
        KeyForm::Plain => out.extend_from_slice(key),
        KeyForm::Base64 => {
            let mut text = [0; KEY_LEN_MAX];
            if let Some(len) = base64::encode(key, &mut text) {
                out.extend_from_slice(&text[..len]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_can_be_sent() {
        assert_eq!(form(b"a", false), Ok(KeyForm::Plain));
        assert_eq!(form(&[b'k'; 250], false), Ok(KeyForm::Plain));
        assert_eq!(form(b"\xc3\xbc", false), Ok(KeyForm::Plain));
        assert_eq!(form(b"", true), Err(KeyError::Empty));
        assert_eq!(
            form(&[b'k'; 251], true),
            Err(KeyError::TooLong { len: 251 })
        );
        for byte in [0, b'\t', b'\r', b'\n', b' ', 0x7f] {
            let refused = KeyError::Unprintable { at: 1, byte };
            assert_eq!(form(&[b'k', byte], false), Err(refused));
            assert_eq!(form(&[b'k', byte], true), Ok(KeyForm::Base64));
        }
        assert_eq!(form(&[0; 186], true), Ok(KeyForm::Base64));
        assert_eq!(form(&[0; 187], true), Err(KeyError::TooLong { len: 252 }));
    }
}
