//! What goes into a bundle, and what comes out of making one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use afloat_bundle::create::{Wish, create};
use afloat_bundle::input::{Sources, check};
use afloat_bundle::oci::{Config, Manifest};
use afloat_bundle::progress::silent;
use afloat_bundle::sbom::Bom;
use afloat_bundle::verify::{Signature, verify};
use afloat_bundle::{Error, contents, inspect};
use common::{AMD64, ARM64, NEW, OLD, Site, archive, mute, program};
use std::fs;
use std::path::Path;

#[test]
fn p29_p40_one_image_has_everything_a_version_needs() {
    let site = Site::new();
    let layout = site.layout("bundle");
    let made = site.bundle(&layout, &[OLD, NEW]);
    let contents = contents::read(&layout, &made.manifest.layers, &silent).unwrap();
    let paths: Vec<&str> = contents.files.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "/afloat",
            "/bundle/SHA256SUMS",
            "/bundle/SHA256SUMS.sig",
            "/bundle/afloat",
            "/bundle/cni/bridge",
            "/bundle/cni/loopback",
            "/bundle/containerd/containerd",
            "/bundle/containerd/containerd-shim-runc-v2",
            "/bundle/containerd/ctr",
            "/bundle/containerd/runc",
            "/bundle/images/v1.35.4.tar",
            "/bundle/images/v1.36.3.tar",
            "/bundle/kubernetes/v1.35.4/kubeadm",
            "/bundle/kubernetes/v1.35.4/kubectl",
            "/bundle/kubernetes/v1.35.4/kubelet",
            "/bundle/kubernetes/v1.36.3/kubeadm",
            "/bundle/kubernetes/v1.36.3/kubectl",
            "/bundle/kubernetes/v1.36.3/kubelet",
        ]
    );
    // As the machine reads it.
    let sums = String::from_utf8(contents.sums.unwrap()).unwrap();
    let items = afloat_node::bundle::parse(&sums).unwrap();
    assert_eq!(
        items.len(),
        paths.len() - 3,
        "all but the list, its signature, and the program's second name"
    );
    let config: Config = layout.document("config", made.manifest.config.digest).unwrap();
    assert_eq!(
        (config.config.entrypoint.as_slice(), config.architecture.as_str()),
        (&["/afloat".to_owned()][..], "amd64")
    );
}

#[test]
fn p33_the_image_holds_nothing_but_what_its_bill_of_materials_lists() {
    let site = Site::new();
    let layout = site.layout("bundle");
    let made = site.bundle(&layout, &[OLD, NEW]);
    let digest = made.manifest.annotations["dev.afloat.bundle.sbom"].parse().unwrap();
    let bom: Bom = layout.document("bill", digest).unwrap();
    let held = contents::read(&layout, &made.manifest.layers, &silent).unwrap().files;
    let held: Vec<_> = held
        .into_iter()
        .map(|(path, found)| (path, Some(found.digest)))
        .collect();
    let listed: Vec<_> = bom.files().into_iter().collect();
    assert_eq!(held, listed);
    assert_eq!(
        (bom.bom_format.as_str(), bom.spec_version.as_str()),
        ("CycloneDX", "1.6")
    );
}

#[test]
fn the_same_files_make_the_same_bundle_anywhere_and_at_any_time() {
    let (one, other) = (Site::new(), Site::new());
    // Who signs belongs to what is made.
    let key = one.key();
    let mut digests = Vec::new();
    for site in [&one, &other] {
        let mut sources = site.sources(&[OLD, NEW]);
        if !digests.is_empty() {
            sources.images.reverse();
            sources.kubernetes.reverse();
        }
        let checked = check(&sources, &mute).unwrap();
        let wish = Wish {
            tag: NEW,
            key: Some(&key),
        };
        digests.push(
            create(&site.layout("bundle"), &checked, &wish, &silent)
                .unwrap()
                .descriptor
                .digest,
        );
    }
    assert_eq!(digests[0], digests[1]);
    other.write("cni/bridge", &program(AMD64, false, "another bridge"));
    let changed = other.bundle(&other.layout("bundle"), &[OLD, NEW]);
    assert_ne!(changed.descriptor.digest, digests[0]);
}

