//! Bundles pushed to and pulled from a real registry, Debian's `docker-registry`, with and without TLS and a password. It knows
//! nothing of referrers, so the way for such registries is taken.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use afloat_bundle::Error;
use afloat_bundle::progress::silent;
use afloat_bundle::registry::{Access, Repository, look, pull, push};
use afloat_bundle::verify::{Signature, verify};
use afloat_node::signature::{PublicKey, PublicKeys};
use common::{NEW, OLD, Site};

const PROGRAM: &str = "docker-registry";
/// How long it may take to listen.
const LIMIT: Duration = Duration::from_secs(20);
/// What `htpasswd -B` makes of ada and pw-canary.
const ADA: &str = "ada:$2y$05$abcdefghijklmnopqrstuuBxclKLdj1BwjB/nX58d9CPRp9lN.e.a\n";

/// A registry on a free port, ended with the test.
struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Registry {
    /// `more` is added to its configuration.
    fn start(folder: &Path, http: &str, more: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{http}{more}",
            folder.join("registry").display()
        );
        let path = folder.join("registry.yml");
        std::fs::write(&path, config).unwrap();
        let child = Command::new(PROGRAM)
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{PROGRAM} cannot be started ({error}), so nothing is known about real registries: help: tools/ensure {PROGRAM}")
        });
        let registry = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < LIMIT, "{PROGRAM} does not listen on {address}");
            std::thread::sleep(Duration::from_millis(50));
        }
        registry
    }

    fn repository(&self, tag: &str, access: &Access) -> Repository {
        let reference = format!("{}/afloat/bundle:{tag}", self.address).parse().unwrap();
        Repository::new(&reference, access).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[tokio::test]
async fn p30_p40_a_bundle_survives_the_way_through_a_real_registry() {
    let site = Site::new();
    let layout = site.layout("bundle");
    let registry = Registry::start(site.folder.path(), "", "");
    let access = Access {
        plain_http: true,
        ..Access::default()
    };
    let old = site.bundle(&layout, &[OLD]);
    site.bundle(&layout, &[NEW]);
    let first = push(&layout, Some(OLD), &registry.repository(OLD, &access), &silent)
        .await
        .unwrap();
    assert_eq!(first.there_bytes, 0, "{first:?}");
    // The second one shares layers with the first, the same one again everything.
    let second = push(&layout, Some(NEW), &registry.repository(NEW, &access), &silent)
        .await
        .unwrap();
    assert!(second.there_bytes > 0 && second.sent_bytes > 0, "{second:?}");
    let again = push(&layout, Some(NEW), &registry.repository(NEW, &access), &silent)
        .await
        .unwrap();
    assert_eq!((again.sent_bytes, &again.image), (0, &second.image));

    let keys = site.public();
    let there = look(&registry.repository(OLD, &access), Some(&keys)).await.unwrap();
    assert_eq!(
        (&there.image, there.kubernetes_versions),
        (&first.image, vec![OLD.to_owned()])
    );
    assert_eq!(
        there.signer,
        Some(site.key().public()),
        "signed, as the registry has it"
    );
    let others = PublicKeys::from(PublicKey::new([7; 32]));
    let there = look(&registry.repository(OLD, &access), Some(&others)).await.unwrap();
    assert_eq!(there.signer, None, "by another key");
    assert!(first.image.ends_with(&old.descriptor.digest.to_string()));

    let copy = site.layout("copy");
    for tag in [OLD, NEW] {
        pull(&registry.repository(tag, &access), &copy, &silent).await.unwrap();
    }
    let verdict = verify(&copy, None, Some(&site.public()), &silent).unwrap();
    assert_eq!(verdict.complaints, []);
    let good = Signature::Good(site.key().public());
    let found: Vec<_> = verdict
        .bundles
        .iter()
        .map(|bundle| (bundle.name.as_str(), bundle.signature))
        .collect();
    assert_eq!(found, [(OLD, good), (NEW, good)]);
    // Its signature is where cosign looks for it.
    let by_cosign = registry.repository(&format!("sha256-{}.sig", hex(&first.image)), &access);
    let answer = look(&by_cosign, None).await.unwrap_err();
    assert!(answer.to_string().ends_with("is an image, but no bundle"), "{answer}");
}

#[tokio::test]
async fn p30_a_real_registry_with_tls_and_a_password() {
    let site = Site::new();
    let layout = site.layout("bundle");
    site.bundle(&layout, &[NEW]);
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    site.write("cert.pem", made.cert.pem().as_bytes());
    site.write("key.pem", made.signing_key.serialize_pem().as_bytes());
    site.write("htpasswd", ADA.as_bytes());
    let path = |name: &str| site.path(name).display().to_string();
    let tls = format!(
        "  tls:\n    certificate: {}\n    key: {}\n",
        path("cert.pem"),
        path("key.pem")
    );
    let auth = format!("auth:\n  htpasswd:\n    realm: here\n    path: {}\n", path("htpasswd"));
    let registry = Registry::start(site.folder.path(), &tls, &auth);
    let config = |password: &str| {
        let address = registry.address.to_string();
        let config = serde_json::json!({ "auths": { address: { "username": "ada", "password": password } } });
        site.write("config.json", config.to_string().as_bytes());
        Some(site.path("config.json"))
    };
    let ca = Some(site.path("cert.pem"));
    let try_it = async |access: Access| push(&layout, None, &registry.repository(NEW, &access), &silent).await;

    let stranger = try_it(Access {
        docker_config: config("pw-canary"),
        ..Access::default()
    })
    .await
    .unwrap_err();
    assert!(stranger.help().unwrap().contains("--ca FILE"), "{stranger}");
    let without_tls = try_it(Access {
        plain_http: true,
        docker_config: config("pw-canary"),
        ..Access::default()
    })
    .await
    .unwrap_err();
    assert!(
        matches!(
            without_tls,
            Error::Registry { status: 400, .. } | Error::Unreachable { .. }
        ),
        "{without_tls}"
    );
    let wrong = try_it(Access {
        ca: ca.clone(),
        docker_config: config("wrong-canary"),
        ..Access::default()
    })
    .await
    .unwrap_err();
    assert!(matches!(wrong, Error::Registry { status: 401, .. }), "{wrong}");
    assert!(!format!("{wrong:?}{wrong}").contains("canary"));
    let access = Access {
        ca,
        docker_config: config("pw-canary"),
        ..Access::default()
    };
    let pushed = try_it(access.clone()).await.unwrap();
    let there = look(&registry.repository(NEW, &access), None).await.unwrap();
    assert_eq!(there.image, pushed.image);
}

fn hex(image: &str) -> &str {
    image.rsplit(':').next().unwrap()
}
