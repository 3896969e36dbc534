//! The bundle's commands as people write them: on files in a folder, on a registry in this process, on a cluster in memory.

#[path = "../../../bundle/tests/common/mod.rs"]
mod common;

use super::{carry, make, publish};
use crate::args::Command;
use crate::args::bundle::{Bundle, Manner};
use crate::problem::{Code, Problem};
use crate::testing::{HOME, World, command, listening};
use afloat_api::names;
use afloat_bundle::layout::Layout;
use common::{AMD64, NEW, OLD, Site, program};
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use std::fs;

/// A folder laid out as `--from` wants it.
fn site() -> Site {
    let site = Site::new();
    for version in [OLD, NEW] {
        for name in ["kubeadm", "kubelet", "kubectl"] {
            let bytes = program(AMD64, false, &format!("{name} {version}"));
            site.write(&format!("from/kubernetes/{version}/{name}"), &bytes);
        }
    }
    for name in ["afloat", "containerd/runc", "cni/bridge"] {
        site.write(&format!("from/{name}"), &program(AMD64, false, name));
    }
    site
}

/// Runs a command in the site's folder; `@` stands for it.
async fn run(site: &Site, world: Option<&World>, line: &str) -> (String, Result<Code, Problem>) {
    let line = line.replace('@', &format!("{}/", site.folder.path().display()));
    let Command::Bundle(command) = command(&format!("afloat bundle {line}")) else {
        panic!("{line} is about no bundle");
    };
    let (mut screen, said) = listening();
    let cluster = world.map(|world| &world.cluster);
    let ended = match command {
        Bundle::Create(arguments) => make::create(&arguments, &mut screen),
        Bundle::Inspect(arguments) => make::inspect(&arguments, &mut screen),
        Bundle::Verify(arguments) => make::verify(&arguments, &mut screen),
        Bundle::Keygen(arguments) => make::keygen(&arguments, &mut screen),
        Bundle::Push(arguments) => carry::push(&arguments, cluster, &mut screen).await,
        Bundle::Pull(arguments) => carry::pull(&arguments, &mut screen).await,
        other => panic!("{other:?} is not tried here"),
    };
    let said = said.lock().unwrap().clone();
    (said, ended)
}

async fn done(site: &Site, line: &str) -> String {
    let (said, ended) = run(site, None, line).await;
    assert_eq!(ended.unwrap(), Code::Done, "{line}");
    said
}

async fn refused(site: &Site, line: &str) -> String {
    let problem = run(site, None, line).await.1.unwrap_err();
    assert_eq!(problem.code, Code::Failed);
    problem.to_string()
}

#[tokio::test]
async fn p29_a_bundle_is_made_signed_told_and_refused_once_it_was_touched() {
    let site = site();
    let key = done(&site, "keygen @release").await;
    assert!(
        key.contains("create configmap afloat-bundle-key --from-file=key="),
        "{key}"
    );
    let made = done(&site, "create -d @bundle --from @from --key @release.key").await;
    assert!(made.starts_with("Bundle v1.36.3 is in "), "{made}");
    assert!(made.contains("\nSigned by the key "), "{made}");
    let good = done(&site, "verify @bundle --key @release.pub").await;
    assert!(good.starts_with("Bundle v1.36.3 is whole: 12 files, "), "{good}");
    assert!(good.contains("; signed by the key "), "{good}");

    let table = done(&site, "inspect @bundle").await;
    assert!(table.starts_with("Bundle v1.36.3  linux/amd64  "), "{table}");
    let kubelet = |line: &str| line.starts_with("  kubelet ") && line.contains("  v1.36.3  1 ");
    assert!(table.lines().any(kubelet), "{table}");
    let json: serde_json::Value = serde_json::from_str(&done(&site, "inspect @bundle -o json").await).unwrap();
    assert_eq!(json[0]["kubernetesVersions"], serde_json::json!([OLD, NEW]));
    assert!(
        done(&site, "inspect @bundle -o yaml")
            .await
            .contains("platform: linux/amd64")
    );

    let layout = Layout::open(&site.path("bundle")).unwrap();
    let (_, manifest) = layout.bundle(None).unwrap();
    let layer = manifest
        .layers
        .iter()
        .find(|layer| layer.annotations["dev.afloat.bundle.part"] == "kubernetes/v1.36.3")
        .unwrap();
    let mut bytes = fs::read(layout.path(layer.digest)).unwrap();
    bytes[4000] ^= 1;
    fs::write(layout.path(layer.digest), bytes).unwrap();
    let said = refused(&site, "verify @bundle --key @release.pub").await;
    let first = format!(
        "error: bundle v1.36.3 is refused\n  blob {} (layer kubernetes/v1.36.3) was changed",
        layer.digest
    );
    assert!(said.starts_with(&first), "{said}");
    assert!(said.ends_with("help: bring it anew from where it was made"), "{said}");
}

