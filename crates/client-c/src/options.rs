//! The words that a client is opened with.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use coua_client::{
    Client, Config, DialectChoice, Discovery, Distribution, Failover, Tls, TlsError,
};

use crate::failure::Failure;
use crate::observed::Observed;

/// What a client is opened with.
pub(crate) struct Settings {
    config: Config,
    tls: Option<Tls>,
    discovery: Option<Discovery>,
}

impl Settings {
    /// The same, with somebody who is told what becomes of servers.
    pub(crate) fn observed(mut self, observed: Option<&Observed>) -> Settings {
        if let Some(observed) = observed {
            self.config = observed.watching(self.config);
        }
        self
    }

    /// Makes an asynchronous client, within a runtime.
    pub(crate) async fn open_async(self) -> Result<coua_client::tokio::Client, Failure> {
        let mut builder = coua_client::tokio::Client::builder(self.config);
        if let Some(tls) = self.tls {
            builder = builder.transport(tls);
        }
        match self.discovery {
            Some(discovery) => Ok(builder.discover(discovery).await?),
            None => Ok(builder.build()),
        }
    }

    /// Makes the client.
    pub(crate) fn open(self) -> Result<Client, Failure> {
        let mut builder = Client::builder(self.config);
        if let Some(tls) = self.tls {
            builder = builder.transport(tls);
        }
        match self.discovery {
            Some(discovery) => Ok(builder.discover(discovery)?),
            None => Ok(builder.build()),
        }
    }
}

/// Words that only mean something together.
#[derive(Default)]
struct Words {
    user: Option<String>,
    password: Option<String>,
    ca_file: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    server_name: Option<String>,
}

/// Settings of a client: servers in a list that commas separate, and words that blanks separate.
pub(crate) fn settings(servers: &str, options: &str) -> Result<Settings, Failure> {
    let mut config = Config::new(servers)?;
    let mut words = Words::default();
    let mut wait = (Duration::from_secs(1), Duration::from_secs(30));
    let (mut discovery, mut interval) = (None, None);
    for word in options.split_ascii_whitespace() {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::invalid(format!("option `{word}`: NAME=VALUE is expected")))?;
        let text = match name {
            "user" => Some(&mut words.user),
            "password" => Some(&mut words.password),
            "tls_ca_file" => Some(&mut words.ca_file),
            "tls_cert_file" => Some(&mut words.cert_file),
            "tls_key_file" => Some(&mut words.key_file),
            "tls_server_name" => Some(&mut words.server_name),
            _ => None,
        };
        if let Some(text) = text {
            *text = Some(unescaped(name, value)?);
            continue;
        }
        match name {
            "ejection_wait_min_ms" => wait.0 = milliseconds(name, value)?,
            "ejection_wait_max_ms" => wait.1 = milliseconds(name, value)?,
            "discovery_interval_ms" => interval = Some(milliseconds(name, value)?),
            "discovery" => {
                discovery = Some(match value {
                    "cluster" => Discovery::cluster(),
                    "names" => Discovery::names(),
                    _ => return Err(takes(name, value, "cluster or names")),
                });
            }
            _ => config = plain(config, name, value)?,
        }
    }
    config = config.ejection_wait(wait.0, wait.1);
    if let Some((user, password)) = both("user", &words.user, "password", &words.password)? {
        config = config.login(user, password);
    }
    if let (Some(discovery), Some(interval)) = (&mut discovery, interval) {
        *discovery = discovery.interval(interval);
    }
    let tls = tls(&words)?;
    Ok(Settings {
        config,
        tls,
        discovery,
    })
}

/// An option that stands for itself.
fn plain(config: Config, name: &str, value: &str) -> Result<Config, Failure> {
    Ok(match name {
        "operation_timeout_ms" => config.operation_timeout(milliseconds(name, value)?),
        "connect_timeout_ms" => config.connect_timeout(milliseconds(name, value)?),
        "connections" => config.connections_per_server(number(name, value)?),
        "value_len_max" => config.value_len_max(number(name, value)?),
        "ejection_failures" => config.ejection_failures(number(name, value)?),
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
    })
}

/// What is given together or not at all.
fn both<'w>(
    name: &str,
    first: &'w Option<String>,
    other: &str,
    second: &'w Option<String>,
) -> Result<Option<(&'w str, &'w str)>, Failure> {
    match (first, second) {
        (None, None) => Ok(None),
        (Some(first), Some(second)) => Ok(Some((first, second))),
        _ => Err(Failure::invalid(format!(
            "of `{name}` and `{other}` one is missing"
        ))),
    }
}

/// Encryption, where authorities are named.
fn tls(words: &Words) -> Result<Option<Tls>, Failure> {
    let own = both(
        "tls_cert_file",
        &words.cert_file,
        "tls_key_file",
        &words.key_file,
    )?;
    let Some(authorities) = &words.ca_file else {
        return match (own, &words.server_name) {
            (None, None) => Ok(None),
            _ => Err(Failure::invalid("options of TLS without `tls_ca_file`")),
        };
    };
    let read = |path: &str| {
        fs::read(path)
            .map_err(|error| Failure::invalid(format!("`{path}` cannot be read: {error}")))
    };
    let wrong = |error: TlsError| Failure::invalid(format!("TLS: {error}"));
    let authorities = read(authorities)?;
    let tls = match own {
        None => Tls::new(&authorities),
        Some((certificate, key)) => {
            Tls::with_certificate(&authorities, &read(certificate)?, &read(key)?)
        }
    };
    let tls = tls.map_err(wrong)?;
    match &words.server_name {
        None => Ok(Some(tls)),
        Some(name) => Ok(Some(tls.server_name(name).map_err(wrong)?)),
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

    fn wrong(servers: &str, options: &str) -> Failure {
        match settings(servers, options) {
            Ok(_) => panic!("{options} is taken"),
            Err(failure) => failure,
        }
    }

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
            ("discovery=dns", "takes cluster or names, not `dns`"),
            ("discovery_interval_ms=0", "takes milliseconds from 1"),
            ("tls_server_name=a", "without `tls_ca_file`"),
            (
                "tls_ca_file=a tls_key_file=b",
                "of `tls_cert_file` and `tls_key_file` one is missing",
            ),
            (
                "tls_ca_file=/no%20where",
                "`/no where` cannot be read: No such file",
            ),
            (
                "tls_ca_file=/dev/null",
                "TLS: the authorities' certificates cannot be read as PEM",
            ),
        ];
        for (options, expected) in table {
            let failure = wrong("a:1", options);
            let message = String::from_utf8_lossy(&failure.details().message).into_owned();
            assert!(message.contains(expected), "{options}: {message}");
        }
        let all = "operation_timeout_ms=250 connect_timeout_ms=100 connections=4 value_len_max=1048576 \
                   ejection_failures=3 ejection_wait_min_ms=10 ejection_wait_max_ms=20 \
                   distribution=modula failover=fail_fast dialect=classic binary_keys=yes \
                   discovery=names discovery_interval_ms=5";
        assert!(settings("a:1,b:2", all).is_ok());
        wrong("a:1,", "");
        assert_eq!(
            unescaped("password", "a%20b%25%C3%BC").ok().as_deref(),
            Some("a b%\u{fc}")
        );
    }
}
