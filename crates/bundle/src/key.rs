//! Private keys: made, kept in a file for its owner alone, and used to sign. They are PKCS#8 in PEM, as OpenSSL has them too.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use afloat_node::signature::{PublicKey, PublicKeys};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{Error, Result};

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// Width of a line of PEM.
const WIDTH: usize = 64;

/// A key that signs bundles.
pub struct PrivateKey(Ed25519KeyPair);

impl PrivateKey {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let wrong = |fact: &str| Error::Key {
            path: path.to_owned(),
            fact: fact.to_owned(),
        };
        let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let (body, _) = body.ok_or_else(|| wrong("it has no PRIVATE KEY in PEM"))?;
        let body: String = body.split_whitespace().collect();
        let bytes = STANDARD.decode(body).map_err(|_| wrong("its PEM is damaged"))?;
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| wrong("it is no Ed25519 key"))?;
        Ok(Self(pair))
    }

    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        let key = self.0.public_key().as_ref();
        for (byte, found) in bytes.iter_mut().zip(key) {
            *byte = *found;
        }
        PublicKey::new(bytes)
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}

/// Public keys in a file.
pub fn read_public(path: &Path) -> Result<PublicKeys> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    text.parse().map_err(|_| {
        let fact = if text.contains(BEGIN) {
            "it is the private one; the public one ends in .pub"
        } else {
            "it has no Ed25519 PUBLIC KEY in PEM"
        };
        Error::Key {
            path: path.to_owned(),
            fact: fact.to_owned(),
        }
    })
}

/// The two files of a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub private: PathBuf,
    pub public: PathBuf,
    pub key: PublicKey,
}

/// Makes `NAME.key` and `NAME.pub`; a key that is there is never written over.
pub fn generate(name: &Path) -> Result<NewKey> {
    let with = |ending: &str| {
        let mut whole = name.as_os_str().to_owned();
        whole.push(ending);
        PathBuf::from(whole)
    };
    let (private, public) = (with(".key"), with(".pub"));
    if let Some(there) = [&private, &public].into_iter().find(|path| path.exists()) {
        return Err(Error::Exists(there.clone()));
    }
    let failed = |_| Error::Key {
        path: private.clone(),
        fact: "this machine could not make one".to_owned(),
    };
    let pair = Ed25519KeyPair::generate().map_err(failed)?;
    let document = pair.to_pkcs8v1().map_err(failed)?;
    let body = STANDARD.encode(document.as_ref());
    let lines: Vec<String> = body
        .as_bytes()
        .chunks(WIDTH)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let pem = format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"));
    let key = PrivateKey(pair).public();
    write_new(&private, pem.as_bytes(), 0o600)?;
    write_new(&public, key.to_pem().as_bytes(), 0o644)?;
    Ok(NewKey { private, public, key })
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.map_err(Error::file("make", path))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_new_key_signs_what_its_public_half_confirms_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let made = generate(&folder.path().join("release")).unwrap();
        let permissions = fs::metadata(&made.private).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        let private = PrivateKey::read(&made.private).unwrap();
        let public = read_public(&made.public).unwrap();
        assert_eq!(public.signer(b"abc", &private.sign(b"abc")), Some(made.key));
        assert!(matches!(
            generate(&folder.path().join("release")),
            Err(Error::Exists(_))
        ));
        assert!(
            read_public(&made.private)
                .unwrap_err()
                .to_string()
                .contains("it is the private one")
        );
        assert!(matches!(PrivateKey::read(&made.public), Err(Error::Key { .. })));
    }
}
