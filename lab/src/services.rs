//! What runs beside the machines in the lab's network: two load balancers (haproxy) in front of the control planes, and an OCI registry
//! (Debian's docker-registry) that is the machines' only mirror.

use std::{fs, net::TcpStream, path::Path, process::Stdio, thread, time::Duration};

use crate::{
    Error,
    cgroup::Cgroups,
    images::{Image, Store},
    network::Network,
    shell::{self, wait_for},
    spec::{API_PORT, HARSH, HostSpec, PLAIN, REGISTRY, REGISTRY_PORT},
};

/// Starts a program in the lab's network and cgroups; it lives until the lab ends.
fn start(
    network: &Network,
    cgroups: &Cgroups,
    folder: &Path,
    name: &str,
    program: &[&str],
    environment: &[(&str, &str)],
) -> Result<(), Error> {
    let starter = folder.join("keep-service");
    shell::write_program(&starter, include_str!("../files/keep-service"))?;
    let path = folder.join(format!("{name}.log"));
    let log = fs::File::create(&path).map_err(Error::file(&path))?;
    let errors = log.try_clone().map_err(Error::file(&path))?;
    let status = network
        .command("setsid")
        .arg("--fork")
        .arg(&starter)
        .args(&cgroups.folders)
        .arg("--")
        .args(program)
        .envs(environment.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status()
        .map_err(|source| Error::Spawn {
            what: name.to_owned(),
            source,
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed {
            what: name.to_owned(),
            status: status.to_string(),
            said: shell::tail(&fs::read_to_string(&path).unwrap_or_default()),
        })
    }
}

/// Both load balancers, for these control planes.
pub(crate) fn start_balancers(
    network: &Network,
    cgroups: &Cgroups,
    folder: &Path,
    control_planes: &[HostSpec],
) -> Result<(), Error> {
    let config = folder.join("haproxy.cfg");
    shell::write(&config, &balancer_config(folder, control_planes))?;
    let config = config.display().to_string();
    start(
        network,
        cgroups,
        folder,
        "haproxy",
        &["haproxy", "-db", "-f", &config],
        &[],
    )
}

fn balancer_config(folder: &Path, control_planes: &[HostSpec]) -> String {
    let servers: Vec<String> = control_planes
        .iter()
        .map(|host| format!("  server {} {}:{API_PORT}", host.name, host.address()))
        .collect();
    include_str!("../files/haproxy.cfg")
        .replace("@FOLDER@", &folder.display().to_string())
        .replace("@PLAIN@", &format!("{PLAIN}:{API_PORT}"))
        .replace("@HARSH@", &format!("{HARSH}:{API_PORT}"))
        .replace("@SERVERS@", &servers.join("\n"))
}

/// The registry, with these images in it from the start.
pub(crate) fn start_registry(
    network: &Network,
    cgroups: &Cgroups,
    folder: &Path,
    store: &Store,
    images: &[Image],
) -> Result<(), Error> {
    let storage = folder.join("registry");
    store.put_into_registry(images, &storage)?;
    let config = folder.join("registry.yml");
    let text = include_str!("../files/registry.yml")
        .replace("@FOLDER@", &storage.display().to_string())
        .replace("@ADDRESS@", &format!("{REGISTRY}:{REGISTRY_PORT}"));
    shell::write(&config, &text)?;
    let config = config.display().to_string();
    start(
        network,
        cgroups,
        folder,
        "registry",
        &["docker-registry", "serve", &config],
        &[("OTEL_TRACES_EXPORTER", "none")],
    )?;
    let network = network.clone();
    let answering = move || {
        network.enter().map_err(|error| error.to_string())?;
        TcpStream::connect((REGISTRY, REGISTRY_PORT)).map_err(|error| error.to_string())
    };
    wait_for(
        "the registry",
        Duration::from_secs(20),
        Duration::from_millis(100),
        || {
            let answering = answering.clone();
            // A thread of its own, because it does not come back from the lab's network.
            thread::spawn(answering)
                .join()
                .unwrap_or_else(|_| Err("asking it failed".to_owned()))
        },
    )
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Role;

    #[test]
    fn both_balancers_have_all_control_planes() {
        let hosts = [1, 2].map(|number| HostSpec::new(Role::ControlPlane, number));
        let config = balancer_config(Path::new("/lab"), &hosts);
        assert_eq!(config.matches("server cp-2 10.77.0.12:6443").count(), 2, "{config}");
        assert!(!config.contains('@'), "{config}");
    }
}
