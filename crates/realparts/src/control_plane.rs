//! A throw-away control plane: etcd and kube-apiserver on free loopback ports in a temporary folder of their own, with controller-manager and
//! scheduler where asked for. It is ended, and its folder removed, when dropped; when this process is killed, the kernel ends its parts.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Components, Error, Paths, certificates,
    client::{Client, Request, Response},
    launch::{self, free_port},
    process::Guarded,
};

/// Another process may take a port between our choice and its use.
const PORT_ATTEMPTS: usize = 5;
/// When etcd is away kube-apiserver lingers, so it goes first; and it waits for open watches, so not for ever.
const GRACE: Duration = Duration::from_secs(2);
const FOLDER_PREFIX: &str = "afloat-realparts-";

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Start kube-controller-manager too, and with it service account admission.
    pub controller_manager: bool,
    /// Which of its controllers run; its own choice where the list is empty.
    pub controllers: Vec<String>,
    /// Start kube-scheduler too.
    pub scheduler: bool,
    /// More flags for kube-apiserver.
    pub apiserver_arguments: Vec<String>,
    /// How long any one part may take to become ready.
    pub ready_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_manager: false,
            controllers: Vec::new(),
            scheduler: false,
            apiserver_arguments: Vec::new(),
            ready_within: Duration::from_secs(90),
        }
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // Order matters: parts are ended in the order of this list, and the folder goes last.
    parts: Vec<Guarded>,
    address: SocketAddr,
    etcd: SocketAddr,
    token: String,
    authority: String,
    folder: tempfile::TempDir,
}

