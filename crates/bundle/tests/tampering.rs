//! A bundle that was tampered with is refused, and what was touched is named.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use afloat_bundle::contents::layer_name;
use afloat_bundle::create::{Created, Wish, create};
use afloat_bundle::input::check;
use afloat_bundle::key;
use afloat_bundle::layout::Layout;
use afloat_bundle::oci::{self, Descriptor, Manifest, notes};
use afloat_bundle::progress::silent;
use afloat_bundle::verify::{Signature, verify};
use afloat_node::digest::Digest;
use afloat_node::signature::PublicKeys;
use common::{NEW, OLD, Site, mute};
use std::fs;

struct Case {
    site: Site,
    layout: Layout,
    made: Created,
}

impl Case {
    fn new() -> Self {
        let site = Site::new();
        let layout = site.layout("bundle");
        let made = site.bundle(&layout, &[OLD, NEW]);
        Self { site, layout, made }
    }

    fn flip(&self, digest: Digest) {
        let path = self.layout.path(digest);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }

    fn referrer(&self, kind: &str) -> (Descriptor, Manifest) {
        let index = self.layout.index().unwrap();
        let found = index
            .manifests
            .into_iter()
            .find(|found| found.artifact_type.as_deref() == Some(kind))
            .unwrap();
        let manifest = self.layout.manifest(found.digest).unwrap();
        (found, manifest)
    }

    /// What is said, with the key that signed it.
    fn complaints(&self) -> Vec<String> {
        let keys = self.site.public();
        let verdict = verify(&self.layout, None, Some(&keys), &silent).unwrap();
        verdict.complaints.iter().map(ToString::to_string).collect()
    }

    fn refused(&self, what: &str, said: &str) {
        let complaints = self.complaints();
        assert!(
            complaints.iter().any(|complaint| complaint.contains(said)),
            "{what}: {complaints:#?}"
        );
    }

    /// The bundle's image with other layers, signed by nobody and in the place of the real one.
    fn swap_layers(&self, change: impl FnOnce(&mut Vec<Descriptor>)) {
        let mut manifest = self.made.manifest.clone();
        change(&mut manifest.layers);
        let mut config: oci::Config = self.layout.document("config", manifest.config.digest).unwrap();
        config.rootfs.diff_ids = manifest.layers.iter().map(|layer| layer.digest).collect();
        manifest.config = self.layout.put_json("config", oci::CONFIG, &config).unwrap();
        self.put(&manifest);
    }

    fn put(&self, manifest: &Manifest) {
        let made = self.layout.put_json("manifest", oci::MANIFEST, manifest).unwrap();
        let (mut bom, mut bom_manifest) = self.referrer(oci::SBOM);
        bom_manifest.subject = Some(made.clone());
        let again = self.layout.put_json("bill", oci::MANIFEST, &bom_manifest).unwrap();
        (bom.digest, bom.size) = (again.digest, again.size);
        let mut index = self.layout.index().unwrap();
        index.manifests = vec![made.note(notes::TAG, NEW), bom];
        self.layout.write_index(&index).unwrap();
    }

    /// A layer with one file.
    fn layer(&self, path: &str, kind: tar::EntryType, mode: u32, uid: u64) -> Descriptor {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(0);
        header.set_size(if kind.is_file() { 5 } else { 0 });
        // As an attacker would: the crate itself refuses such names.
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        if kind.is_symlink() {
            header.set_link_name("/etc/shadow").unwrap();
        }
        header.set_cksum();
        tar.append(&header, if kind.is_file() { b"extra".as_slice() } else { b"" })
            .unwrap();
        self.layout
            .put(oci::LAYER, &tar.into_inner().unwrap())
            .unwrap()
            .note(notes::PART, "extra")
    }
}

#[test]
fn p29_a_bundle_that_nobody_touched_is_accepted() {
    let case = Case::new();
    assert_eq!(case.complaints(), [""; 0]);
    let verdict = verify(&case.layout, Some(NEW), None, &silent).unwrap();
    assert_eq!(verdict.bundles[0].signature, Signature::Unchecked);
}

#[test]
fn p29_a_byte_flipped_in_any_blob_is_found_and_the_blob_is_named() {
    let pristine = Case::new();
    let (bom, bom_manifest) = pristine.referrer(oci::SBOM);
    let (signature, signature_manifest) = pristine.referrer(oci::SIGNATURE_ARTIFACT);
    let mut blobs: Vec<(String, Digest)> = pristine
        .made
        .manifest
        .layers
        .iter()
        .map(|layer| (format!("layer {}", layer_name(layer)), layer.digest))
        .collect();
    blobs.extend([
        ("manifest v1.36.3".to_owned(), pristine.made.descriptor.digest),
        ("config of the image".to_owned(), pristine.made.manifest.config.digest),
        ("manifest sha256:".to_owned(), bom.digest),
        ("bill of materials".to_owned(), bom_manifest.layers[0].digest),
        ("manifest sha256-".to_owned(), signature.digest),
        ("signature".to_owned(), signature_manifest.layers[0].digest),
    ]);
    assert_eq!(blobs.len(), 14, "eight layers and the six documents");
    for (what, digest) in blobs {
        for remove in [false, true] {
            // A copy of the layout each time: blobs of one must not hide those of another.
            let copy = pristine
                .site
                .path(&format!("copy-{remove}-{}", digest.to_string().replace(':', "-")));
            copy_folder(pristine.layout.folder(), &copy);
            let case = Case {
                site: Site::new(),
                layout: Layout::open(&copy).unwrap(),
                made: pristine.made.clone(),
            };
            if remove {
                fs::remove_file(case.layout.path(digest)).unwrap();
            } else {
                case.flip(digest);
            }
            let verdict = verify(&case.layout, None, Some(&pristine.site.public()), &silent).unwrap();
            let named = verdict
                .complaints
                .iter()
                .map(ToString::to_string)
                .find(|said| said.contains(&digest.to_string()));
            let named = named.unwrap_or_else(|| panic!("{what} is not named: {:#?}", verdict.complaints));
            assert!(named.contains(&what), "{what}: {named}");
        }
    }
}

