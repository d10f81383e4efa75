//! The words that a client is opened with.

use std::str::FromStr;
use std::time::Duration;

use coua_client::{Config, DialectChoice, Distribution, Failover};

use crate::failure::Failure;

/// Settings of a client: servers in a list that commas separate, and words that blanks separate.
pub(crate) fn config(servers: &str, options: &str) -> Result<Config, Failure> {
    let mut config = Config::new(servers)?;
    let (mut user, mut password) = (None, None);
    let mut wait = (Duration::from_secs(1), Duration::from_secs(30));
    for word in options.split_ascii_whitespace() {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::invalid(format!("option `{word}`: NAME=VALUE is expected")))?;
        config = match name {
            "operation_timeout_ms" => config.operation_timeout(milliseconds(name, value)?),
            "connect_timeout_ms" => config.connect_timeout(milliseconds(name, value)?),
            "user" => {
                user = Some(unescaped(name, value)?);
                config
            }
            "password" => {
                password = Some(unescaped(name, value)?);
                config
            }
            "connections" => config.connections_per_server(number(name, value)?),
            "value_len_max" => config.value_len_max(number(name, value)?),
            "ejection_failures" => config.ejection_failures(number(name, value)?),
            "ejection_wait_min_ms" => {
                wait.0 = milliseconds(name, value)?;
                config
            }
            "ejection_wait_max_ms" => {
                wait.1 = milliseconds(name, value)?;
                config
            }
            "distribution" => config.distribution(match value {
                "ketama" => Distribution::Ketama,
                "ketama_spymemcached" => Distribution::KetamaSpymemcached,
                "modula" => Distribution::Modula,
                _ => return Err(takes(name, value, "ketama, ketama_spymemcached or modula")),
            }),
            "failover" => config.failover(match value {
                "redistribute" => Failover::Redistribute,
                "fail_fast" => Failover::FailFast,
                _ => return Err(takes(name, value, "redistribute or fail_fast")),
            }),
            "dialect" => config.dialect(match value {
                "ask" => DialectChoice::Ask,
                "meta" => DialectChoice::Meta,
                "classic" => DialectChoice::Classic,
                _ => return Err(takes(name, value, "ask, meta or classic")),
            }),
            "binary_keys" => config.binary_keys(match value {
                "yes" => true,
                "no" => false,
                _ => return Err(takes(name, value, "yes or no")),
            }),
            _ => return Err(Failure::invalid(format!("there is no option `{name}`"))),
        };
    }
    let config = config.ejection_wait(wait.0, wait.1);
    match (user, password) {
        (None, None) => Ok(config),
        (Some(user), Some(password)) => Ok(config.login(&user, &password)),
        _ => Err(Failure::invalid("of `user` and `password` one is missing")),
    }
}

/// Text in which `%20` and the like stand for bytes. It is not repeated in errors: it may be secret.
fn unescaped(name: &str, value: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::invalid(format!(
            "option `{name}` has a `%` without two hexadecimal digits behind it, or is not UTF-8"
        ))
    };
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        if digits.starts_with('+') {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn takes(name: &str, value: &str, what: &str) -> Failure {
    Failure::invalid(format!("option `{name}` takes {what}, not `{value}`"))
}

fn number<N: FromStr + Default + PartialEq>(name: &str, value: &str) -> Result<N, Failure> {
    match value.parse() {
        Ok(number) if number != N::default() => Ok(number),
        _ => Err(takes(name, value, "a number from 1 on")),
    }
}

/// Up to a day.
fn milliseconds(name: &str, value: &str) -> Result<Duration, Failure> {
    const MAX: u64 = 86_400_000;
    match value.parse() {
        Ok(number @ 1..=MAX) => Ok(Duration::from_millis(number)),
        _ => Err(takes(name, value, "milliseconds from 1 to 86400000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            ("fast", "option `fast`: NAME=VALUE"),
            ("speed=9", "there is no option `speed`"),
            ("connections=0", "`connections` takes a number from 1 on"),
            ("operation_timeout_ms=-1", "takes milliseconds from 1"),
            ("connect_timeout_ms=86400001", "takes milliseconds from 1"),
            ("distribution=ring", "takes ketama, ketama_spymemcached or"),
            ("failover=no", "takes redistribute or fail_fast, not `no`"),
            ("dialect=binary", "takes ask, meta or classic"),
            ("binary_keys=1", "takes yes or no"),
            ("user=a", "of `user` and `password` one is missing"),
            ("user=a password=%2", "two hexadecimal digits"),
            ("user=a password=%+2", "two hexadecimal digits"),
            ("user=a password=%ff", "not UTF-8"),
        ];
        for (options, expected) in table {
            let failure = config("a:1", options).expect_err(options);
            let message = String::from_utf8_lossy(&failure.details().message).into_owned();
            assert!(message.contains(expected), "{options}: {message}");
        }
        let all = "operation_timeout_ms=250 connect_timeout_ms=100 connections=4 value_len_max=1048576 \
                   ejection_failures=3 ejection_wait_min_ms=10 ejection_wait_max_ms=20 \
                   distribution=modula failover=fail_fast dialect=classic binary_keys=yes";
        assert!(config("a:1,b:2", all).is_ok());
        assert!(config("a:1,", "").is_err());
        assert_eq!(
            unescaped("password", "a%20b%25%C3%BC").ok().as_deref(),
            Some("a b%\u{fc}")
        );
    }
}
