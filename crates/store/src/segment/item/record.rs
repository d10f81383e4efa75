//! An item's bytes as they are written to flash.
//!
//! Most are copied as they are. A value in pieces becomes one item there if a record takes it; else its head has
//! words of its own in the place of locations.

use super::super::layout::{
    ACCESS_AT, CAS, CLIENT_FLAGS, EXPIRY, FINE, HEAD, HEADER_LEN, LONG, field_at, key_at,
};
use super::RawItem;
use crate::index::slot::GRANULE;
use std::ops::Range;

/// The fields of a record: every head has an expiry.
fn record_fields(own: u8, is_head: bool) -> u8 {
    match is_head {
        true => own | HEAD | EXPIRY,
        false => own & !HEAD,
    }
}

impl RawItem<'_> {
    /// Writes to `into` what stands before the body of this item, which is no piece: as an item that holds its value,
    /// or as a head of so many words. What changes is copied as it is at one moment for each field.
    pub(crate) fn begin_record(self, words: Option<u32>, into: &mut Vec<u8>) {
        let own = self.fields();
        let fields = record_fields(own, words.is_some());
        into.clear();
        let [key_len, _, low, high] = self.read::<ACCESS_AT>(0);
        into.extend_from_slice(&[key_len, fields, low, high]);
        into.extend_from_slice(&self.access().to_ne_bytes());
        debug_assert_eq!(into.len(), HEADER_LEN);
        if fields & EXPIRY != 0 {
            let expiry = self.expiry();
            match own & FINE == 0 {
                true => into.extend_from_slice(&expiry.coarse().to_ne_bytes()),
                false => into.extend_from_slice(&expiry.fine().to_ne_bytes()),
            }
        }
        for field in [CLIENT_FLAGS, LONG] {
            if own & field != 0 {
                into.extend_from_slice(&self.read::<4>(field_at(own, field)));
            }
        }
        if let Some(words) = words {
            into.extend_from_slice(&words.to_ne_bytes());
        }
        if own & CAS != 0 {
            into.extend_from_slice(&self.read::<8>(field_at(own, CAS)));
        }
        debug_assert_eq!(into.len(), key_at(fields));
        into.extend_from_slice(self.key());
        if words.is_some() {
            into.resize(into.len().next_multiple_of(GRANULE), 0);
        }
    }

    /// Writes what stands behind the body.
    pub(crate) fn end_record(self, into: &mut Vec<u8>) {
        into.resize(into.len().next_multiple_of(GRANULE), 0);
        for tag in self.tags() {
            into.extend_from_slice(&tag.to_ne_bytes());
        }
    }

    /// Where the key lies in such a record.
    pub(crate) fn key_in_record(self, is_head: bool) -> Range<usize> {
        let at = key_at(record_fields(self.fields(), is_head));
        at..at + self.key_len()
    }

    /// Bytes of the record of this item as one that holds its value.
    pub(crate) fn record_len(self) -> usize {
        if !self.is_head() {
            return self.total_len();
        }
        let body_at = self.key_in_record(false).end;
        (body_at + self.value_len()).next_multiple_of(GRANULE) + self.tags().count() * 8
    }
}
