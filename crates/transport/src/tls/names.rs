//! What a certificate calls its owner.
//!
//! A name is written with its kind in front, as OpenSSL writes it: `CN:shop` is the subject's common name;
//! `DNS:shop.example`, `email:shop@example.org` and `URI:spiffe://example.org/shop` are alternative names. The kind
//! is a part of the name: an authority that checks who owns a domain may still let anybody choose a common name.
//!
//! Names are compared byte by byte. Other kinds, and strings that are no text, are left out.

use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

/// How names begin.
pub const KINDS: [&str; 4] = ["CN:", "DNS:", "email:", "URI:"];

/// Names of one certificate at most; the others are left out.
const NAMES_MAX: usize = 64;

/// All names in a certificate, which is DER; none if it cannot be read.
pub(crate) fn of(certificate: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let certificate = certificate.tbs_certificate();
    let mut names = common_names(certificate.subject());
    // It is there once at most: with a second one, or one that cannot be read, there is an error.
    if let Ok(Some((_, SubjectAltName(alternatives)))) = certificate.get_extension() {
        names.extend(alternatives.iter().filter_map(alternative));
    }
    names.truncate(NAMES_MAX);
    names
}

fn alternative(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(format!("DNS:{name}")),
        GeneralName::Rfc822Name(name) => Some(format!("email:{name}")),
        GeneralName::UniformResourceIdentifier(name) => Some(format!("URI:{name}")),
        _ => None,
    }
}

fn common_names(subject: &Name) -> Vec<String> {
    let parts = subject.iter().filter(|part| part.oid == CN);
    let names = parts.filter_map(|part| {
        let value = &part.value;
        let text = match value.tag() {
            Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.to_string(),
            Tag::PrintableString => value
                .decode_as::<PrintableStringRef<'_>>()
                .ok()?
                .to_string(),
            Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.to_string(),
            _ => return None,
        };
        Some(format!("CN:{text}"))
    });
    names.collect()
}
