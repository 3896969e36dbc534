//! What is in each image of the lab: the static programs as they are, and small images put together from the machines' Debian
//! (kube-proxy's tools, a busybox for pause and for the test workload).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Error,
    archive::Entry,
    images::Plan,
    release::{Release, kube_vip_stand_in},
    shell,
};

/// The image of the test workload and of everything else that needs a shell.
pub(crate) const BUSYBOX: &str = "lab.afloat.dev/busybox:v1";

/// Named as the real one, by which a static pod is known: the last part of its image's name.
pub(crate) const KUBE_VIP: &str = "lab.afloat.dev/kube-vip:stand-in";

const PAUSE: &str = include_str!("../files/pause");

/// All images of a release.
pub(crate) fn plans(release: &Release, debian: &Path) -> Result<Vec<Plan>, Error> {
    let mut plans = Vec::new();
    for image in release.images()? {
        let mut entries = vec![(image.to.clone(), Entry::Program(image.program))];
        if image.to.ends_with("kube-proxy") {
            entries.extend(netfilter_tools(debian)?);
        }
        plans.push(Plan {
            reference: image.reference,
            entrypoint: format!("/{}", image.to),
            entries,
        });
    }
    plans.push(Plan {
        reference: release.pause_image(),
        entrypoint: "/pause".to_owned(),
        entries: [
            vec![("pause".to_owned(), Entry::Text(PAUSE.to_owned(), 0o755))],
            busybox(debian, &["sh", "sleep"]),
        ]
        .concat(),
    });
    Ok(plans)
}

/// The images that belong to no release.
pub(crate) fn lab_plans(debian: &Path) -> Result<Vec<Plan>, Error> {
    let stand_in = Plan {
        reference: KUBE_VIP.to_owned(),
        entrypoint: "/kube-vip".to_owned(),
        entries: vec![("kube-vip".to_owned(), Entry::Program(kube_vip_stand_in()?))],
    };
    Ok(vec![busybox_plan(debian)?, stand_in])
}

fn busybox_plan(debian: &Path) -> Result<Plan, Error> {
    let listed = shell::run(
        Command::new("chroot").arg(debian).args(["/bin/busybox", "--list"]),
        shell::SOON,
    )?;
    let applets: Vec<&str> = listed.lines().filter(|name| *name != "busybox").collect();
    Ok(Plan {
        reference: BUSYBOX.to_owned(),
        entrypoint: "/bin/sh".to_owned(),
        entries: busybox(debian, &applets),
    })
}

fn busybox(debian: &Path, applets: &[&str]) -> Vec<(String, Entry)> {
    let program = Entry::Program(debian.join("bin/busybox"));
    std::iter::once(("bin/busybox".to_owned(), program))
        .chain(
            applets
                .iter()
                .map(|name| (format!("bin/{name}"), Entry::Link("busybox".to_owned()))),
        )
        .collect()
}

/// nft, iptables and conntrack with the libraries they load: what kube-proxy calls.
fn netfilter_tools(debian: &Path) -> Result<Vec<(String, Entry)>, Error> {
    const TOOLS: [&str; 3] = ["/usr/sbin/nft", "/usr/sbin/xtables-nft-multi", "/usr/sbin/conntrack"];
    let extensions = extensions(debian)?;
    // Extensions are loaded by name and bring libraries of their own.
    let loaded = extensions.iter().map(|(place, _)| format!("/{place}"));
    let mut ldd = Command::new("chroot");
    ldd.arg(debian).arg("ldd").args(TOOLS).args(loaded);
    let said = shell::run(&mut ldd, shell::SOON)?;
    let mut entries: Vec<(String, Entry)> = TOOLS
        .into_iter()
        .map(str::to_owned)
        .chain(libraries_of(&said))
        .map(|path| {
            let place = path.trim_start_matches('/').to_owned();
            let from = inside(debian, &place);
            (place, Entry::Program(from))
        })
        .collect();
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            let link = Entry::Link("xtables-nft-multi".to_owned());
            entries.push((format!("usr/sbin/{family}{suffix}"), link));
        }
    }
    entries.extend(extensions);
    Ok(entries)
}

/// The file that a path means inside the Debian root: an absolute link there does not mean this machine's file.
fn inside(debian: &Path, place: &str) -> PathBuf {
    let mut path = debian.join(place);
    for _ in 0..8 {
        match fs::read_link(&path) {
            Ok(target) if target.is_absolute() => path = debian.join(target.strip_prefix("/").unwrap_or(&target)),
            Ok(target) => path = path.with_file_name("").join(target),
            Err(_) => break,
        }
    }
    path
}

/// Every match and target of iptables is a library of its own, loaded by name.
fn extensions(debian: &Path) -> Result<Vec<(String, Entry)>, Error> {
    let mut found = Vec::new();
    for machine in ["x86_64-linux-gnu", "aarch64-linux-gnu"] {
        let place = format!("usr/lib/{machine}/xtables");
        let folder = debian.join(&place);
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((format!("{place}/{name}"), Entry::Program(entry.path())));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The files that `ldd` names: `libx.so => /lib/libx.so (0x…)` and `/lib64/ld-linux.so (0x…)`.
fn libraries_of(ldd: &str) -> BTreeSet<String> {
    ldd.lines()
        .filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.starts_with('/') && !word.ends_with(':'))
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_off_ldd() {
        let said = "/usr/sbin/nft:\n\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            libraries_of(said).into_iter().collect::<Vec<_>>(),
            ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
