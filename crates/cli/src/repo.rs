//! `afloat repo serve`: a release served to the nodes of a cluster. The work is in `afloat-repo`; here is what people are told.

use crate::args::repo::{Repo, Serve};
use crate::problem::{Code, Problem};
use crate::screen::{Screen, interrupted};
use afloat_repo::{OpenError, RELEASE_FILE, Source};
use tokio::net::TcpListener;

pub async fn run(command: Repo) -> Result<Code, Problem> {
    let Repo::Serve(arguments) = command;
    serve(&arguments, &mut Screen::stdout(), interrupted()).await
}

async fn serve(arguments: &Serve, screen: &mut Screen, ended: impl Future<Output = ()>) -> Result<Code, Problem> {
    let source = Source::open(&arguments.path).map_err(|error| cannot_open(&error))?;
    let cannot_listen = |error: &std::io::Error| {
        Problem::new(Code::Failed, format!("cannot listen on {}", arguments.listen))
            .source(error)
            .help("--listen 127.0.0.1:0 takes a free port")
    };
    let listener = TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| cannot_listen(&error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(&error))?;
    let place = &arguments.at;
    screen.say(&format!(
        "Serving {} on http://{address}{place}; Ctrl-C ends it",
        source.describe()
    ));
    if source.holds_release() {
        screen.say(&format!("  curl http://{address}{place}{RELEASE_FILE}"));
    } else {
        screen.say(&format!(
            "  there is no {RELEASE_FILE} in it: nodes cannot be upgraded from it"
        ));
    }
    let repo = afloat_repo::Repo::new(source, arguments.options());
    afloat_repo::serve(repo, listener, ended).await;
    Ok(Code::Done)
}

fn cannot_open(error: &OpenError) -> Problem {
    let problem = Problem::new(Code::Failed, error.to_string());
    match error {
        OpenError::Open { source, .. } => problem.source(source),
        OpenError::NoImage { .. } | OpenError::NoFile { .. } => {
            problem.help("afloat repo serve PATH takes a folder or an ISO image; unpack what is compressed first")
        }
        OpenError::Damaged { .. } | OpenError::CutOff { .. } => {
            problem.help("bring the image again, and compare it: sha512sum IMAGE")
        }
        OpenError::NoOpenat2 | OpenError::TooMuch { .. } => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;

    fn parsed(line: &[&str]) -> Serve {
        match Cli::try_parse_from(line).unwrap().command {
            Command::Repo(Repo::Serve(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    fn lines(said: &Arc<Mutex<String>>) -> String {
        said.lock().unwrap().clone()
    }

    /// The command of the operator's Deployment, in which it is the image's entry point.
    #[test]
    fn h21_the_deployment_of_the_operator_starts_it() {
        let words = ["afloat", "repo", "serve", "/iso/disk.img", "--listen", "0.0.0.0:8080"];
        let arguments = parsed(&words);
        assert_eq!(arguments.path.to_str(), Some("/iso/disk.img"));
        assert_eq!(arguments.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(arguments.options().place.to_string(), "/harvester-iso/");
    }

    #[test]
    fn h21_the_manifest_for_an_external_repository_starts_it() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/install/repo.yaml");
        let text = std::fs::read_to_string(manifest).unwrap();
        let line = text.lines().find(|line| line.trim().starts_with("args:")).unwrap();
        let args: BTreeMap<String, Vec<String>> = serde_saphyr::from_str(line.trim()).unwrap();
        let words: Vec<&str> = args["args"].iter().map(String::as_str).collect();
        let arguments = parsed(&[&["afloat"], words.as_slice()].concat());
        assert_eq!(arguments.listen.to_string(), "0.0.0.0:8080");
    }

    #[tokio::test]
    async fn h51_a_folder_is_served_until_the_end_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(RELEASE_FILE), "release: {}\n").unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let arguments = parsed(&["afloat", "repo", "serve", &path, "--listen", "127.0.0.1:0"]);
        let said = Arc::new(Mutex::new(String::new()));
        let mut screen = Screen::Memory(Arc::clone(&said));
        let (end, told) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move { serve(&arguments, &mut screen, async { drop(told.await) }).await });
        let wait = async {
            while !lines(&said).contains("curl") {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), wait)
            .await
            .unwrap();
        let text = lines(&said);
        assert!(
            text.starts_with(&format!("Serving folder {path} on http://127.0.0.1:")),
            "{text}"
        );
        let url = text
            .lines()
            .nth(1)
            .unwrap()
            .trim()
            .strip_prefix("curl http://")
            .unwrap();
        let (address, file) = url.split_once('/').unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET /{file} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("release: {}\n"),
            "{answer}"
        );
        end.send(()).unwrap();
        assert_eq!(serving.await.unwrap().unwrap(), Code::Done);
    }

    #[tokio::test]
    async fn what_cannot_be_served_is_said_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "hello").unwrap();
        let (nothing, text) = (folder.path().join("nothing"), text);
        let ours = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = ours.local_addr().unwrap().to_string();
        for (path, listen, words) in [
            (nothing.as_path(), "127.0.0.1:0", "No such file"),
            (text.as_path(), "127.0.0.1:0", "takes a folder or an ISO image"),
            (folder.path(), taken.as_str(), "takes a free port"),
        ] {
            let arguments = parsed(&["afloat", "repo", "serve", path.to_str().unwrap(), "--listen", listen]);
            let mut screen = Screen::Memory(Arc::default());
            let problem = serve(&arguments, &mut screen, std::future::pending())
                .await
                .unwrap_err();
            assert_eq!(problem.code, Code::Failed);
            assert!(problem.to_string().contains(words), "{problem}");
        }
    }
}
