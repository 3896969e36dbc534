//! What machines are made from: a minimal Debian, and a containerd store that has the images of a release already. Both are made once and
//! shared by all labs; a machine gets hard links to what it never writes in place, and copies of the rest.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    Error, Progress, contents,
    home::Home,
    images::{Image, Store, hex},
    release::Release,
    shell::{self, SOON, run},
};

const SUITE: &str = "bookworm";
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iptables,nftables,conntrack,socat,ethtool,kmod,ca-certificates,procps,busybox-static";

/// Everything of one release that machines are made from.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) debian: PathBuf,
    /// A `/var/lib/containerd`.
    pub(crate) containerd: PathBuf,
}

/// The images of a release and of the lab itself, made when they are not there.
pub(crate) fn images_of(home: &Home, release: &Release, debian: &Path) -> Result<Vec<Image>, Error> {
    let mut images = images_of_release(home, release, debian)?;
    let store = image_store(home);
    for plan in contents::lab_plans(debian)? {
        images.push(store.provide(&plan)?);
    }
    Ok(images)
}

/// The images that the release's kubeadm asks for.
pub(crate) fn images_of_release(home: &Home, release: &Release, debian: &Path) -> Result<Vec<Image>, Error> {
    let store = image_store(home);
    let plans = contents::plans(release, debian)?;
    plans.iter().map(|plan| store.provide(plan)).collect()
}

pub(crate) fn image_store(home: &Home) -> Store {
    Store::at(home.shared("images"))
}

pub(crate) fn prepare(home: &Home, release: &Release, progress: &Progress) -> Result<Template, Error> {
    let _lock = home.lock()?;
    let debian = debian(home, progress)?;
    let images = images_of(home, release, &debian)?;
    let containerd = containerd_store(home, release, &images, progress)?;
    Ok(Template { debian, containerd })
}

/// A Debian with what a Kubernetes machine needs, from the package mirror that this machine uses.
pub(crate) fn debian(home: &Home, progress: &Progress) -> Result<PathBuf, Error> {
    let key = hex(&Sha256::digest(format!("{SUITE} {PACKAGES}")));
    let folder = home.shared(&format!("debian-{}", &key[..12]));
    if folder.is_dir() {
        return Ok(folder);
    }
    progress.say("making a Debian for the machines (a minute, once)");
    let unfinished = home.shared(".debian-unfinished");
    shell::remove_folder(&unfinished)?;
    shell::make_folder(&home.shared(""))?;
    run(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=minbase"])
            .arg(format!("--include={PACKAGES}"))
            .args([
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
            ])
            .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
            .arg(SUITE)
            .arg(&unfinished),
        Duration::from_mins(15),
    )?;
    fs::rename(&unfinished, &folder).map_err(Error::file(&folder))?;
    Ok(folder)
}

/// Imports the images with the release's own containerd, as a machine would, once.
fn containerd_store(home: &Home, release: &Release, images: &[Image], progress: &Progress) -> Result<PathBuf, Error> {
    let binaries = release.binaries()?;
    let binary = |name: &str| {
        binaries
            .iter()
            .find(|binary| binary.to.ends_with(name))
            .map(|binary| binary.from.clone())
            .unwrap_or_default()
    };
    let (containerd, ctr) = (binary("/containerd"), binary("/ctr"));
    let digests: Vec<&str> = images.iter().map(Image::digest).collect();
    let key = hex(&Sha256::digest(format!(
        "{}\0{}",
        containerd.display(),
        digests.join("\0")
    )));
    let folder = home.shared(&format!("containerd-{}-{}", release.version, &key[..12]));
    if folder.is_dir() {
        return Ok(folder);
    }
    progress.say("importing the images (half a minute, once)");
    let unfinished = home.shared(".containerd-unfinished");
    shell::remove_folder(&unfinished)?;
    let importer = Importer::start(&containerd, &ctr, &unfinished)?;
    importer.import(&image_store(home), images)?;
    drop(importer);
    let made = unfinished.join("root");
    fs::rename(&made, &folder).map_err(Error::file(&folder))?;
    shell::remove_folder(&unfinished)?;
    Ok(folder)
}

