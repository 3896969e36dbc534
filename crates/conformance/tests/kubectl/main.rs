//! Stock kubectl on the simulated API server: sessions recorded with a real kube-apiserver (`kubectl/*.txt`) must read
//! the same. The last test runs them on the real server, so that a recording cannot grow old unseen.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod servers;
mod session;
mod transcript;

use std::path::{Path, PathBuf};

use session::{Session, differences};
use transcript::Transcript;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl")
}

fn read(name: &str) -> Transcript {
    let path = folder().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Transcript::parse(&text)
}

/// All recorded sessions by name.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the folder of transcripts is there");
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let name = file.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".txt").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn simulated_server_reads_like(name: &str) {
    let server = servers::Simulated::start();
    let session = Session::new(&server.kubeconfig()).expect("a session needs kubectl and a folder");
    let recorded = read(name);
    let replayed = session.replay(&recorded).expect("the session runs");
    let found = differences(&recorded, &replayed);
    assert!(
        found.is_empty(),
        "{name}.txt: {} commands print something else\n{}",
        found.len(),
        found.join("\n")
    );
}

macro_rules! simulated {
    ($($name:ident),* $(,)?) => {
        mod simulated {
            $(#[test]
            fn $name() {
                super::simulated_server_reads_like(stringify!($name));
            })*
        }

        #[test]
        fn every_transcript_has_a_test() {
            assert_eq!(names(), [$(stringify!($name)),*]);
        }
    };
}

simulated!(
    apply, custom, delete, discover, get, node, project, watch, workload, write
);

/// With `AFLOAT_RECORD` set, writes down what the real server says instead of comparing.
#[test]
fn real_server_reads_like_its_recording() {
    let record = std::env::var_os("AFLOAT_RECORD").is_some();
    let server = servers::real();
    for name in names() {
        let session = Session::new(&server.kubeconfig()).expect("a session needs kubectl and a folder");
        let recorded = read(&name);
        let replayed = session.replay(&recorded).expect("the session runs");
        if record {
            std::fs::write(folder().join(format!("{name}.txt")), replayed.to_string())
                .expect("the transcript is written");
        } else {
            let found = differences(&recorded, &replayed);
            assert!(found.is_empty(), "{name}.txt has grown old:\n{}", found.join("\n"));
        }
    }
}

/// A real server needs a kubelet for this, so there is no recording. Not with `--all-containers`: kubectl keeps them in a map and
/// prints them in any order.
#[test]
fn logs_come_from_whoever_plays_the_kubelet() {
    let server = servers::Simulated::start();
    server.play_kubelet();
    let session = Session::new(&server.kubeconfig()).expect("a session needs kubectl and a folder");
    let played = session.replay(&Transcript::parse(LOGS)).expect("the session runs");
    let found = differences(&Transcript::parse(LOGS), &played);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

const LOGS: &str = "\
> pod.yaml
apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: default}
spec:
  nodeName: somewhere
  containers: [{name: main, image: i}, {name: side, image: i}]
<
$ kubectl create -f pod.yaml
pod/talker created
$ kubectl logs talker -c main
main of default/talker says one
main of default/talker says two
$ kubectl logs talker -c side --tail=1
side of default/talker says two
$ kubectl logs talker
Defaulted container \"main\" out of: main, side
main of default/talker says one
main of default/talker says two
$ kubectl logs talker -c side --prefix
[pod/talker/side] side of default/talker says one
[pod/talker/side] side of default/talker says two
$ kubectl logs talker -c nobody
error: container nobody is not valid for pod talker out of: main, side
[exit 1]
$ kubectl logs silent
error: error from server (NotFound): pods \"silent\" not found in namespace \"default\"
[exit 1]
";
