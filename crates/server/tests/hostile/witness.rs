//! An ordinary client that stores and fetches all the time, and remembers its longest wait.
//!
//! Beside it another asks a bare echo, whose longest wait is the machine's doing. Who sleeps between
//! questions, as the echo does, hardly queues for a core; the server does where others want one too.
//! The time in which its threads could have run and had no core is not counted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two requests: often enough to meet every stall, seldom enough to be no load.
const PAUSE: Duration = Duration::from_millis(3);

/// A running witness.
pub(crate) struct Witness {
    done: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    thread: JoinHandle<Report>,
    control: JoinHandle<Duration>,
}

/// What a witness saw.
pub(crate) struct Report {
    /// How many requests were answered, each rightly.
    pub(crate) answers: u64,
    /// The longest time from a request to its last byte, without what the server's threads had to wait
    /// for a core.
    pub(crate) longest: Duration,
    /// The longest time that an echo took.
    pub(crate) longest_echo: Duration,
}

impl Witness {
    /// Begins to ask the server of that process, and returns when the first answer is there.
    pub(crate) fn start(stream: TcpStream, server: u32) -> Self {
        let (done, answers) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (told, counted) = (Arc::clone(&done), Arc::clone(&answers));
        let thread = thread::spawn(move || watch(stream, server, &told, &counted));
        let told = Arc::clone(&done);
        let control = thread::spawn(move || watch_echo(&told));
        let witness = Self {
            control,
            done,
            answers,
            thread,
        };
        witness.wait_for(1);
        witness
    }

    /// Returns when so many requests are answered since the start.
    pub(crate) fn wait_for(&self, answers: u64) {
        while self.answers.load(Ordering::Relaxed) < answers && !self.thread.is_finished() {
            thread::sleep(PAUSE);
        }
    }

    /// Ends after the answer that is under way.
    ///
    /// # Panics
    /// When an answer was wrong or missing.
    pub(crate) fn stop(self) -> Report {
        self.done.store(true, Ordering::Relaxed);
        let report = self
            .thread
            .join()
            .expect("the witness was always answered rightly");
        Report {
            longest_echo: self.control.join().expect("the echo was always answered"),
            ..report
        }
    }
}

fn watch(stream: TcpStream, server: u32, done: &AtomicBool, answers: &AtomicU64) -> Report {
    // Far longer than allowed, so that a stall is told by its length and not by a lost witness.
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout can be set");
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(stream);
    let mut report = Report {
        answers: 0,
        longest: Duration::ZERO,
        longest_echo: Duration::ZERO,
    };
    while !done.load(Ordering::Relaxed) {
        let number = report.answers;
        // One request in the classic dialect and one in the other; a full memory may have dropped the value by then.
        let (start, queued) = (Instant::now(), time_queued(server));
        writer
            .write_all(format!("set witness 0 0 8\r\n{number:08}\r\nmg witness v\r\n").as_bytes())
            .expect("the server reads");
        assert_eq!(line(&mut reader), "STORED");
        match line(&mut reader).as_str() {
            "VA 8" => assert_eq!(line(&mut reader), format!("{number:08}")),
            other => assert_eq!(other, "EN"),
        }
        let queued = time_queued(server).saturating_sub(queued);
        let waited = start.elapsed().saturating_sub(queued);
        report.longest = report.longest.max(waited);
        report.answers += 1;
        answers.store(report.answers, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    report
}

/// For how long the threads of a process have been ready to run without a core, since they began.
fn time_queued(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the server lives");
    let queued = threads.map(|thread| {
        // A thread may have ended since.
        let path = thread.ok()?.path().join("schedstat");
        let numbers = fs::read_to_string(path).ok()?;
        numbers.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(queued.flatten().sum())
}

/// Asks an echo, in the same rhythm and with as many bytes as the server is asked.
fn watch_echo(done: &AtomicBool) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 64];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).expect("the witness reads");
        }
    });
    let mut stream = TcpStream::connect(address).expect("the echo listens");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let (mut bytes, mut longest) = ([0; 64], Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        let start = Instant::now();
        stream.write_all(&bytes).expect("the echo reads");
        stream.read_exact(&mut bytes).expect("the echo answers");
        longest = longest.max(start.elapsed());
        thread::sleep(PAUSE);
    }
    drop(stream);
    echo.join().expect("the echo does not panic");
    longest
}

fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    line.trim_end().to_owned()
}
