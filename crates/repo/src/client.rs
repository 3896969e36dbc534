//! The other side of the repo: a node that brings files of a release to itself. A download that breaks off goes on where it was, and a file
//! is in its place only when it is whole. Any server will do; ours adds a checksum, which is compared. What is brought, and what for, is
//! decided elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, HOST, IF_RANGE, RANGE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha512};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::draft::hexadecimal;

/// How long a server may take to answer at all: ours computes the checksum of a large file first.
const ANSWER_WITHIN: Duration = Duration::from_mins(6);
/// How long nothing may come of a file that has begun.
const SILENCE: Duration = Duration::from_mins(1);
/// How often a download is begun or gone on with.
const ATTEMPTS: u32 = 5;
/// How long is waited before the next.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest text that is read: lists of images, descriptions of a release.
const LONGEST_TEXT: usize = 4 << 20;

/// Why something could not be brought.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    #[error("{0:?} is no address of a repo: one is written as http://10.0.0.5:8080")]
    Address(String),
    #[error("{url}: {message}")]
    Unreachable { url: String, message: String },
    #[error("{url} answered {status}")]
    Refused { url: String, status: u16 },
    #[error("{url}: {message}")]
    Damaged { url: String, message: String },
    #[error("{}: {source}", file.display())]
    File { file: PathBuf, source: std::io::Error },
}

impl BringError {
    /// Whether another attempt may fare better.
    fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Damaged { .. } => true,
            Self::Refused { status, .. } => *status >= 500,
            Self::Address(_) | Self::File { .. } => false,
        }
    }
}

/// A repo that files are brought from.
#[derive(Clone, Debug)]
pub struct Client {
    authority: String,
    /// Host and port.
    address: String,
    prefix: String,
}

/// How far a file has come.
struct Progress {
    file: File,
    partial: PathBuf,
    bytes: u64,
    hash: Sha512,
    etag: Option<String>,
}