impl ControlPlane {
    /// Starts it with the components that `cargo xtask components` built, and waits until `/readyz` says ok.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let mut names = vec!["etcd", "kube-apiserver"];
        if options.controller_manager {
            names.push("kube-controller-manager");
        }
        if options.scheduler {
            names.push("kube-scheduler");
        }
        Self::start_with(&Components::locate_some(&names)?, options)
    }

    /// The same with given binaries.
    pub fn start_with(paths: &Paths, options: &Options) -> Result<Self, Error> {
        remove_folders_of_the_dead();
        let folder = tempfile::Builder::new()
            .prefix(&format!("{FOLDER_PREFIX}{}-", std::process::id()))
            .tempdir()
            .map_err(Error::file(std::env::temp_dir()))?;
        let authority = certificates::write(folder.path())?;
        let token: String = std::iter::repeat_with(fastrand::alphanumeric).take(32).collect();
        write(
            &folder.path().join("tokens.csv"),
            &format!("{token},admin,admin,system:masters\n"),
        )?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut plane = Self {
            parts: Vec::new(),
            address: nowhere,
            etcd: nowhere,
            token,
            authority,
            folder,
        };
        plane.start_etcd(paths, options)?;
        plane.start_apiserver(paths, options)?;
        write(&plane.kubeconfig_path(), &plane.kubeconfig())?;
        if options.controller_manager {
            plane.start_controller(paths, "kube-controller-manager", options)?;
        }
        if options.scheduler {
            plane.start_controller(paths, "kube-scheduler", options)?;
        }
        Ok(plane)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The bearer token of a member of `system:masters`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The authority that signed the serving certificate, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn kubeconfig(&self) -> String {
        launch::kubeconfig(&self.url(), &self.authority, &self.token)
    }

    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The folder with everything it wrote, logs included.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn process_ids(&self) -> Vec<u32> {
        self.parts.iter().map(Guarded::pid).collect()
    }

    /// The last lines of a part's log.
    pub fn log_tail(&self, name: &str, lines: usize) -> String {
        self.parts
            .iter()
            .find(|part| part.name == name)
            .map(|part| part.log_tail(lines))
            .unwrap_or_default()
    }

    pub fn client(&self) -> Result<Client, Error> {
        Client::with_tls(self.address, &self.authority, &self.token)
    }

    /// Makes etcd forget everything before its present revision, as kube-apiserver does every five minutes. Returns that revision.
    pub fn compact(&self) -> Result<u64, Error> {
        let mut client = Client::plain(self.etcd);
        let mut ask = |path: &str, body: serde_json::Value| -> Result<Response, Error> {
            let answer = client.send(&Request {
                method: "POST".to_owned(),
                path: path.to_owned(),
                headers: Vec::new(),
                body: body.to_string().into_bytes(),
            })?;
            if answer.status == 200 {
                return Ok(answer);
            }
            let message = format!("{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
            Err(Error::Http {
                address: self.etcd.to_string(),
                message,
            })
        };
        // Key "/" in base64: any key will do, the revision is in the header of the answer.
        let range = ask("/v3/kv/range", serde_json::json!({"key": "Lw=="}))?;
        let header: serde_json::Value = serde_json::from_slice(&range.body).unwrap_or_default();
        let revision = header["header"]["revision"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        ask(
            "/v3/kv/compaction",
            serde_json::json!({"revision": revision, "physical": true}),
        )?;
        Ok(revision)
    }

    fn start_etcd(&mut self, paths: &Paths, options: &Options) -> Result<(), Error> {
        let folder = self.folder.path().to_owned();
        let (part, address) = start_on_free_port(options.ready_within, |address| {
            let arguments = launch::etcd(&folder, address, free_port()?);
            let part = Guarded::start("etcd", paths.of("etcd")?, &arguments, &folder)?;
            let health = Request {
                method: "GET".to_owned(),
                path: "/readyz".to_owned(),
                ..Request::default()
            };
            Ok((part, Client::plain(address), health))
        })?;
        self.etcd = address;
        self.parts.insert(0, part);
        Ok(())
    }

    fn start_apiserver(&mut self, paths: &Paths, options: &Options) -> Result<(), Error> {
        let folder = self.folder.path().to_owned();
        let (part, address) = start_on_free_port(options.ready_within, |address| {
            let mut arguments = launch::apiserver(&folder, self.etcd, address);
            if !options.controller_manager {
                // Nobody would make the default service account that this plugin waits for.
                arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
            }
            arguments.extend(options.apiserver_arguments.iter().cloned());
            let part = Guarded::start("kube-apiserver", paths.of("kube-apiserver")?, &arguments, &folder)?;
            let ready = Request {
                method: "GET".to_owned(),
                path: "/readyz".to_owned(),
                ..Request::default()
            };
            Ok((part, Client::with_tls(address, &self.authority, &self.token)?, ready))
        })?;
        self.address = address;
        self.parts.insert(0, part);
        Ok(())
    }

    fn start_controller(&mut self, paths: &Paths, name: &str, options: &Options) -> Result<(), Error> {
        let folder = self.folder.path().to_owned();
        let (part, _) = start_on_free_port(options.ready_within, |address| {
            let arguments = match name {
                "kube-controller-manager" => launch::controller_manager(&folder, address, &options.controllers),
                _ => launch::controller(&folder, address),
            };
            let part = Guarded::start(name, paths.of(name)?, &arguments, &folder)?;
            let health = Request {
                method: "GET".to_owned(),
                path: "/healthz".to_owned(),
                ..Request::default()
            };
            Ok((part, Client::with_tls(address, &self.authority, &self.token)?, health))
        })?;
        self.parts.insert(0, part);
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for part in &self.parts {
            part.end(GRACE);
        }
    }
}

/// Starts something on a port that looked free, again with another when it ends because the port was not.
fn start_on_free_port(
    patience: Duration,
    start: impl Fn(SocketAddr) -> Result<(Guarded, Client, Request), Error>,
) -> Result<(Guarded, SocketAddr), Error> {
    let mut attempt = 1;
    loop {
        let address = free_port()?;
        let (part, client, probe) = start(address)?;
        match wait_until_ready(&part, client, &probe, patience) {
            Ok(()) => return Ok((part, address)),
            Err(Error::Ended { tail, .. }) if attempt < PORT_ATTEMPTS && tail.contains("address already in use") => {
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn wait_until_ready(part: &Guarded, mut client: Client, probe: &Request, patience: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + patience;
    loop {
        let last = match client.send(probe) {
            Ok(response) if response.status == 200 => return Ok(()),
            Ok(response) => format!("{} {}", response.status, String::from_utf8_lossy(&response.body)),
            Err(error) => error.to_string(),
        };
        if let Some(status) = part.ended() {
            return Err(Error::Ended {
                name: part.name.clone(),
                status: status.to_string(),
                tail: part.log_tail(20),
            });
        }
        if Instant::now() > deadline {
            let seconds = patience.as_secs();
            return Err(Error::NotReady {
                name: part.name.clone(),
                seconds,
                last,
                tail: part.log_tail(20),
            });
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A test that was killed could not remove its folder; its process id, part of the name, says that it is gone.
fn remove_folders_of_the_dead() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(FOLDER_PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another test may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::file(path))
}