#[tokio::test]
async fn what_cannot_go_into_a_bundle_is_said_with_what_helps() {
    let site = site();
    fs::remove_file(site.path("from/kubernetes/v1.36.3/kubelet")).unwrap();
    site.write("from/afloat", &program(AMD64, true, ""));
    let said = refused(&site, "create -d @bundle --from @from").await;
    assert!(said.starts_with("error: these 2 cannot go into a bundle\n"), "{said}");
    assert!(said.contains("v1.36.3/kubelet is not there\n"), "{said}");
    assert!(said.contains("make static builds one that needs nothing"), "{said}");
    assert!(!site.path("bundle").exists(), "nothing is made of what is wrong");
    let nothing = run(&site, None, "create -d @bundle").await.1.unwrap_err();
    assert_eq!(nothing.code, Code::BadUsage);
    assert!(
        refused(&site, "verify @cni")
            .await
            .contains("is no OCI image layout: it has no file oci-layout")
    );
}

async fn map(world: &World) -> BTreeMap<String, String> {
    world
        .api::<ConfigMap>(HOME)
        .get(names::IMAGES)
        .await
        .unwrap()
        .data
        .unwrap_or_default()
}

async fn tell(world: &World, image: &str, versions: &[&str], dry_run: bool, force: bool) -> Result<String, String> {
    let (mut screen, said) = listening();
    let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
    let manner = Manner { dry_run, force };
    let ended = publish::publish(&world.cluster, image, &versions, manner, &mut screen).await;
    let said = said.lock().unwrap().clone();
    ended.map(|_| said).map_err(|problem| problem.to_string())
}

#[tokio::test]
async fn p31_p46_the_map_of_upgrader_images_follows_the_bundles_that_are_there() {
    let world = World::new().await;
    let mut expected = BTreeMap::from([(NEW.to_owned(), "registry.example/up:1".to_owned())]);
    let one = "registry.example/b@sha256:1111";
    let other = "registry.example/b@sha256:2222";

    // Only looked.
    assert_eq!(
        tell(&world, one, &["v1.37.1"], true, false).await.unwrap(),
        format!("v1.37.1 would be upgraded with {one}\n")
    );
    assert_eq!(map(&world).await, expected);

    // One comes, and another with two versions: nothing is taken away from those before.
    tell(&world, one, &["v1.37.1"], false, false).await.unwrap();
    tell(&world, other, &["v1.38.0", "v1.39.0"], false, false)
        .await
        .unwrap();
    for (version, image) in [("v1.37.1", one), ("v1.38.0", other), ("v1.39.0", other)] {
        expected.insert(version.to_owned(), image.to_owned());
    }
    assert_eq!(map(&world).await, expected);

    // A newer bundle of the same version takes the place of ours, told apart by its digest.
    let said = tell(&world, other, &["v1.37.1"], false, false).await.unwrap();
    assert_eq!(said, format!("v1.37.1 is upgraded with {other} instead of {one}\n"));
    expected.insert("v1.37.1".to_owned(), other.to_owned());
    assert_eq!(map(&world).await, expected);
    assert_eq!(
        tell(&world, other, &["v1.37.1"], false, false).await.unwrap(),
        format!("v1.37.1 is upgraded with {other} already\n")
    );

    // What a person wrote stays until they are sure.
    let refused = tell(&world, one, &[NEW], false, false).await.unwrap_err();
    assert!(
        refused.contains("v1.36.3 leads to registry.example/up:1 there\n  help: --force takes its place"),
        "{refused}"
    );
    assert_eq!(map(&world).await, expected);
    tell(&world, one, &[NEW], false, true).await.unwrap();
    expected.insert(NEW.to_owned(), one.to_owned());
    assert_eq!(map(&world).await, expected);

    let operator = tell(&world, one, &[], false, false).await.unwrap_err();
    assert!(operator.contains("the image of the operator alone"), "{operator}");
}

#[tokio::test]
async fn k16_nobody_is_told_of_a_bundle_that_is_not_in_the_registry() {
    let site = site();
    let world = World::new().await;
    let before = map(&world).await;
    done(&site, "create -d @bundle --from @from").await;
    // A registry that takes nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layout = Layout::open_or_create(&site.path("empty")).unwrap();
    tokio::spawn(afloat_bundle::serve::serve(layout, listener, std::future::pending()));
    let line = format!("push @bundle {address}/afloat/bundle:v1 --plain-http --publish --force");
    let (_, ended) = run(&site, Some(&world), &line).await;
    assert!(ended.unwrap_err().to_string().contains("refused to take blob"));
    assert_eq!(map(&world).await, before);
    // What nobody signed does not even travel to those who want it signed.
    done(&site, "keygen @release").await;
    let (_, ended) = run(&site, Some(&world), &format!("{line} --key @release.pub")).await;
    assert!(ended.unwrap_err().to_string().contains("bundle v1.36.3 is not signed"));
}
