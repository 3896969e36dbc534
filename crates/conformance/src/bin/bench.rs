//! `bench`: measures the embedded API server against its bars, all in this process and on one core: requests a second through `kube::Client`, a
//! cluster of 5,000 nodes and 150,000 pods loaded and listed in pages, and 100 watchers under 1,000 writes a second. A table goes to standard output,
//! the same as JSON to a file.

use std::{
    fs,
    future::poll_fn,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use afloat_apisim::{ApiServer, Options, ReplyBody, Watch};
use bytes::Bytes;
use clap::Parser;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// As the `afloat` binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "bench", about = "Measures the embedded API server")]
struct Arguments {
    /// A hundredth of everything: shows that the bench works, not how fast the server is
    #[arg(long)]
    quick: bool,
    /// Where the figures go as JSON
    #[arg(long, default_value_os_t = default_output())]
    output: PathBuf,
}

fn default_output() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"))
        .join("bench.json")
}

type Failure = Box<dyn std::error::Error>;

/// One figure and its bar.
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// The bar, and whether the figure must be at least or at most that.
    bar: Option<(Bound, f64)>,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast,
    Below,
}

impl Figure {
    fn new(name: &'static str, value: f64, unit: &'static str, bar: Option<(Bound, f64)>) -> Self {
        Self { name, value, unit, bar }
    }

