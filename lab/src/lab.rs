//! A lab as a whole: made, found again, asked, and ended. What a lab is made of is `Spec`; everything it starts lives in its own cgroups and
//! its own network namespace, and that is how `down` finds all of it, also after the process that made it was killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error, Machine, Probers, Release, Spec,
    cgroup::Hierarchies,
    checks, cluster,
    home::Home,
    images::Image,
    network::Network,
    services,
    shell::{self, run},
    spec::{BRIDGE, HARSH, HostSpec, PLAIN, REGISTRY, REGISTRY_PORT, Role, VIRTUAL},
    template,
};

const SPEC: &str = "spec.json";
/// Written last: a lab without it was interrupted while it was made.
const READY: &str = "ready";
const END_WITHIN: Duration = Duration::from_mins(1);

/// Says what happens and when, for the person who waits.
#[derive(Debug, Clone)]
pub struct Progress {
    started: Instant,
    quiet: bool,
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        Self {
            started: Instant::now(),
            quiet,
        }
    }

    pub(crate) fn say(&self, what: &str) {
        if !self.quiet {
            println!("{:>5.1}s  {what}", self.started.elapsed().as_secs_f64());
        }
    }
}

/// A lab that is up. Dropping it ends it, unless it was left running.
#[derive(Debug)]
pub struct Lab {
    spec: Spec,
    folder: PathBuf,
    network: Network,
    hierarchies: Hierarchies,
    ends_on_drop: bool,
    kubectl: OnceLock<PathBuf>,
}

impl Lab {
    /// Whether this machine can run the smallest lab; what is missing is in the error.
    pub fn able() -> Result<(), Error> {
        checks::able(&Home::find()?, 1).map(drop)
    }

    /// Makes a lab; what is left of an earlier one of that name is ended first.
    pub fn up(spec: &Spec) -> Result<Self, Error> {
        Self::up_with(spec, &Progress::new(false))
    }

    pub fn up_with(spec: &Spec, progress: &Progress) -> Result<Self, Error> {
        let release = spec.check()?;
        let home = Home::find()?;
        let hierarchies = checks::able(&home, spec.control_planes + spec.workers)?;
        checks::raise_watch_limits(progress)?;
        release.binaries()?;
        let lab = Self {
            spec: spec.clone(),
            folder: home.lab(&spec.name),
            network: Network::of(&spec.name),
            hierarchies,
            ends_on_drop: true,
            kubectl: OnceLock::new(),
        };
        lab.end()?;
        lab.make(&home, &release, progress)?;
        Ok(lab)
    }

    fn make(&self, home: &Home, release: &Release, progress: &Progress) -> Result<(), Error> {
        let template = template::prepare(home, release, progress)?;
        shell::make_folder(&self.folder)?;
        self.remember()?;
        self.network.make()?;
        self.start_services(home, &template.debian)?;
        let machines = self.machines();
        thread::scope(|scope| {
            let starting: Vec<_> = machines
                .iter()
                .map(|machine| {
                    scope.spawn(|| {
                        machine.make(&template, release)?;
                        machine.start()
                    })
                })
                .collect();
            starting
                .into_iter()
                .try_for_each(|machine| machine.join().unwrap_or(Err(Error::Broken("a start"))))
        })?;
        progress.say(&format!("{} machines have booted", machines.len()));
        cluster::form(self, progress)?;
        shell::write(&self.folder.join(READY), "")
    }

    /// Adds a worker at a version of its own, as machines join a cluster that was upgraded meanwhile.
    pub fn join_worker(&mut self, version: &str) -> Result<Machine, Error> {
        let (release, home, progress) = (Release::of(version)?, Home::find()?, Progress::new(false));
        if self.spec.workers >= 9 {
            return Err(Error::Size);
        }
        let template = template::prepare(&home, &release, &progress)?;
        let worker = self.machine_of(HostSpec::new(Role::Worker, self.spec.workers + 1));
        worker.make(&template, &release)?;
        worker.start()?;
        self.spec.workers += 1;
        self.remember()?;
        cluster::join_worker(self, &worker, &progress)?;
        Ok(worker)
    }

