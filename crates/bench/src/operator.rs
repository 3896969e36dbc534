//! The operator as a process of its own, so that its memory is its own: started, asked for its counters, ended with this. What it counts it
//! serves at `/metrics`; what it took of memory the kernel knows.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A process that is busy with 150,000 pods may take its time over an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

pub struct Operator {
    child: Child,
    pages: SocketAddr,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Operator {
    pub fn start(afloat: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        // Free a moment ago: good enough on a machine's own loopback.
        let pages = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let child = Command::new(afloat)
            .args(["controller", "--probe", "mirrors", "--no-leader-election", "--listen"])
            .arg(pages.to_string())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} cannot be started", afloat.display()))?;
        Ok(Self { child, pages })
    }

    /// Fails when it has ended by itself.
    pub fn is_up(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the operator ended by itself: {status}"),
        }
    }

    /// The most memory it ever had, in KiB.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
        peak(&status).with_context(|| format!("{path} does not say VmHWM"))
    }

    pub async fn counters(&self) -> anyhow::Result<Counters> {
        let asked = async {
            let mut stream = TcpStream::connect(self.pages).await?;
            stream
                .write_all(b"GET /metrics HTTP/1.0\r\nHost: operator\r\n\r\n")
                .await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<String, std::io::Error>(answer)
        };
        let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await??;
        Ok(Counters::read(&answer))
    }
}

fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the operator has counted so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Requests by verb.
    pub requests: BTreeMap<String, u64>,
    /// Actions by name, refused ones included.
    pub actions: BTreeMap<String, u64>,
}

impl Counters {
    /// Reads the text of `/metrics`.
    pub fn read(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else { continue };
            let label = |key: &str| {
                let rest = name.split_once(&format!("{key}=\""))?.1;
                rest.split_once('"').map(|(word, _)| word.to_owned())
            };
            if name.starts_with("afloat_api_requests_total{") {
                *counters.requests.entry(label("verb").unwrap_or_default()).or_default() += value;
            } else if name.starts_with("afloat_actions_total{") || name.starts_with("afloat_refusals_total{") {
                *counters.actions.entry(label("name").unwrap_or_default()).or_default() += value;
            }
        }
        counters
    }

    pub fn evictions(&self) -> u64 {
        self.requests.get("evict").copied().unwrap_or_default()
    }

    /// Everything but the evictions themselves.
    pub fn others(&self) -> u64 {
        self.requests.values().sum::<u64>() - self.evictions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up_by_verb_and_name() {
        let text = "# HELP afloat_api_requests x\n\
            afloat_api_requests_total{verb=\"patch\",code=\"200\"} 7\n\
            afloat_api_requests_total{verb=\"patch\",code=\"409\"} 1\n\
            afloat_api_requests_total{verb=\"evict\",code=\"429\"} 3\n\
            afloat_actions_total{name=\"Cordon\"} 2\n\
            afloat_queue_depth 4\n";
        let counters = Counters::read(text);
        assert_eq!((counters.others(), counters.evictions()), (8, 3));
        assert_eq!(counters.actions["Cordon"], 2);
    }

    #[test]
    fn peak_memory_is_read_from_the_kernels_words() {
        assert_eq!(
            peak("Name:\tafloat\nVmHWM:\t  143212 kB\nVmRSS:\t 1 kB\n"),
            Some(143_212)
        );
        assert_eq!(peak("Name:\tafloat\n"), None);
    }
}