#[test]
fn bundles_share_the_layers_that_are_alike_and_leave_nothing_behind() {
    let site = Site::new();
    let layout = site.layout("bundle");
    let old = site.bundle(&layout, &[OLD]);
    let new = site.bundle(&layout, &[NEW]);
    let shared = |one: &Manifest, other: &Manifest| {
        let names = one
            .layers
            .iter()
            .filter(|layer| other.layers.iter().any(|found| found.digest == layer.digest));
        names.map(contents::layer_name).collect::<Vec<_>>()
    };
    assert_eq!(shared(&old.manifest, &new.manifest), ["containerd", "cni", "afloat"]);
    // The same tag again, with another file: the old one and its signature go.
    site.write("v1.36.3/kubelet", &program(AMD64, false, "a newer kubelet"));
    site.bundle(&layout, &[NEW]);
    let index = layout.index().unwrap();
    assert_eq!(
        index.manifests.len(),
        6,
        "two bundles, each with its bill of materials and its signature"
    );
    assert_eq!(layout.stray(&index).unwrap(), [""; 0]);
    let verdict = verify(&layout, None, Some(&site.public()), &silent).unwrap();
    assert_eq!(verdict.complaints, []);
    let signed: Vec<_> = verdict
        .bundles
        .iter()
        .map(|bundle| (bundle.name.as_str(), bundle.signature))
        .collect();
    let good = Signature::Good(site.key().public());
    assert_eq!(signed, [(OLD, good), (NEW, good)]);
}

type Change = fn(&Site, &mut Sources);

/// What is done to the files, and what is then said.
const WRONG: [(&str, Change, &str); 12] = [
    (
        "a program is missing",
        |site, _| fs::remove_file(site.path("v1.36.3/kubelet")).unwrap(),
        "v1.36.3/kubelet is not there",
    ),
    (
        "no program",
        |site, _| site.write("v1.36.3/kubelet", b"<html>not found</html>"),
        "kubelet is no program for Linux",
    ),
    (
        "an empty file",
        |site, _| site.write("v1.36.3/kubectl", b""),
        "kubectl is no program for Linux",
    ),
    (
        "another machine",
        |site, _| site.write("runtime/runc", &program(ARM64, true, "")),
        "runc is for arm64, and the others are for amd64",
    ),
    (
        "afloat with libraries",
        |site, _| site.write("afloat", &program(AMD64, true, "")),
        "afloat needs a loader and libraries",
    ),
    (
        "no version",
        |_, sources| "1.36".clone_into(&mut sources.kubernetes[0].0),
        "is named for 1.36, which is no version",
    ),
    (
        "no archive",
        |site, _| site.write("images/v1.36.3.tar", b"hello"),
        "is no tar archive",
    ),
    (
        "a compressed archive",
        |site, _| site.write("images/v1.36.3.tar", b"\x1f\x8b\x08gzip"),
        "v1.36.3.tar is compressed",
    ),
    (
        "no image in it",
        |site, _| site.write("images/v1.36.3.tar", &archive(&[])),
        "names no image",
    ),
    (
        "twice the same",
        |site, sources| sources.cni.push(site.path("cni/bridge")),
        "would take the place of",
    ),
    (
        "a strange name",
        |site, sources| {
            site.write("images/a b.tar", &archive(&["x:1"]));
            sources.images.push(site.path("images/a b.tar"));
        },
        "has a name that cannot go into a bundle",
    ),
    (
        "no such folder",
        |site, sources| sources.cni = vec![site.path("nowhere")],
        "nowhere cannot be read",
    ),
];

#[test]
fn every_file_is_looked_at_and_everything_wrong_is_said_at_once() {
    for (what, change, said) in WRONG {
        let site = Site::new();
        let mut sources = site.sources(&[NEW]);
        change(&site, &mut sources);
        let Err(Error::Inputs(complaints)) = check(&sources, &mute) else {
            panic!("{what} was accepted");
        };
        let all: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 1, "{what}: {all:?}");
        assert!(all[0].contains(said), "{what}: {all:?}");
    }
    let site = Site::new();
    site.write("v1.36.3/kubelet", b"");
    site.write("images/v1.36.3.tar", b"");
    assert!(matches!(check(&site.sources(&[NEW]), &mute), Err(Error::Inputs(all)) if all.len() == 2));
}

