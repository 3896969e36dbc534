//! What a task brings of a release: asked of the repository, written onto the machine, and handed to it. One archive at a time, so that a
//! disk need not hold all of them beside what they become.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use afloat_node::release::FOLDER;
use afloat_node::release::lists::{Archive, Bundle, file_name, images_of, old_alone};
use afloat_node::release::server::{AGENT_ARCHIVES, SERVER_ARCHIVES};
use afloat_repo::Client;

use super::host::OwnHost;
use crate::args::hci::Order;
use crate::problem::{Code, Problem};

const ISO: &str = "/harvester-iso";
/// How often a person hears of a long download.
const TELL_EVERY: Duration = Duration::from_secs(15);

/// A release, by its repository.
pub struct Release {
    repo: Client,
    /// The release before.
    previous: String,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Release {
    pub fn new(repo: &str, previous: &str) -> Result<Self, Problem> {
        let repo = Client::new(repo).map_err(|error| {
            Problem::new(Code::BadUsage, error.to_string()).help("--repo http://upgrade-repo-NAME.harvester-system")
        })?;
        Ok(Self {
            repo,
            previous: previous.to_owned(),
        })
    }

    async fn bundle(&self) -> Result<Bundle, String> {
        let metadata = self
            .repo
            .text(&format!("{ISO}/bundle/metadata.yaml"))
            .await
            .map_err(text)?;
        Bundle::parse(&metadata).map_err(text)
    }

    async fn images(&self, path: &str) -> Result<BTreeSet<String>, String> {
        let list = self.repo.text(&format!("{ISO}/bundle/{path}")).await.map_err(text)?;
        images_of(path, &list).map_err(text)
    }

    /// Imports what is missing, and lays ready what RKE2 and Rancher's agent read when they start.
    pub async fn preload(&self, host: &OwnHost) -> Result<(), String> {
        let bundle = self.bundle().await?.images;
        let there: BTreeSet<String> = host.order(Order::ListImages, &[]).await?.into_iter().collect();
        for archive in bundle.common.iter().chain(&bundle.rke2) {
            let missing = self.images(&archive.list).await?.difference(&there).count();
            let name = file_name(&archive.archive);
            if missing == 0 {
                host.say(&format!("all images of {name} are there"));
                continue;
            }
            host.say(&format!("{missing} images of {name} are missing"));
            let path = format!("{FOLDER}/{name}");
            self.bring(host, archive, &path).await?;
            let imported = host.order(Order::ImportImages, std::slice::from_ref(&path)).await;
            let removed = fs::remove_file(OwnHost::path(&path)).map_err(|error| format!("{path}: {error}"));
            imported?;
            removed?;
        }
        for (archives, folder) in [(&bundle.rke2, SERVER_ARCHIVES), (&bundle.agent, AGENT_ARCHIVES)] {
            for archive in archives {
                self.lay_ready(host, archive, folder).await?;
            }
        }
        Ok(())
    }

    async fn lay_ready(&self, host: &OwnHost, archive: &Archive, folder: &str) -> Result<(), String> {
        let path = format!("{folder}/{}", file_name(&archive.archive));
        if OwnHost::path(&path).exists() {
            return Ok(());
        }
        self.bring(host, archive, &path).await
    }

    async fn bring(&self, host: &OwnHost, archive: &Archive, path: &str) -> Result<(), String> {
        self.bring_file(host, &format!("bundle/{}", archive.archive), path)
            .await
    }

    async fn bring_file(&self, host: &OwnHost, from: &str, path: &str) -> Result<(), String> {
        let mut told = Instant::now();
        let heard = |bytes: u64, total: Option<u64>| {
            if told.elapsed() < TELL_EVERY {
                return;
            }
            told = Instant::now();
            let of = total.map_or_else(String::new, |total| format!(" of {}", total >> 20));
            host.say(&format!("{}: {}{of} MiB are there", file_name(from), bytes >> 20));
        };
        let brought = self
            .repo
            .bring(&format!("{ISO}/{from}"), &OwnHost::path(path), heard)
            .await;
        let bytes = brought.map_err(text)?;
        host.say(&format!("{} is there, {} MiB", file_name(from), bytes >> 20));
        Ok(())
    }

    /// Brings Rancher to the version that the release names.
    pub async fn upgrade_rancher(&self, host: &OwnHost) -> Result<(), String> {
        let file = self
            .repo
            .text(&format!("{ISO}/harvester-release.yaml"))
            .await
            .map_err(text)?;
        let version = afloat_core::hci::release::Release::parse(&file).map_err(text)?.rancher;
        for said in host.order(Order::UpgradeRancher, &[version]).await? {
            host.say(&said);
        }
        Ok(())
    }

    /// Removes images that only the release before has.
    pub async fn remove_old(&self, host: &OwnHost) -> Result<(), String> {
        let list = |of: &str| format!("harvester/images-lists-archive/{of}/image_list_all.txt");
        let before = self.images(&list(&self.previous)).await?;
        let now = self.images(&list("current")).await?;
        let there = host.order(Order::ListImages, &[]).await?;
        let old = old_alone(&before, &now, there.iter().map(String::as_str));
        let old: Vec<String> = old.into_iter().map(str::to_owned).collect();
        if old.is_empty() {
            return Ok(());
        }
        let gone = host.order(Order::RemoveImages, &old).await?;
        host.say(&format!("{} of {} old images are removed", gone.len(), old.len()));
        Ok(())
    }

    /// Removes the archives that RKE2 has read.
    pub async fn remove_archives(&self, host: &OwnHost) -> Result<(), String> {
        let archives = self.bundle().await?.images.rke2;
        let names: Vec<String> = archives.iter().map(|one| file_name(&one.archive).to_owned()).collect();
        host.order(Order::RemoveArchives, &names).await.map(|_| ())
    }

    /// Brings the operating system, in the form that the machine takes; where it is there already, only its checksum.
    pub async fn bring_system(&self, host: &OwnHost) -> Result<(), String> {
        let mut lines = host.order(Order::NameSystem, &[]).await?.into_iter();
        let image = lines.next().ok_or("the machine does not say how it takes a system")?;
        let Some(sums) = lines.next() else {
            return self.bring_file(host, &image, &format!("{FOLDER}/{image}")).await;
        };
        let sum = self.repo.text(&format!("{ISO}/{sums}")).await.map_err(|error| {
            format!("{error}: a system in a slot is compared with its checksum, which `afloat repo serve` works out by itself")
        })?;
        let wanted = sum.split_whitespace().next();
        if lines.any(|present| Some(present.as_str()) == wanted) {
            host.say(&format!("the system of {image} is on the machine"));
        } else {
            self.bring_file(host, &image, &format!("{FOLDER}/{image}")).await?;
        }
        let path = OwnHost::path(&format!("{FOLDER}/{sums}"));
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = made.and_then(|()| fs::write(&path, sum));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}
