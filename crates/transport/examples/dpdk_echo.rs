//! What a link between two processes carries: frames of 64 bytes, received, turned round and sent
//! back, one core a side.
//!
//! ```sh
//! echo 128 > /proc/sys/vm/nr_hugepages
//! cargo run --release -p coua-transport --features dpdk --example dpdk_echo -- memif 32 128 512
//! ```
//!
//! The words are the kind of link, `memif` or `vhost`, and how many frames are on the way at once.
//! Each run takes two seconds. The server is on core 0, the load on core 1.

#[cfg(feature = "dpdk")]
fn main() {
    echo::main();
}

#[cfg(not(feature = "dpdk"))]
fn main() {
    panic!("build it with --features dpdk");
}

#[cfg(feature = "dpdk")]
mod echo {
    use std::io::{Write, stdout};
    use std::process::Command;
    use std::time::{Duration, Instant};
    use std::{env, process, thread};

    use coua_tcp::nic::{Nic, Offload};
    use coua_transport::userspace::dpdk::{Eal, Port, PortOptions, Queue};
    use rustix::thread::{CpuSet, sched_setaffinity};

    const RUN: Duration = Duration::from_secs(2);
    const FRAME_LEN: usize = 64;
    const COMMON: &str = "--no-pci --in-memory --no-telemetry -m 64 --single-file-segments --log-level=lib.eal:4 --log-level=lib.vhost.*:4";

    pub(crate) fn main() {
        let words: Vec<String> = env::args().skip(1).collect();
        match words.first().map(String::as_str) {
            Some("server") => server(&words[1], &words[2]),
            Some("load") => load(&words[1], &words[2], &words[3]),
            Some(kind @ ("memif" | "vhost")) if words.len() > 1 => {
                for window in &words[1..] {
                    measure(kind, window);
                }
            }
            _ => panic!("usage: dpdk_echo memif|vhost WINDOW..."),
        }
    }

    /// Runs both sides.
    fn measure(kind: &str, window: &str) {
        let socket = env::temp_dir().join(format!("coua-dpdk-echo-{}.sock", process::id()));
        let socket = socket.to_string_lossy().into_owned();
        let program = env::current_exe().expect("this program");
        let side = |words: &[&str]| Command::new(&program).args(words).spawn();
        let mut server = side(&["server", kind, &socket]).expect("this program");
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::metadata(&socket).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        // EAL has made the socket; the port is open a moment later.
        thread::sleep(Duration::from_millis(500));
        let load = side(&["load", kind, &socket, window]).and_then(|mut load| load.wait());
        let _ = server.kill();
        let _ = server.wait();
        let _ = std::fs::remove_file(&socket);
        assert!(load.expect("this program").success(), "the load failed");
    }

    fn open(core: usize, arguments: &str) -> (Port, Queue) {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores).expect("two cores");
        let eal = Eal::start(&format!("{COMMON} {arguments}"));
        let options = PortOptions {
            name: None,
            queues: 1,
            mtu: None,
            offloads: false,
            interrupts: false,
            connects: false,
        };
        let opened = eal.map(|eal| Port::open(eal, &options));
        match opened {
            Ok(Ok((port, mut queues))) => (port, queues.pop().expect("one queue")),
            Ok(Err(error)) => panic!("{error}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn server(kind: &str, socket: &str) {
        let arguments = match kind {
            "vhost" => format!("--vdev=net_vhost0,iface={socket},queues=1"),
            _ => {
                format!("--vdev=net_memif0,role=server,socket={socket},socket-abstract=no,rsize=10")
            }
        };
        let (_port, mut queue) = open(0, &arguments);
        let end = Instant::now() + RUN + Duration::from_secs(10);
        loop {
            for _ in 0..1000 {
                turn(&mut queue);
            }
            if Instant::now() > end {
                return;
            }
        }
    }

    fn turn(queue: &mut Queue) {
        let count = queue.receive();
        for at in 0..count {
            let mut frame = [0; FRAME_LEN];
            let bytes = queue.frame(at).bytes;
            if bytes.len() != FRAME_LEN {
                continue;
            }
            frame.copy_from_slice(bytes);
            // A peer that has gone takes nothing, and what waits for it is dropped after a while.
            while queue.slot().is_none() {
                queue.flush();
            }
            let slot = queue.slot().expect("the same as before");
            slot[..6].copy_from_slice(&frame[6..12]);
            slot[6..12].copy_from_slice(&frame[..6]);
            slot[12..FRAME_LEN].copy_from_slice(&frame[12..]);
            queue.commit(FRAME_LEN, Offload::None);
        }
        if count > 0 {
            queue.release();
            queue.flush();
        }
    }

    fn load(kind: &str, socket: &str, window: &str) {
        let arguments = match kind {
            "vhost" => format!("--vdev=net_virtio_user0,path={socket},queues=1,queue_size=1024"),
            _ => {
                format!("--vdev=net_memif0,role=client,socket={socket},socket-abstract=no,rsize=10")
            }
        };
        let (port, mut queue) = open(1, &arguments);
        let on_the_way: u64 = window.parse().expect("a number");
        let deadline = Instant::now() + Duration::from_secs(5);
        while !port.link().is_up {
            assert!(Instant::now() < deadline, "no link comes");
            thread::sleep(Duration::from_millis(1));
        }
        let (mut sent, mut back) = (0_u64, 0_u64);
        let (start, mut turns) = (Instant::now(), 0_u64);
        let took = loop {
            for _ in 0..1000 {
                while sent - back < on_the_way {
                    let Some(slot) = queue.slot() else {
                        break;
                    };
                    slot[..FRAME_LEN].fill(0);
                    slot[5] = 1;
                    slot[11] = 2;
                    slot[14..22].copy_from_slice(&sent.to_le_bytes());
                    queue.commit(FRAME_LEN, Offload::None);
                    sent += 1;
                }
                queue.flush();
                let count = queue.receive();
                for at in 0..count {
                    let bytes = queue.frame(at).bytes;
                    assert_eq!(bytes[14..22], back.to_le_bytes(), "not the next frame");
                    assert_eq!((bytes[5], bytes[11]), (2, 1), "not turned round");
                    back += 1;
                }
                queue.release();
                turns += u64::from(count > 0);
            }
            let took = start.elapsed();
            if took > RUN {
                break took;
            }
        };
        let rate = back as f64 / took.as_secs_f64() / 1e6;
        let line = format!(
            "{kind}: {rate:.2} M echoes/s of {FRAME_LEN} bytes, {on_the_way} on the way, {:.1} a burst\n",
            back as f64 / turns.max(1) as f64
        );
        stdout().write_all(line.as_bytes()).expect("a terminal");
    }
}