#[test]
fn programs_are_asked_for_their_version_where_they_can_be_run() {
    let answers = |path: &Path, question: &[&str]| {
        let name = path.file_name().unwrap().to_str().unwrap();
        Some(match (name, question.first()) {
            ("kubeadm", Some(&"config")) => {
                "registry.k8s.io/kube-apiserver:v1.36.3\nregistry.k8s.io/etcd:3.6.8-0\n".to_owned()
            }
            ("kubeadm" | "kubectl", _) => "v1.36.3".to_owned(),
            ("kubelet", _) => "Kubernetes v1.36.3".to_owned(),
            ("containerd", _) => "containerd github.com/containerd/containerd/v2 v2.2.1 1c4457e".to_owned(),
            ("runc", _) => "runc version 1.3.3".to_owned(),
            _ => return None,
        })
    };
    let site = Site::new();
    let checked = check(&site.sources(&[NEW]), &answers).unwrap();
    let versions: Vec<_> = checked
        .components
        .iter()
        .map(|part| (part.name.as_str(), part.version.as_deref().unwrap_or("-")))
        .collect();
    for expected in [
        ("containerd", "v2.2.1"),
        ("runc", "1.3.3"),
        ("kubelet", "v1.36.3"),
        ("cni-plugins", "-"),
        ("v1.36.3", "-"),
    ] {
        assert!(versions.contains(&expected), "{expected:?} in {versions:?}");
    }
    let lacks = |note: &String| note.contains("the images of v1.36.3 lack etcd:3.6.8-0:");
    assert!(checked.notes.iter().any(lacks), "{:?}", checked.notes);
    // The right name on the wrong program.
    let mut wrong = site.sources(&[NEW]);
    "v1.36.2".clone_into(&mut wrong.kubernetes[0].0);
    let Err(Error::Inputs(complaints)) = check(&wrong, &answers) else {
        panic!("accepted")
    };
    assert_eq!(complaints.len(), 3, "kubeadm, kubelet and kubectl");
    assert!(
        complaints[0].to_string().contains("kubeadm is v1.36.3, not v1.36.2"),
        "{}",
        complaints[0]
    );
}

#[test]
fn a_bundle_tells_what_is_in_it() {
    let site = Site::new();
    let layout = site.layout("bundle");
    let made = site.bundle(&layout, &[OLD, NEW]);
    let all = inspect::inspect(&layout, None).unwrap();
    let bundle = &all[0];
    assert_eq!((all.len(), bundle.name.as_str(), bundle.signed), (1, NEW, true));
    assert_eq!(
        (bundle.digest, bundle.platform.as_str()),
        (made.descriptor.digest, "linux/amd64")
    );
    assert_eq!(bundle.kubernetes_versions, [OLD, NEW]);
    let kubelet = bundle
        .parts
        .iter()
        .find(|part| part.name == "kubelet" && part.version.as_deref() == Some(NEW))
        .unwrap();
    assert_eq!(kubelet.files[0].path, "/bundle/kubernetes/v1.36.3/kubelet");
    let images: Vec<_> = bundle.parts.iter().flat_map(|part| &part.images).collect();
    assert_eq!(
        images,
        [
            "registry.example/kube-apiserver:v1.35.4",
            "registry.example/kube-apiserver:v1.36.3"
        ]
    );
    let other = inspect::inspect(&layout, Some("v1.37.0")).unwrap_err();
    assert_eq!(other.help().as_deref(), Some("there are v1.36.3: --tag NAME"));
}

#[test]
fn a_folder_with_other_files_in_it_is_left_alone() {
    let site = Site::new();
    let refused = afloat_bundle::layout::Layout::open_or_create(&site.path("cni")).unwrap_err();
    assert!(refused.to_string().contains("it has other files in it"), "{refused}");
}
