//! PRP lists: where a controller finds the memory of a transfer, page by page.
//!
//! The first entry may begin within a page. The second is the next page, or, where there are more, the address of a list
//! of all pages but the first. A list has one page, 512 entries: 2 MiB and what is left of the first page.

use super::dma::DmaMemory;

/// The controller's page, which all of them have.
pub(super) const PAGE_LEN: usize = 4096;

/// Entries of a list.
const LIST_ENTRIES: usize = PAGE_LEN / 8;

/// The longest transfer that one list names wherever it begins.
pub(super) const TRANSFER_LEN_MAX: usize = LIST_ENTRIES * PAGE_LEN;

/// Both entries for `len` bytes at `address`, contiguous for the device. `list` is the number of a page of `lists`, which
/// is written where it is needed.
///
/// # Panics
/// Where `len` is 0 or more than a list names.
pub(super) fn entries(address: u64, len: usize, lists: &DmaMemory, list: usize) -> (u64, u64) {
    assert!(
        len > 0 && len <= TRANSFER_LEN_MAX,
        "a transfer of {len} bytes"
    );
    let page_len = PAGE_LEN as u64;
    let second = address - address % page_len + page_len;
    let end = address + len as u64;
    if end <= second {
        return (address, 0);
    }
    if end <= second + page_len {
        return (address, second);
    }
    let pages = (end - second).div_ceil(page_len);
    let first_word = list * LIST_ENTRIES;
    for (word, page) in (first_word..).zip(0..pages) {
        lists.store(word, second + page * page_len);
    }
    (address, lists.address_of(first_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_named_once() {
        let lists = DmaMemory::allocate(2 * PAGE_LEN, 0xabc0_0000);
        for address in [0x10000u64, 0x10200, 0x10e00, 0x1fe00] {
            for len in [512, 1024, 4096, 4608, 8192, 8704, 65536, 131_072, 1 << 21] {
                let (first, second) = entries(address, len, &lists, 1);
                assert_eq!(first, address);
                let page_len = PAGE_LEN as u64;
                let mut left = len as u64 - (page_len - address % page_len).min(len as u64);
                let mut next = address - address % page_len + page_len;
                if left == 0 {
                    assert_eq!(second, 0);
                } else if left <= page_len {
                    assert_eq!(second, next);
                } else {
                    assert_eq!(second, 0xabc0_0000 + page_len);
                    let mut word = LIST_ENTRIES;
                    while left > 0 {
                        assert!(word < 2 * LIST_ENTRIES);
                        assert_eq!(lists.load(word), next);
                        word += 1;
                        next += page_len;
                        left -= left.min(page_len);
                    }
                }
            }
        }
        assert_eq!(lists.load(0), 0, "another command's list");
    }
}
