//! The key material of one throw-away control plane: an authority, a serving certificate for the loopback address and a key for service
//! account tokens. Elliptic keys throughout: an RSA key costs more time than starting the server.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::Error;

/// Writes `serving.crt`, `serving.key`, `service-account.key` and `service-account.pub`; returns the authority's certificate as PEM.
pub(crate) fn write(folder: &Path) -> Result<String, Error> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority
        .distinguished_name
        .push(DnType::CommonName, "afloat throw-away control plane");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let names = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    let serving_key = KeyPair::generate()?;
    let mut serving = CertificateParams::new(names.map(str::to_owned))?;
    serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let serving_certificate = serving.signed_by(&serving_key, &issuer)?.pem();
    let accounts = KeyPair::generate()?;

    for (file, content) in [
        ("ca.crt", &certificate),
        ("serving.crt", &serving_certificate),
        ("serving.key", &serving_key.serialize_pem()),
        ("service-account.key", &accounts.serialize_pem()),
        ("service-account.pub", &accounts.public_key_pem()),
    ] {
        let path = folder.join(file);
        fs::write(&path, content).map_err(Error::file(&path))?;
    }
    Ok(certificate)
}
