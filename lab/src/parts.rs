//! The files of releases in one folder, laid out as `afloat bundle create --from` takes them: `kubernetes/VERSION/`, `containerd/`, `cni/`
//! and `images/`. What a bundle makes of them is the bundle's business.

use std::{fs, io::BufWriter, path::Path};

use crate::{
    Error, Progress, Release, checks,
    home::Home,
    shell::{self, make_folder},
    template,
};

/// Writes the files of releases into a folder, which is replaced. The later ones have the last word on what there is only one of: runtime and
/// CNI plugins.
pub fn write_parts(releases: &[Release], folder: &Path, progress: &Progress) -> Result<(), Error> {
    let home = Home::find()?;
    checks::able(&home, 0)?;
    let _lock = home.lock()?;
    shell::remove_folder(folder)?;
    for release in releases {
        for binary in release.binaries()? {
            let name = binary.to.rsplit('/').next().unwrap_or_default();
            let to = folder.join(place_of(binary.to, release.version)).join(name);
            make_folder(to.parent().unwrap_or(folder))?;
            fs::copy(&binary.from, &to).map_err(Error::file(&to))?;
        }
    }
    let debian = template::debian(&home, progress)?;
    let store = template::image_store(&home);
    let images = folder.join("images");
    make_folder(&images)?;
    for release in releases {
        for image in template::images_of_release(&home, release, &debian)? {
            let path = images.join(format!("{}.tar", file_name(&image.reference)));
            let mut out = BufWriter::new(fs::File::create(&path).map_err(Error::file(&path))?);
            store.export(&[image], &mut out).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}

fn place_of(path: &str, version: &str) -> String {
    if path.starts_with("/opt/cni") {
        "cni".to_owned()
    } else if path.contains("/kube") {
        format!("kubernetes/{version}")
    } else {
        "containerd".to_owned()
    }
}

/// `registry.k8s.io/coredns/coredns:v1.14.2` as `coredns-v1.14.2`.
fn file_name(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or(reference).replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_place() {
        for (path, place) in [
            ("/usr/bin/kubelet", "kubernetes/v1.36.3"),
            ("/usr/local/sbin/runc", "containerd"),
            ("/usr/local/bin/containerd-shim-runc-v2", "containerd"),
            ("/opt/cni/bin/bridge", "cni"),
        ] {
            assert_eq!(place_of(path, "v1.36.3"), place, "{path}");
        }
        assert_eq!(file_name("registry.k8s.io/coredns/coredns:v1.14.2"), "coredns-v1.14.2");
    }
}
