//! Registered memory that is lent piece by piece, for as long as somebody holds the piece.

use std::cell::RefCell;
use std::rc::Rc;

use crate::areas::Areas;
use crate::fabric::Span;

/// A piece of registered memory, to be lent.
pub struct Staging {
    span: Span,
    areas: Rc<RefCell<Areas>>,
}

/// A lent piece. It goes back when it is dropped.
pub struct Staged {
    span: Span,
    offset: usize,
    areas: Rc<RefCell<Areas>>,
}

impl Staging {
    /// All of `span` is free.
    pub fn new(span: Span) -> Staging {
        let areas = Rc::new(RefCell::new(Areas::new(span.len)));
        Staging { span, areas }
    }

    /// Lends a piece of `len` bytes. `None` if there is none at the moment.
    pub fn take(&self, len: usize) -> Option<Staged> {
        let offset = self.areas.borrow_mut().take(len)?;
        Some(Staged {
            span: self.span.part(offset, len),
            offset,
            areas: Rc::clone(&self.areas),
        })
    }

    /// Bytes that are lent.
    pub fn lent(&self) -> usize {
        self.areas.borrow().taken()
    }
}

impl Staged {
    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.areas
            .borrow_mut()
            .give_back(self.offset, self.span.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_goes_back_when_it_is_dropped() {
        let span = Span {
            region: 3,
            offset: 4096,
            len: 2048,
        };
        let staging = Staging::new(span);
        let first = staging.take(1000).expect("room");
        let second = staging.take(1024).expect("room");
        assert_eq!((first.span().offset, second.span().offset), (4096, 5120));
        assert!(staging.take(1).is_none());
        drop(first);
        assert_eq!(staging.lent(), 1024);
        assert_eq!(staging.take(600).expect("room").span().offset, 4096);
    }
}
