//! A text as the file of `--config`: no panic, and what is wrong is told in a bounded number of lines, each of
//! which names the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Twice as many as one stage tells of at most.
const LINES_MAX: usize = 200;

fuzz_target!(|text: &str| {
    let Err(refused) = coua::flags::check_text(text) else {
        return;
    };
    assert!(!refused.errors().is_empty() && refused.errors().len() <= LINES_MAX);
    for error in refused.errors() {
        let line = error.to_string();
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        assert!(error.is_in_file() && line.starts_with("file.toml:"), "{line:?}");
    }
});
