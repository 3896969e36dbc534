//! The kubeconfig of a served sandbox: a new file that only its owner can read, removed when the sandbox ends. A file
//! that is already there is never touched.

use crate::problem::{Code, Problem};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A kubeconfig file made by this process; removed when dropped.
#[derive(Debug)]
pub struct Kubeconfig {
    path: PathBuf,
}

impl Kubeconfig {
    pub fn write(path: Option<PathBuf>, content: &str) -> Result<Self, Problem> {
        let path = path
            .unwrap_or_else(|| std::env::temp_dir().join(format!("afloat-sandbox-{}.kubeconfig", std::process::id())));
        let absolute = std::path::absolute(&path).unwrap_or(path);
        // `create_new` follows no link and replaces nothing: neither somebody's kubeconfig nor a trap in /tmp.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&absolute)
            .map_err(|error| {
                let problem = Problem::new(
                    Code::Failed,
                    format!("cannot write the kubeconfig {}", absolute.display()),
                );
                match error.kind() {
                    ErrorKind::AlreadyExists => problem
                        .because("the file exists, and the sandbox replaces nothing")
                        .help("name another file, or remove this one"),
                    _ => problem
                        .source(&error)
                        .help("name a file in a folder you can write to: --kubeconfig FILE"),
                }
            })?;
        let made = Self { path: absolute };
        file.write_all(content.as_bytes()).map_err(|error| {
            Problem::new(
                Code::Failed,
                format!("cannot write the kubeconfig {}", made.path.display()),
            )
            .source(&error)
        })?;
        Ok(made)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as a shell reads it.
    pub fn shell_path(&self) -> String {
        let text = self.path().display().to_string();
        let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
        if text.chars().all(harmless) {
            text
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_the_owner_reads_it_and_it_goes_with_the_sandbox() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it's mine");
        let file = Kubeconfig::write(Some(path.clone()), "content").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
        assert_eq!(
            file.shell_path(),
            format!("'{}/it'\\''s mine'", folder.path().display())
        );
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "precious").unwrap();
        let problem = Kubeconfig::write(Some(path.clone()), "content").unwrap_err();
        assert!(problem.to_string().contains("the file exists"), "{problem}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
