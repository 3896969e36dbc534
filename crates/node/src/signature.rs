//! Who made a bundle: Ed25519 public keys, and whether a signature was made with one of them. Making signatures is in
//! `afloat-bundle`; a machine only ever holds public keys.

use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::Digest;

/// What stands before the 32 bytes of every Ed25519 key in a SubjectPublicKeyInfo (RFC 8410): algorithm 1.3.101.112, no
/// parameters, a bit string without unused bits.
pub const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// A public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PublicKey([u8; 32]);

/// Keys of which any may have signed: two while one takes the place of the other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKeys(Vec<PublicKey>);

/// Text that is no public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a public key is Ed25519 in PEM, as `afloat bundle keygen` writes it, or what stands between its first and last line"
)]
pub struct NotAKey;

impl PublicKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// What stands between the first and the last line of its PEM.
    pub fn to_base64(self) -> String {
        STANDARD.encode([PREFIX.as_slice(), self.0.as_slice()].concat())
    }

    pub fn to_pem(self) -> String {
        format!("{BEGIN}\n{}\n{END}\n", self.to_base64())
    }

    /// Names a key for people: the first digits of the SHA-256 of its SubjectPublicKeyInfo.
    pub fn name(self) -> String {
        let digest = Digest::of(&[PREFIX.as_slice(), self.0.as_slice()].concat()).to_string();
        digest.chars().skip("sha256:".len()).take(16).collect()
    }

    fn from_base64(text: &str) -> Result<Self, NotAKey> {
        let bytes = STANDARD.decode(text).map_err(|_| NotAKey)?;
        let key = bytes.strip_prefix(&PREFIX).ok_or(NotAKey)?;
        key.try_into().map(Self).map_err(|_| NotAKey)
    }

    pub fn signed(self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl PublicKeys {
    /// Whose signature of the message this is.
    pub fn signer(&self, message: &[u8], signature: &[u8]) -> Option<PublicKey> {
        self.0.iter().copied().find(|key| key.signed(message, signature))
    }

    /// In one line, for an environment variable.
    pub fn to_env(&self) -> String {
        let keys: Vec<_> = self.0.iter().map(|key| key.to_base64()).collect();
        keys.join(" ")
    }

    /// The names of all, for people.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|key| key.name()).collect();
        names.join(" or ")
    }
}

impl From<PublicKey> for PublicKeys {
    fn from(key: PublicKey) -> Self {
        Self(vec![key])
    }
}

impl FromStr for PublicKeys {
    type Err = NotAKey;

    /// One PEM after the other; or the bare keys with blanks between them, as an environment variable holds them best.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.replace(BEGIN, " ").replace(END, " ");
        let keys = bare
            .split_whitespace()
            .map(PublicKey::from_base64)
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(NotAKey) } else { Ok(Self(keys)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first test vector of RFC 8032, 7.1.
    const KEY: [u8; 32] = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1,
        0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
    ];
    const SIGNATURE_OF_NOTHING: &str =
        "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==";

    #[test]
    fn keys_survive_pem_and_the_environment() {
        let key = PublicKey::new(KEY);
        for text in [key.to_pem(), key.to_base64(), format!("\n{}\n", key.to_base64())] {
            assert_eq!(text.parse(), Ok(PublicKeys::from(key)), "{text}");
        }
        let two: PublicKeys = format!("{}{}", PublicKey::new([7; 32]).to_pem(), key.to_pem())
            .parse()
            .unwrap();
        assert_eq!(two.0.len(), 2);
        assert_eq!(two.to_env().parse(), Ok(two));
        for wrong in ["", "abc", "-----BEGIN PUBLIC KEY-----", &STANDARD.encode(KEY)] {
            assert_eq!(wrong.parse::<PublicKeys>(), Err(NotAKey), "{wrong:?}");
        }
    }

    #[test]
    fn p29_a_signature_belongs_to_one_key_and_one_message() {
        let signature = STANDARD.decode(SIGNATURE_OF_NOTHING).unwrap();
        let keys = PublicKeys(vec![PublicKey::new([7; 32]), PublicKey::new(KEY)]);
        assert_eq!(keys.signer(b"", &signature), Some(PublicKey::new(KEY)));
        assert_eq!(keys.signer(b"x", &signature), None, "another message");
        assert_eq!(
            PublicKeys::from(PublicKey::new([7; 32])).signer(b"", &signature),
            None,
            "another key"
        );
        assert_eq!(keys.signer(b"", &signature[1..]), None, "cut short");
    }
}
