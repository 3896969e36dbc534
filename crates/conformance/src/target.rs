//! The two servers behind one face: a request gives an answer, a watch gives lines until its wait is over.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use afloat_apisim::{ApiServer, Reply, ReplyBody};
pub use afloat_realparts::client::{Request, Response};
use afloat_realparts::{
    ControlPlane, Options,
    client::{Client, Stream},
};
use bytes::Bytes;

use crate::Error;

/// A server that cases are sent to.
pub trait Target {
    fn send(&mut self, request: &Request) -> Result<Response, Error>;

    /// An answer whose body comes piece by piece; an error answer has its body in one piece.
    fn watch(&mut self, request: &Request) -> Result<Box<dyn Watch>, Error>;

    /// Makes the storage forget every revision but the present one.
    fn compact(&mut self) -> Result<(), Error>;
}

/// An open watch.
pub trait Watch {
    fn status(&self) -> u16;
    fn headers(&self) -> &[(String, String)];
    /// The next line, or none when there is none within the wait or the server has ended the watch.
    fn line(&mut self, wait: Duration) -> Option<Vec<u8>>;
}

/// A real kube-apiserver with its etcd, started for this run.
#[derive(Debug)]
pub struct RealTarget {
    plane: Arc<ControlPlane>,
    client: Client,
}

impl RealTarget {
    pub fn start() -> Result<Self, Error> {
        let plane = Arc::new(ControlPlane::start(&Options::default())?);
        let client = plane.client()?;
        Ok(Self { plane, client })
    }

    /// The same server over a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            plane: Arc::clone(&self.plane),
            client: self.client.another(),
        }
    }
}

impl Target for RealTarget {
    fn send(&mut self, request: &Request) -> Result<Response, Error> {
        Ok(self.client.send(request)?)
    }

    fn watch(&mut self, request: &Request) -> Result<Box<dyn Watch>, Error> {
        Ok(Box::new(self.client.open(request)?))
    }

    fn compact(&mut self) -> Result<(), Error> {
        self.plane.compact()?;
        Ok(())
    }
}

impl Watch for Stream {
    fn status(&self) -> u16 {
        self.status
    }

    fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    fn line(&mut self, wait: Duration) -> Option<Vec<u8>> {
        Stream::line(self, Instant::now() + wait)
    }
}

/// The simulated server, called directly: what carries it over HTTP has tests of its own.
pub struct SimTarget {
    server: ApiServer,
}

impl SimTarget {
    pub fn start() -> Self {
        Self {
            server: ApiServer::new(afloat_apisim::Options::default()),
        }
    }

    /// A panic is an answer as well, one that no real server gives: the run goes on and shows where.
    fn handle(&self, request: &Request) -> Result<Reply, Error> {
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(request.path.as_str());
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let built = builder.body(Bytes::from(request.body.clone()));
        let built = built.map_err(|error| Error::Target(format!("{} {}: {error}", request.method, request.path)))?;
        catch_unwind(AssertUnwindSafe(|| self.server.handle(built)))
            .map_err(|_| Error::Target(format!("the simulator panicked at {} {}", request.method, request.path)))
    }
}

impl Target for SimTarget {
    fn send(&mut self, request: &Request) -> Result<Response, Error> {
        let reply = self.handle(request)?;
        let (status, headers) = (reply.status.as_u16(), header_list(&reply));
        let body = match reply.body {
            ReplyBody::Full(body) => body.to_vec(),
            ReplyBody::Watch(mut watch) => watch.take_ready().concat(),
        };
        Ok(Response { status, headers, body })
    }

    fn watch(&mut self, request: &Request) -> Result<Box<dyn Watch>, Error> {
        let reply = self.handle(request)?;
        let (status, headers) = (reply.status.as_u16(), header_list(&reply));
        let (lines, watch) = match reply.body {
            ReplyBody::Full(body) => (VecDeque::from([body]), None),
            ReplyBody::Watch(watch) => (VecDeque::new(), Some(watch)),
        };
        Ok(Box::new(SimWatch {
            status,
            headers,
            lines,
            watch,
        }))
    }

    fn compact(&mut self) -> Result<(), Error> {
        self.server.compact(self.server.revision());
        Ok(())
    }
}

fn header_list(reply: &Reply) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

struct SimWatch {
    status: u16,
    headers: Vec<(String, String)>,
    lines: VecDeque<Bytes>,
    watch: Option<Box<afloat_apisim::Watch>>,
}

impl Watch for SimWatch {
    fn status(&self) -> u16 {
        self.status
    }

    fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// There is nothing to wait for: what a write causes is there when the write returns.
    fn line(&mut self, _wait: Duration) -> Option<Vec<u8>> {
        if self.lines.is_empty()
            && let Some(watch) = &mut self.watch
        {
            self.lines.extend(watch.take_ready());
        }
        self.lines.pop_front().map(|line| line.to_vec())
    }
}