/// A containerd on this machine whose only work is to unpack images.
struct Importer {
    containerd: Child,
    ctr: PathBuf,
    socket: PathBuf,
}

impl Importer {
    fn start(containerd: &Path, ctr: &Path, folder: &Path) -> Result<Self, Error> {
        let (root, state, socket) = (folder.join("root"), folder.join("state"), folder.join("socket"));
        shell::make_folder(&root)?;
        let config = folder.join("config.toml");
        let text = format!(
            "version = 3\nroot = '{}'\nstate = '{}'\n\
             disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images', \
             'io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt']\n[grpc]\n  address = '{}'\n",
            root.display(),
            state.display(),
            socket.display()
        );
        shell::write(&config, &text)?;
        let log = File::create(folder.join("log")).map_err(Error::file(folder.join("log")))?;
        // Its mounts are its own, and it goes when we go.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "unshare", "--mount"])
            .arg(containerd)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|source| Error::Spawn {
                what: containerd.display().to_string(),
                source,
            })?;
        let importer = Self {
            containerd: child,
            ctr: ctr.to_owned(),
            socket,
        };
        shell::wait_for(
            "containerd for the import",
            Duration::from_secs(30),
            Duration::from_millis(100),
            || run(importer.ctr().arg("version"), SOON).map_err(|error| error.to_string()),
        )?;
        Ok(importer)
    }

    fn ctr(&self) -> Command {
        let mut command = Command::new(&self.ctr);
        command
            .arg("--address")
            .arg(&self.socket)
            .args(["--namespace", "k8s.io"]);
        command
    }

    fn import(&self, store: &Store, images: &[Image]) -> Result<(), Error> {
        let archive = self.socket.with_file_name("images.tar");
        let mut file = File::create(&archive).map_err(Error::file(&archive))?;
        store.export(images, &mut file).map_err(Error::file(&archive))?;
        run(
            self.ctr()
                .args(["images", "import", "--snapshotter", "overlayfs"])
                .arg(&archive),
            Duration::from_mins(5),
        )?;
        for image in images {
            // The kubelet sees an image only when the label says that it is the kubelet's.
            run(
                self.ctr()
                    .args(["images", "label", &image.reference, "io.cri-containerd.image=managed"]),
                SOON,
            )?;
        }
        Ok(())
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        // It must close its databases before they are copied.
        let pid = i32::try_from(self.containerd.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..100 {
            if !matches!(self.containerd.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.containerd.kill();
        let _ = self.containerd.wait();
    }
}

impl Template {
    /// Makes the root folder of one machine, without anything that is its own.
    pub(crate) fn unpack(&self, root: &Path) -> Result<(), Error> {
        unpack_system(&self.debian, root)?;
        let store = root.join("var/lib/containerd");
        run(
            Command::new("cp")
                .args(["-a", "--link"])
                .arg(&self.containerd)
                .arg(&store),
            SOON,
        )?;
        // The databases are written in place, the layers and blobs never are.
        run(
            Command::new("sh")
                .current_dir(&self.containerd)
                .args([
                    "-c",
                    "find . -name '*.db' -exec cp --remove-destination --parents -t \"$0\" {} +",
                ])
                .arg(&store),
            SOON,
        )?;
        Ok(())
    }
}

/// Makes a root folder of the Debian, without anything that is a machine's or a release's.
pub(crate) fn unpack_system(debian: &Path, root: &Path) -> Result<(), Error> {
    // /usr is never written in place; what is written in place is copied.
    run(Command::new("cp").args(["-a", "--link"]).arg(debian).arg(root), SOON)?;
    for folder in ["etc", "var", "root"] {
        shell::remove_folder(&root.join(folder))?;
        run(
            Command::new("cp")
                .arg("-a")
                .arg(debian.join(folder))
                .arg(root.join(folder)),
            SOON,
        )?;
    }
    Ok(())
}
