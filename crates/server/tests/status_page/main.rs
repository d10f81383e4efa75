//! The page of `--metrics` in Chromium: what it shows of a server under load, in both colour schemes, wide
//! and narrow; that it loads nothing from elsewhere; what it says when the server has gone.
//!
//! Without Chromium the test is left out, and says so.

mod browser;

#[path = "../support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use browser::Browser;
use support::{Server, free_address};

/// Asks for keys and stores some, with mistakes among it, until the answer to the last request is there.
fn load(server: &Server) {
    let mut stream = server.connect();
    let mut requests = String::new();
    for number in 0..400 {
        requests += &format!(
            "set key:{number} 0 0 5\r\nvalue\r\nget key:{} nothing\r\n",
            number % 7
        );
    }
    // A key that would be an element if it was taken for HTML.
    requests += &"get <img/src=x>\r\n".repeat(2000);
    requests += "mn\r\n";
    stream.write_all(requests.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    let mut part = [0; 1 << 16];
    while !answer.ends_with(b"MN\r\n") {
        let len = stream.read(&mut part).expect("it answers");
        answer.extend_from_slice(&part[..len]);
    }
    let mut junk = server.connect();
    junk.write_all(b"GET / HTTP/1.1\r\n").expect("it reads");
    let _ = junk.read(&mut part);
}

#[test]
fn the_page_shows_a_server() {
    let Some(mut browser) = Browser::start() else {
        #[expect(clippy::print_stderr, reason = "what is left out is told")]
        {
            eprintln!("left out: there is no chromium");
        }
        return;
    };
    let metrics = free_address();
    let server = Server::coua(&["-m", "64", "-t", "2", "--metrics", &metrics.to_string()]);
    let url = format!("http://{metrics}/");
    let mut backgrounds = Vec::new();
    for (scheme, width) in [("light", 1400), ("dark", 1400), ("dark", 360)] {
        browser.open(&url, scheme, width);
        // Graphs have lines as soon as there are differences of three answers.
        browser.wait_until("samples", "samples.length > 3 && rates.length > 2", || {
            load(&server)
        });
        let tiles = browser.text("document.getElementById('tiles').innerText");
        for name in ["requests a second", "p99", "connections", "of 64.0 MiB"] {
            assert!(tiles.contains(name), "{name} is not in {tiles}");
        }
        // The keys of the load, as text.
        let hot = browser.text("document.getElementById('hot').innerText");
        assert!(hot.contains("%3Cimg%2Fsrc%3Dx%3E"), "{hot}");
        assert_eq!(
            browser.text("String(document.querySelectorAll('img').length)"),
            "0"
        );
        let causes = browser.text("document.getElementById('causes').innerText");
        assert!(causes.contains("not a request"), "{causes}");
        // Each graph has pixels of a series, which are no shade of grey.
        for id in [
            "requests",
            "hits",
            "memory",
            "latency",
            "connections",
            "bytes",
        ] {
            let coloured = browser.text(&format!(
                "(() => {{ const c = document.getElementById('{id}'), d = c.getContext('2d').getImageData(0, 0, c.width, \
                 c.height).data; let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 60 && \
                 Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 50) n++; return String(n); }})()"
            ));
            let coloured: u32 = coloured.parse().expect("a number");
            assert!(coloured > 3, "{id}, {scheme}, {width}: {coloured} pixels");
        }
        let overhang =
            browser.text("String(document.documentElement.scrollWidth - window.innerWidth)");
        assert!(
            overhang.parse::<i32>().expect("a number") <= 0,
            "{width}: {overhang} pixels too wide"
        );
        backgrounds.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
    browser.text("document.getElementById('theme').click(), ''");
    let background = browser.text("getComputedStyle(document.body).backgroundColor");
    assert_eq!(background, backgrounds[0], "the button changes the scheme");
    drop(server);
    let gone = "document.getElementById('state').innerText.startsWith('no answer')";
    browser.wait_until("the end to be seen", gone, || {});
    // That the server is gone is the only thing to complain about.
    let complaints = browser.complaints();
    assert!(
        complaints
            .iter()
            .all(|line| line.contains("ERR_CONNECTION")),
        "{complaints:?}"
    );
    let strange: Vec<&String> = browser
        .requested()
        .iter()
        .filter(|asked| !asked.starts_with(&url))
        .collect();
    assert!(
        strange.iter().all(|asked| asked.starts_with("data:")),
        "{strange:?}"
    );
    shows_flash(&mut browser);
}

/// The graph of flash is there where there is flash. One browser at a time: two that begin at once may hang.
fn shows_flash(browser: &mut Browser) {
    let file = std::env::temp_dir().join(format!("coua-page-{}", std::process::id()));
    let path = format!("ext_path={}:64m", file.display());
    for (options, is_hidden) in [(&[][..], "true"), (&["-o", &path][..], "false")] {
        let metrics = free_address();
        let address = metrics.to_string();
        let flags = [&["-m", "64", "-t", "1", "--metrics", &address], options].concat();
        let _server = Server::coua(&flags);
        browser.open(&format!("http://{metrics}/"), "light", 1400);
        browser.wait_until("samples", "samples.length > 2 && rates.length > 1", || {});
        let hidden = "String(document.getElementById('flash').parentElement.hidden)";
        assert_eq!(browser.text(hidden), is_hidden);
        let tiles = browser.text("document.getElementById('tiles').innerText");
        assert_eq!(tiles.contains("flash"), is_hidden == "false", "{tiles}");
    }
    let _ = std::fs::remove_file(file);
}

/// More readers than are answered at a time do no harm: they get the same answer, or none.
#[test]
fn many_readers_cost_little() {
    let metrics = free_address();
    let server = Server::coua(&["-m", "64", "-t", "1", "--metrics", &metrics.to_string()]);
    let began = Instant::now();
    let ask = || -> Option<String> {
        let mut stream = std::net::TcpStream::connect(metrics).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .ok()?;
        stream
            .write_all(b"GET /status.json HTTP/1.1\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
        Some(status["uptime_ms"].to_string())
    };
    let answers: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| (0..50).filter_map(|_| ask()).collect::<Vec<_>>()))
            .collect();
        let answers = readers
            .into_iter()
            .map(|reader| reader.join().expect("no panic"));
        answers.flatten().collect()
    });
    assert!(!answers.is_empty());
    let mut moments = answers;
    moments.sort();
    moments.dedup();
    // It is made anew four times a second at most.
    let most = began.elapsed().as_millis() / 250 + 2;
    assert!(
        moments.len() as u128 <= most,
        "{} answers were made",
        moments.len()
    );
    load(&server);
}