#[test]
fn p29_a_file_that_came_is_named_even_when_every_digest_fits() {
    let extra = |case: &Case, path: &str, kind, mode, uid| {
        let layer = case.layer(path, kind, mode, uid);
        case.swap_layers(|layers| layers.push(layer));
    };
    let file = tar::EntryType::Regular;
    let case = Case::new();
    extra(&case, "bundle/cni/extra", file, 0o755, 0);
    case.refused("a file more", "/bundle/cni/extra is not in SHA256SUMS");
    case.refused("a file more", "/bundle/cni/extra is not in the bill of materials");

    for (path, kind, mode, uid, said) in [
        (
            "etc/passwd",
            file,
            0o644,
            0,
            "/etc/passwd is not in the bill of materials",
        ),
        (
            "bundle/cni/bridge",
            file,
            0o755,
            0,
            "/bundle/cni/bridge is in the layers cni and extra",
        ),
        ("bundle/cni/../../x", file, 0o755, 0, "has a path that leads elsewhere"),
        ("bundle/cni/.wh.bridge", file, 0o644, 0, "would take another file away"),
        ("bundle/cni/extra", file, 0o4755, 0, "has the permissions 4755"),
        (
            "bundle/cni/extra",
            file,
            0o755,
            1000,
            "belongs to 1000:0 instead of root",
        ),
        (
            "bundle/cni/extra",
            tar::EntryType::Symlink,
            0o755,
            0,
            "is neither a file nor a folder",
        ),
        (
            "bundle/cni/extra",
            tar::EntryType::Char,
            0o644,
            0,
            "is neither a file nor a folder",
        ),
    ] {
        let case = Case::new();
        extra(&case, path, kind, mode, uid);
        case.refused(path, said);
    }
}

#[test]
fn p29_what_is_missing_or_does_not_fit_together_is_named() {
    let case = Case::new();
    case.swap_layers(|layers| layers.retain(|layer| layer_name(layer) != "cni"));
    case.refused(
        "a layer less",
        "/bundle/cni/bridge is in SHA256SUMS and not in the image",
    );
    case.refused(
        "a layer less",
        "/bundle/cni/bridge is in the bill of materials and not in the image",
    );
    case.refused("a layer less", "bundle v1.36.3 has no signature of its manifest");

    let case = Case::new();
    case.swap_layers(|layers| layers.retain(|layer| layer_name(layer) != "SHA256SUMS"));
    case.refused("no list", "/bundle/SHA256SUMS is not there");

    let case = Case::new();
    let mut manifest = case.made.manifest.clone();
    manifest.layers.pop();
    case.put(&manifest);
    case.refused("a config of other layers", "names other layers than the manifest does");

    let case = Case::new();
    fs::write(case.layout.path(Digest::of(b"x")), b"x").unwrap();
    case.refused("a blob more", "belongs to nothing in this layout");
}

#[test]
fn p29_only_the_right_key_vouches_for_a_bundle() {
    let case = Case::new();
    let other = key::generate(&case.site.path("other")).unwrap();
    let verdict = verify(&case.layout, None, Some(&PublicKeys::from(other.key)), &silent).unwrap();
    let said: Vec<String> = verdict.complaints.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("has no signature of its manifest by the key"),
        "{said:?}"
    );
    assert!(said[1].contains("nodes would refuse it"), "{said:?}");
    assert_eq!(verdict.bundles[0].signature, Signature::Refused);

    // Another bundle, well made and signed by somebody else, in the place of this one.
    let checked = check(&case.site.sources(&[NEW]), &mute).unwrap();
    let theirs = key::PrivateKey::read(&other.private).unwrap();
    create(
        &case.layout,
        &checked,
        &Wish {
            tag: NEW,
            key: Some(&theirs),
        },
        &silent,
    )
    .unwrap();
    case.refused(
        "a swapped manifest",
        "bundle v1.36.3 has no signature of its manifest by the key",
    );

    // The signature of one bundle does not vouch for another.
    let case = Case::new();
    let (signature, mut manifest) = case.referrer(oci::SIGNATURE_ARTIFACT);
    create(&case.layout, &checked, &Wish { tag: NEW, key: None }, &silent).unwrap();
    case.refused("no signature", "bundle v1.36.3 is not signed");
    let (bundle, _) = case.layout.bundle(None).unwrap();
    manifest.subject = Some(bundle.bare());
    let words = fs::read(case.layout.path(signature.digest)).unwrap_or_default();
    assert_eq!(words, b"", "what signed the old one went with it");
    let again = case.layout.put_json("signature", oci::MANIFEST, &manifest).unwrap();
    let mut again = again.note(notes::TAG, oci::signature_tag(bundle.digest));
    again.artifact_type = Some(oci::SIGNATURE_ARTIFACT.to_owned());
    case.layout
        .put(
            oci::SIGNATURE,
            afloat_bundle::create::signed_words(case.made.descriptor.digest).as_bytes(),
        )
        .unwrap();
    case.layout.put(oci::CONFIG, b"{}").unwrap();
    let mut index = case.layout.index().unwrap();
    index.manifests.push(again);
    case.layout.write_index(&index).unwrap();
    case.refused(
        "a borrowed signature",
        "bundle v1.36.3 has no signature of its manifest by the key",
    );
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
