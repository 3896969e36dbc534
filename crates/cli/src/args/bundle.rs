//! `afloat bundle …`: what people can write after each of its commands.

use super::people::{Form, Place};
use afloat_bundle::reference::{Reference, is_tag};
use afloat_bundle::registry::Access;
use afloat_core::KubernetesVersion;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  afloat bundle keygen release                         release.key to sign with, release.pub to check with
  afloat bundle create -d bundle --from DIR --key release.key
  afloat bundle verify bundle --key release.pub        every blob, every file, and who signed it
  afloat bundle push bundle registry.example/afloat/bundle:v1.36.3 --key release.pub --publish
  afloat bundle serve bundle --listen 0.0.0.0:5000     a mirror for a site without any registry

A bundle is everything one Kubernetes version needs, as one OCI image, which is the upgrader image as well.";

const CREATE_EXAMPLES: &str = "\
Examples:
  afloat bundle create -d bundle --kubernetes v1.36.3=k8s-1.36 --containerd containerd/bin --containerd runc \\
      --cni cni --images images --afloat target/static/afloat --key release.key
  afloat bundle create -d bundle --kubernetes v1.35.4=k8s-1.35 --kubernetes v1.36.3=k8s-1.36 …   for workers that take both at once
  afloat bundle create -d bundle --from DIR      DIR has afloat, kubernetes/VERSION/, containerd/, cni/, images/
  afloat bundle create -d operator --operator    the image of the operator alone: afloat and nothing else

The same files, tag and key give the same digest. A folder that has bundles keeps them; one of the same tag is replaced.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  afloat bundle verify bundle                    every blob and file against its digest
  afloat bundle verify bundle --key release.pub  and who signed it: what is not signed by this key is refused

Exit codes: 0 good, 1 refused: what is wrong is listed, and nothing of it should be used";

const PUSH_EXAMPLES: &str = "\
Examples:
  afloat bundle push bundle registry.example/afloat/bundle
  afloat bundle push bundle registry.example/afloat/bundle:v1.36.3 --key release.pub --publish
  afloat bundle push bundle mirror.example:5000/afloat/bundle --plain-http

Who you are to the registry is read from what docker login or podman login wrote. What the registry has does not travel.";

const PULL_EXAMPLES: &str = "\
Examples:
  afloat bundle pull registry.example/afloat/bundle:v1.36.3 bundle --key release.pub";

const SERVE_EXAMPLES: &str = "\
Examples:
  afloat bundle serve bundle                                for this machine: 127.0.0.1:5000
  afloat bundle serve bundle --listen 0.0.0.0:5000 --key release.pub

Any name of a repository is answered, so containerd can use it as a mirror of any registry (hosts.toml).";

const PUBLISH_EXAMPLES: &str = "\
Examples:
  afloat bundle publish registry.example/afloat/bundle:v1.36.3             the versions of this bundle are upgraded with it
  afloat bundle publish registry.example/afloat/bundle:v1.36.3 --dry-run   what would change";

const INSPECT_EXAMPLES: &str = "\
Examples:
  afloat bundle inspect bundle                   what it brings
  afloat bundle inspect bundle -o json           every file with its digest";

#[derive(Debug, Subcommand)]
pub enum Bundle {
    /// Make a bundle from files, without Docker
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Box<Create>),
    /// What a bundle brings
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(Inspect),
    /// Whether a bundle is whole and who signed it
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
    /// Send a bundle to a registry
    #[command(after_help = PUSH_EXAMPLES)]
    Push(Box<Push>),
    /// Bring a bundle from a registry
    #[command(after_help = PULL_EXAMPLES)]
    Pull(Pull),
    /// Serve bundles as a registry to read from
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Tell the operator to upgrade with a bundle that is in a registry
    #[command(after_help = PUBLISH_EXAMPLES)]
    Publish(Box<Publish>),
    /// Make a key to sign bundles with
    Keygen(Keygen),
}