impl Client {
    /// Of a repo at an address, as `http://upgrade-repo-x.harvester-system` is one.
    pub fn new(url: &str) -> Result<Self, BringError> {
        let wrong = || BringError::Address(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        Ok(Self {
            authority: authority.to_string(),
            address: format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{}{path}", self.authority, self.prefix)
    }

    fn unreachable(&self, path: &str, error: impl std::fmt::Display) -> BringError {
        BringError::Unreachable {
            url: self.url(path),
            message: error.to_string(),
        }
    }

    /// A short text, as a list of images is one.
    pub async fn text(&self, path: &str) -> Result<String, BringError> {
        let mut attempt = 1;
        loop {
            match self.text_once(path).await {
                Err(error) if error.passes() && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                end => return end,
            }
        }
    }

    async fn text_once(&self, path: &str) -> Result<String, BringError> {
        let answer = self.ask(path, &HeaderMap::new()).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.refused(path, answer.status()));
        }
        let (mut body, mut text) = (answer.into_body(), Vec::new());
        while let Some(piece) = self.piece(path, &mut body).await? {
            text.extend_from_slice(&piece);
            if text.len() > LONGEST_TEXT {
                return Err(self.damaged(path, format!("longer than {LONGEST_TEXT} bytes")));
            }
        }
        String::from_utf8(text).map_err(|_| self.damaged(path, "not a text".to_owned()))
    }

    /// Brings a file; `heard` is told how many bytes are there, and of how many.
    pub async fn bring(
        &self,
        path: &str,
        to: &Path,
        mut heard: impl FnMut(u64, Option<u64>),
    ) -> Result<u64, BringError> {
        let mut progress = Progress::begin(to)?;
        let mut attempt = 1;
        loop {
            match self.go_on(path, &mut progress, &mut heard).await {
                Ok(()) => return progress.finish(to),
                Err(error) if error.passes() && attempt < ATTEMPTS => {
                    tracing::warn!(%error, attempt, "the download is gone on with");
                    if matches!(error, BringError::Damaged { .. }) {
                        progress = Progress::begin(to)?;
                    }
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    progress.forget();
                    return Err(error);
                }
            }
        }
    }

    async fn go_on(
        &self,
        path: &str,
        progress: &mut Progress,
        heard: &mut impl FnMut(u64, Option<u64>),
    ) -> Result<(), BringError> {
        let answer = self.ask(path, &progress.wishes()).await?;
        let status = answer.status();
        match status {
            StatusCode::PARTIAL_CONTENT => {}
            // The whole file, from its beginning: it is another one by now, or this server knows no ranges.
            StatusCode::OK => progress.restart()?,
            _ => return Err(self.refused(path, status)),
        }
        let said = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let length = said(CONTENT_LENGTH.as_str()).and_then(|text| text.parse::<u64>().ok());
        let total = length.map(|length| progress.bytes + length);
        let checksum = said("x-checksum-sha512").map(str::to_ascii_lowercase);
        progress.etag = said(ETAG.as_str()).map(str::to_owned);
        let mut body = answer.into_body();
        while let Some(piece) = self.piece(path, &mut body).await? {
            progress.take(&piece)?;
            heard(progress.bytes, total);
        }
        if total.is_some_and(|total| total != progress.bytes) {
            return Err(self.unreachable(path, format!("ended after {} bytes", progress.bytes)));
        }
        let is = hexadecimal(&progress.hash.clone().finalize());
        match checksum {
            Some(due) if due != is => Err(self.damaged(path, format!("its SHA-512 is {is} and should be {due}"))),
            _ => Ok(()),
        }
    }

    async fn ask(&self, path: &str, wishes: &HeaderMap) -> Result<Response<Incoming>, BringError> {
        let asked = async {
            let stream = TcpStream::connect(&self.address)
                .await
                .map_err(|error| error.to_string())?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())?;
            // Ends with the answer, or with whoever dropped it.
            tokio::spawn(connection);
            let mut request = Request::get(format!("{}{path}", self.prefix))
                .header(HOST, &self.authority)
                .header("want-repr-digest", "sha-512=1")
                .body(Empty::<Bytes>::new())
                .map_err(|error| error.to_string())?;
            request.headers_mut().extend(wishes.clone());
            sender.send_request(request).await.map_err(|error| error.to_string())
        };
        let answer = timeout(ANSWER_WITHIN, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {}s", ANSWER_WITHIN.as_secs())));
        answer.map_err(|message| self.unreachable(path, message))
    }

    async fn piece(&self, path: &str, body: &mut Incoming) -> Result<Option<Bytes>, BringError> {
        loop {
            let frame = timeout(SILENCE, body.frame()).await;
            let frame = frame.map_err(|_| self.unreachable(path, format!("silent for {}s", SILENCE.as_secs())))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| self.unreachable(path, error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    fn refused(&self, path: &str, status: StatusCode) -> BringError {
        BringError::Refused {
            url: self.url(path),
            status: status.as_u16(),
        }
    }

    fn damaged(&self, path: &str, message: String) -> BringError {
        BringError::Damaged {
            url: self.url(path),
            message,
        }
    }
}

impl Progress {
    fn begin(to: &Path) -> Result<Self, BringError> {
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let partial = PathBuf::from(name);
        let failed = |source| BringError::File {
            file: partial.clone(),
            source,
        };
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&partial);
        Ok(Self {
            file: file.map_err(failed)?,
            partial,
            bytes: 0,
            hash: Sha512::new(),
            etag: None,
        })
    }

    fn wrong(&self, source: std::io::Error) -> BringError {
        BringError::File {
            file: self.partial.clone(),
            source,
        }
    }

    /// From where on, if it is still the same file.
    fn wishes(&self) -> HeaderMap {
        let mut wishes = HeaderMap::new();
        let etag = self.etag.as_deref().and_then(|etag| etag.parse().ok());
        let range = format!("bytes={}-", self.bytes).parse().ok();
        if let (Some(etag), Some(range), true) = (etag, range, self.bytes > 0) {
            wishes.insert(IF_RANGE, etag);
            wishes.insert(RANGE, range);
        }
        wishes
    }

    fn restart(&mut self) -> Result<(), BringError> {
        if self.bytes > 0 {
            *self = Self {
                file: OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&self.partial)
                    .map_err(|error| self.wrong(error))?,
                partial: self.partial.clone(),
                bytes: 0,
                hash: Sha512::new(),
                etag: None,
            };
        }
        Ok(())
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), BringError> {
        self.file.write_all(piece).map_err(|error| self.wrong(error))?;
        self.hash.update(piece);
        self.bytes += u64::try_from(piece.len()).unwrap_or_default();
        Ok(())
    }

    fn finish(self, to: &Path) -> Result<u64, BringError> {
        self.file.sync_all().map_err(|error| self.wrong(error))?;
        fs::rename(&self.partial, to).map_err(|error| self.wrong(error))?;
        Ok(self.bytes)
    }

    /// What has come of a file that never will is in nobody's way.
    fn forget(self) {
        if let Err(error) = fs::remove_file(&self.partial) {
            tracing::warn!(file = %self.partial.display(), %error, "the beginning of a file is left behind");
        }
    }
}
