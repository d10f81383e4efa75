use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use coua_tcp::nic::{Features, Frame, Mac, Nic, Offload};

use super::{BUFFER_LEN, Traced};

/// A card that receives what was put into it, and keeps what it sent.
#[derive(Default)]
struct Card {
    coming: Vec<Vec<u8>>,
    came: Vec<Vec<u8>>,
    slot: Vec<u8>,
    sent: Vec<Vec<u8>>,
}

impl Nic for Card {
    fn features(&self) -> Features {
        Features {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.came = std::mem::take(&mut self.coming);
        self.came.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: &self.came[at],
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.came.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        self.slot.resize(1518, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize, _offload: Offload) {
        self.sent.push(self.slot[..len].to_vec());
    }

    fn flush(&mut self) {}
}

/// A file that can be looked at while it is written.
#[derive(Clone, Default)]
struct SharedFile(Rc<RefCell<Vec<u8>>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that has room for so many bytes.
struct Disk {
    room: usize,
    bytes: Vec<u8>,
}

impl Write for &mut Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send<N: Nic>(nic: &mut N, frame: &[u8]) {
    nic.slot().expect("there is always room")[..frame.len()].copy_from_slice(frame);
    nic.commit(frame.len(), Offload::None);
    nic.flush();
}

/// Direction, time and frame of each block of a file.
fn blocks(mut file: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let len = word(file, 4) as usize;
        assert_eq!(word(file, len - 4) as usize, len, "both lengths of a block");
        if word(file, 0) == 6 {
            let time_ns = u64::from(word(file, 12)) << 32 | u64::from(word(file, 16));
            let frame_len = word(file, 20) as usize;
            let flags = word(file, len - 12);
            blocks.push((flags, time_ns, file[28..28 + frame_len].to_vec()));
        }
        file = &file[len..];
    }
    blocks
}

#[test]
fn every_frame_is_in_the_file_with_its_time_and_direction() {
    let mut disk = Disk {
        room: usize::MAX,
        bytes: Vec::new(),
    };
    let mut now_ns = 1_700_000_000_123_456_789;
    let clock = || {
        now_ns += 1;
        now_ns
    };
    let mut nic = Traced::new(Card::default(), &mut disk, clock).expect("there is room");
    nic.inner().coming = vec![vec![1; 60], vec![2; 61]];
    assert_eq!(nic.receive(), 2);
    assert_eq!(nic.frame(1).bytes, [2; 61]);
    nic.release();
    send(&mut nic, &[3; 62]);
    send(&mut nic, &[4; 63]);
    assert_eq!(nic.inner().sent, [vec![3; 62], vec![4; 63]]);
    drop(nic);
    let first_ns = 1_700_000_000_123_456_790;
    assert_eq!(
        blocks(&disk.bytes),
        [
            (1, first_ns, vec![1; 60]),
            (1, first_ns, vec![2; 61]),
            (2, first_ns + 1, vec![3; 62]),
            (2, first_ns + 2, vec![4; 63]),
        ]
    );
}

#[test]
fn an_idle_moment_brings_all_to_the_file() {
    let file = SharedFile::default();
    let mut nic = Traced::new(Card::default(), file.clone(), || 0).expect("there is room");
    send(&mut nic, &[5; 100]);
    assert_eq!(nic.receive(), 0);
    // Before it is dropped, which would write too.
    assert_eq!(blocks(&file.0.borrow()), [(2, 0, vec![5; 100])]);
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_traffic() {
    let mut disk = Disk {
        room: 2 * BUFFER_LEN,
        bytes: Vec::new(),
    };
    let mut nic = Traced::new(Card::default(), &mut disk, || 0).expect("there is room");
    let mut errors = 0;
    for at in 0..2000_u32 {
        let mut frame = vec![0; 1000];
        frame[..4].copy_from_slice(&at.to_le_bytes());
        send(&mut nic, &frame);
        if let Some(error) = nic.take_error() {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            errors += 1;
        }
    }
    assert_eq!(errors, 1, "it is said once");
    assert_eq!(nic.inner().sent.len(), 2000);
    assert_eq!(nic.trace.buffer.capacity(), BUFFER_LEN, "it does not grow");
    drop(nic);
    let written = blocks(&disk.bytes);
    assert!(written.len() > 200, "{}", written.len());
    for (at, (_, _, frame)) in (0..).zip(&written) {
        assert_eq!(frame[..4], u32::to_le_bytes(at));
    }
}

#[test]
fn a_file_that_takes_nothing_is_an_error_at_once() {
    let mut disk = Disk {
        room: 10,
        bytes: Vec::new(),
    };
    assert!(Traced::new(Card::default(), &mut disk, || 0).is_err());
}

#[test]
fn a_frame_longer_than_the_buffer_does_no_harm() {
    let mut disk = Disk {
        room: usize::MAX,
        bytes: Vec::new(),
    };
    let mut nic = Traced::new(Card::default(), &mut disk, || 0).expect("there is room");
    nic.inner().coming = vec![vec![7; BUFFER_LEN], vec![8; 60]];
    assert_eq!(nic.receive(), 2);
    drop(nic);
    assert_eq!(blocks(&disk.bytes), [(1, 0, vec![8; 60])]);
}