    fn holds(&self) -> Option<bool> {
        self.bar.map(|(bound, bar)| match bound {
            Bound::AtLeast => self.value >= bar,
            Bound::Below => self.value < bar,
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(figures) if arguments.quick || figures.iter().all(|figure| figure.holds() != Some(false)) => {
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &Arguments) -> Result<Vec<Figure>, Failure> {
    let scale = |whole: usize| if arguments.quick { whole / 100 } else { whole };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{:<44} {:>12} {:<12} {:>14}", "FIGURE", "VALUE", "UNIT", "BAR");
    let mut figures = told(runtime.block_on(requests(scale(200_000)))?);
    figures.extend(told(cluster(scale(5_000), scale(150_000))?));
    figures.extend(told(runtime.block_on(watchers(scale(100).max(4), scale(10_000)))?));
    let rows = figures.iter().map(|figure| {
        json!({"name": figure.name, "value": figure.value, "unit": figure.unit, "bar": figure.bar.map(|(_, bar)| bar), "holds": figure.holds()})
    });
    let document = json!({"quick": arguments.quick, "figures": rows.collect::<Vec<_>>()});
    if let Some(folder) = arguments.output.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&arguments.output, format!("{document:#}\n"))?;
    Ok(figures)
}

/// Prints figures as soon as they are there: the whole takes a while.
fn told(figures: Vec<Figure>) -> Vec<Figure> {
    for figure in &figures {
        let bar = match figure.bar {
            None => String::new(),
            Some((Bound::AtLeast, bar)) => format!(">= {bar}"),
            Some((Bound::Below, bar)) => format!("< {bar}"),
        };
        let verdict = if figure.holds() == Some(false) { "missed" } else { "" };
        println!(
            "{:<44} {:>12.2} {:<12} {bar:>14} {verdict}",
            figure.name, figure.value, figure.unit
        );
    }
    figures
}

/// Time of the clock and of the processor since some moment: on a busy machine only the latter says how fast the code is.
struct Stopwatch {
    begun: Instant,
    used: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            begun: Instant::now(),
            used: processor_time(),
        }
    }

    fn stop(&self) -> (Duration, Duration) {
        (self.begun.elapsed(), processor_time().saturating_sub(self.used))
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Half reads, half merge patches of a label with field management, several at a time as in a busy controller.
async fn requests(count: usize) -> Result<Vec<Figure>, Failure> {
    const AT_ONCE: usize = 16;
    let server = ApiServer::new(Options::default());
    for index in 0..AT_ONCE {
        send(&server, "POST", "/api/v1/nodes?fieldManager=kubelet", &node(index))?;
    }
    let nodes: Api<Node> = Api::all(server.client());
    let parameters = PatchParams {
        field_manager: Some("bench".to_owned()),
        ..PatchParams::default()
    };
    let pairs = count / 2 / AT_ONCE;
    let watch = Stopwatch::start();
    let lanes = (0..AT_ONCE).map(|lane| {
        let (nodes, parameters) = (nodes.clone(), parameters.clone());
        async move {
            let name = format!("node-{lane}");
            for turn in 0..pairs {
                nodes.get(&name).await?;
                let patch = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
                nodes.patch(&name, &parameters, &Patch::Merge(&patch)).await?;
            }
            Ok::<(), kube::Error>(())
        }
    });
    try_join_all(lanes).await?;
    let (elapsed, used) = watch.stop();
    let done = pairs * 2 * AT_ONCE;
    let least = Some((Bound::AtLeast, 20_000.0));
    Ok(vec![
        Figure::new(
            "requests, half get, half merge patch",
            per_second(done, elapsed),
            "requests/s",
            least,
        ),
        Figure::new("the same by processor time", per_second(done, used), "requests/s", None),
    ])
}

fn cluster(nodes: usize, pods: usize) -> Result<Vec<Figure>, Failure> {
    let server = ApiServer::new(Options::default());
    let watch = Stopwatch::start();
    for index in 0..nodes {
        send(&server, "POST", "/api/v1/nodes?fieldManager=kubelet", &node(index))?;
    }
    for index in 0..pods {
        send(
            &server,
            "POST",
            "/api/v1/namespaces/default/pods?fieldManager=controller",
            &pod(index, nodes),
        )?;
    }
    let loaded = watch.stop();
    let watch = Stopwatch::start();
    let (mut listed, mut pages, mut bytes) = (0, 0, 0);
    let mut token = String::new();
    loop {
        let body = send(
            &server,
            "GET",
            &format!("/api/v1/pods?limit=500&continue={token}"),
            &Value::Null,
        )?;
        bytes += body.len();
        pages += 1;
        let page: Page = serde_json::from_slice(&body)?;
        listed += page.items.len();
        token = page.metadata.next;
        if token.is_empty() {
            break;
        }
    }
    let read = watch.stop();
    if listed != pods {
        return Err(format!("{listed} of {pods} pods were listed").into());
    }
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let megabytes = bytes as f64 / 1e6;
    let seconds = |time: Duration| time.as_secs_f64();
    Ok(vec![
        Figure::new(
            "5,000 nodes and 150,000 pods loaded",
            seconds(loaded.0),
            "s",
            Some((Bound::Below, 20.0)),
        ),
        Figure::new("the same by processor time", seconds(loaded.1), "s", None),
        Figure::new(
            "pods listed in pages of 500",
            seconds(read.0),
            "s",
            Some((Bound::Below, 3.0)),
        ),
        Figure::new("the same by processor time", seconds(read.1), "s", None),
        Figure::new("pages", f64::from(pages), "", None),
        Figure::new("size of the list", megabytes, "MB", None),
    ])
}

/// As much of a list as paging needs; items stay unread.
#[derive(serde::Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<serde::de::IgnoredAny>,
}

#[derive(serde::Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Every watcher sees every write; how late, by the moment of the write it is about.
async fn watchers(count: usize, writes: usize) -> Result<Vec<Figure>, Failure> {
    let server = ApiServer::new(Options::default());
    send(&server, "POST", "/api/v1/nodes?fieldManager=kubelet", &node(0))?;
    let written: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let followed = format!("/api/v1/nodes?watch=true&resourceVersion={}", server.revision());
    let mut followers = Vec::new();
    for _ in 0..count {
        let ReplyBody::Watch(watch) = server.handle(request("GET", &followed, &Value::Null)?).body else {
            return Err("no watch was opened".into());
        };
        followers.push(tokio::spawn(follow(watch, Arc::clone(&written), writes)));
    }
    let begun = Instant::now();
    for index in 0..writes {
        // A thousand a second, by the clock and not by pauses, so that a late one is made up for.
        let due = begun + Duration::from_millis(index as u64);
        tokio::time::sleep_until(due.into()).await;
        written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Instant::now());
        let patch = json!({"metadata": {"labels": {"turn": index.to_string()}}});
        send(&server, "PATCH", "/api/v1/nodes/node-0?fieldManager=bench", &patch)?;
    }
    let rate = per_second(writes, begun.elapsed());
    let mut lags = Vec::new();
    for follower in followers {
        lags.extend(follower.await?);
    }
    if lags.len() != count * writes {
        return Err(format!("{} of {} events arrived", lags.len(), count * writes).into());
    }
    lags.sort_unstable();
    let milliseconds = |lag: Option<&Duration>| lag.copied().unwrap_or_default().as_secs_f64() * 1e3;
    let p99 = milliseconds(lags.get(lags.len() * 99 / 100));
    Ok(vec![
        Figure::new("writes under watch", rate, "writes/s", Some((Bound::AtLeast, 990.0))),
        Figure::new("lag of watchers, 99 of 100", p99, "ms", Some((Bound::Below, 1_000.0))),
        Figure::new("lag of watchers, longest", milliseconds(lags.last()), "ms", None),
    ])
}

async fn follow(mut watch: Box<Watch>, written: Arc<Mutex<Vec<Instant>>>, events: usize) -> Vec<Duration> {
    let mut lags = Vec::with_capacity(events);
    while lags.len() < events {
        if poll_fn(|context| watch.poll_next(context)).await.is_none() {
            break;
        }
        let at = written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(lags.len())
            .copied();
        lags.push(at.map(|at| at.elapsed()).unwrap_or_default());
    }
    lags
}

fn per_second(count: usize, time: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let count = count as f64;
    count / time.as_secs_f64()
}

fn request(method: &str, path: &str, body: &Value) -> Result<http::Request<Bytes>, Failure> {
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let bytes = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    Ok(http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(bytes)?)
}

fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> Result<Bytes, Failure> {
    let reply = server.handle(request(method, path, body)?);
    let ReplyBody::Full(bytes) = reply.body else {
        return Err("a watch where a body was due".into());
    };
    if reply.status.is_success() {
        Ok(bytes)
    } else {
        Err(String::from_utf8_lossy(&bytes).into_owned().into())
    }
}

fn node(index: usize) -> Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Kubelet", "message": "as it should be"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{index}"), "labels": {
            "kubernetes.io/hostname": format!("node-{index}"), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", index / 256, index % 256)},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Linux", "architecture": "amd64", "operatingSystem": "linux",
                "bootID": "b", "containerRuntimeVersion": "containerd://2", "kernelVersion": "6", "kubeProxyVersion": "",
                "machineID": "m", "systemUUID": "s"},
        },
    })
}

/// About a kilobyte and a half once stored, as pods of Deployments are.
fn pod(index: usize, nodes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{index}"), "labels": {"app": format!("app-{}", index % 300), "pod-template-hash": "6d4cf56db6"}},
        "spec": {
            "nodeName": format!("node-{}", index % nodes.max(1)),
            "containers": [{
                "name": "web", "image": "registry.example/web:1.2.3",
                "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [{"name": "MODE", "value": "production"}, {"name": "LEVEL", "value": "info"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            }],
        },
    })
}
