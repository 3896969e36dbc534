//! The server under a `kube::Client`: no sockets, no TLS, the same bytes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use tower::Service;

use crate::server::{ApiServer, Encoding, REQUEST_LIMIT, Reply};
use crate::status::ApiError;

use super::ReplyStream;

/// A `tower::Service` that answers from an [`ApiServer`] in the same process.
#[derive(Clone)]
pub struct InProcess(ApiServer);

impl ApiServer {
    /// The server as a service.
    pub fn service(&self) -> InProcess {
        InProcess(self.clone())
    }

    /// A client of this server.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Reads a request to its end, within the limit, and carries it out.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<ReplyStream>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let read = Limited::new(body, REQUEST_LIMIT + 1).collect().await;
        let reply = match read {
            Ok(body) => self.handle(Request::from_parts(parts, body.to_bytes())),
            Err(_) => Reply::refused(
                &ApiError::too_large(format!("Request entity too large: limit is {REQUEST_LIMIT}")),
                Encoding::default(),
            ),
        };
        if !reply.latency.is_zero() {
            tokio::time::sleep(reply.latency).await;
        }
        let mut response = Response::new(ReplyStream::new(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }
}

impl<B> Service<Request<B>> for InProcess
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ReplyStream>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}
