//! Where the lab keeps things on this machine: `$AFLOAT_LAB`, or a folder of its own outside the tree. Below it are what all labs share
//! (a Debian, images, image stores) and one folder per lab.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
};

use crate::{Error, shell};

const DEFAULT: &str = "/var/tmp/afloat-lab";

#[derive(Debug, Clone)]
pub(crate) struct Home {
    folder: PathBuf,
}

impl Home {
    pub(crate) fn find() -> Result<Self, Error> {
        let folder = env::var_os("AFLOAT_LAB")
            .filter(|value| !value.is_empty())
            .map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from);
        let folder = std::path::absolute(&folder).map_err(Error::file(&folder))?;
        shell::make_folder(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        self.folder.join("shared").join(name)
    }

    pub(crate) fn labs(&self) -> PathBuf {
        self.folder.join("labs")
    }

    pub(crate) fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    /// One process at a time makes what is shared; the lock goes with the process.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(".lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        file.lock().map_err(Error::file(&path))?;
        Ok(file)
    }
}
