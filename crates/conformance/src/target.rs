//! The two servers behind one face: a request gives an answer, a watch gives lines until its wait is over.

use std::time::{Duration, Instant};

use afloat_realparts::{
    ControlPlane, Options,
    client::{Client, Stream},
};
pub use afloat_realparts::client::{Request, Response};

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
    plane: ControlPlane,
    client: Client,
}

impl RealTarget {
    pub fn start() -> Result<Self, Error> {
        let plane = ControlPlane::start(&Options::default())?;
        let client = plane.client()?;
        Ok(Self { plane, client })
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