#[derive(Args, Debug)]
pub struct Create {
    /// The folder to make it in: an OCI image layout, new or with bundles in it
    #[arg(short, long, value_name = "DIR")]
    pub directory: PathBuf,
    /// A version and the folder of its kubeadm, kubelet and kubectl; may be repeated
    #[arg(long, value_name = "VERSION=DIR", value_parser = kubernetes)]
    pub kubernetes: Vec<(String, PathBuf)>,
    /// containerd, its shim, ctr, runc: a folder or a file; may be repeated
    #[arg(long, value_name = "PATH")]
    pub containerd: Vec<PathBuf>,
    /// CNI plugins: a folder or a file; may be repeated
    #[arg(long, value_name = "PATH")]
    pub cni: Vec<PathBuf>,
    /// Archives of images, or a folder of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub images: Vec<PathBuf>,
    /// The afloat to put into it; it must need no libraries [default: this program]
    #[arg(long, value_name = "FILE")]
    pub afloat: Option<PathBuf>,
    /// A folder with all of it: afloat, kubernetes/VERSION/, containerd/, cni/, images/
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubernetes", "containerd", "cni", "images"])]
    pub from: Option<PathBuf>,
    /// Only afloat: the image of the operator
    #[arg(long, conflicts_with_all = ["kubernetes", "containerd", "cni", "images", "from"])]
    pub operator: bool,
    /// Sign it with this private key
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Name of the bundle [default: the newest Kubernetes version in it]
    #[arg(long, value_name = "TAG", value_parser = tag)]
    pub tag: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectOutput {
    /// A table for people
    Text,
    Json,
    Yaml,
}

/// A layout and a bundle in it.
#[derive(Args, Debug)]
pub struct Which {
    /// The folder of the bundle
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Which bundle, where there are several
    #[arg(long, value_name = "TAG|DIGEST")]
    pub tag: Option<String>,
}

#[derive(Args, Debug)]
pub struct Inspect {
    #[command(flatten)]
    pub which: Which,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = InspectOutput::Text)]
    pub output: InspectOutput,
}

#[derive(Args, Debug)]
pub struct Verify {
    #[command(flatten)]
    pub which: Which,
    /// Public keys, one of which must have signed it
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// How a registry is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Registry")]
pub struct Reach {
    /// Without TLS
    #[arg(long)]
    pub plain_http: bool,
    /// An authority to trust beside those of this machine
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// What docker login wrote [default: $DOCKER_CONFIG, ~/.docker, or where podman writes it]
    #[arg(long, value_name = "FILE")]
    pub docker_config: Option<PathBuf>,
}

impl Reach {
    pub fn access(&self) -> Access {
        Access {
            plain_http: self.plain_http,
            ca: self.ca.clone(),
            docker_config: self.docker_config.clone(),
        }
    }
}

#[derive(Args, Debug)]
pub struct Push {
    #[command(flatten)]
    pub which: Which,
    /// Where to, as registry.example/afloat/bundle:v1.36.3
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    pub to: Reference,
    /// Look first whether it is whole and signed by one of these public keys
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Then tell the operator to upgrade with it
    #[arg(long)]
    pub publish: bool,
    /// Take the place of an image that somebody else wrote for a version
    #[arg(long, requires = "publish")]
    pub force: bool,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub place: Place,
}

/// How the map of upgrader images is written.
#[derive(Args, Clone, Copy, Debug)]
pub struct Manner {
    /// Only say what the map of upgrader images would become
    #[arg(long)]
    pub dry_run: bool,
    /// Take the place of an image that somebody else wrote for a version
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct Publish {
    /// Where the bundle is, as registry.example/afloat/bundle:v1.36.3
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    pub image: Reference,
    /// Public keys, one of which must have signed it
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub manner: Manner,
    /// Print the ConfigMap instead of words
    #[arg(short, long, value_enum, requires = "dry_run")]
    pub output: Option<Form>,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Pull {
    /// Where from, as registry.example/afloat/bundle:v1.36.3
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    pub from: Reference,
    /// The folder to bring it to: an OCI image layout, new or with bundles in it
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Public keys, one of which must have signed it
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Args, Debug)]
pub struct Serve {
    /// The folder of the bundles
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5000")]
    pub listen: SocketAddr,
    /// Look first whether all is whole and signed by one of these public keys
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Keygen {
    /// Name of the two files, without .key and .pub
    pub name: PathBuf,
}

fn kubernetes(text: &str) -> Result<(String, PathBuf), String> {
    let (version, folder) = text
        .split_once('=')
        .ok_or("write VERSION=DIR, as v1.36.3=./kubernetes")?;
    let version: KubernetesVersion = version.parse().map_err(|error| format!("{error}"))?;
    if folder.is_empty() {
        return Err("the folder is missing: write VERSION=DIR, as v1.36.3=./kubernetes".to_owned());
    }
    Ok((version.to_string(), PathBuf::from(folder)))
}

fn reference(text: &str) -> Result<Reference, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn tag(text: &str) -> Result<String, String> {
    if is_tag(text) {
        Ok(text.to_owned())
    } else {
        Err("write letters, digits, dots and dashes, as v1.36.3-2".to_owned())
    }
}