    fn remember(&self) -> Result<(), Error> {
        let spec = serde_json::to_string(&self.spec).map_err(|error| Error::Unreadable {
            what: "the spec".to_owned(),
            message: error.to_string(),
        })?;
        shell::write(&self.folder.join(SPEC), &spec)
    }

    /// The registry has every release that is built: a site mirrors the next version before it upgrades.
    fn start_services(&self, home: &Home, debian: &Path) -> Result<(), Error> {
        let cgroups = self.hierarchies.of(&self.spec.name, "services");
        cgroups.make()?;
        let control_planes: Vec<HostSpec> = HostSpec::possible()
            .into_iter()
            .filter(|host| host.role == Role::ControlPlane)
            .take(usize::from(self.spec.control_planes))
            .collect();
        services::start_balancers(&self.network, &cgroups, &self.folder, &control_planes)?;
        let _lock = home.lock()?;
        let mut images: Vec<Image> = Vec::new();
        for release in Release::all().iter().filter(|release| release.is_built()) {
            images.extend(template::images_of(home, release, debian)?);
        }
        services::start_registry(
            &self.network,
            &cgroups,
            &self.folder,
            &template::image_store(home),
            &images,
        )
    }

    /// A lab that is up already. It is not ended when this is dropped.
    pub fn find(name: &str) -> Result<Self, Error> {
        let home = Home::find()?;
        let folder = home.lab(name);
        let path = folder.join(SPEC);
        if !path.is_file() {
            return Err(Error::NoLab(name.to_owned()));
        }
        let spec: Spec = serde_json::from_str(&shell::read(&path)?).map_err(|error| Error::Unreadable {
            what: path.display().to_string(),
            message: error.to_string(),
        })?;
        Ok(Self {
            network: Network::of(name),
            hierarchies: Hierarchies::detect()?,
            spec,
            folder,
            ends_on_drop: false,
            kubectl: OnceLock::new(),
        })
    }

