use super::*;
use crate::{Buffer, Region, Transfer};

fn filled(byte: u8, len: usize) -> Buffer {
    let mut buffer = Region::allocate(len);
    buffer.fill(byte);
    buffer
}

fn transfer(sector: u64, buffer: Buffer, len: usize) -> Transfer {
    Transfer {
        sector,
        len,
        buffer,
    }
}

/// Waits for everything under way, in virtual time.
fn finish(queue: &mut dyn Queue, now_ns: &mut u64) -> Vec<Completion> {
    let mut done = Vec::with_capacity(64);
    queue.submit(*now_ns);
    while queue.in_flight() > 0 {
        *now_ns += 10_000;
        queue.poll(*now_ns, &mut done);
    }
    done
}

fn run(queue: &mut dyn Queue, now_ns: &mut u64, command: Command) -> Completion {
    queue.push(Request { token: 1, command }).expect("room");
    finish(queue, now_ns).remove(0)
}

fn read(queue: &mut dyn Queue, now_ns: &mut u64, sector: u64) -> Result<u8, Failure> {
    let command = Command::Read(transfer(sector, filled(0xee, 512), 512));
    let done = run(queue, now_ns, command);
    done.result.map(|()| {
        let buffer = done.buffer.expect("a read has a buffer");
        assert!(buffer[..512].iter().all(|&byte| byte == buffer[0]));
        buffer[0]
    })
}

fn write(queue: &mut dyn Queue, now_ns: &mut u64, sector: u64, byte: u8) {
    let command = Command::Write(transfer(sector, filled(byte, 512), 512));
    let done = run(queue, now_ns, command);
    assert_eq!(done.result, Ok(()));
}

#[test]
fn requests_overtake_one_another_and_one_seed_is_one_run() {
    let order = |seed| {
        let device = SimulatedDevice::new(Settings::default(), seed);
        let mut queue = device.queue(64).expect("a queue");
        for token in 0..32 {
            let command = Command::Read(transfer(token, filled(0, 512), 512));
            queue.push(Request { token, command }).expect("room");
        }
        let done = finish(&mut *queue, &mut 0);
        assert_eq!(device.counts().doorbells, 1);
        done.iter().map(|it| it.token).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    assert!(!order(1).is_sorted());
}

#[test]
fn a_queue_takes_as_many_as_it_is_deep_and_a_throttled_device_is_slower() {
    let device = SimulatedDevice::new(Settings::default(), 3);
    let mut queue = device.queue(2).expect("a queue");
    let push = |queue: &mut dyn Queue| {
        let command = Command::Read(transfer(0, filled(0, 512), 512));
        queue.push(Request { token: 0, command })
    };
    assert!(push(&mut *queue).is_ok() && push(&mut *queue).is_ok());
    let rejected = push(&mut *queue).expect_err("it is full");
    assert_eq!(rejected.why, Rejection::Full);
    let mut now_ns = 0;
    finish(&mut *queue, &mut now_ns);
    let quick_ns = now_ns;
    device.set_timing(Timing {
        read_ns: 50_000_000,
        ..Timing::default()
    });
    push(&mut *queue).expect("room again");
    finish(&mut *queue, &mut now_ns);
    assert!(now_ns - quick_ns > 10 * quick_ns);
}

#[test]
fn power_takes_what_was_not_flushed_and_nothing_else() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..50 {
        let device = SimulatedDevice::new(Settings::default(), seed);
        let mut queue = device.queue(8).expect("a queue");
        let now_ns = &mut 0;
        write(&mut *queue, now_ns, 5, 1);
        run(&mut *queue, now_ns, Command::Flush);
        write(&mut *queue, now_ns, 5, 2);
        assert_eq!(read(&mut *queue, now_ns, 5), Ok(2));
        device.cut_power();
        assert_eq!(
            read_on_new_queue(&device, now_ns).map(|byte| match byte {
                1 => lost += 1,
                2 => kept += 1,
                other => panic!("{other} was never written"),
            }),
            Ok(())
        );
    }
    assert!(kept > 5 && lost > 5, "{kept} kept, {lost} lost");
}

fn read_on_new_queue(device: &SimulatedDevice, now_ns: &mut u64) -> Result<u8, Failure> {
    let mut queue = device.queue(8).expect("a queue");
    read(&mut *queue, now_ns, 5)
}

#[test]
fn requests_end_when_the_device_goes_and_new_ones_are_rejected() {
    let device = SimulatedDevice::new(Settings::default(), 4);
    let mut queue = device.queue(8).expect("a queue");
    let command = |byte| Command::Write(transfer(0, filled(byte, 512), 512));
    queue
        .push(Request {
            token: 7,
            command: command(1),
        })
        .expect("room");
    queue.submit(0);
    queue
        .push(Request {
            token: 8,
            command: command(2),
        })
        .expect("room");
    device.remove();
    let done = finish(&mut *queue, &mut 0);
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|it| it.result == Err(Failure::Removed)));
    assert!(
        done.iter().all(|it| it.buffer.is_some()),
        "memory comes back"
    );
    let rejected = queue.push(Request {
        token: 9,
        command: Command::Flush,
    });
    assert_eq!(rejected.expect_err("gone").why, Rejection::Removed);
    assert!(device.queue(8).is_err());
    device.put_back();
    assert_eq!(read_on_new_queue(&device, &mut 0), Ok(0));
}

#[test]
fn each_fault_is_what_it_is_called() {
    let now_ns = &mut 0;
    let device = SimulatedDevice::new(Settings::default(), 5);
    let mut queue = device.queue(8).expect("a queue");
    let queue = &mut *queue;
    let faulty = |faults| device.set_faults(faults);
    let none = Faults::default();
    write(queue, now_ns, 1, 1);

    faulty(Faults {
        lost_writes: 1.0,
        ..none
    });
    write(queue, now_ns, 1, 2);
    assert_eq!(read(queue, now_ns, 1), Ok(1));
    faulty(Faults {
        misdirected_writes: 1.0,
        ..none
    });
    write(queue, now_ns, 1, 3);
    faulty(none);
    assert_eq!(read(queue, now_ns, 1), Ok(1));
    faulty(Faults {
        misdirected_reads: 1.0,
        ..none
    });
    assert_eq!(read(queue, now_ns, 1), Ok(0));
    faulty(Faults {
        read_errors: 1.0,
        ..none
    });
    assert_eq!(read(queue, now_ns, 1), Err(Failure::Media));
    faulty(Faults {
        timeouts: 1.0,
        ..none
    });
    assert_eq!(read(queue, now_ns, 1), Err(Failure::TimedOut));
    faulty(none);
    device.spoil(1, 1);
    assert_eq!(read(queue, now_ns, 1), Err(Failure::Media));
    write(queue, now_ns, 1, 4);
    assert_eq!(read(queue, now_ns, 1), Ok(4), "a write mends a sector");

    faulty(Faults {
        torn_writes: 1.0,
        ..none
    });
    let command = Command::Write(transfer(100, filled(9, 32768), 32768));
    assert_eq!(run(queue, now_ns, command).result, Ok(()));
    faulty(none);
    let written = (100..164).filter(|&at| read(queue, now_ns, at) == Ok(9));
    let written = written.count();
    assert!(written > 0 && written < 64, "{written} of 64");
}
