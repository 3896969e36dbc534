//! The server on a socket: connections taken up to a limit, clients that dawdle let go, and an end that lets what is under way
//! finish.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::account::Arrival;
use crate::answer::Repo;
use crate::stall::Watched;

/// Connections beyond the limit that are told so, and by which probes still come in. Past them new ones wait to be taken.
const CROWD: usize = 32;
const LARGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// After a socket could not be taken (no file descriptors left, mostly).
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `ended`, then for at most the grace of the options.
pub async fn serve(repo: Repo, listener: TcpListener, ended: impl Future<Output = ()>) {
    let (tell, told) = watch::channel(false);
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(repo.options().max_connections));
    let crowd = Arc::new(Semaphore::new(CROWD));
    let mut ended = std::pin::pin!(ended);
    loop {
        let next = next(&listener, &places, &crowd);
        tokio::select! {
            () = &mut ended => break,
            Some(_over) = connections.join_next() => {}
            taken = next => match taken {
                Ok((stream, peer, place, crowded)) => {
                    let arrival = Arrival { peer: Some(peer), crowded };
                    connections.spawn(connection(repo.clone(), stream, arrival, place, told.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    repo.end();
    drop(listener);
    let _all_gone = tell.send(true);
    let left = connections.len();
    tracing::info!(connections = left, "ends");
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(repo.options().grace, all).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "answers under way are cut off: the time to end is over"
        );
        connections.shutdown().await;
    }
}

/// The next connection and its place, which may be one in the crowd.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    crowd: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit, bool)> {
    let waiting = Arc::clone(crowd).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    let place = Arc::clone(places).try_acquire_owned().ok();
    let crowded = place.is_none();
    let place = place.unwrap_or(waiting);
    Ok((stream, peer, place, crowded))
}

async fn connection(
    repo: Repo,
    stream: TcpStream,
    arrival: Arrival,
    place: OwnedSemaphorePermit,
    mut told: watch::Receiver<bool>,
) {
    let ended = async move { drop(told.wait_for(|ended| *ended).await) };
    let _counted = repo.metrics().connected();
    let _place = place;
    // Heads of answers are small and must not wait for more to be sent with them.
    let _best_effort = stream.set_nodelay(true);
    let options = repo.options().clone();
    let service = service_fn(|request: Request<Incoming>| {
        let repo = repo.clone();
        async move { Ok::<_, Infallible>(repo.answer(request, arrival).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(LARGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .keep_alive(!arrival.crowded)
        .serve_connection(TokioIo::new(Watched::new(stream, options.stall_timeout)), service);
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = ended => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(peer = arrival.peer.map(tracing::field::display), %error, "a connection broke off");
    }
}