    /// The names of all labs, up or left half-made.
    pub fn all() -> Result<Vec<String>, Error> {
        let folder = Home::find()?.labs();
        let mut names: Vec<String> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Ends a lab by name; one that is not there, or only half, is fine.
    pub fn end_named(name: &str) -> Result<(), Error> {
        let spec = Spec {
            name: name.to_owned(),
            ..Spec::default()
        };
        spec.check()?;
        let lab = Self {
            folder: Home::find()?.lab(name),
            network: Network::of(name),
            hierarchies: Hierarchies::detect()?,
            spec,
            ends_on_drop: false,
            kubectl: OnceLock::new(),
        };
        lab.down()
    }

    /// Keeps it up when this is dropped; `Lab::find` finds it again.
    #[must_use]
    pub fn left_running(mut self) -> Self {
        self.ends_on_drop = false;
        self
    }

    /// Whether it was made to the end.
    pub fn is_ready(&self) -> bool {
        self.folder.join(READY).exists()
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its folder on this machine: logs, configuration, roots of machines.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The administrator's kubeconfig. Its address is inside the lab's network.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Host and port of its registry, inside the lab's network. Plain HTTP.
    pub fn registry(&self) -> String {
        format!("{REGISTRY}:{REGISTRY_PORT}")
    }

    /// The address of this machine inside the lab's network: what is started there by [`Self::command`] can be reached at it.
    pub fn gateway(&self) -> String {
        BRIDGE.to_string()
    }

    /// Takes the registry's address out of the lab's network, as a broken link would, or puts it back.
    pub fn set_registry_reachable(&self, reachable: bool) -> Result<(), Error> {
        self.network.set_address(REGISTRY, reachable)
    }

    /// The load balancer that notices quickly and tries again.
    pub fn plain_balancer(&self) -> String {
        format!("{PLAIN}:{}", crate::spec::API_PORT)
    }

    /// The load balancer that notices late and never tries again.
    pub fn harsh_balancer(&self) -> String {
        format!("{HARSH}:{}", crate::spec::API_PORT)
    }

    /// The address that one of the control planes has, where they elect one.
    pub fn virtual_endpoint(&self) -> Option<String> {
        let endpoint = format!("{VIRTUAL}:{}", crate::spec::API_PORT);
        self.spec.virtual_address.then_some(endpoint)
    }

    /// Which control plane has the virtual address now, as its lease says.
    pub fn virtual_holder(&self) -> Result<Option<String>, Error> {
        let path = "jsonpath={.spec.holderIdentity}";
        let holder = self.kubectl([
            "-n",
            "kube-system",
            "get",
            "lease",
            cluster::LEASE,
            "-o",
            path,
            "--ignore-not-found",
        ])?;
        Ok(Some(holder.trim().to_owned()).filter(|holder| !holder.is_empty()))
    }

    /// How often it has moved.
    pub fn virtual_moves(&self) -> Result<u64, Error> {
        let path = "jsonpath={.spec.leaseTransitions}";
        let moves = self.kubectl(["-n", "kube-system", "get", "lease", cluster::LEASE, "-o", path])?;
        // A lease that nobody was elected for a second time has none.
        let moves = if moves.trim().is_empty() { "0" } else { moves.trim() };
        moves.parse().map_err(|_| Error::Unreadable {
            what: format!("leaseTransitions of lease {}", cluster::LEASE),
            message: moves.to_owned(),
        })
    }

    /// All its machines, control planes first.
    pub fn machines(&self) -> Vec<Machine> {
        self.spec
            .hosts()
            .into_iter()
            .map(|host| self.machine_of(host))
            .collect()
    }

    pub fn machine(&self, name: &str) -> Result<Machine, Error> {
        let known = self.machines();
        known
            .iter()
            .find(|machine| machine.name() == name)
            .cloned()
            .ok_or_else(|| Error::NoMachine {
                lab: self.spec.name.clone(),
                machine: name.to_owned(),
                known: known.iter().map(Machine::name).collect::<Vec<_>>().join(", "),
            })
    }

    fn machine_of(&self, host: HostSpec) -> Machine {
        Machine {
            folder: self.folder.join("machines").join(&host.name),
            cgroups: self.hierarchies.of(&self.spec.name, &host.name),
            network: self.network.clone(),
            systems: self.spec.systems,
            host,
        }
    }

    /// A program of this machine with the lab's network and kubeconfig.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.network.command(program);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Runs kubectl as the administrator.
    pub fn kubectl<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<String, Error> {
        run(self.kubectl_command()?.args(words), crate::machine::PATIENCE)
    }

    /// kubectl as the administrator, to be started by the caller.
    pub fn kubectl_command(&self) -> Result<Command, Error> {
        // Finding it asks Go for its version: once is enough.
        let kubectl = match self.kubectl.get() {
            Some(found) => found.clone(),
            None => self.spec.check()?.kubectl()?,
        };
        let kubectl = self.kubectl.get_or_init(|| kubectl);
        Ok(self.command(&kubectl.display().to_string()))
    }

    /// Moves the calling thread into the lab's network, for good.
    pub fn enter_network(&self) -> Result<(), Error> {
        self.network.enter()
    }

    pub(crate) fn network_path(&self) -> PathBuf {
        self.network.path()
    }

    /// Clients that count requests which fail.
    pub fn probers(&self) -> Probers<'_> {
        Probers::of(self)
    }

    /// Ends it: every process, the network, the folder.
    pub fn down(mut self) -> Result<(), Error> {
        self.ends_on_drop = false;
        self.end()
    }

    fn end(&self) -> Result<(), Error> {
        self.hierarchies.of_lab(&self.spec.name).end(END_WITHIN)?;
        self.hierarchies.leave();
        self.network.remove()?;
        shell::remove_folder(&self.folder)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.ends_on_drop
            && let Err(error) = self.end()
        {
            eprintln!("lab {} was not ended: {error}", self.spec.name);
        }
    }
}
